"""Compares a model directory with the build that it was trained on: tokenizer, template, stop ids
and pad token."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.serving.declared import ANSWERED, ASKED, Declared, Examined, StopPrompt
from stages.chat_template.template import Template
from stages.errors import DataError, ModelError, RowError, UsageError
from stages.files import file_hash
from stages.tokenizers import claims, directory


def _overlay(folder: Path, build: Declared) -> str:
    command = f"pipeline overlay {folder} --build {build.folder} -o NEW"
    return f"Write the build's own files next to the weights: {command}."


def first_difference(one: str, other: str) -> str:
    """A sentence part with the characters around the first difference of two texts."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    at = min(len(one), len(other)) if at is None else at
    start = max(0, at - 12)
    return f"{one[start : at + 24]!r} in the build, {other[start : at + 24]!r} there"


def compare(folder: Path, build: Declared, asked: list[StopPrompt], examined: Examined) -> None:
    """Compare the directory's files with the build's.

    Raises:
        UsageError: it is not a model directory.
    """
    file_hash.require_all(folder)
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder} has no config.json.", "Give a model directory as transformers saves it."
        )
    try:
        _tokenizer(folder, build, asked, examined)
        _template(folder, build, examined)
    except ModelError as error:
        examined.add("unreadable", str(folder), error.what, _overlay(folder, build))
    _stops(folder, build, examined)
    _pads(folder, build, examined)


def _tokenizer(folder: Path, build: Declared, asked: list[StopPrompt], examined: Examined) -> None:
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(claims.tokenizer_json(folder).decode())
    except Exception as error:  # the library raises no class of its own
        raise ModelError(f"{path} cannot be read: {error}.") from error
    theirs = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items()}
    ours = {t.content: i for i, t in build.tokenizer.get_added_tokens_decoder().items()}
    # The directory may have more tokens than the build: only ours must have our ids.
    other = {text: index for text, index in ours.items() if theirs.get(text) != index}
    if other:
        named = ", ".join(f"{text!r} = {index}" for text, index in list(other.items())[:4])
        what = f"tokens of the build's tokenizer are missing or have other ids: {named}"
        examined.add("other_tokenizer", str(path), what, _overlay(folder, build))
        return
    for prompt in asked:
        mine = build.tokenizer.encode(prompt.text, add_special_tokens=False).ids
        ids = tokenizer.encode(prompt.text, add_special_tokens=False).ids
        if ids != mine:
            what = f"the prompt of {prompt.row} gives {len(ids)} ids, but the build's tokenizer "
            what += f"gives {len(mine)}, or other ids"
            examined.add("other_tokenizer", str(path), what, _overlay(folder, build))
            return


def _template(folder: Path, build: Declared, examined: Examined) -> None:
    config = directory.read(folder, "tokenizer_config.json")
    named = {key: claims.token_text(config.get(key)) for key in ("bos_token", "eos_token")}
    tokens = {key: text for key, text in named.items() if isinstance(text, str)}
    source = directory.template_source(folder, config)
    theirs = Template(source, build.model.profile.date_string, **tokens)
    where = folder / "chat_template.jinja"
    where = where if where.is_file() else folder / "tokenizer_config.json"
    try:
        judge_template(
            build,
            where=str(where),
            whole=theirs.render(ANSWERED),
            prompt=theirs.render(ASKED, add_generation_prompt=True, **build.arguments),
            examined=examined,
        )
    except RowError as error:
        what = f"its chat template fails on a question and an answer: {error.detail}"
        examined.add("other_template", str(where), what, _overlay(folder, build))


def judge_template(
    build: Declared, where: str, whole: str, prompt: str | None, examined: Examined
) -> None:
    """Compare how a question and its answer are rendered there with how the build renders them.

    Args:
        whole: with the answer; ``prompt``: the question with the generation prompt.
    """
    answer = str(ANSWERED[-1]["content"])
    end = build.end_of_answers
    use = "Use the build's chat template: tokenizer/tokenizer_config.json of the build has it."
    if end and end not in whole.rpartition(answer)[2]:  # what is printed after the answer
        what = f"the chat template prints no {build.end} after an answer; the build's does"
        examined.add("template_without_end_of_turn", where, what, use)
        return
    ours = build.template.render(ANSWERED)
    if whole != ours:
        what = f"the chat template prints a different text: {first_difference(ours, whole)}"
        examined.add("other_template", where, what, use)
        return
    ours = build.template.render(ASKED, add_generation_prompt=True, **build.arguments)
    if prompt is not None and prompt != ours:
        what = f"the generation prompt is different: {first_difference(ours, prompt)}"
        examined.add("other_template", where, what, use)


