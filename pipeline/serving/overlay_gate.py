"""Reads an overlay back from the disk before it gets its name, beside the model and the build that
it was made from."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.builds.build import Build
from pipeline.serving import checkpoint
from stages.encoders import parsed
from stages.errors import OwnLawError

SHOWN = 3  # differences that an error names
_SAME = {"step_token": "\n", "good_token": "+", "bad_token": "-"}  # texts of the same meaning
_NUMBERS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_BLOCK = 1 << 12  # rows that are compared at once
_REPORT = "Nothing was written. Please report it with the command."
Floats = npt.NDArray[np.float32]


def require(folder: Path, original: Path, source: Build) -> None:
    """Require that the configuration is the model's with the build's tokens, the tokenizer is the
    build's, and each embedding row is the model's, or the mean of those of a similar text.

    Raises:
        OwnLawError: something is otherwise.
    """
    found = [*_configurations(folder, original, source), *_rows(folder, original, source)]
    if found:
        lines = "".join(f"\n  {one}" for one in found[:SHOWN])
        raise OwnLawError(f"The overlay is not what it must be:{lines}", _REPORT)


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def _configurations(folder: Path, original: Path, source: Build) -> Iterator[str]:
    tokenizer = source.here / "tokenizer"
    ours, before = _json(tokenizer / "generation_config.json"), _json(original / "config.json")
    end = parsed(source.tokenizer_json).token_to_id(
        _json(tokenizer / "tokenizer_config.json")["eos_token"]
    )
    changed = {"pad_token_id": ours["pad_token_id"], "eos_token_id": end, "use_cache": False}
    wanted = {**before, **changed}
    if "text_config" in before:
        wanted["text_config"] = {**before["text_config"], **changed}
    if _json(folder / "config.json") != wanted:
        yield "config.json is not the model's with the build's pad and eos token"
    wanted = {**_json(original / "generation_config.json"), **ours}
    if _json(folder / "generation_config.json") != wanted:
        yield "generation_config.json is not the model's with the stops of the build"
    for path in tokenizer.iterdir():
        there = folder / path.name
        stops = path.name == "generation_config.json"
        if not stops and (not there.is_file() or there.read_bytes() != path.read_bytes()):
            yield f"{path.name} is not the build's"


def _tensors(path: Path) -> Iterator[tuple[str, str, npt.NDArray[Any]]]:
    """Name, type and numbers of the embeddings in a file of weights: shape (rows, width)."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, one in header.items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight")) and one["dtype"] in _NUMBERS:
            at, shape = 8 + size + one["data_offsets"][0], tuple(one["shape"])
            yield name, one["dtype"], np.memmap(path, _NUMBERS[one["dtype"]], "r", at, shape)


def _floats(kind: str, rows: npt.NDArray[Any]) -> Floats:
    if kind == "BF16":  # the upper half of a float32
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)


def _meant(source: Build) -> dict[int, list[int]]:
    """For each row that is given values, the rows of the tokens that mean something similar."""
    model, document = source.manifest.model, json.loads(source.tokenizer_json)
    texts = {index: text for text, index in model.added_tokens.items()}
    named = {getattr(model, f"{name}_id"): text for name, text in _SAME.items()}
    kept = [one for one in document["added_tokens"] if one["content"] not in model.added_tokens]
    before = parsed(json.dumps({**document, "added_tokens": kept}).encode())
    every = {**texts, **{index: text for index, text in named.items() if index is not None}}
    ids = {i: list(before.encode(text, add_special_tokens=False).ids) for i, text in every.items()}
    return {index: own for index, own in ids.items() if index not in own}


def _rows(folder: Path, original: Path, source: Build) -> Iterator[str]:
    meant = _meant(source)
    for path in checkpoint.shards_of(original) if meant else ():
        both = zip(_tensors(path), _tensors(folder / path.name), strict=True)
        for (name, kind, before), (_, _, after) in both:
            changed = np.zeros(len(before), bool)
            for at in range(0, len(before), _BLOCK):
                one, other = before[at : at + _BLOCK], after[at : at + _BLOCK]
                both_nan = np.not_equal(one, one) & np.not_equal(other, other)
                same = (one == other) | both_nan
                changed[at : at + _BLOCK] = ~same.all(axis=1)
            if not {*np.flatnonzero(changed).tolist()} <= {*meant}:
                yield f"{name} has other rows than the model, beside those of new tokens"
            for index, ids in meant.items():
                wanted = _floats(kind, before[ids]).mean(axis=0)
                near = np.abs(_floats(kind, after[index]) - wanted)
                if (near > 0.01 * max(float(np.abs(wanted).max()), 1e-6)).any():
                    yield f"row {index} of {name} is not the mean of the rows {ids}"
