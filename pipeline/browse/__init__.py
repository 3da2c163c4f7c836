"""Looks for stored examples: what can be asked of one, and which example fits next."""
