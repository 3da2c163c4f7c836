"""Rows to parts, parts to shards: the choice of examples, the plan, the gather, the figures."""
