"""Results of tools that a template prints without ids stand where their calls are."""

from collections.abc import Callable
from typing import Any

import pytest
from rows import normalizing
from support import table

from stages.contract import Message, Record
from stages.errors import RowError
from stages.rows.examples import require_order

USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def call(*ids: Any) -> dict[str, Any]:
    """A turn of the assistant with calls."""
    function = {"name": "f", "arguments": {}}
    calls = [{"function": function, **({"id": one} if one is not None else {})} for one in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def flat(*ids: str) -> dict[str, Any]:
    """The same, with the id beside the name."""
    calls = [{"function": {"name": "f", "arguments": {}, "id": one}} for one in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(of: Any = None) -> dict[str, Any]:
    """A tool's turn."""
    more = {"tool_call_id": of} if of is not None else {}
    return {"role": "tool", "content": f"of {of}", **more}


def judge(*turns: dict[str, Any]) -> None:
    """What ``require_order`` says of these turns."""
    own = ("role", "content")
    messages = [
        Message(t["role"], t["content"], {k: v for k, v in t.items() if k not in own} or None)
        for t in (USER, *turns, ANSWER)
    ]
    require_order(messages)


TURNS: dict[str, Callable[..., dict[str, Any]]] = {
    "call": call,
    "flat": flat,
    "result": result,
    "user": lambda: USER,
    "answer": lambda: ANSWER,
}


def test_results_stand_where_their_calls_are_or_are_refused():
    """The message says which result it is, and what was expected."""
    for one in table("tool_results.jsonl"):
        turns = [TURNS[kind](*ids) for kind, *ids in one["turns"]]
        if "says" not in one:
            judge(*turns)  # raises nothing
            continue
        with pytest.raises(RowError, match=one["says"]) as caught:
            judge(*turns)
        assert caught.value.code == "misplaced_result"


def codes(rows: list[dict[str, Any]], task: str, name: str, printed: set[str]) -> list[Any]:
    """What rows of a format are refused with, given what the template prints."""
    one = normalizing(task, name, printed=frozenset(printed))
    records = [Record(at, None, b"", row) for at, row in enumerate(rows)]
    return one(records).column("reject_code").to_pylist()


BOTH = (call("1", "2"), result("1"), result("2"), ANSWER)
SWAPPED = (BOTH[0], BOTH[2], BOTH[1], ANSWER)


def test_templates_that_print_ids_take_any_order():
    """The ids say whose each result is; other rows of the batch are read as ever."""
    rows = [{"messages": [USER, *turns]} for turns in ((ANSWER,), BOTH, SWAPPED)]
    for printed in ({"tool_call_id"}, {"*"}):
        assert codes(rows, "sft", "openai", {"tool_calls", *printed}) == [None] * 3
    assert codes(rows, "sft", "openai", {"tool_calls"}) == [None, None, "misplaced_result"]


def test_both_sides_of_a_pair_are_looked_at():
    """Each behind the prompt, which may have calls of its own."""
    prompt, other = [USER, *BOTH, USER], [{"role": "assistant", "content": "b"}]
    sides = [[*BOTH], [*SWAPPED]]
    rows = [
        {"prompt": prompt, "chosen": sides[0], "rejected": other},
        {"prompt": prompt, "chosen": sides[1], "rejected": other},
        {"prompt": prompt, "chosen": other, "rejected": sides[1]},
        {"prompt": [USER, *SWAPPED, USER], "chosen": other, "rejected": [ANSWER]},
    ]
    wanted = [None, *["misplaced_result"] * 3]
    assert codes(rows, "rm", "preference", {"tool_calls"}) == wanted
