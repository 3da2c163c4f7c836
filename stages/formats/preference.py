"""``chosen`` and ``rejected``: text, one turn or turns, with or without a prompt of any kind."""

from __future__ import annotations

from typing import Any

from stages.contract import Example, FormatOptions, Message, Pair, Row
from stages.errors import RowError
from stages.formats import _turns, alpaca

_MAX_FLOAT32 = 3.4028235e38  # margins are stored as float32
_PROMPTS = ("prompt", "question", "query")


def _prompt(row: Row) -> list[Message]:
    turns = _turns.first_of(row, ("conversations", "messages"))
    if turns is not None:
        return _turns.conversation(row[turns], turns)
    name = _turns.first_of(row, _PROMPTS)
    if name is not None:
        if isinstance(row[name], list):
            return _turns.conversation(row[name], name)
        return [Message("user", _turns.text(row, name))]
    return [alpaca.user_turn(row)] if "instruction" in row else []


def _side(row: Row, name: str) -> list[Message]:
    value: Any = row.get(name)
    if isinstance(value, str):
        return [Message("assistant", value)]
    if isinstance(value, dict):
        return [_turns.message(value, name)]
    return _turns.conversation(value, name)


def _margin(row: Row) -> float | None:
    value = row.get("margin")
    if value is None and row.get("score_chosen") is not None:
        try:
            value = row["score_chosen"] - row["score_rejected"]
        except (KeyError, TypeError) as error:
            raise RowError(
                "bad_margin", "score_chosen and score_rejected are not numbers"
            ) from error
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= _MAX_FLOAT32:
        raise RowError("bad_margin", f"margin {value!r} is not a finite number")
    return float(value)


def _split(chosen: list[Message], rejected: list[Message]) -> list[Message]:
    """Take the turns that both sides begin with off both; they are the prompt."""
    shared = 0
    limit = min(len(chosen), len(rejected)) - 1
    while shared < limit and chosen[shared] == rejected[shared]:
        shared += 1
    while shared and chosen[shared - 1].role == "assistant" and chosen[shared].role != "assistant":
        shared -= 1  # the prompt ends with whoever asks
    prompt = chosen[:shared]
    del chosen[:shared], rejected[:shared]
    return prompt


class _Preference:
    name = "preference"
    tasks = ("rm",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        return "chosen and rejected" if "chosen" in row and "rejected" in row else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        chosen, rejected = _side(row, "chosen"), _side(row, "rejected")
        if _is_whole(chosen) and _is_whole(rejected):
            prompt = _split(chosen, rejected)
            _require_named(prompt, row.get("prompt"))
        else:
            prompt = _prompt(row)
            if not prompt and isinstance(row["chosen"], str):
                raise RowError("no_prompt", "two texts without a prompt: nobody asked anything")
        return [Pair(prompt, chosen, rejected, _margin(row), _turns.tools(row))]


def _is_whole(side: list[Message]) -> bool:
    """Whether a side brings its own prompt: somebody other than the assistant begins it."""
    return side[0].role != "assistant"


def _require_named(prompt: list[Message], named: Any) -> None:
    """A prompt column beside whole conversations must be the prompt that they share.

    Raises:
        RowError: it is another one.
    """
    if isinstance(named, str) and prompt and all(m.content != named for m in prompt):
        raise RowError("prompt_differs", "the prompt column is not in the conversations' prompt")


FORMAT = _Preference()
