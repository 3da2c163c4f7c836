"""The refused rows that a page shows: the first few of each code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from pipeline.manifest.records import Reject
from pipeline.report.template import cut

READ = 5000  # refused rows; the counts come from the manifest
SHOWN = 5  # per code
DETAIL, RAW = 240, 400  # characters


@dataclass(frozen=True, slots=True)
class Loss:
    """One refused row, as text that a page can show."""

    id: str
    code: str
    stage: str
    detail: str
    raw: str


def losses(rejects: Iterable[Reject]) -> dict[str, list[Loss]]:
    """The first few refused rows of each code."""
    by_code: dict[str, list[Loss]] = {}
    for one in islice(rejects, READ):
        listed = by_code.setdefault(one.code, [])
        if len(listed) < SHOWN:
            listed.append(
                Loss(
                    id=cut(one.id),
                    code=one.code,
                    stage=one.stage,
                    detail=cut(one.detail, DETAIL),
                    raw=cut(one.raw, RAW),
                )
            )
    return by_code
