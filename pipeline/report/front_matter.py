"""The card's front matter: what ``datasets`` and the hub read of it.

Texts are written as JSON, which YAML reads alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pipeline import tasks
from pipeline.manifest.manifest import Manifest
from pipeline.report.publisher import Publisher, for_hub, licenses
from stages.kinds import CONVERSATION, PAIR

_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)  # the hub's own words
_CATEGORIES = {CONVERSATION: "text-generation", PAIR: "text-ranking"}


def title(manifest: Manifest, publisher: Publisher) -> str:
    """The given title, or one of task and model."""
    return publisher.title or f"{manifest.task.upper()} data for {manifest.model.name}"


def _size(rows: int) -> str:
    return next((word for limit, word in _SIZES if rows < limit), "n>1T")


def _about(manifest: Manifest, publisher: Publisher) -> Iterator[str]:
    tags = ["posttrain-pipeline", manifest.task, manifest.model.name]
    category = _CATEGORIES.get(tasks.kind_of(manifest.task).trains_as, "token-classification")
    yield f"pretty_name: {json.dumps(title(manifest, publisher), ensure_ascii=False)}"
    for key, value in for_hub(licenses(manifest, publisher)):
        yield f"{key}: {json.dumps(value)}"
    yield f"task_categories: {json.dumps([category])}"
    yield f"size_categories: {json.dumps([_size(manifest.examples.kept)])}"
    yield f"tags: {json.dumps(tags, ensure_ascii=False)}"


def _splits(manifest: Manifest) -> Iterator[str]:
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    for name in manifest.splits:
        yield f"  - split: {name}"
        # Caches that datasets writes beside the shards are no shards.
        yield f'    path: "{name}/data-*.arrow"'
    # With these numbers, load_dataset refuses a folder in which a shard is missing.
    yield "dataset_info:"
    yield "  splits:"
    for name, split in manifest.splits.items():
        yield f"  - name: {name}"
        yield f"    num_bytes: {sum(shard.bytes for shard in split.shards)}"
        yield f"    num_examples: {split.rows}"
    size = sum(shard.bytes for shard in manifest.shards)
    yield f"  download_size: {size}"
    yield f"  dataset_size: {size}"


def front_matter(manifest: Manifest, publisher: Publisher) -> str:
    """Between two lines of three dashes."""
    lines = ["---", *_about(manifest, publisher), *_splits(manifest), "---"]
    return "\n".join(lines) + "\n"
