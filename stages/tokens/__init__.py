"""Segments to token ids and labels, and the layouts that store them: packed, padded, ragged."""
