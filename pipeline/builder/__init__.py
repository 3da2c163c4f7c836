"""A build, phase by phase: planned, made, judged and published."""
