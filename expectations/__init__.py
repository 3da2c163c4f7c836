"""What must be true of rows, for posttrain-pipeline: one subject per file."""

DISTRIBUTION = "posttrain-pipeline"
