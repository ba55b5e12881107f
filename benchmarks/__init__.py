"""How fast it is, beside what the machine could do and what others do with it."""
