"""A build appears at once or not at all, and what a refused one leaves behind."""
