"""Turns to segments of text, by a model's own chat template in a sandbox."""
