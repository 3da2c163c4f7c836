"""A batch through the stages of a build: the rows that stay, and those that a stage refused.

Builds, plans, stage files and rows that are made again all run this one chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.columns import Ints, count_per_row, list_parts
from stages.contract import Batch, Record, Stage
from stages.errors import PipelineError, ReadingError
from stages.files import row_counts

if TYPE_CHECKING:
    from pipeline.shards.part import PartReport, Work


class Gone(NamedTuple):
    """The rows of a batch that one stage refused, with all their columns."""

    stage: str
    rows: Batch


class Refusal(NamedTuple):
    """A refused sequence of a split, which knows neither its file's name nor the lines before it.

    Attributes:
        line, offset: from 0, from the split's start; ``sequence``: its number in the line.
        stage, code, detail, raw: as ``manifest.records.Reject`` has them; a part writes down the
            row's offset and text.
        turns: that it would have trained; 0 where nothing is known of its turns.
    """

    line: int
    sequence: int
    stage: str
    code: str
    detail: str
    offset: int | None = None
    raw: str = ""
    turns: int = 0

    @property
    def text(self) -> bytes:
        """A line of the part's file."""
        return json.dumps(self._asdict(), ensure_ascii=True).encode()


def split_off(batch: Batch) -> tuple[Batch, Batch | None]:
    """The rows that stay, and those whose reject columns are filled."""
    code = batch.column("reject_code")
    if code.null_count == batch.num_rows:
        return batch, None
    stays = code.is_null()
    return batch.filter(stays), batch.filter(pc.invert(stays))


def through(normalized: Batch, stages: Iterable[Stage]) -> tuple[Batch, list[Gone]]:
    """What normalize wrote, through the stages after it.

    Returns:
        The rows that every stage let pass, and the others in the order of the stages.
    """
    gone: list[Gone] = []
    batch, refused = split_off(normalized)
    if refused is not None:
        gone.append(Gone("normalize", refused))
    for stage in stages:
        batch, refused = split_off(stage(batch))
        if refused is not None:
            gone.append(Gone(stage.name, refused))
    return batch, gone


def refusals(gone: Iterable[Gone]) -> Iterator[Refusal]:
    """Every refused sequence, stage by stage."""
    for stage, rows in gone:
        columns = ("line", "sequence", "reject_code", "reject_detail")
        values: list[pa.Array] = [rows.column(name).to_pylist() for name in columns]
        turns = trained_turns(rows).tolist()
        for line, sequence, code, detail, trained in zip(*values, turns, strict=True):
            yield Refusal(line, sequence, stage, code, detail, turns=trained)


def by_line(refused: Iterable[Refusal]) -> dict[int, list[Refusal]]:
    """Refused sequences, row by row, in the order of the rows."""
    found: dict[int, list[Refusal]] = {}
    for one in refused:
        found.setdefault(one.line, []).append(one)
    return dict(sorted(found.items()))


def trained_turns(batch: Batch) -> Ints:
    """How many turns of each sequence are trained; 0 in kinds that have no turns of their own."""
    if "messages" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    offsets, turns = list_parts(batch.column("messages"))
    trained = turns.flatten()[turns.type.get_field_index("trained")].fill_null(False)
    return count_per_row(offsets, trained.to_numpy(zero_copy_only=False))


# Checks of a part before it is written: no row was lost, and our own examples are sound.
#
# Wrong counts in a part would shift the row ids of every part after it, and a row that a reader
# loses leaves no trace. So rows are counted in a second way, and a failure here is a bug of this
# program.
#
# The refused rows stand in a file of their own, whose lines are made here.


def counts_lines(work: Work, report: PartReport) -> bool:
    """Whether the part has the lines that were counted when the input was hashed."""
    return work.split.lines in (None, report.lines)


# Invariants that the user's text can break: two different texts can have equal ids, and a text can
# be encoded to an id that has another meaning (bos, padding, a control token).
_OF_THE_DATA = {"chosen_differs", "controls_from_template", "no_bos_inside", "no_padding_inside"}


def require_theirs(gone: Iterable[Gone], place: Callable[[int], str]) -> None:
    """Stop when an example that we rendered and encoded breaks an invariant that no text can break.

    Args:
        place: turns a line number into the name that messages give it.

    Raises:
        PipelineError: an example does; it is a bug of this program.
    """
    for one in refusals(gone):
        ours = one.stage == "validate" and one.code not in _OF_THE_DATA
        if ours or one.code == "marker_count":
            raise PipelineError(
                f"{place(one.line)}: the example made from this row breaks {one.code}: "
                f"{one.detail}.",
                "Nothing was published; please report it with the row and the recipe.",
            )


def require_counted(report: PartReport, work: Work, last: int, kept: int) -> None:
    """All rows of the split were read, and texts of some of the kept rows were sampled.

    Args:
        last: the last row's line; ``kept``: how many rows were kept.

    Raises:
        ReadingError: a row is missing, or no row was sampled.
    """
    counted = None if report.damage else row_counts.count(work.split)
    read = row_counts.Count(report.rows, report.lines, last)
    if counted is not None and counted != read:
        raise ReadingError(
            f"{work}: the reader found {read}; an independent count found {counted}."
        )
    if kept and not report.sampled:
        raise ReadingError(f"{work}: the parity check covered none of its {kept} rows.")


def require_counts(
    work: Work, report: PartReport, examples: pa.Table, refused: Sequence[Refusal]
) -> None:
    """The rows and sequences that were counted are those that the part holds.

    Raises:
        PipelineError: they differ; the row ids of all later parts would be wrong.
    """
    refused_lines = np.array([one.line for one in refused], np.int64)
    together = np.concatenate([examples.column("line").to_numpy(), refused_lines])
    lines, times = np.unique(together, return_counts=True)
    several = set(lines[times > 1].tolist())
    # A row that normalize refuses as a whole never was a sequence; one of several sequences was.
    gone = sum(one.stage != "normalize" or one.line in several for one in refused)
    sequences = examples.num_rows + gone
    counted = (len(lines) + report.filtered, sequences, True)
    if counted != (report.rows, report.made, counts_lines(work, report)):
        raise PipelineError(
            f"{work}: the part's counters say {report.lines} lines, {report.rows} rows and "
            f"{report.made} sequences, but it has {work.split.lines or report.lines} lines, "
            f"{len(lines) + report.filtered} rows and {sequences} sequences.",
            "Nothing was built. Please report this.",
        )


def made(normalized: Batch) -> int:
    """How many sequences the rows became. A row that is refused as a whole counts as none."""
    lines = normalized.column("line").to_numpy()
    _, place, counts = np.unique(lines, return_inverse=True, return_counts=True)
    stays = normalized.column("reject_code").is_null().to_numpy(zero_copy_only=False)
    return int((stays | (counts[place] > 1)).sum())


def raw_text(record: Record) -> str:
    """A row as it was read, as text; bytes that are no UTF-8 are spelled out."""
    return record.raw.decode("utf-8", "backslashreplace")


def rejected(gone: Iterable[Gone], records: Mapping[int, Record]) -> Iterator[Refusal]:
    """The refused sequences of a batch, with the raw text of their rows."""
    for one in refusals(gone):
        record = records[one.line]
        yield one._replace(offset=record.offset, raw=raw_text(record))
