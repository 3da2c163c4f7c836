"""``pipeline check``: a finished build examined as if by a stranger."""