def _stops(folder: Path, build: Declared, examined: Examined) -> None:
    claimed = claims.read(folder)
    # At most one entry: the file that generation takes its eos ids from.
    where, ids = next(iter(claimed.eos_ids.items()), ("generation_config.json", ()))
    if not set(build.model.end_ids) <= set(ids):
        listed = f"lists {list(ids)}" if ids else "lists none"
        what = f"eos_token_id {listed}, so generation does not stop at {build.end}"
        remedy = f'Set "eos_token_id": {build.stop_ids} there. {_overlay(folder, build)}'
        examined.add("eos_not_in_generation_config", str(folder / where), what, remedy)
    ours = build.model.profile.eos_token
    if claimed.eos_token is not None and claimed.eos_token != ours:
        what = f"eos_token is {claimed.eos_token!r}, but {ours!r} in the build's tokenizer"
        path = str(folder / "tokenizer_config.json")
        examined.add("other_eos_token", path, what, _overlay(folder, build))


def _pads(folder: Path, build: Declared, examined: Examined) -> None:
    claimed = claims.read(folder)
    profile = build.model.profile
    places: list[tuple[str, Any]] = [("tokenizer_config.json", claimed.pad_token)]
    ends = (*profile.ends, profile.eos_token)
    ids = {build.tokenizer.token_to_id(token): token for token in ends}
    places += [(file, ids[index]) for file, index in claimed.pad_ids.items() if index in ids]
    for file, token in places:
        if token is not None and token in ends:
            what = (
                f"the pad token is {token!r}, which also ends an answer: a trainer that drops "
                "padding from the loss by its id never trains the end of a turn"
            )
            remedy = (
                f"Train again with the build's labels and its pad token {profile.pad_token!r}: "
                f"{_overlay(folder, build)}"
            )
            examined.add("pad_is_end_of_turn", str(folder / file), what, remedy)


# Reads and writes rows of a tensor in a safetensors file, in place and without torch.
#
# A file begins with the length of its header (8 bytes, little-endian) and the header in JSON:
# dtype, shape and place of each tensor. bf16, which numpy lacks, is widened to float32 by its upper
# bytes and rounded back to nearest, ties to even.


INDEX = "model.safetensors.index.json"
_STORED: dict[str, np.dtype[Any]]
_STORED = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_LENGTH = struct.Struct("<Q")


def header(path: Path) -> tuple[dict[str, Any], int]:
    """Entries by tensor name, and where the data begins.

    Raises:
        DataError: the file is not a safetensors file, or cut short.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if length > size:
                raise ValueError("its header is longer than the file")
            entries = json.loads(file.read(length))
    except (struct.error, ValueError) as error:
        raise DataError(
            f"{path} is not a safetensors file: {error}.", "Download it again."
        ) from error
    entries.pop("__metadata__", None)
    start = _LENGTH.size + length
    ends = [entry["data_offsets"][1] for entry in entries.values()]
    if start + max(ends, default=0) > size:
        raise DataError(f"{path} is cut short.", "Download it again.")
    return entries, start


def shards_of(folder: Path) -> dict[Path, list[str]]:
    """The safetensors files of a model, and the tensors in each.

    Raises:
        UsageError: there are none.
        DataError: a file that the index names is missing.
    """
    index = folder / INDEX
    if index.exists():
        named = json.loads(index.read_bytes())["weight_map"]
        files = [folder / name for name in sorted(set(named.values()))]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise DataError(f"{folder} has no {', '.join(missing)}.", "Download it again.")
    if not files:
        raise UsageError(
            f"{folder} has no safetensors files.", "Save the model with safe_serialization."
        )
    return {path: list(header(path)[0]) for path in files}


def widen(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float32]:
    """Stored values as float32."""
    if dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def narrow(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """float32 as it is stored; bf16 rounds to nearest, ties to even."""
    if dtype != "BF16":
        return values.astype(_STORED[dtype])
    # bf16 is the upper half of float32. Adding 0x7fff, and 1 if the last kept bit is set, carries
    # into the upper half exactly where rounding to nearest, ties to even, must round up.
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def set_means(path: Path, name: str, rows: Mapping[int, Sequence[int]]) -> None:
    """Give rows of a two-dimensional tensor the mean of other rows of it, in place.

    Args:
        rows: for each row that is written, those that are averaged; all read before any is written.

    Raises:
        UsageError: the tensor is quantized, or has too few rows.
    """
    entries, start = header(path)
    entry = entries[name]
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in _STORED or len(shape) != 2:
        raise UsageError(
            f"{name} in {path.name} is stored as {dtype} {shape}, which has no rows to average.",
            "Give the model in bf16, f16 or f32.",
        )
    top = max([*rows, *(index for used in rows.values() for index in used)])
    if top >= shape[0]:
        raise UsageError(
            f"{name} has {shape[0]} rows, and row {top} is needed.",
            "Give the model that the build was made for.",
        )
    start += entry["data_offsets"][0]
    table = np.memmap(path, _STORED[dtype], "r+", offset=start, shape=tuple(shape))
    used = [widen(table[list(some)], dtype) for some in rows.values()]
    # All means first: a row may be among those averaged.
    table[[*rows]] = [narrow(one.mean(axis=0, dtype=np.float32), dtype) for one in used]
    table.flush()
