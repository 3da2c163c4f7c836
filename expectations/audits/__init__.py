"""One audit per file: each provides AUDIT."""
