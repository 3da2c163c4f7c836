"""Options: in five groups by what depends on them, as flags and as a table."""
