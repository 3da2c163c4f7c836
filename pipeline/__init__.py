"""Raw JSONL in, train-ready Arrow shards out: a data compiler for post-training."""

from pipeline.version import __version__

DISTRIBUTION = "posttrain-pipeline"

__all__ = ["DISTRIBUTION", "__version__"]
