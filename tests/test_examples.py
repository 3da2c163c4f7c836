"""What every example must be before it is rendered, whatever format it came in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import normalizing

from stages.contract import (
    Conversation,
    Message,
    Pair,
    Record,
    StepChain,
)
from stages.errors import RowError
from stages.rows import examples, loss_mask

CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}


def talk(*turns: str | tuple[str, bool | None], answer: str = "a") -> Conversation:
    """A conversation by its roles; ``u``, ``a``, ``s``, ``t``, with a flag where one is given."""
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    made = []
    for turn in turns:
        short, flag = turn if isinstance(turn, tuple) else (turn, None)
        made.append(Message(names[short], answer if short == "a" else "x", trained=flag))
    return Conversation(made)


def trained(found: Conversation) -> list[bool | None]:
    """Which turns are trained."""
    return [message.trained for message in found.messages]


def code(call: Any, *arguments: Any) -> str:
    """The code that something is refused with."""
    with pytest.raises(RowError) as caught:
        call(*arguments)
    assert caught.value.detail
    return caught.value.code


@pytest.mark.parametrize(
    ("found", "policy", "wanted"),
    [
        (talk("s", "u", "a", "u", "a"), "assistant", [False, False, True, False, True]),
        (talk("s", "u", "a", "u", "a"), "last", [False, False, False, False, True]),
        (talk("s", "u", "a", "u", "a"), "all", [True, True, True, True, True]),
        (talk("s", ("u", False), ("a", False), "u", "a"), "all", [True, False, False, True, True]),
        (talk("u", "a", "u"), "last", [False, True, False]),
        (talk("u", "a", "t", "a"), "assistant", [False, True, False, True]),
        (talk("u", ("a", False), "u", "a"), "assistant", [False, False, False, True]),
        (talk("u", ("a", True), "u", "a"), "last", [False, True, False, True]),
        (talk("u", ("a", True), "u", ("a", False)), "last", [False, True, False, False]),
        (talk(("u", False), "a"), "assistant", [False, True]),
        (talk(("u", True), "a"), "all", [True, True]),
    ],
)
def test_flags_win_over_the_policy(found: Conversation, policy: str, wanted: list[bool]) -> None:
    """A turn's own flag decides; where it has none, ``--train-on`` does."""
    assert trained(loss_mask.conversation(found, policy)) == wanted


@pytest.mark.parametrize("policy", ["assistant", "last", "all"])
def test_conversations_that_teach_nothing_are_refused(policy: str) -> None:
    """Nobody answers, nobody asks, or no turn is trained: each has its code."""
    assert code(loss_mask.conversation, talk("s", "u"), policy) == "no_answer"
    assert code(loss_mask.conversation, talk("u"), policy) == "no_answer"
    assert code(loss_mask.conversation, talk("s", "a"), policy) == "no_user_turn"
    assert code(loss_mask.conversation, talk("a", "t", "a"), policy) == "no_user_turn"
    left_out = talk(("u", False), ("a", False))
    assert code(loss_mask.conversation, left_out, policy) == "nothing_trained"


@pytest.mark.parametrize("empty", ["", " ", "\n\t ", "\u2003"])
def test_an_empty_answer_is_refused_where_it_would_be_trained(empty: str) -> None:
    """An answer of blanks teaches the model to say nothing."""
    assert code(loss_mask.conversation, talk("u", "a", answer=empty), "assistant") == "empty_answer"
    left_out = talk("u", ("a", False), "u", "a")
    left_out.messages[1].content = empty
    assert trained(loss_mask.conversation(left_out, "assistant")) == [False, False, False, True]


def test_an_answer_of_tool_calls_alone_is_no_empty_answer() -> None:
    """Calls without text are an answer; an empty list of calls is not."""
    turns = [Message("user", "q"), Message("assistant", None, CALL)]
    assert trained(loss_mask.conversation(Conversation(turns), "assistant")) == [False, True]
    turns = [Message("user", "q"), Message("assistant", "", {"tool_calls": []})]
    assert code(loss_mask.conversation, Conversation(turns), "assistant") == "empty_answer"


def test_only_answers_are_trained_unless_all_is_asked_for() -> None:
    """A flag that asks to train a user's turn is a contradiction, not a wish."""
    for policy in ("assistant", "last"):
        found = talk(("u", True), "a")
        assert code(loss_mask.conversation, found, policy) == "untrainable_turn"


