"""A batch through the stages of a build: the rows that stay, and those that a stage refused.

Builds, plans, stage files and rows that are made again all run this one chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.executors import Sums
from stages import columns
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


# What rows lose to refusals: of rows, of examples and of trained turns, how many of how many.
#
# Counted where rows become examples; what is counted of batches, parts and sources adds up.

PARTIAL = "partial"  # whether another example of the same row was refused
_OF = {"rows_refused": "rows", "rows_hit": "rows"}
_OF |= {"examples_refused": "examples", "turns_refused": "turns"}


@dataclass(frozen=True, slots=True)
class Losses(Sums):
    """Counts of some rows and of what they became.

    Attributes:
        rows: that were read and that ``--where`` takes; ``rows_refused``: of which nothing is left;
            ``rows_hit``: these, and those that lost some of their examples.
        examples: that the rows became; a row that is refused as a whole by normalize became none,
            and what its format leaves out of a row by its rules (a tie among ranked answers) is
            none.
        turns: trained turns of these examples; 0 where examples have no turns of their own.
    """

    rows: int = 0
    rows_refused: int = 0
    rows_hit: int = 0
    examples: int = 0
    examples_refused: int = 0
    turns: int = 0
    turns_refused: int = 0

    def scaled(self, rows: float) -> Losses:
        """The same of so many rows that are alike."""
        factor = rows / max(self.rows, 1)
        return Losses(**{f.name: round(getattr(self, f.name) * factor) for f in fields(self)})

    def at_least(self, others: Sequence[Losses], enough: float) -> Losses:
        """The same totals with the least share that is refused in all of several places; what is
        refused in no place by more than a share ``enough`` counts as none."""
        least: dict[str, int] = {}
        for name, of in _OF.items():
            shares = [getattr(o, name) / getattr(o, of) for o in others if getattr(o, of)]
            share = min(shares, default=0.0)
            least[name] = round(share * getattr(self, of)) if share > enough else 0
        return Losses(self.rows, examples=self.examples, turns=self.turns, **least)


def is_sequence(one: Refusal, several: bool) -> bool:
    """Whether what was refused was an example: a row that normalize refuses as a whole was none.

    Args:
        several: its row became more than one, refused ones included.
    """
    return one.stage != "normalize" or several


def is_lost(one: Refusal, several: bool) -> bool:
    """Whether it was an example that should have been trained on."""
    from pipeline.messages import explanations  # not read where nothing is refused

    by_rule = one.stage == "normalize" and one.code in explanations.left_out()
    return is_sequence(one, several) and not by_rule


def losses_of(normalized: Batch, batch: Batch, gone: Sequence[Gone]) -> Losses:
    """The counts of one batch.

    Args:
        normalized: what normalize wrote; ``batch``: what every stage let pass; ``gone``: the rest.
    """
    rows = len(normalized.column("line").unique())
    refused = hit = examples = turns = 0
    kept = set(batch.column("line").to_pylist()) if gone else set()
    for line, some in by_line(refusals(gone)).items():
        several = line in kept or len(some) > 1
        lost = [one for one in some if is_lost(one, several)]
        refused += line not in kept
        hit += line not in kept or bool(lost)
        examples += len(lost)
        turns += sum(one.turns for one in lost)
    return Losses(
        rows=rows,
        rows_refused=refused,
        rows_hit=hit,
        examples=batch.num_rows + examples,
        examples_refused=examples,
        turns=int(trained_turns(batch).sum()) + turns,
        turns_refused=turns,
    )


def losses_of_part(counts: Mapping[str, Mapping[str, int]]) -> Losses:
    """Those that the tallies of a part have."""
    return Losses(**counts.get("losses", {}))


def marked(batch: Batch, gone: Sequence[Gone]) -> Batch:
    """The examples that are left, and of each whether another of its row was refused."""
    own = batch.column("line")
    lines = pa.concat_arrays([own.slice(0, 0), *(one.rows.column("line") for one in gone)])
    return columns.put(batch, PARTIAL, pa.compute.is_in(own, value_set=lines))
