"""What a model directory's own files say, before anything is put right."""

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
        pad_token: as it stands in ``tokenizer_config.json``, whatever its type.
        pad_ids: ``pad_token_id`` by the file that says so.
    """

    pad_token: object = None
    eos_token: object = None
    pad_ids: Mapping[str, int] = field(default_factory=dict)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # a file that cannot be read is refused where it is needed
    return found if isinstance(found, dict) else {}


def _token(value: object) -> object:
    return value.get("content") if isinstance(value, dict) else value


def read(folder: Path) -> Claims:
    """The claims of a directory."""
    config = _read(folder / "tokenizer_config.json")
    ids = {name: _read(folder / name).get("pad_token_id") for name in _ID_FILES}
    return Claims(
        _token(config.get("pad_token")),
        _token(config.get("eos_token")),
        {name: index for name, index in ids.items() if isinstance(index, int)},
    )
