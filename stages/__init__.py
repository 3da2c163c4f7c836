"""Row work of posttrain-pipeline: pure functions over Arrow batches. For authors of stages."""

DISTRIBUTION = "posttrain-pipeline"
