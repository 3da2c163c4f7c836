"""``README.md``: the dataset card of a build or an export, made from its manifest.

Its front matter names the files of each split, so that ``load_dataset(DIR)`` finds the shards and
nothing else: without it, the loader takes every data file whose path has ``train`` in it, and so
also those of a trainer's folder and ``rejects.jsonl``.
"""

from __future__ import annotations

from pipeline.builds.build import Build
from pipeline.report.card_page import page
from pipeline.report.front_matter import front_matter
from pipeline.report.publisher import NOTHING, Publisher

CARD = "README.md"


def make(build: Build, publisher: Publisher = NOTHING) -> str:
    """The card.

    Args:
        build: its manifest need not have ``files`` yet; one shard of it is opened.
        publisher: what only its publisher knows.
    """
    said = publisher.about(build.manifest)
    return f"{front_matter(build.manifest, said)}\n{page(build, said)}"


def write(build: Build) -> None:
    """Write the card into the build's folder."""
    (build.folder / CARD).write_bytes(make(build).encode())
