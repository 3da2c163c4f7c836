"""The id of a build: a hash of its recipe and its inputs, so that equal ids mean equal shards."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pipeline.manifest.manifest import Manifest


def _of_inputs(inputs: Sequence[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, sha256 in inputs:
        digest.update(f"{name}\0{sha256}\0".encode())
    return digest.hexdigest()


def of_recipe(fingerprint: str, inputs: Sequence[tuple[str, str]]) -> str:
    """The id of a build to be.

    Args:
        fingerprint: of the recipe.
        inputs: name and sha256 of each, in order.
    """
    return hashlib.sha256(f"{fingerprint}\0{_of_inputs(inputs)}".encode()).hexdigest()


def of_manifest(manifest: Manifest) -> str:
    """The same from what a manifest says: of its recipe and inputs, or of the build exported."""
    if manifest.export:
        names = (manifest.export.trainer, manifest.layout, manifest.export.of)
        return hashlib.sha256("\0".join(names).encode()).hexdigest()
    named = [(source.path, source.sha256) for source in manifest.inputs]
    return of_recipe(manifest.recipe_fingerprint, named)
