"""The refused rows of a part, as its file of them has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.parts import chain, checks
from stages.contract import Record


class PartReject(NamedTuple):
    """A refused sequence of a part, which knows neither its file's name nor the lines before it.

    Attributes:
        line, offset: from 0, from the split's start.
        stage, code, detail, raw: as ``manifest.records.Reject`` has them.
    """

    line: int
    sequence: int
    offset: int | None
    stage: str
    code: str
    detail: str
    raw: str


def raw_text(record: Record) -> str:
    """A row as it was read, as text; bytes that are no UTF-8 are spelled out."""
    return record.raw.decode("utf-8", "backslashreplace")


class Rejects:
    """The refused rows of a part, as lines of JSON, with their raw text."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.refused: list[checks.Refused] = []

    def take(self, gone: Iterable[chain.Gone], records: Mapping[int, Record]) -> None:
        for stage, line, sequence, code, detail in chain.refusals(gone):
            record = records[line]
            entry = PartReject(line, sequence, record.offset, stage, code, detail, raw_text(record))
            self.lines.append(json.dumps(entry._asdict(), ensure_ascii=True).encode())
            self.refused.append((line, stage))
