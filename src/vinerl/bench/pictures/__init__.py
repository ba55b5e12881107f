"""What a person looks at: curves, paths, films, tables in a terminal."""
