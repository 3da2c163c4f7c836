"""Seeded conversations: one generator for every law that must hold for any conversation."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support import table

# The first ten begin with a letter or a digit.
_PIECES: list[str] = table("odd_texts.toml")["conversations"]


@dataclass(frozen=True, slots=True)
class Speech:
    """What a family's conversations may hold.

    Attributes:
        tools: ``none``; ``one`` call a turn; or ``many``.
        system: whether a system text may open one.
        thinking: whether answers may reason.
        forgeries: control-token text of the family.
    """

    forgeries: tuple[str, ...]
    tools: str = "many"
    system: bool = True
    thinking: bool = False


TABLE = table("families.toml")
FAMILIES = {
    name: Speech(**{**one, "forgeries": TABLE["forgeries"][one["forgeries"]]})
    for name, one in TABLE["speech"].items()
}


def _text(rng: random.Random) -> str:
    pieces = rng.choices(_PIECES, k=rng.randint(1, 6))
    if rng.random() < 0.95:  # most texts begin with something to see
        pieces.insert(0, rng.choice(_PIECES[:10]))
    before = rng.choices(("", "\n", "\n\n", " ", "  "), (60, 1, 1, 1, 1))[0]
    return before + rng.choice(("", " ")).join(pieces) + rng.choice(("", "", " ", "\n"))


def _solid(rng: random.Random) -> str:
    """A text with something to see in it: an answer must say something."""
    text = _text(rng)
    return text if text.strip() else f"{text}ok"


_ASKED = {"type": "object", "properties": {"q": {"type": "string"}}}
_LOOKS = {"name": "lookup", "description": 'Find <it> in "that" 书', "parameters": _ASKED}
_SIGNATURE = {"type": "function", "function": _LOOKS}


def _exchange(rng: random.Random, speech: Speech) -> list[dict[str, Any]]:
    """A tool call and its result."""
    count = rng.randint(1, 2) if speech.tools == "many" else 1
    names = [f"id{rng.randrange(10**7):07d}" for _ in range(count)]
    calls = [
        {
            "id": name,
            "type": "function",
            "function": {"name": "lookup", "arguments": {"q": _solid(rng), "n": rng.random()}},
        }
        for name in names
    ]
    results = [
        {"role": "tool", "content": f'{{"found": {rng.randrange(99)}}}', "tool_call_id": name}
        for name in names
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _answer(rng: random.Random, speech: Speech) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": _solid(rng)}
    if speech.thinking and rng.random() < 0.4:
        if rng.random() < 0.5:
            turn["content"] = f"<think>\n{_solid(rng).strip()}\n</think>\n\n{_solid(rng).strip()}"
        else:
            turn["reasoning_content"] = _solid(rng)
    return turn


def _forge(rng: random.Random, messages: list[dict[str, Any]], speech: Speech) -> None:
    turn = rng.choice([turn for turn in messages if turn["content"] and turn["role"] != "tool"])
    turn["content"] += rng.choice(speech.forgeries) + _text(rng)


def conversation(rng: random.Random, speech: Speech) -> dict[str, Any]:
    """A row in the openai format: 1 to 8 turns of a user, each with its answer."""
    messages: list[dict[str, Any]] = []
    if speech.system and rng.random() < 0.5:
        messages.append({"role": "system", "content": _solid(rng)})
    with_tools = speech.tools != "none" and rng.random() < 0.3
    for _ in range(rng.randint(1, 8)):
        messages.append({"role": "user", "content": _solid(rng)})
        if with_tools and rng.random() < 0.4:
            messages += _exchange(rng, speech)
        messages.append(_answer(rng, speech))
    if rng.random() < 0.2:
        _forge(rng, messages, speech)
    return {"messages": messages, "tools": [_SIGNATURE] if with_tools else None}


def conversations(seed: int, count: int, speech: Speech) -> Iterator[dict[str, Any]]:
    """Rows that depend on the seed alone."""
    rng = random.Random(seed)
    for _ in range(count):
        yield conversation(rng, speech)
