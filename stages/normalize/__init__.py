"""Rows to examples: the only place where a dict becomes columns."""
