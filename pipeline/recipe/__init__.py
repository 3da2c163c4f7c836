"""Everything that a build needs, resolved and checked before the first row."""
