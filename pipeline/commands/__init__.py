"""The commands: a file has those of one subject, each by its name."""
