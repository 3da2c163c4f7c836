"""What every example must be before it is rendered, whatever format it came in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import normalizing

from stages.contract import Conversation, Message, Pair, Record, StepChain
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


def test_flags_win_over_the_policy():
    """A turn's own flag decides; where it has none, ``--train-on`` does. A bare text is trained as
    a whole, and an answer of calls alone is one."""
    s, u, a, t, f = "s", "u", "a", "t", False
    blank = talk(u, (a, f), u, a)
    blank.messages[1].content = ""
    called = Conversation([Message("user", "q"), Message("assistant", None, CALL)])
    for found, policy, wanted in (
        (talk(s, u, a, u, a), "assistant", [f, f, True, f, True]),
        (talk(s, u, a, u, a), "last", [f, f, f, f, True]),
        (talk(s, u, a, u, a), "all", [True, True, True, True, True]),
        (talk(s, (u, f), (a, f), u, a), "all", [True, f, f, True, True]),
        (talk(u, a, u), "last", [f, True, f]),
        (talk(u, a, t, a), "assistant", [f, True, f, True]),
        (talk(u, (a, f), u, a), "assistant", [f, f, f, True]),
        (talk(u, (a, True), u, a), "last", [f, True, f, True]),
        (talk(u, (a, True), u, (a, f)), "last", [f, True, f, f]),
        (talk((u, f), a), "assistant", [f, True]),
        (talk((u, True), a), "all", [True, True]),
        (blank, "assistant", [f, f, f, True]),
        (called, "assistant", [f, True]),
        (Conversation([Message("text", "x")]), "last", [True]),
    ):
        assert trained(loss_mask.conversation(found, policy)) == wanted, (found, policy)


@pytest.mark.parametrize("policy", ["assistant", "last", "all"])
def test_conversations_that_teach_nothing_are_refused(policy):
    """Nobody answers or asks, no turn is trained, or one of blanks would be; a flag that asks to
    train a user's turn is a contradiction, not a wish."""
    no_calls = Message("assistant", "", {"tool_calls": []})
    for found, wanted in (
        (talk("s", "u"), "no_answer"),
        (talk("u"), "no_answer"),
        (talk("s", "a"), "no_user_turn"),
        (talk("a", "t", "a"), "no_user_turn"),
        (talk(("u", False), ("a", False)), "nothing_trained"),
        (Conversation([Message("text", " \n")]), "empty_answer"),
        (Conversation([Message("user", "q"), no_calls]), "empty_answer"),
        *((talk("u", "a", answer=blank), "empty_answer") for blank in ("", " ", "\n\t ", "\u2003")),
    ):
        assert code(loss_mask.conversation, found, policy) == wanted, found
    if policy != "all":
        assert code(loss_mask.conversation, talk(("u", True), "a"), policy) == "untrainable_turn"


FLAGS = st.sampled_from([None, True, False])
TURNS = st.lists(
    st.tuples(st.just("a"), FLAGS) | st.sampled_from(["u", "s", "t"]), min_size=1, max_size=8
)


@given(turns=TURNS, policy=st.sampled_from(["assistant", "last", "all"]))
def test_a_kept_conversation_trains_an_answer_and_keeps_its_turns(turns, policy):
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


@given(turns=TURNS)
def test_turn_by_turn_gives_one_example_for_each_trained_turn(turns):
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


def test_a_row_of_a_turn_by_turn_model_is_numbered():
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


def test_odd_conversations_are_noted_and_kept():
    """What is odd but refuses nothing is counted under its own name; a text is no conversation."""
    notes = {
        "ends_without_answer": ("uau", "uat", "uuau"),
        "repeated_role": ("uua", "uaa"),
        None: ("ua", "sua", "uaua", "uatta"),
    }
    for wanted, conversations in notes.items():
        for roles in conversations:
            found = loss_mask.conversation(talk(*roles), "assistant")
            assert examples.notes(found.messages) == ([wanted] if wanted else []), roles
    assert examples.notes([Message("text", "x")]) == []


