"""Which record format the rows of a file have, by evidence."""
