"""Builds that leave the machine: checked first, then sent to a hub or a store."""
