"""Notes: peculiarities of rows that are kept, counted by name and described in a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.columns import count_per_row, list_parts
from stages.contract import Batch
from stages.rows import stop_text

WORDS = {
    "ends_without_answer": "the conversation ends with a turn that has no answer",
    "repeated_role": "two turns of one role in a row",
    "template_text": "a text contains the markers of a chat template, as ordinary text",
    "stop_text_kept": "an answer ends in the text of a stop token, which is trained as text",
    "stop_text_stripped": "an answer ended in the text of a stop token, which was removed",
    "steps_rewritten": "steps lost an indent or blank lines; --prm-template raw keeps them",
    "salvaged_before_damage": "read from before the damage in a damaged input",
}
WARNINGS = ("template_text", "stop_text_kept")  # a model learns from these what is rarely wanted
MARKERS = (
    *stop_text.STOPS,
    *("<|im_start|>", "<|im_sep|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|begin_of_text|>", "<start_of_turn>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *("[INST]", "[/INST]", "<<SYS>>", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    *("<extra_id_0>", "<extra_id_1>", "<|START_OF_TURN_TOKEN|>", "<|channel|>", "<|message|>"),
    *("### Instruction:", "### Response:", "### Human:", "### Assistant:"),
)
# "</s>" also ends a struck-through word in HTML, so in the middle of a text it is no sign.
_PATTERN = "|".join(re.escape(marker) for marker in MARKERS if marker != "</s>")
_JOINED = ", "


def of(note: str) -> str:
    """The sentence of a note."""
    return WORDS.get(note, note)


def tally(batch: Batch) -> Counter[str]:
    """How many rows have each note; a row counts once, also where it became several sequences."""
    noted = batch.filter(batch.column("note").is_valid())
    pairs = zip(noted.column("line").to_pylist(), noted.column("note").to_pylist(), strict=True)
    distinct = {(line, name) for line, entry in pairs for name in entry.split(_JOINED)}
    return Counter(name for _, name in distinct)


def _holding(values: Any) -> npt.NDArray[np.bool_]:
    """Which rows of a column of texts, steps or turns hold a template's marker."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    if not pa.types.is_list(column.type):
        return _matching(column)
    offsets, flat = list_parts(column)
    texts = flat.field("content") if pa.types.is_struct(flat.type) else flat
    return count_per_row(offsets, _matching(texts)) > 0


def _matching(texts: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_null(texts.type):
        return np.zeros(len(texts), bool)
    matches = pc.fill_null(pc.match_substring_regex(texts, _PATTERN), False)
    mask: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
    return mask


def column(
    texts: Iterable[str],
    columns: Mapping[str, Any],
    odd_rows: Mapping[int, Iterable[str]],
    lines: Sequence[int],
) -> pa.Array:
    """The notes of a batch's rows, those of one row joined by commas.

    Args:
        texts: the names of its columns of texts; ``columns``: all of its columns.
        odd_rows: notes that sequences have already, by index.
        lines: of each sequence; of several with one line, only the first gets ``template_text``.
    """
    masks = [_holding(columns[name]) for name in texts]
    marked_rows = sorted({int(row) for mask in masks for row in np.flatnonzero(mask)}, reverse=True)
    # Highest index first, so that the dict keeps the first sequence of each line.
    marked = set({lines[row]: row for row in marked_rows}.values())
    if not marked and not odd_rows:
        return pa.nulls(len(lines), pa.string())
    names: list[str | None] = [None] * len(lines)
    for row in sorted({*marked, *odd_rows}):
        names[row] = _JOINED.join((*odd_rows.get(row, ()), *["template_text"] * (row in marked)))
    return pa.array([name or None for name in names], pa.string())
