"""What the files of a model directory declare, before a build corrects any of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ID_FILES = ("config.json", "generation_config.json")


@dataclass(frozen=True, slots=True)
class Claims:
    """The special tokens that a directory declares; empty for a model that is no directory.

    Attributes:
        pad_token: as ``tokenizer_config.json`` has it, whatever its type.
        pad_ids: ``pad_token_id`` by the file that has it.
        eos_ids: ``eos_token_id`` of the file that generation reads it from.
    """

    pad_token: object = None
    eos_token: object = None
    unk_token: object = None
    pad_ids: Mapping[str, int] = field(default_factory=dict)
    eos_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # a file that cannot be read is refused where it is needed
    return content if isinstance(content, dict) else {}


def _token(value: object) -> object:
    return value.get("content") if isinstance(value, dict) else value


def read(folder: Path) -> Claims:
    """The claims of a directory."""
    config = _read(folder / "tokenizer_config.json")
    files = {name: _read(folder / name) for name in _ID_FILES}
    ids = {name: content.get("pad_token_id") for name, content in files.items()}
    return Claims(
        pad_token=_token(config.get("pad_token")),
        eos_token=_token(config.get("eos_token")),
        unk_token=_token(config.get("unk_token")),
        pad_ids={name: index for name, index in ids.items() if isinstance(index, int)},
        eos_ids=_eos_ids(files),
    )


def _eos_ids(files: Mapping[str, dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The eos ids of the last file that has some, which is the one that generation uses."""
    for name in reversed(_ID_FILES):
        declared = files[name].get("eos_token_id")
        ids = declared if isinstance(declared, list) else [declared]
        if ids and all(isinstance(index, int) for index in ids):
            return {name: tuple(ids)}
    return {}
