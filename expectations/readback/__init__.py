"""What metrics and audits read: rows as they are stored, with packs and padding undone."""
