"""``segments``: texts with a label each, which some trainers read without a chat template."""

from __future__ import annotations

from stages.contract import Row
from stages.formats._unusable import Unusable
from stages.kinds import CONVERSATION
from stages.rows.watched import peek


def _evidence(row: Row) -> str | None:
    value = peek(row, "segments")
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(one, dict) and {"text", "label"} <= one.keys() for one in value):
        return None
    return "segments with text and label"


FORMAT = Unusable(
    name="segments",
    kinds=(CONVERSATION,),
    columns={"segments": ("segments",)},
    evidence=_evidence,
    what="segments with their own turn markers, to which no chat template can be applied",
    instead=(
        "Give rows with messages, and a weight of 0 on the turns that must not be trained; or "
        "token ids with labels (input_ids and labels, -100 where nothing is trained)"
    ),
)
