"""Rows to examples: which format they have, and the only place where a dict becomes columns."""
