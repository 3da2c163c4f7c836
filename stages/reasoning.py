"""Where reasoning goes that a row keeps beside the answer.

Rows spell its field in several ways, and so do templates. A template that prints one gets it under
its own name; for one that prints none, ``--reasoning-in think`` puts it into the answer, in the
form that templates with reasoning print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stages.contract import Message

FIELD = "reasoning_content"  # how the formats spell it
_SPELLINGS = (FIELD, "reasoning", "thinking")


def spelled_by(template: str) -> str | None:
    """The name under which a chat template looks for reasoning; None when it does not."""
    for name in _SPELLINGS:
        if re.search(rf"(?:\.|\[['\"]|get\(['\"]){name}\b", template):
            return name
    return None


def place(messages: Iterable[Message], name: str | None) -> None:
    """Move each turn's reasoning to a field of this name; with None, into a ``<think>`` block."""
    for message in messages:
        if not message.fields or not isinstance(message.fields.get(FIELD), str):
            continue
        fields = dict(message.fields)
        thought = fields.pop(FIELD)
        if name is not None:
            message.fields = {**fields, name: thought}
            continue
        said = (message.content or "").lstrip("\n")
        stripped = thought.strip("\n")
        message.content = f"<think>\n{stripped}\n</think>\n\n{said}"
        message.fields = fields or None
