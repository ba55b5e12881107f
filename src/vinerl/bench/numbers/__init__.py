"""Published seeds, what others published, statistics, and the pages made of them."""
