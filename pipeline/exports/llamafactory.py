"""LLaMA-Factory: ``tokenized_path``, rows as its own preprocessing would have stored them."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.exports import ExportFacts, Projection, _script
from stages.columns import IGNORED, Ints, make_list, numbers, offsets_of
from stages.kinds import CONVERSATION, PAIR

_MEDIA = ("images", "videos", "audios")

_MULTIPLE = 8  # to which its collator pads ids, but not positions


def _width(facts: ExportFacts) -> int:
    """Tokens of a row, at most; of a stored pack, one more than the longest, rounded up."""
    if not facts.stored.packs:
        return facts.max_length
    return -(-(facts.max_length + 1) // _MULTIPLE) * _MULTIPLE


def _media(count: int) -> dict[str, pa.Array]:
    return {name: _script.nulls(count) for name in _MEDIA}


def _single(table: pa.Table) -> pa.Table:
    ids = _script.list_of(table, "input_ids")
    columns = {
        "input_ids": ids,
        "attention_mask": _script.ones(ids),
        "labels": _script.list_of(table, "labels"),
    }
    return pa.table({**columns, **_media(len(table))})


def _unsingle(table: pa.Table) -> pa.Table:
    return table.select(["input_ids", "labels"])


def _side(ids: pa.ListArray, prompt: Ints) -> pa.ListArray:
    """Labels of one side of a pair: the ids after the prompt."""
    offsets, values = numbers(ids)
    at = np.arange(len(values)) - np.repeat(offsets[:-1], np.diff(offsets))
    inside = at < np.repeat(prompt, np.diff(offsets))
    return make_list(offsets, pa.array(np.where(inside, IGNORED, values).astype(np.int32)))


def _pair(table: pa.Table) -> pa.Table:
    prompt = table.column("prompt_length").to_numpy().astype(np.int64)
    columns: dict[str, pa.Array] = {}
    for side in ("chosen", "rejected"):
        ids = _script.list_of(table, f"{side}_ids")
        columns[f"{side}_input_ids"] = ids
        columns[f"{side}_attention_mask"] = _script.ones(ids)
        columns[f"{side}_labels"] = _side(ids, prompt)
    return pa.table({**columns, **_media(len(table))})


def _unpair(table: pa.Table) -> pa.Table:
    sides = ("chosen", "rejected")
    return pa.table({f"{s}_ids": _script.list_of(table, f"{s}_input_ids") for s in sides})


def _neat(width: int, pad_id: int) -> Projection:
    """Packs padded to one width, documents numbered from 1 in the mask."""

    def forward(table: pa.Table) -> pa.Table:
        # place: where each token goes in the padded rows; number: of its document in the pack;
        # within: its position in the document.
        offsets, ids = numbers(_script.list_of(table, "input_ids"))
        labels = numbers(_script.list_of(table, "labels"))[1]
        first, lengths = numbers(_script.list_of(table, "seq_lengths"))
        count, sizes = len(table), np.diff(offsets)
        row = np.repeat(np.arange(count), sizes)
        place = row * width + np.arange(len(ids)) - np.repeat(offsets[:-1], sizes)
        number = np.arange(len(lengths)) - np.repeat(first[:-1], np.diff(first)) + 1
        within = np.arange(len(ids)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        filled: dict[str, tuple[npt.NDArray[np.integer], int]] = {
            "input_ids": (ids, pad_id),
            "attention_mask": (np.repeat(number, lengths), 0),
            "position_ids": (within, 0),
            "labels": (labels, IGNORED),
        }
        columns: dict[str, pa.Array] = {}
        for name, (values, rest) in filled.items():
            flat = np.full(count * width, rest, np.int32)
            flat[place] = values
            columns[name] = make_list(np.arange(count + 1) * width, pa.array(flat))
        return pa.table({**columns, **_media(count)})

    def back(table: pa.Table) -> pa.Table:
        offsets, numbered = numbers(_script.list_of(table, "attention_mask"))
        real = numbered != 0
        row = np.repeat(np.arange(len(table)), np.diff(offsets))
        starts = offsets_of(np.bincount(row[real], minlength=len(table)))
        columns = {}
        for name in ("input_ids", "labels"):
            values = numbers(_script.list_of(table, name))[1][real]
            columns[name] = make_list(starts, pa.array(values))
        inside = numbered[real]
        opens = np.diff(inside, prepend=0) != 0
        # A row's first document is number 1, as the row before may have ended with: no difference.
        opens[starts[:-1]] = True
        change = np.flatnonzero(opens)
        lengths = np.diff(np.append(change, len(inside))).astype(np.int32)
        per_row = np.searchsorted(change, starts)
        columns["seq_lengths"] = make_list(per_row, pa.array(lengths))
        return pa.table(columns)

    return Projection(("input_ids", "labels", "seq_lengths"), forward, back)


def _projection(facts: ExportFacts) -> Projection:
    if facts.kind.compares:
        return Projection(("chosen_ids", "rejected_ids"), _pair, _unpair)
    if facts.stored.packs:
        return _neat(_width(facts), int(facts.model.pad_token_id))
    return Projection(("input_ids", "labels"), _single, _unsingle)


EXPORT = _script.export(
    "llamafactory", files=_script.scripts("llamafactory.yaml", width=_width), projection=_projection
)


# axolotl: rows recognised as tokenized by exactly three columns; it packs at run time itself.


AXOLOTL = _script.export(
    "axolotl",
    projection=partial(_script.rows_of_ids, masked=True),
    shares=lambda facts: not facts.kind.marks,
)


# MedicalGPT: conversations as text, if its own tokenizing gives our ids exactly.
#
# Its scripts take no ids. But ``--template_name base`` prints a question and its answer unchanged,
# so a question that is the whole prompt, control tokens included, is tokenized to that prompt. Its
# scripts tokenize with special tokens, so the text must not have the bos token that the tokenizer
# adds. The reward script tokenizes prompt and answer as one text; the other script tokenizes each
# alone, and puts the eos token after the answer.


_OTHERWISE = "is tokenized differently as text"


def _question(ids: list[int], exact: _script.Exact) -> str:
    """A prompt's text, without the tokens that the tokenizer will put before it."""
    lead = len(exact.added)
    return exact.text(ids[lead:] if ids[:lead] == exact.added else ids)