def test_bare_text_is_trained_as_a_whole() -> None:
    """A text row has no turns: all of it is trained, and an empty one is refused."""
    found = loss_mask.conversation(Conversation([Message("text", "x")]), "last")
    assert trained(found) == [True]
    assert code(loss_mask.conversation, Conversation([Message("text", " \n")]), "last") == (
        "empty_answer"
    )


FLAGS = st.sampled_from([None, True, False])
TURNS = st.lists(
    st.tuples(st.just("a"), FLAGS) | st.sampled_from(["u", "s", "t"]), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS, policy=st.sampled_from(["assistant", "last", "all"]))
def test_a_kept_conversation_trains_an_answer_and_keeps_its_turns(
    turns: list[str | tuple[str, bool | None]], policy: str
) -> None:
    """Every kept conversation has a question, an answer and a trained turn; none is changed."""
    found = talk(*turns)
    before = [(m.role, m.content) for m in found.messages]
    roles = [m.role for m in found.messages]
    try:
        ready = loss_mask.conversation(found, policy)
    except RowError as error:
        has_turns = "user" in roles and "assistant" in roles
        asked = [role for role in roles if role != "system"][:1] != ["assistant"]
        wanted = "nothing_trained" if asked else "begins_with_assistant"
        assert has_turns == (error.code == wanted)  # noqa: PT017
        return
    assert [(m.role, m.content) for m in ready.messages] == before
    assert any(m.trained for m in ready.messages)
    assert all(m.role == "assistant" or policy == "all" for m in ready.messages if m.trained)


@settings(max_examples=60, deadline=None)
@given(turns=TURNS)
def test_turn_by_turn_gives_one_example_for_each_trained_turn(
    turns: list[str | tuple[str, bool | None]],
) -> None:
    """Example k ends with the k-th trained turn, trains only that, and keeps all before it."""
    found = talk("u", *turns, "a")
    found.tools = [{"name": "f"}]
    ready = loss_mask.conversation(found, "assistant")
    made = loss_mask.turn_by_turn(ready)
    ends = [i for i, message in enumerate(ready.messages) if message.trained]
    assert [len(one.messages) - 1 for one in made] == ends
    for one, end in zip(made, ends, strict=True):
        assert trained(one) == [False] * end + [True]
        assert [m.content for m in one.messages] == [m.content for m in ready.messages[: end + 1]]
        assert one.tools == found.tools


def test_a_row_of_a_turn_by_turn_model_is_numbered() -> None:
    """Each trained turn becomes a sequence of its own, numbered from 0 on every row."""
    rows = [
        {"messages": [{"role": r, "content": "x"} for r in roles]}
        for roles in (["user", "assistant"] * 2, ["user", "assistant"], ["user"])
    ]
    door = normalizing("sft", "openai", turn_by_turn=True)
    batch = door([Record(i, 0, b"", row) for i, row in enumerate(rows)])
    assert door.fans_out
    assert batch["line"].to_pylist() == [0, 0, 1, 2]
    assert batch["sequence"].to_pylist() == [0, 1, 0, 0]
    assert batch["reject_code"].to_pylist() == [None, None, None, "no_answer"]


@pytest.mark.parametrize(
    ("roles", "wanted"),
    [
        ("ua", None),
        ("sua", None),
        ("uaua", None),
        ("uau", "ends_without_answer"),
        ("uat", "ends_without_answer"),
        ("uua", "repeated_role"),
        ("uaa", "repeated_role"),
        ("uatta", None),
        ("uuau", "ends_without_answer"),
    ],
)
def test_odd_conversations_are_noted_and_kept(roles: str, wanted: str | None) -> None:
    """What is odd but refuses nothing is counted under its own name."""
    found = loss_mask.conversation(talk(*roles), "assistant")
    assert examples.notes(found.messages) == ([wanted] if wanted else [])


def test_a_bare_text_is_not_odd() -> None:
    """A text row ends without an answer by its nature."""
    assert examples.notes([Message("text", "x")]) == []


def pair(**more: Any) -> Pair:
    """A good pair with something replaced."""
    good: dict[str, Any] = {
        "prompt": [Message("user", "q")],
        "chosen": [Message("assistant", "a")],
        "rejected": [Message("assistant", "b")],
    }
    return Pair(**{**good, **more})


