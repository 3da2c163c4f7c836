"""What must be true of a part before it is written: nothing lost, nothing of ours broken.

A part whose counts do not fit would shift every row id behind it, and a row that a reader loses
leaves no trace at all. So rows are counted a second way, and what breaks here is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.chain import Gone, refusals
from stages import row_counts
from stages.contract import Batch
from stages.errors import PipelineError, ReadingError

if TYPE_CHECKING:
    from pipeline.part import PartReport, Work

Refused: TypeAlias = tuple[int, str]  # a line, and the stage that refused a sequence of it


def counts_lines(work: Work, report: PartReport) -> bool:
    """Whether the part has the lines that were counted when the input was hashed."""
    return work.split.lines in (None, report.lines)


# What a row can break by what it says: texts that differ but not in their ids, and text that
# gives an id which stands for something else.
_OF_THE_DATA = {"chosen_differs", "controls_from_template", "no_bos_inside", "no_padding_inside"}


def require_theirs(gone: Iterable[Gone], place: Callable[[int], str]) -> None:
    """What we rendered and encoded ourselves breaks no law by its own fault.

    Args:
        place: what a message calls a line.

    Raises:
        PipelineError: it does, and the fault is ours.
    """
    for stage, line, _, code, detail in refusals(gone):
        if code == "marker_count" or (stage == "validate" and code not in _OF_THE_DATA):
            raise PipelineError(
                f"{place(line)}: the example made from this row breaks {code}: {detail}.",
                "Nothing was published; please report it with the row and the recipe.",
            )


def require_counted(report: PartReport, work: Work, last: int, kept: int) -> None:
    """The rows of the split were all read, and some of those that stayed were read twice.

    Args:
        last: the last row's line; ``kept``: how many rows stayed.

    Raises:
        ReadingError: they were not.
    """
    counted = None if report.damage else row_counts.count(work.split)
    read = row_counts.Count(report.rows, report.lines, last)
    if counted is not None and counted != read:
        raise ReadingError(f"{work}: {read} were read, but there are {counted}.")
    if kept and not report.sampled + report.skipped:
        raise ReadingError(f"{work}: none of its {kept} rows was read a second time.")


def require_counts(
    work: Work, report: PartReport, examples: pa.Table, refused: list[Refused]
) -> None:
    """What was counted on the way is what the part holds.

    Raises:
        PipelineError: it is not; every row id behind such a part would be wrong.
    """
    refused_lines = np.array([line for line, _ in refused], np.int64)
    lines = np.union1d(examples.column("line").to_numpy(), refused_lines)
    together = np.concatenate([examples.column("line").to_numpy(), refused_lines])
    each_line, times = np.unique(together, return_counts=True)
    several = set(each_line[times > 1].tolist())
    gone = sum(stage != "normalize" or line in several for line, stage in refused)
    sequences = examples.num_rows + gone
    counted = (len(lines) + report.filtered, sequences, True)
    if counted != (report.rows, report.made, counts_lines(work, report)):
        raise PipelineError(
            f"{work}: a part counts {report.lines} lines, {report.rows} rows and "
            f"{report.made} sequences, and holds {work.split.lines or report.lines} lines, "
            f"{len(lines) + report.filtered} rows and {sequences} sequences.",
            "Nothing was built. Please report this.",
        )


def made(normalized: Batch) -> int:
    """Sequences that rows became. A refused row that became one or none is no sequence."""
    lines = normalized.column("line").to_numpy()
    _, place, counts = np.unique(lines, return_inverse=True, return_counts=True)
    stays = normalized.column("reject_code").is_null().to_numpy(zero_copy_only=False)
    return int((stays | (counts[place] > 1)).sum())