@given(counts=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=4))
def test_a_result_is_missing_where_calls_outnumber_results(counts):
    """Between two questions, whatever stands before and behind; but for calls that a question, or
    nothing, follows. Results with one id are one."""
    [call], missing = CALL["tool_calls"], False
    turns = [Message("user", "q")]
    for calls, results, goes_on in counts:
        made = [{**call, "id": f"c{number}"} for number in range(calls)]
        turns.append(Message("assistant", "a", {"tool_calls": made} if made else None))
        for number in range(min(results, calls)):
            turns += [Message("tool", "r", {"tool_call_id": f"c{number}"})] * 2
        turns.append(Message("assistant" if goes_on else "user", "next"))
        missing |= results < calls and (goes_on or results > 0)
        turns.append(Message("user", "q"))
    assert ("missing_result" in examples.notes(turns)) == missing
    again = Message("assistant", None, {"tool_calls": [{**call, "id": "c0"}]})
    told = Message("tool", "r", {"tool_call_id": "c0"})  # ids begin anew with each turn
    assert ("missing_result" in examples.notes([*turns, again, told, again, told])) == missing
    last = Message("assistant", None, {"tool_calls": [call, call]})
    assert ("missing_result" in examples.notes([*turns, last])) == missing
    assert "missing_result" in examples.notes([*turns, last, Message("tool", "r")])


def pair(**more: Any) -> Pair:
    """A good pair with something replaced."""
    good: dict[str, Any] = {
        "prompt": [Message("user", "q")],
        "chosen": [Message("assistant", "a")],
        "rejected": [Message("assistant", "b")],
    }
    return Pair(**{**good, **more})


def test_both_sides_of_a_pair_hold_the_prompt_and_train_what_differs():
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


def test_pairs_that_compare_nothing_are_refused():
    """No question, no answer or no difference: each has its code."""
    question = Message("user", "q")
    for side, turns, wanted in (
        ("prompt", [], "no_prompt"),
        ("prompt", [Message("system", "s")], "no_user_turn"),
        ("prompt", [question, Message("assistant", "x")], "prompt_ends_in_answer"),
        ("chosen", [], "empty_answer"),
        ("rejected", [], "empty_answer"),
        ("chosen", [Message("assistant", "")], "empty_answer"),
        ("rejected", [Message("assistant", " \n")], "empty_answer"),
        ("chosen", [Message("user", "a")], "empty_answer"),
        ("rejected", [Message("assistant", "b"), question], "empty_answer"),
        ("chosen", [Message("assistant", "b")], "identical_pair"),
    ):
        assert code(examples.pair, pair(**{side: turns})) == wanted, (side, turns)


U, OTHER = Message("user", "x"), Message("user", "y")
A, B = Message("assistant", "a"), Message("assistant", "b")
TWO = Message("tool", "2")  # what a tool gives back
# Turns by a letter: questions, answers, calls, what a tool gives back, and what is odd of them.
TURN = {"U": U, "V": OTHER, "A": A, "B": B, "C": Message("assistant", None, CALL)}
TURN |= {"1": Message("tool", "1"), "2": TWO, "n": Message("user", "x", {"name": "n"})}
TURN |= {"t": Message("assistant", "a", trained=True), "b": Message("assistant", "b ")}
TURN |= {"d": Message("assistant", "x", CALL), "e": Message("assistant", "b", CALL)}


def sides(letters: str) -> Pair:
    """A pair whose two sides are given as letters."""
    chosen, rejected = ([TURN[one] for one in side] for side in letters.split())
    return pair(chosen=chosen, rejected=rejected)


def test_sides_that_answer_two_questions_are_refused():
    """They differ first where the user or a tool speaks, or where one of these goes on."""
    refused = "AUA AVA,AUA AVB,AUA A,A AUA,AUA AB,AUAUB AUAVB,C1A C2B,C1A C,AnA AUB,tUA AVA"
    for both in refused.split(","):
        assert code(examples.pair, sides(both)) == "questions_differ", both


