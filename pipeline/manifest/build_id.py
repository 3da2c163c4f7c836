"""The id of a build: a hash of its recipe and its inputs, so that equal ids mean equal shards."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

from pipeline.manifest.manifest import Manifest

Named: TypeAlias = tuple[str, str, str]  # name and sha256 of an input; its source, if it has a name


def _of_inputs(inputs: Sequence[Named]) -> str:
    digest = hashlib.sha256()
    for named in inputs:
        digest.update("".join(f"{part}\0" for part in named if part).encode())
    return digest.hexdigest()


def of_recipe(fingerprint: str, inputs: Sequence[Named]) -> str:
    """The id of a build to be.

    Args:
        fingerprint: of the recipe.
        inputs: in order.
    """
    return hashlib.sha256(f"{fingerprint}\0{_of_inputs(inputs)}".encode()).hexdigest()


def of_manifest(manifest: Manifest) -> str:
    """The same from what a manifest says: of its recipe and inputs, or of the build exported."""
    if manifest.export:
        names = (manifest.export.trainer, manifest.layout, manifest.export.of)
        return hashlib.sha256("\0".join(names).encode()).hexdigest()
    named = [(one.path, one.sha256, one.source or "") for one in manifest.inputs]
    return of_recipe(manifest.recipe_fingerprint, named)
