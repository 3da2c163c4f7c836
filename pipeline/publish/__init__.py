"""Builds for others: checked first, then sent to a hub, a store or a folder."""
