"""Trainers as ``trainers.toml`` declares them, with the scripts that exports write for them.

A template is called like the file that it becomes, with ``.jinja`` behind.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection, key
from pipeline.lines import templates
from stages.columns import IGNORED, Bools, list_parts, make_list, numbers, whole
from stages.encoders import parsed
from stages.errors import UsageError, counted

_RATE = "2e-5"  # default learning rate of reward models on small sets


def render(file: str, **values: Any) -> str:
    """The text of a file, from its template."""
    made = templates(Path(__file__).with_name("scripts")).get_template(f"{file}.jinja")
    return made.render(file=file, rate=_RATE, **values)


def script(file: str, **more: Callable[[ExportFacts], Any]) -> Callable[[ExportFacts], str]:
    """What writes a file for a build, whose facts the template knows as ``facts``, and as ``batch``
    the default number of pairs in a batch of one GPU.

    Args:
        file: its name under ``launch/``.
        more: what else the template needs to know of the facts.
    """

    def written(facts: ExportFacts) -> str:
        known = {name: value(facts) for name, value in more.items()}
        return render(file, facts=facts, batch=max(1, min(4, facts.rows)), **known)

    return written


def scripts(
    *files: str, **more: Callable[[ExportFacts], Any]
) -> Callable[[ExportFacts], Mapping[str, str]]:
    """What writes several, by name."""
    return lambda facts: {file: script(file, **more)(facts) for file in files}


@cache
def _declared() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("trainers.toml").read_text("utf-8"))


def export(name: str, **own: Any) -> Export:
    """A trainer of ours: as ``trainers.toml`` declares it, started by the shell script of its name,
    with what ``details.jinja`` says of a build that works.

    Args:
        own: what only code can say of it.
    """

    def detail(facts: ExportFacts) -> str:
        known = templates(Path(__file__).parent).get_template("details.jinja").module
        return " ".join(str(getattr(known, key(name))(facts)).split())

    said = {"files": (), "apart": (), **_declared()[name]}
    said |= {"files": scripts(*said["files"]), "apart": tuple(said["apart"])}
    said["takes"] = {kind: tuple(layouts) for kind, layouts in said["takes"].items()}
    return Export(name=name, detail=detail, launch=script(f"{name}.sh"), **{**said, **own})


# Columns that several trainers share: ids with labels or classes, masks of ones, labels from a
# mask.


def list_of(table: pa.Table, name: str) -> pa.ListArray:
    """A list column in one piece."""
    return whole(table.column(name))


def ones(ids: pa.ListArray) -> pa.ListArray:
    """An attention mask of ones, int8, for unpadded rows."""
    offsets, values = list_parts(ids)
    return make_list(offsets, pa.array(np.ones(len(values), np.int8)))


def like(ids: pa.ListArray, values: npt.NDArray[np.generic]) -> pa.ListArray:
    """Flat values in lists as long as those of ``ids``."""
    return make_list(list_parts(ids)[0], pa.array(values))


def trained(labels: pa.ListArray) -> Bools:
    """Which of all the flat labels are trained."""
    return np.asarray(numbers(labels)[1] != IGNORED)


def labels_where(ids: pa.ListArray, mask: Bools) -> pa.ListArray:
    """Labels equal to the ids where the flat mask is true, -100 elsewhere."""
    return like(ids, np.where(mask, numbers(ids)[1], np.int32(IGNORED)).astype(np.int32))


def _renamed(labels: pa.ListArray, names: Mapping[int, int]) -> pa.ListArray:
    """Labels with another number for each of some; the others are ignored."""
    values = numbers(labels)[1]
    found = np.full(len(values), IGNORED, np.int32)
    for old, new in names.items():
        found[values == old] = new
    return like(labels, found)


def class_labels(labels: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """Token-classification labels: 1 where the label is the good token, 0 where it is the bad."""
    return _renamed(labels, {good: 1, bad: 0})


def token_labels(classes: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """The inverse of ``class_labels``: the good or the bad token where there is a class."""
    return _renamed(classes, {1: good, 0: bad})


def nulls(count: int) -> pa.Array:
    """A column of so many nulls."""
    return pa.nulls(count)


def rows_of_ids(facts: ExportFacts, *, masked: bool) -> Projection:
    """Ids and labels; at step tokens these become classes, 1 for the good token, 0 for the bad.

    Args:
        masked: with an attention mask of ones.
    """
    good, bad = facts.model.good_token_id, facts.model.bad_token_id

    def changed(labels: pa.ListArray, change: Callable[..., pa.ListArray]) -> pa.ListArray:
        known = facts.kind.marks and good is not None and bad is not None
        return change(labels, good, bad) if known else labels

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
        mask = {"attention_mask": ones(ids)} if masked else {}
        return pa.table({"input_ids": ids, **mask, "labels": changed(labels, class_labels)})

    def back(table: pa.Table) -> pa.Table:
        labels = changed(list_of(table, "labels"), token_labels)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)


# Exports for trainers that tokenize texts themselves: rows of text that give the same ids again.
#
# Every row is decoded, encoded again as the trainer encodes it, and compared; if one row differs,
# the export is refused with the reason. Ids and labels are stored beside the text, so nothing is
# lost.


Row = Mapping[str, Any]
Texts = dict[str, Any]


class Exact:
    """Decodes ids with a build's tokenizer, and encodes text as a trainer would."""

    def __init__(self, facts: ExportFacts) -> None:
        self._tokenizer = parsed(facts.tokenizer_json)
        self.eos: str = facts.model.eos_token
        self.eos_id: int = facts.model.eos_token_id

    def text(self, ids: list[int]) -> str:
        """The text of ids, control tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text; with ``special``, also the tokens that the tokenizer adds (bos)."""
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    @cached_property
    def added(self) -> list[int]:
        """The ids that the tokenizer puts before every text."""
        return self.ids("", special=True)


def stretch(row: Row) -> tuple[int, int] | None:
    """Where the trained tokens of an SFT row begin and end; None if they are not contiguous."""
    trained = np.flatnonzero(np.asarray(row["labels"]) != IGNORED)
    start, stop = int(trained[0]), int(trained[-1]) + 1
    return (start, stop) if stop - start == len(trained) else None


def projection(
    name: str, instead: str, one: Callable[[Row, Exact], tuple[Texts, str | None]]
) -> Callable[[ExportFacts], Projection]:
    """The projection of an export whose rows are texts.

    Args:
        name: of the export.
        instead: what its user should do if a row cannot be exported as text.
        one: a row's texts, and why they would not give the row's ids; None if they would.
    """

    def forward(table: pa.Table, exact: Exact) -> pa.Table:
        rows: list[Texts] = []
        problems: Counter[str] = Counter()
        first: dict[str, str] = {}
        for row in table.to_pylist():
            texts, why = one(row, exact)
            if why is not None:
                problems[why] += 1
                first.setdefault(why, str(row["row_id"]))
            rows.append(texts)
        if problems:
            reasons = "; ".join(
                f"{counted(n, 'row')}: {why} ({first[why]})" for why, n in problems.most_common()
            )
            raise UsageError(f"{name} would not train on this build's tokens. {reasons}.", instead)
        return pa.Table.from_pylist(rows)

    def of_facts(facts: ExportFacts) -> Projection:
        exact = Exact(facts)
        return Projection((), lambda table: forward(table, exact), lambda table: pa.table({}))

    return of_facts
