"""Lines of a batch file for an inference server: requests without answers, or only the answers."""

from __future__ import annotations

from stages.contract import Row
from stages.formats._unusable import Unusable
from stages.kinds import CONVERSATION, PAIR, STEPS
from stages.rows.watched import peek


def _evidence(row: Row) -> str | None:
    if "custom_id" not in row:
        return None
    if isinstance(peek(row, "body"), dict):
        return "custom_id and body"
    return "custom_id and response" if isinstance(peek(row, "response"), dict) else None


FORMAT = Unusable(
    name="batch_lines",
    kinds=(
        CONVERSATION,
        PAIR,
        STEPS,
    ),
    columns={"id": ("custom_id",), "request": ("body",), "answer": ("response",)},
    evidence=_evidence,
    what="lines of a batch file, which hold either the requests or the answers to them",
    instead=(
        "Join both files by custom_id, and write rows with messages: those of body.messages, and "
        "after them response.body.choices[0].message"
    ),
)
