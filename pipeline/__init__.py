"""Raw JSONL in, train-ready Arrow shards out: a data compiler for post-training."""

__version__ = "0.1.0"
DISTRIBUTION = "posttrain-pipeline"

__all__ = ["DISTRIBUTION", "__version__"]
