"""Tokenizers that come with the installation: rebuilt from a package's vocabulary, then cached."""

from __future__ import annotations

import hashlib
import importlib
import os
from contextlib import suppress
from pathlib import Path

from stages.errors import ModelError
from stages.models.profile import ModelProfile, RankLayout
from stages.tokenizers import carriers, downloads, hub


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


def tokenizer_json(
    profile: ModelProfile, layout: RankLayout, cache: Path, *, fetch: bool = False
) -> bytes:
    """The profile's ``tokenizer.json``, the bytes that its sha256 names.

    Args:
        fetch: whether a vocabulary that is not on this machine may be downloaded.

    Raises:
        ModelError: the vocabulary is not available, or the rebuilt file has another hash.
    """
    content = kept(layout, cache)
    if content is None:
        others = f" (or: {hub.command(profile.model_ids[0])})" if layout.of_vendor else ""
        carrier = carriers.CARRIERS[layout.carrier]
        table = carriers.at_hand(carrier, cache)
        downloaded = table is None and fetch
        if downloaded:
            table = carriers.download(carrier, others)
            _keep(carriers.kept_at(carrier, cache), table)  # other profiles and the oracle read it
        if table is None:
            raise carriers.missing(carrier, profile.name, others)
        builder = importlib.import_module(f"stages.tokenizers.{layout.builder}")
        content = bytes(builder.tokenizer_json(table, layout))
        if hashlib.sha256(content).hexdigest() != layout.sha256:
            raise ModelError(f"{profile.name}: the rebuilt tokenizer is not the expected file.")
        _keep(_kept_at(layout, cache), content)
        if downloaded:
            downloads.note(content, carrier.requirement)
    return content