def test_sides_that_differ_first_in_an_answer_are_kept():
    """Whatever comes behind it, as where the user replies to each answer; contents arrive as
    written, and calls are part of an answer."""
    kept = "AUA B,AUA BUA,AUA BVA,AUA AUB,AUAUA AUBVA,AA A,C1A C1B,C1A B,C1A d2A,b B,e B"
    for both in kept.split(","):
        one, other = examples.pair(sides(both))
        assert [len(side.messages) - 1 for side in (one, other)] == [*map(len, both.split())]
        assert one != other


def called(ids: str, **fields: Any) -> list[Message]:
    """A call with an id, in three spellings, and a tool's result."""
    function = {"name": "f", "arguments": {"a": 1}, **({"id": ids} if "in" in ids else {})}
    calls = [{"type": "function", "function": function, **({} if "in" in ids else {"id": ids})}]
    first = Message("assistant", None, {"tool_calls": calls, **fields})
    return [first, Message("tool", "1", {"tool_call_id": ids})]


def test_answers_that_differ_in_ids_alone_are_one_answer():
    """Each rollout has ids of its own; what its tools said decides."""
    for other in ("c2", "c1 inside", "c2 inside"):
        one, two = called("c1"), called(other)
        examples.pair(pair(chosen=[*one, A], rejected=[*two, B]))
        differs = pair(chosen=[*one, A], rejected=[two[0], TWO, B])
        assert code(examples.pair, differs) == "questions_differ"


def test_answers_that_differ_in_what_is_not_printed_are_one():
    """The model sees two answers that are alike, and two questions behind them."""
    first = Message("assistant", "a", {"name": "n"})
    made = pair(chosen=[first, U, A], rejected=[A, OTHER, B])
    for printed in (None, {"name"}):
        examples.pair(made, printed)
    assert code(examples.pair, made, {"x"}) == "questions_differ"


@pytest.mark.parametrize(
    ("chosen", "rejected", "wanted"),
    [
        ([A, U, A], [A, OTHER, A], "differ first in turn 2 behind the prompt, a user turn"),
        ([A], [A, U, A], "are alike until rejected goes on with a user turn"),
    ],
)
def test_the_place_where_two_questions_begin_is_named(chosen, rejected, wanted):
    """Which turn, whose, of which side."""
    with pytest.raises(RowError, match=wanted):
        examples.pair(pair(chosen=chosen, rejected=rejected))


def test_a_chain_is_stripped_at_both_ends_and_nowhere_else():
    """Problem and steps lose the blanks around them; ratings and the row's own text stay."""
    pieces = [" p\n Step 1: a ", "\n b  c\n", ""]
    found = StepChain(" p\n ", ["Step 1: a ", "\n b  c\n"], [1.0, None], pieces)
    assert examples.chain(found) == StepChain("p", ["Step 1: a", "b  c"], [1.0, None], pieces)


def test_chains_that_teach_nothing_are_refused():
    """No problem, no step, an empty step or no rating: each has its code."""
    for found, wanted in (
        (StepChain("", ["s"], [1.0]), "no_problem"),
        (StepChain(" \n", ["s"], [1.0]), "no_problem"),
        (StepChain("p", [], []), "no_steps"),
        (StepChain("p", ["s", " \n"], [1.0, 0.0]), "empty_step"),
        (StepChain("p", ["s", "t"], [None, None]), "nothing_labelled"),
    ):
        assert code(examples.chain, found) == wanted
    with pytest.raises(RowError, match="step 2"):  # counted from 1
        examples.chain(StepChain("p", ["s", ""], [1.0, 1.0]))


@given(labels=st.lists(st.none() | st.floats(0, 1, width=32), min_size=1, max_size=5))
def test_ratings_travel_through_the_door_unchanged(labels):
    """A soft rating is stored as float32, a missing one as null, in their order."""
    row = {"prompt": "p", "completions": ["s"] * len(labels), "labels": labels}
    door = normalizing("prm", "stepwise")
    batch = door([Record(0, 0, b"", row)])
    if all(label is None for label in labels):
        assert batch["reject_code"].to_pylist() == ["nothing_labelled"]
        return
    assert batch["step_labels"].to_pylist() == [labels]
