"""Texts that training rows share with evaluation files: what is compared, an index, the hits."""
