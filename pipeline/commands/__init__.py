"""One command per file: each provides COMMAND."""
