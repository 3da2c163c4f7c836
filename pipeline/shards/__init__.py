"""Parts to shards: the plan, the gather, and what is measured on the way."""
