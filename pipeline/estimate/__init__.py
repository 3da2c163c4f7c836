"""``pipeline plan``: what a build would give, from a sample."""
