"""Tokenizers that come with the installation: rebuilt from a package's vocabulary, then cached."""

from __future__ import annotations

import hashlib
import importlib
import os
from contextlib import suppress
from pathlib import Path

from stages.errors import ModelError
from stages.models.profile import ModelProfile, RankLayout
from stages.tokenizers import carriers, hub


def _cached(path: Path, sha256: str) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _keep(path: Path, content: bytes) -> None:
    """Cache the file; without a writable cache each build takes a second longer."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # a read-only disk refuses this even without such a file
            temporary.unlink()


def kept(layout: RankLayout, cache: Path) -> bytes | None:
    """The ``tokenizer.json`` that an earlier build has made; None where there is none."""
    return _cached(_kept_at(layout, cache), layout.sha256)


def _kept_at(layout: RankLayout, cache: Path) -> Path:
    return cache / "tokenizers" / f"{layout.sha256}.json"


def tokenizer_json(profile: ModelProfile, layout: RankLayout, cache: Path) -> bytes:
    """The profile's ``tokenizer.json``, the bytes that its sha256 names.

    Raises:
        ModelError: the vocabulary is not available, or the rebuilt file has another hash.
    """
    content = kept(layout, cache)
    if content is None:
        others = f" (or: {hub.command(profile.model_ids[0])})" if layout.of_vendor else ""
        carrier = carriers.CARRIERS[layout.carrier]
        table = carriers.vocabulary(carrier, others)
        if carriers.at_hand(carrier, cache) is None:
            _keep(carriers.kept_at(carrier, cache), table)  # the oracle reads it
        builder = importlib.import_module(f"stages.tokenizers.{layout.builder}")
        content = bytes(builder.tokenizer_json(table, layout))
        if hashlib.sha256(content).hexdigest() != layout.sha256:
            raise ModelError(f"{profile.name}: the rebuilt tokenizer is not the expected file.")
        _keep(_kept_at(layout, cache), content)
    return content