def test_both_sides_of_a_pair_hold_the_prompt_and_train_what_differs() -> None:
    """Each side is a whole conversation; only the answers are trained, on both sides alike."""
    tools = [{"name": "f"}]
    prompt = [Message("system", "s"), Message("user", "q", trained=True)]
    more = [Message("assistant", "a"), Message("user", "more"), Message("assistant", "c")]
    chosen, rejected = examples.pair(pair(prompt=prompt, chosen=more, tools=tools))
    assert [m.content for m in chosen.messages] == ["s", "q", "a", "more", "c"]
    assert trained(chosen) == [False, False, True, False, True]
    assert [m.content for m in rejected.messages] == ["s", "q", "b"]
    assert trained(rejected) == [False, False, True]
    assert chosen.tools == rejected.tools == tools


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"prompt": []}, "no_prompt"),
        ({"prompt": [Message("system", "s")]}, "no_user_turn"),
        ({"prompt": [Message("user", "q"), Message("assistant", "x")]}, "prompt_ends_in_answer"),
        ({"chosen": []}, "empty_answer"),
        ({"rejected": []}, "empty_answer"),
        ({"chosen": [Message("assistant", "")]}, "empty_answer"),
        ({"rejected": [Message("assistant", " \n")]}, "empty_answer"),
        ({"chosen": [Message("user", "a")]}, "empty_answer"),
        ({"rejected": [Message("assistant", "b"), Message("user", "q")]}, "empty_answer"),
        ({"chosen": [Message("assistant", "b")]}, "identical_pair"),
    ],
)
def test_pairs_that_compare_nothing_are_refused(more: dict[str, Any], wanted: str) -> None:
    """No question, no answer or no difference: each has its code."""
    assert code(examples.pair, pair(**more)) == wanted


def result(content: str) -> Message:
    """What a tool gives back."""
    return Message("tool", content)


U, A, B = Message("user", "x"), Message("assistant", "a"), Message("assistant", "b")
OTHER = Message("user", "y")
CALLED = Message("assistant", None, CALL)


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ([A, U, A], [A, OTHER, A]),
        ([A, U, A], [A, OTHER, B]),
        ([A, U, A], [A]),
        ([A], [A, U, A]),
        ([A, U, A], [A, B]),
        ([A, U, A, U, B], [A, U, A, OTHER, B]),
        ([CALLED, result("1"), A], [CALLED, result("2"), B]),
        ([CALLED, result("1"), A], [CALLED]),
        ([A, Message("user", "x", {"name": "n"}), A], [A, U, B]),
        ([Message("assistant", "a", trained=True), U, A], [A, OTHER, A]),
    ],
)
def test_sides_that_answer_two_questions_are_refused(
    chosen: list[Message], rejected: list[Message]
) -> None:
    """They differ first where the user or a tool speaks, or where one of these goes on."""
    assert code(examples.pair, pair(chosen=chosen, rejected=rejected)) == "questions_differ"


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ([A, U, A], [B]),
        ([A, U, A], [B, U, A]),
        ([A, U, A], [B, OTHER, A]),  # the user replies to each answer
        ([A, U, A], [A, U, B]),
        ([A, U, A, U, A], [A, U, B, OTHER, A]),
        ([A, A], [A]),
        ([CALLED, result("1"), A], [CALLED, result("1"), B]),
        ([CALLED, result("1"), A], [B]),
        ([CALLED, result("1"), A], [Message("assistant", "x", CALL), result("2"), A]),
    ],
)
def test_sides_that_differ_first_in_an_answer_are_kept(
    chosen: list[Message], rejected: list[Message]
) -> None:
    """Whatever comes behind it."""
    sides = examples.pair(pair(chosen=chosen, rejected=rejected))
    assert [len(side.messages) for side in sides] == [1 + len(chosen), 1 + len(rejected)]


def called(ids: str, **fields: Any) -> list[Message]:
    """A call with an id, in three spellings, and a tool's result."""
    function = {"name": "f", "arguments": {"a": 1}, **({"id": ids} if "in" in ids else {})}
    calls = [{"type": "function", "function": function, **({} if "in" in ids else {"id": ids})}]
    first = Message("assistant", None, {"tool_calls": calls, **fields})
    return [first, Message("tool", "1", {"tool_call_id": ids})]


