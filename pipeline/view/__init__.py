"""Stored rows as coloured tokens, for pages and terminals."""
