"""``chosen`` and ``rejected`` as whole dialogues in one text, ``Human:`` and ``Assistant:``.

Also with the part that they share in a prompt of its own. Turns are stripped at both ends.
"""

from __future__ import annotations

import re

from stages.contract import Columns, Example, FormatOptions, Message, Pair, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns
from stages.formats._asked import Asking
from stages.kinds import PAIR
from stages.rows.watched import peek

# A turn begins after a blank line, the first one where the text does.
_TURN = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):")
_OPENS = re.compile(r"\s*Human:")
_ENDS = re.compile(r"\n\nAssistant:\s*\Z")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def is_dialogue(row: Row) -> bool:
    """Whether both sides are dialogues, or answers to a prompt that is one."""
    sides = [row.get("chosen"), row.get("rejected")]
    if not all(isinstance(side, str) for side in sides):
        return False
    if all(_OPENS.match(str(side)) and "\n\nAssistant:" in str(side) for side in sides):
        return True
    prompt = row.get("prompt")
    return isinstance(prompt, str) and bool(_OPENS.match(prompt) and _ENDS.search(prompt))


def _dialogue(text: str, where: str) -> list[Message]:
    heads = list(_TURN.finditer(text))
    if not heads or heads[0].start() != 0 or heads[0][1] != "Human":
        raise RowError("no_turns", f"{where} does not begin with 'Human:'")
    stops = [*(head.start() for head in heads[1:]), len(text)]
    turns = zip(heads, stops, strict=True)
    return [Message(_ROLES[h[1]], text[h.end() : stop].strip()) for h, stop in turns]


class _HhRlhf(Asking):
    name = "hh_rlhf"
    kinds = (PAIR,)
    columns: Columns = {
        "answers": ("chosen", "rejected"),
        "prompt": ("prompt",),
        "system text": _turns.SYSTEM,
        **_turns.TOOLS,
        **_pairs.MARGIN,
    }

    def matches(self, row: Row) -> str | None:
        return "chosen and rejected as Human/Assistant dialogues" if is_dialogue(row) else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        prompt = peek(row, "prompt")
        sides = []
        for name in ("chosen", "rejected"):
            text = _turns.text(row, name)
            if isinstance(prompt, str) and not _OPENS.match(text):
                text = row["prompt"].rstrip() + " " + text.lstrip()
            sides.append(_turns.joined(_turns.system(row), _dialogue(text, name)))
        chosen, rejected = sides
        shared = _pairs.split(chosen, rejected)
        margin = _pairs.margin(row, options.columns)
        return [Pair(shared, chosen, rejected, margin=margin, tools=_turns.tools(row))]


FORMAT = _HhRlhf()