def _sft(row: _script.Row, exact: _script.Exact) -> tuple[_script.Texts, str | None]:
    ids, span = row["input_ids"], _script.stretch(row)
    if span is None:
        return {}, "trains more than one stretch of tokens"
    start, stop = span
    if ids[stop - 1] != exact.eos_id:
        return {}, f"does not end in {exact.eos}"
    question, answer = _question(ids[:start], exact), exact.text(ids[start : stop - 1])
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    texts: _script.Texts = {"conversations": turns}
    source, target = exact.ids(question, special=True), exact.ids(answer)
    # The script removes an eos token at the start of the prompt and at the end of the answer.
    cut = exact.eos_id in (source[:1] + target[-1:])
    same = (source, target) == (ids[:start], ids[start : stop - 1])
    return texts, None if same and not cut else _OTHERWISE


def _rm(row: _script.Row, exact: _script.Exact) -> tuple[_script.Texts, str | None]:
    start = row["prompt_length"]
    question = _question(row["chosen_ids"][:start], exact)
    texts: _script.Texts = {"conversations": [{"from": "human", "value": question}]}
    texts |= {"system": "", "history": [], "question": question}  # what it read before 2026-04
    for side in ("chosen", "rejected"):
        ids = row[f"{side}_ids"]
        texts[side] = texts[f"response_{side}"] = exact.text(ids[start:])
        if exact.ids(question + texts[side], special=True) != ids:
            return texts, _OTHERWISE
    return texts, None


def _medicalgpt_projection(facts: ExportFacts) -> Projection:
    one = {CONVERSATION: _sft, PAIR: _rm}[facts.kind.trains_as]
    instead = "Export for a trainer that reads ids: trl, transformers, llamafactory, openrlhf."
    return _script.projection("medicalgpt", instead, one)(facts)


MEDICALGPT = _script.export("medicalgpt", projection=_medicalgpt_projection)
