"""Tools, tool calls and reasoning of a conversation must be printed by the template.

Whether a template prints a field is seen by rendering without it: the text must change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from stages.chat_template.excerpts import SHORT
from stages.chat_template.segments import Span
from stages.chat_template.template import Template
from stages.chat_template.trained_spans import Chat, Seen, Turn
from stages.errors import RowError

_FIELDS = ("tool_calls", "reasoning_content", "reasoning", "thinking")
_TOOLS = "tools"
_REASONING = "</think>"


class Printed:
    """Refuses conversations that a template prints in part; remembers the results of excerpts."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._seen: defaultdict[str, dict[Hashable, bool | None]] = defaultdict(dict)

    def require(self, chat: Chat, text: str) -> None:
        """Refuse a conversation with tools or fields that do not change the printed text.

        Raises:
            RowError: the template drops the tools, a call, or the reasoning of a trained turn.
        """
        last = len(chat.turns) - 1
        tools_printed = not chat.tools or self._in_excerpt(chat, last, _TOOLS)
        if not tools_printed and self._template.render(chat.seen, None) == text:
            detail = (
                "the template does not print the tools; those of qwen2.5 and qwen3 do (--model)"
            )
            raise RowError(
                "lost_in_template", f"{detail}, or give one of your own (--chat-template)"
            )
        for i, turn in enumerate(chat.turns):
            for name in (_FIELDS if turn.trained else _FIELDS[:1]) if turn.fields else ():
                if not (turn.fields or {}).get(name) or self._in_excerpt(chat, i, name):
                    continue
                chat.spend(len(chat.seen))
                if self._without(chat.seen, at=i, name=name, tools=chat.tools) == text:
                    detail = f"the template does not print {name} of turn {i + 1}"
                    detail += "" if name == _FIELDS[0] else "; see --reasoning-in think"
                    raise RowError("lost_in_template", detail)

    def _in_excerpt(self, chat: Chat, index: int, name: str) -> bool:
        """Whether an excerpt of a long conversation shows that a field (or tools) is printed."""

        def shows(picked: list[int]) -> bool:
            seen = [chat.seen[i] for i in picked]
            text = self._template.render(seen, chat.tools)
            return self._without(seen, picked.index(index), name, chat.tools) != text

        if len(chat.turns) <= SHORT:
            return False
        return bool(chat.in_excerpt(index, self._seen[name], shows)[1])

    def _without(self, seen: Seen, at: int, name: str, tools: list[Any] | None) -> str | None:
        if name == _TOOLS:
            return self._template.render(seen, None)
        without = {key: value for key, value in seen[at].items() if key != name}
        try:
            return self._template.render([*seen[:at], without, *seen[at + 1 :]], tools)
        except RowError:  # the template may refuse a turn without this field
            return None


def require_reasoning(
    turns: Sequence[Turn], text: str, spans: Sequence[Span], end_of_turn: str, train_all: bool
) -> None:
    """Refuse a trained answer with reasoning in its content of which the template drops a part.

    Many templates look for ``</think>`` in an answer: some move the blanks around it, some print
    only what follows it. So texts are compared without blanks.

    Raises:
        RowError: a part of such an answer is not printed.
    """
    answers = [i for i, turn in enumerate(turns) if turn.role == "assistant" and turn.trained]
    whole = None
    for i, (begin, stop) in zip(answers, spans, strict=not train_all):
        content = turns[i].content or ""
        if _REASONING not in content:
            continue
        if train_all:
            whole = where = _squeezed(text) if whole is None else whole
        else:
            # What the prompt opens an answer with, <think> for instance, is not in its span.
            where = _squeezed(text[max(0, text.rfind(end_of_turn, 0, begin)) : stop])
        if _squeezed(content) not in where:
            detail = f"the template drops a part of turn {i + 1}, which holds {_REASONING}; "
            detail += "use a --chat-template that prints it, or --reasoning strip"
            raise RowError("lost_in_template", detail)


def _squeezed(text: str) -> str:
    return "".join(text.split())
