"""The command line's commands, by topic."""
