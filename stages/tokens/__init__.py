"""Segments to token ids and labels, what is cut or refused, and the digest of an example."""
