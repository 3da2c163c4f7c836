"""Results of tools that a template prints without ids stand where their calls are."""

from typing import Any

import pytest
from rows import normalizing

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


IN_PLACE: list[tuple[dict[str, Any], ...]] = [
    (),
    (call("1"), result("1")),
    (call("1", "2"), result("1"), result("2")),
    (call("1", "2"), result("1")),
    (call("1", "2"), result(), result("2")),
    (call("1", "2"), result(), result()),
    (call("1"), result("1"), call("2"), result("2")),
    (call("1"), result("1"), ANSWER, call("1", "2"), result("1"), result("2")),
    (call("1"), call("2"), result("1"), result("2")),
    (call("1"), ANSWER, USER, call("2"), result("2")),  # the first call got no result
    (call("1"), ANSWER, USER, call("1", "2"), result("1"), result("2")),
    (call("1", "2"), result("1"), ANSWER, result("2")),
    (call(None, None), result("2"), result("1")),  # no call says which it is
    (call(None), result("2"), result("1")),
    (call("1", None), result("1"), result("9")),
    (result("1"), result("2")),
    (call("1"), result(1)),
    (call(0, 1), result(0), result(1)),
    (call("", ""), result("2"), result("1")),
    (flat("1", "2"), result("1"), result("2")),
    (call("1"), result("9")),  # it can be of no other call
    (call("1"), result("9"), ANSWER, call("2", "3"), result("2"), result("3")),
    (call("1"), result("1"), result("1")),  # one more part
    (call("1", "2"), result("1"), result("2"), result("2")),
]
MISPLACED: list[tuple[tuple[dict[str, Any], ...], str]] = [
    ((call("1", "2"), result("2"), result("1")), "'2' stands where that of '1' is expected"),
    ((call("1", "2"), result("2")), "'2' stands where that of '1' is expected"),
    ((call("1", "2", "3"), result("1"), result("3")), "'3' stands where that of '2'"),
    ((call(0, 1), result(1), result(0)), "'1' stands where that of '0' is expected"),
    ((flat("1", "2"), result("2"), result("1")), "'2' stands where that of '1' is expected"),
    ((call("1", "2"), result("9")), "tool_call_id '9', and no such call waits"),
    ((call("1", "2"), result("1"), result("9")), "tool_call_id '9', and no such call waits"),
    ((call("1"), call("2"), result("9")), "tool_call_id '9', and no such call waits"),
    ((call("1", "2"), result("1"), result("1")), "tool_call_id '1', and no such call waits"),
    ((call("1"), call("2"), result("2"), result("1")), "'1', and no such call waits"),
    ((result("1"), call("1")), "'1', and no such call waits"),
    ((call("1"), result("1"), result("2"), call("2")), "'2', and no such call waits"),
]


def test_results_stand_where_their_calls_are_or_are_refused() -> None:
    """The message says which result it is, and what was expected."""
    for turns in IN_PLACE:
        judge(*turns)  # raises nothing
    for turns, wanted in MISPLACED:
        with pytest.raises(RowError, match=wanted) as caught:
            judge(*turns)
        assert caught.value.code == "misplaced_result"


def codes(rows: list[dict[str, Any]], task: str, name: str, printed: set[str]) -> list[Any]:
    """What rows of a format are refused with, given what the template prints."""
    one = normalizing(task, name, printed=frozenset(printed))
    records = [Record(at, None, b"", row) for at, row in enumerate(rows)]
    found: list[Any] = one(records).column("reject_code").to_pylist()
    return found


BOTH = (call("1", "2"), result("1"), result("2"), ANSWER)
SWAPPED = (BOTH[0], BOTH[2], BOTH[1], ANSWER)


def test_templates_that_print_ids_take_any_order() -> None:
    """The ids say whose each result is; other rows of the batch are read as ever."""
    rows = [{"messages": [USER, *turns]} for turns in ((ANSWER,), BOTH, SWAPPED)]
    for printed in ({"tool_call_id"}, {"*"}):
        assert codes(rows, "sft", "openai", {"tool_calls", *printed}) == [None] * 3
    assert codes(rows, "sft", "openai", {"tool_calls"}) == [None, None, "misplaced_result"]


def test_both_sides_of_a_pair_are_looked_at() -> None:
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
