"""A batch through the stages of a build: the rows that stay, and those that a stage refused.

Builds, plans, stage files and rows that are made again all run this one chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stages.contract import Batch, Stage


class Gone(NamedTuple):
    """The rows of a batch that one stage refused, with all their columns."""

    stage: str
    rows: Batch


class Refusal(NamedTuple):
    """One refused sequence: its line in the split and its number there, and why it was refused."""

    stage: str
    line: int
    sequence: int
    code: str
    detail: str


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
        for line, sequence, code, detail in zip(*values, strict=True):
            yield Refusal(stage=stage, line=line, sequence=sequence, code=code, detail=detail)