@pytest.mark.parametrize("other", ["c2", "c1 inside", "c2 inside"])
def test_answers_that_differ_in_ids_alone_are_one_answer(other: str) -> None:
    """Each rollout has ids of its own; what its tools said decides."""
    one, two = called("c1"), called(other)
    examples.pair(pair(chosen=[*one, A], rejected=[*two, B]))
    differs = pair(chosen=[*one, A], rejected=[two[0], result("2"), B])
    assert code(examples.pair, differs) == "questions_differ"


@pytest.mark.parametrize(("printed", "refused"), [(None, False), ({"name"}, False), ({"x"}, True)])
def test_answers_that_differ_in_what_is_not_printed_are_one(
    printed: set[str] | None, refused: bool
) -> None:
    """The model sees two answers that are alike, and two questions behind them."""
    first = Message("assistant", "a", {"name": "n"})
    made = pair(chosen=[first, U, A], rejected=[A, OTHER, B])
    if refused:
        assert code(lambda one: examples.pair(one, printed), made) == "questions_differ"
    else:
        examples.pair(made, printed)


@pytest.mark.parametrize(
    ("chosen", "rejected", "wanted"),
    [
        ([A, U, A], [A, OTHER, A], "differ first in turn 2 behind the prompt, a user turn"),
        ([A], [A, U, A], "are alike until rejected goes on with a user turn"),
    ],
)
def test_the_place_where_two_questions_begin_is_named(
    chosen: list[Message], rejected: list[Message], wanted: str
) -> None:
    """Which turn, whose, of which side."""
    with pytest.raises(RowError, match=wanted):
        examples.pair(pair(chosen=chosen, rejected=rejected))


def test_pairs_that_differ_in_one_blank_are_kept() -> None:
    """Contents arrive as written; a difference is a difference."""
    chosen, rejected = examples.pair(pair(chosen=[Message("assistant", "b ")]))
    assert chosen != rejected


def test_pairs_that_differ_in_their_calls_are_kept() -> None:
    """What stands beside the content is part of an answer."""
    sides = {"chosen": [Message("assistant", "b", CALL)]}
    chosen, rejected = examples.pair(pair(**sides))
    assert chosen != rejected


def test_a_chain_is_stripped_at_both_ends_and_nowhere_else() -> None:
    """Problem and steps lose the blanks around them; ratings and the row's own text stay."""
    pieces = [" p\n Step 1: a ", "\n b  c\n", ""]
    found = StepChain(" p\n ", ["Step 1: a ", "\n b  c\n"], [1.0, None], pieces)
    assert examples.chain(found) == StepChain("p", ["Step 1: a", "b  c"], [1.0, None], pieces)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (StepChain("", ["s"], [1.0]), "no_problem"),
        (StepChain(" \n", ["s"], [1.0]), "no_problem"),
        (StepChain("p", [], []), "no_steps"),
        (StepChain("p", ["s", " \n"], [1.0, 0.0]), "empty_step"),
        (StepChain("p", ["s", "t"], [None, None]), "nothing_labelled"),
    ],
)
def test_chains_that_teach_nothing_are_refused(found: StepChain, wanted: str) -> None:
    """No problem, no step, an empty step or no rating: each has its code."""
    assert code(examples.chain, found) == wanted


def test_the_empty_step_is_named() -> None:
    """The detail counts steps from 1."""
    with pytest.raises(RowError, match="step 2"):
        examples.chain(StepChain("p", ["s", ""], [1.0, 1.0]))


@settings(max_examples=40, deadline=None)
@given(labels=st.lists(st.none() | st.floats(0, 1, width=32), min_size=1, max_size=5))
def test_ratings_travel_through_the_door_unchanged(labels: list[float | None]) -> None:
    """A soft rating is stored as float32, a missing one as null, in their order."""
    row = {"prompt": "p", "completions": ["s"] * len(labels), "labels": labels}
    door = normalizing("prm", "stepwise")
    batch = door([Record(0, 0, b"", row)])
    if all(label is None for label in labels):
        assert batch["reject_code"].to_pylist() == ["nothing_labelled"]
        return
    assert batch["step_labels"].to_pylist() == [labels]
