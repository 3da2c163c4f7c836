"""What every example must be before it is rendered, whatever format it came in."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import normalizing, records
from support import raised, table

from stages.contract import Conversation, Message, Pair, StepChain
from stages.errors import RowError
from stages.rows import examples, loss_mask

CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}
ROLES = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
POLICIES = ("assistant", "last", "all")


def said(turns: Iterable[Any]) -> list[Message]:
    """Turns by the letters of their roles, with ``+`` or ``-`` for a flag; or as they stand."""
    return [
        Message(**one)
        if isinstance(one, dict)
        else Message(
            ROLES[one[0]],
            "a" if one[0] == "a" else "x",
            trained={"+": True, "-": False}.get(one[1:]),
        )
        for one in turns
    ]


def talk(turns: Iterable[Any]) -> Conversation:
    """A conversation of such turns."""
    return Conversation(said(turns))


def trained(found: Conversation) -> list[bool | None]:
    """Which turns are trained."""
    return [message.trained for message in found.messages]


def code(call: Any, *arguments: Any, says: str | None = None) -> str:
    """The code that something is refused with."""
    caught = raised(RowError, call, *arguments, says=says)
    assert caught.detail
    return caught.code


def pair(**more: Any) -> Pair:
    """A good pair with something replaced."""
    good: dict[str, Any] = {
        "prompt": [Message("user", "q")],
        "chosen": [Message("assistant", "a")],
        "rejected": [Message("assistant", "b")],
    }
    return Pair(**{**good, **more})


def test_flags_win_over_the_policy():
    """A turn's own flag decides; where it has none, ``--train-on`` does. A bare text is trained as
    a whole, and an answer of calls alone is one."""
    for policy, turns, wanted in table("loss_masks.jsonl"):
        found = loss_mask.conversation(talk(turns), policy)
        assert trained(found) == [one != "-" for one in wanted], (turns, policy)


def test_what_teaches_nothing_is_refused():
    """Nobody answers or asks, no turn is trained, or one of blanks would be; sides without a
    question, an answer or a difference; no problem, no step, an empty step or no rating."""
    for one in table("teaching_nothing.jsonl"):
        if "pair" in one:
            sides = {name: said(turns) for name, turns in one["pair"].items()}
            assert code(examples.pair, pair(**sides)) == one["code"], one
        elif "chain" in one:
            made = StepChain(*one["chain"])
            assert code(examples.chain, made, says=one.get("says")) == one["code"], one
        else:
            for policy in POLICIES:
                found = talk(one["conversation"])
                assert code(loss_mask.conversation, found, policy) == one["code"], (one, policy)
    for policy in POLICIES[:2]:  # a flag that asks to train it is a contradiction, not a wish
        assert code(loss_mask.conversation, talk(["u+", "a"]), policy) == "untrainable_turn"


TURNS = st.lists(st.sampled_from(["a", "a+", "a-", "u", "s", "t"]), min_size=1, max_size=8)


@given(turns=TURNS, policy=st.sampled_from(POLICIES))
def test_a_kept_conversation_trains_an_answer_and_keeps_its_turns(turns, policy):
    """Every kept conversation has a question, an answer and a trained turn; none is changed."""
    found = talk(turns)
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
    found = talk(["u", *turns, "a"])
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
    each = (["user", "assistant"] * 2, ["user", "assistant"], ["user"])
    rows = [{"messages": [{"role": r, "content": "x"} for r in roles]} for roles in each]
    door = normalizing("sft", "openai", turn_by_turn=True)
    batch = door(records(rows))
    assert door.fans_out
    assert batch["line"].to_pylist() == [0, 0, 3, 6]
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
            found = loss_mask.conversation(talk(roles), "assistant")
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


# Results of tools that a template prints without ids stand where their calls are.


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


ASKED, GIVEN = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
MADE = {
    "call": call,
    "flat": flat,
    "result": result,
    "user": lambda: ASKED,
    "answer": lambda: GIVEN,
}


def test_results_stand_where_their_calls_are_or_are_refused():
    """The message says which result it is, and what was expected."""
    own = ("role", "content")
    for one in table("tool_results.jsonl"):
        turns = [ASKED, *(MADE[kind](*ids) for kind, *ids in one["turns"]), GIVEN]
        messages = [
            Message(t["role"], t["content"], {k: v for k, v in t.items() if k not in own} or None)
            for t in turns
        ]
        if "says" in one:
            refused = code(examples.require_order, messages, says=one["says"])
            assert refused == "misplaced_result"
        else:
            examples.require_order(messages)


@pytest.mark.parametrize("printed", [{"tool_call_id"}, {"*"}, set()])
def test_templates_that_print_ids_take_any_order(printed):
    """The ids say whose each result is. Both sides of a pair are looked at, each behind the prompt,
    which may have calls of its own."""
    both = (call("1", "2"), result("1"), result("2"), GIVEN)
    swapped, other = (both[0], both[2], both[1], GIVEN), [{"role": "assistant", "content": "b"}]
    talks = [{"messages": [ASKED, *turns]} for turns in ((GIVEN,), both, swapped)]
    sides = [(both, both, other), (both, swapped, other), (both, other, swapped)]
    pairs = [
        {"prompt": [ASKED, *before, ASKED], "chosen": [*one], "rejected": [*two]}
        for before, one, two in (*sides, (swapped, other, both))
    ]
    for task, reading, rows, misplaced in (
        ("sft", "openai", talks, {2}),
        ("rm", "preference", pairs, {1, 2, 3}),
    ):
        one = normalizing(task, reading, printed=frozenset({"tool_calls", *printed}))
        wanted = ["misplaced_result" if at in misplaced else None for at in range(len(rows))]
        codes = one(records(rows)).column("reject_code").to_pylist()
        assert codes == (wanted if not printed else [None] * len(rows))


# Pairs.


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
    """They differ first where the user or a tool speaks, or where one of these goes on; the place
    is named. Sides that differ first in an answer are kept, whatever comes behind it; contents
    arrive as written, and calls are part of an answer."""
    refused = "AUA AVA,AUA AVB,AUA A,A AUA,AUA AB,AUAUB AUAVB,C1A C2B,C1A C,AnA AUB,tUA AVA"
    places = {
        "AUA AVA": "differ first in turn 2 behind the prompt, a user turn",
        "A AUA": "are alike until rejected goes on with a user turn",
    }
    for both in refused.split(","):
        found = code(examples.pair, sides(both), says=places.get(both))
        assert found == "questions_differ", both
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


def test_answers_that_differ_in_ids_or_in_what_is_not_printed_are_one():
    """Each rollout has ids of its own; what its tools said decides. The model sees two answers that
    are alike, and two questions behind them."""
    for other in ("c2", "c1 inside", "c2 inside"):
        one, two = called("c1"), called(other)
        examples.pair(pair(chosen=[*one, A], rejected=[*two, B]))
        differs = pair(chosen=[*one, A], rejected=[two[0], TWO, B])
        assert code(examples.pair, differs) == "questions_differ"
    first = Message("assistant", "a", {"name": "n"})
    made = pair(chosen=[first, U, A], rejected=[A, OTHER, B])
    for printed in (None, {"name"}):
        examples.pair(made, printed)
    assert code(examples.pair, made, {"x"}) == "questions_differ"


def test_a_chain_is_stripped_at_both_ends_and_nowhere_else():
    """Problem and steps lose the blanks around them; ratings and the row's own text stay."""
    pieces = [" p\n Step 1: a ", "\n b  c\n", ""]
    found = StepChain(" p\n ", ["Step 1: a ", "\n b  c\n"], [1.0, None], pieces)
    assert examples.chain(found) == StepChain("p", ["Step 1: a", "b  c"], [1.0, None], pieces)
