"""Input of metrics and audits: stored rows, with packing and padding undone."""
