"""What must be true of rows, for posttrain-pipeline: one invariant per file."""

DISTRIBUTION = "posttrain-pipeline"
