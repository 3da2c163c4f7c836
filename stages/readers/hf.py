"""A folder of ``datasets.save_to_disk``: its shards, in the order that it lists."""

from __future__ import annotations

import json
import os
from typing import Any

from stages.errors import ContainerError, UsageError
from stages.readers import arrow

STATE = "state.json"
SPLITS = "dataset_dict.json"


def _described(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            description: dict[str, Any] = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ContainerError(f"{path} is damaged: {error}.", "Save the dataset again.") from error
    return description


def _shards(folder: str) -> list[str]:
    try:
        listed = [entry["filename"] for entry in _described(f"{folder}/{STATE}")["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ContainerError(
            f"{folder}/{STATE} lists no shards.", "Save the dataset again."
        ) from error
    paths = [os.path.join(folder, os.path.basename(name)) for name in listed]
    missing = next((path for path in paths if not os.path.isfile(path)), None)
    if missing is not None:
        raise ContainerError(
            f"{missing} is missing; {folder}/{STATE} lists it.", "Copy the folder again."
        )
    return paths


def files(folder: str) -> list[str] | None:
    """The shards of a saved dataset; None when the folder is none.

    Files that the dataset's own list does not name are left-overs of an earlier one.

    Raises:
        UsageError: it has several splits; one must be named.
        ContainerError: its description is damaged, or a shard is missing.
    """
    if os.path.isfile(os.path.join(folder, SPLITS)):
        splits = _described(os.path.join(folder, SPLITS)).get("splits") or []
        if len(splits) > 1:
            ways = " or ".join(os.path.join(folder, str(name)) for name in splits)
            raise UsageError(f"{folder} holds the splits {', '.join(splits)}.", f"Name one: {ways}")
        return [path for name in splits for path in _shards(os.path.join(folder, str(name)))]
    is_one = all(os.path.isfile(os.path.join(folder, n)) for n in (STATE, "dataset_info.json"))
    return _shards(folder) if is_one else None


class _Saved(arrow.Arrow):
    """Reads one shard; ``files`` says which ones a folder has."""

    name = "hf"
    suffixes = ()


READER = _Saved()
