"""What a trainer makes of its own columns: which examples it would train otherwise.

The readers know nothing of what writes the columns: they take the examples as they must be, and
what each trainer documents of its rows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from expectations.stored_rows import Lists, differs
from expectations.undo_layout import Bools, column
from pipeline import exports
from pipeline.builds.build import Build
from pipeline.exports import ExportFacts
from stages import catalog
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers
from stages.encoders import parsed

Checks: TypeAlias = Iterator[tuple[str, Bools]]  # what differs, and in which examples


@dataclass(frozen=True)
class Rows:
    """The rows of a shard as a trainer has them.

    Attributes:
        rows: as they are stored; ``at``: where the examples of each begin.
        ours: the examples as they must be.
    """

    rows: pa.Table
    at: Ints
    ours: pa.Table
    facts: ExportFacts

    def found(self, name: str) -> Lists:
        """A list column as it is stored."""
        return numbers(column(self.rows, name))

    @property
    def ids(self) -> Lists:
        """Those of all examples."""
        return numbers(column(self.ours, "input_ids"))

    @property
    def labels(self) -> Lists:
        """A label for each token; of steps the class of each rated one: 1 from one half up."""
        offsets, ids = self.ids
        if not self.facts.kind.marks:
            return numbers(column(self.ours, "labels"))
        at, places = numbers(column(self.ours, "step_positions"))
        rated = list_parts(column(self.ours, "step_labels"))[1].to_numpy(zero_copy_only=False)
        classes = np.full(len(ids), IGNORED, np.int32)
        unrated = np.isnan(rated.astype(np.float64))
        classes[places + np.repeat(offsets[:-1], np.diff(at))] = np.where(
            unrated, IGNORED, rated >= 0.5
        )
        return offsets, classes


def _single(rows: Rows) -> Checks:
    """Rows of one example: ids, labels or a mask of what is trained, an attention mask of ones."""
    offsets, ids = rows.ids
    labels = rows.labels[1]
    wanted = {
        "input_ids": ids,
        "labels": labels,
        "completion_mask": (labels != IGNORED).astype(np.int8),
        "attention_mask": np.ones(len(ids), np.int8),
    }
    for name in rows.rows.schema.names:
        if name in wanted:
            text = f"{name} in {rows.facts.task} rows do not train what the build trains"
            yield text, differs(rows.found(name), (offsets, wanted[name]))


def _pairs(rows: Rows) -> Checks:
    """Both sides of a pair: the prompt is not trained, and all of the answer is."""
    prompt = rows.ours.column("prompt_length").to_numpy()
    for side in ("chosen", "rejected"):
        offsets, ids = numbers(column(rows.ours, f"{side}_ids"))
        edges = np.zeros(len(ids) + 1, np.int64)
        np.add.at(edges, offsets[:-1] + prompt, 1)
        np.add.at(edges, offsets[1:], -1)
        trained = np.cumsum(edges)[:-1] > 0
        wanted = {
            "input_ids": ids,
            "labels": np.where(trained, ids, IGNORED),
            "attention_mask": np.ones(len(ids), np.int8),
        }
        for name, values in wanted.items():
            text = f"{side}_{name} does not train the answer alone"
            yield text, differs(rows.found(f"{side}_{name}"), (offsets, values))


def _neat(rows: Rows) -> Checks:
    """Padded packs: positions and the mask's numbers begin again with each document, and no other
    token is trained, or stands in the padding."""
    (offsets, mask), (_, ids) = rows.found("attention_mask"), rows.found("input_ids")
    labels, positions = rows.found("labels")[1], rows.found("position_ids")[1]
    real, docs = mask != 0, rows.ids[0]
    wide = np.diff(offsets)
    count = np.minimum(np.diff(docs[rows.at]), wide)  # tokens of each row; padding is at the end
    both = np.stack([count, wide - count], axis=1).ravel()
    kept = np.repeat(np.tile([True, False], len(wide)), both)
    bad = count_per_row(offsets, real != kept) > 0
    rest = ~kept & ((ids != rows.facts.model.pad_token_id) | (labels != IGNORED))
    bad |= (count_per_row(offsets, rest) > 0) | (wide % 8 > 0)
    row_of = np.repeat(np.arange(len(wide)), np.diff(rows.at))
    yield "its row has padding that is trained, seen, not the pad token or too short", bad[row_of]
    ids, labels, inside, numbered = (
        np.concatenate([one[a : a + n] for a, n in zip(offsets, count, strict=False)])
        for one in (ids, labels, positions, mask)
    )
    for name, values, wanted in (
        ("input_ids", ids, rows.ids[1]),
        ("labels", labels, rows.labels[1]),
    ):
        yield f"{name} are not the build's", differs((docs, values), (docs, wanted))
    wrong = np.diff(inside, prepend=-1) != 1
    wrong[docs[:-1]] = inside[docs[:-1]] != 0
    yield "position_ids do not begin again with it", count_per_row(docs, wrong) > 0
    number = np.arange(len(docs) - 1) - np.repeat(rows.at[:-1], np.diff(rows.at)) + 1
    other = numbered != np.repeat(number.astype(np.int32), np.diff(docs))
    yield "the mask does not number it apart from its neighbours", count_per_row(docs, other) > 0


def _next_token(rows: Rows) -> Checks:
    """Packs whose mask lies on the token before the trained one, with the starts of documents."""
    docs, ids = rows.ids
    offsets, mask = list_parts(column(rows.rows, "loss_mask"))
    found = rows.found("input_ids")
    if not np.array_equal(offsets, docs[rows.at]) or not np.array_equal(found[0], offsets):
        yield "its row has another length", np.ones(len(docs) - 1, bool)
        return
    yield "input_ids are not the build's", differs((docs, found[1]), (docs, ids))
    trained = np.zeros(len(ids) + 1, bool)
    trained[np.flatnonzero(mask.to_numpy() != 0) + 1] = True
    other = trained[:-1] != (rows.labels[1] != IGNORED)
    yield "loss_mask does not train what the build trains", count_per_row(docs, other) > 0
    first, starts = rows.found("seq_start_id")
    wanted = docs[:-1] - np.repeat(docs[rows.at[:-1]], np.diff(rows.at))
    row_of = np.repeat(np.arange(len(rows.at) - 1), np.diff(rows.at))
    wrong = differs((first, starts), (rows.at, wanted.astype(np.int32)))
    yield "seq_start_id does not say where it begins", wrong[row_of]


Encode = Callable[..., list[int]]


def _as_prompt(row: Mapping[str, str], encode: Encode, end: int) -> tuple[list[int], int]:
    """What OpenRLHF trains: prompt and answer as one text, and the answer of it."""
    return encode(row["input"] + row["output"]), len(encode(row["input"]))


def _as_turns(
    row: Mapping[str, list[Mapping[str, str]]], encode: Encode, end: int
) -> tuple[list[int], int]:
    """What MedicalGPT trains: question and answer each alone, and the end of the text."""
    asked, said = (turn["value"] for turn in row["conversations"])
    prompt = encode(asked, special=True)
    return [*prompt, *encode(said), end], len(prompt)


def _texts(rows: Rows, written: Build) -> Checks:
    """Rows of text, as the trainer tokenizes them with the tokenizer that lies beside them."""
    tokenizer, model = parsed(written.tokenizer_json), rows.facts.model

    def encode(text: str, special: bool = False) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=special).ids)

    turns = "conversations" in rows.rows.schema.names
    bad = np.zeros(len(rows.rows), bool)
    for at, (row, ours) in enumerate(
        zip(rows.rows.to_pylist(), rows.ours.to_pylist(), strict=True)
    ):
        if rows.facts.kind.compares:
            asked = row["question"] if turns else row["prompt"]
            for side in ("chosen", "rejected"):
                bad[at] |= encode(asked + row[side], special=turns) != ours[f"{side}_ids"]
            bad[at] |= not turns and row.get("margin") != ours.get("margin")
        elif rows.facts.kind.marks:
            names = [
                model.good_token if one == 1 else model.bad_token for one in ours["step_labels"]
            ]
            bad[at] = encode(row["input"]) != ours["input_ids"] or row["label"] != names
        else:
            ids, start = (_as_turns if turns else _as_prompt)(row, encode, model.eos_token_id)
            labels = [IGNORED] * start + ids[start:]
            rest = ours["labels"][len(ids) :]
            bad[at] = ids != ours["input_ids"][: len(ids)] or labels != ours["labels"][: len(ids)]
            bad[at] |= any(label != IGNORED for label in rest)
    yield "as text it is not tokenized or trained as in the build", bad


def read(rows: Rows, written: Build) -> Checks:
    """What the trainer of an export makes of its columns; nothing where they are ours, or where the
    trainer is of another package: of that, only what its projection gives back is compared."""
    made_for = written.manifest.export
    names = set(rows.rows.schema.names)
    if made_for is None or exports.key(made_for.trainer) not in catalog.own(exports.__name__):
        return iter(())
    if exports.load(made_for.trainer).projection(rows.facts) is None:
        return iter(())
    if "seq_start_id" in names:
        return _next_token(rows)
    if "position_ids" in names:
        return _neat(rows)
    if "chosen_labels" in names:
        return _pairs(rows)
    return _single(rows) if "input_ids" in names else _texts(rows, written)
