"""Shapes of pairs and of steps: what each is read as, asked about, or refused with its name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import READ

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import (
    Conversation,
    FormatOptions,
    Message,
    Pair,
    Refused,
    Row,
)
from stages.errors import DataError
from stages.normalize.evidence import detect
from stages.rows import loss_mask


def node(role: str, text: str, *replies: Row, **more: Any) -> Row:
    """A message with the replies to it."""
    return {"role": role, "text": text, "replies": list(replies), **more}


TREE: Row = {
    "message_tree_id": "1",
    "prompt": node(
        "prompter",
        "q",
        node("assistant", "b", rank=1),
        node("assistant", "a", node("prompter", "r", node("assistant", "c", rank=0)), rank=0),
        node("assistant", "none", rank=None),
        node("assistant", "gone", rank=2, deleted=True),
    ),
}
SEVERAL: Row = {"prompt": "q", "chosen": ["a", "c"], "rejected": ["b", "d"]}


def test_what_is_open_is_asked_and_each_answer_reads() -> None:
    """The choices are in the message, and each of them makes examples."""
    for task, row, offered in (
        ("rm", SEVERAL, ["answer_lists/first", "answer_lists/all"]),
        ("sft", TREE, ["message_paths/best", "message_paths/all"]),
    ):
        with pytest.raises(DataError) as asked:
            detect([row] * 2, kind_of(task), "x.jsonl")
        for one in offered:
            assert f"--format {one}" in asked.value.remedy
            found = formats.choose(one, kind_of(task)).read(row, FormatOptions())
            assert any(not isinstance(example, Refused) for example in found)


def texts(reading: str, row: Row) -> list[tuple[str | None, str | None]]:
    """Both answers of each pair."""
    found = formats.choose(reading, kind_of("rm")).read(row, FormatOptions())
    pairs = [one for one in found if isinstance(one, Pair)]
    return [(pair.chosen[0].content, pair.rejected[0].content) for pair in pairs]


def test_several_answers_pair_up_as_asked() -> None:
    """The first of each, or each of one with each of the other; one side may be a text."""
    assert texts("answer_lists/first", SEVERAL) == [("a", "b")]
    crossed = [("a", "b"), ("a", "d"), ("c", "b"), ("c", "d")]
    assert texts("answer_lists/all", SEVERAL) == crossed
    assert texts("answer_lists/all", {**SEVERAL, "chosen": "a"}) == crossed[:2]


def test_trees_follow_the_best_or_all() -> None:
    """The best path has what is ranked first at each message; the others are counted."""
    best = formats.choose("message_paths/best", kind_of("sft")).read(TREE, FormatOptions())
    path = zip(("user", "assistant") * 2, "qarc", strict=True)
    assert [one for one in best if isinstance(one, Conversation)] == [
        Conversation([Message(*turn) for turn in path])
    ]
    codes = [one.code for one in best if isinstance(one, Refused)]
    assert codes == ["deleted_message", "not_the_best", "not_the_best"]
    whole = formats.choose("message_paths/all", kind_of("sft")).read(TREE, FormatOptions())
    assert sum(isinstance(one, Conversation) for one in whole) == 3


def test_the_sign_of_a_strength_can_be_turned() -> None:
    """By --format; the evidence says which way it is read."""
    name, row = READ["strength"].reading, READ["strength"].row
    found = detect([row], kind_of("rm"), "x")
    assert "below 0 the first answer is the better one" in found.evidence
    assert texts(name, row) == [("a", "b")]
    assert texts("strength_pair/positive-is-first", row) == [("b", "a")]


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Row:
    """Messages whose texts are all different, answered by turns."""
    count = [0]

    def grow(role: str, left: int) -> Row:
        count[0] += 1
        text = f"t{count[0]}"
        number = draw(st.integers(0, 3)) if left else 0
        other = "assistant" if role == "prompter" else "prompter"
        replies = [grow(other, left - 1) for _ in range(number)]
        ranks = draw(st.permutations(range(number)))
        for reply, rank in zip(replies, ranks, strict=True):
            if other == "assistant":
                reply["rank"] = draw(st.sampled_from([rank, rank, None]))
        return node(role, text, *replies)

    return {"prompt": grow("prompter", depth)}


def answers_of(found: Row) -> list[str]:
    """The texts of all answers of a tree."""
    own = [found["text"]] if found["role"] == "assistant" else []
    return own + [text for reply in found["replies"] for text in answers_of(reply)]


@settings(deadline=None, max_examples=40)
@given(trees())
def test_every_answer_of_a_tree_is_trained_once_or_counted(tree: Row) -> None:
    """All paths together train each answer exactly once."""
    found = formats.choose("message_paths/all", kind_of("sft")).read(tree, FormatOptions())
    made = [one for one in found if isinstance(one, Conversation)]
    ready = [loss_mask.conversation(one, "assistant") for one in made]
    trained = [m.content for one in ready for m in one.messages if m.trained]
    assert sorted(map(str, trained)) == sorted(answers_of(tree["prompt"]))


@settings(deadline=None, max_examples=40)
@given(trees())
def test_every_answer_of_a_ranked_tree_is_in_a_pair_or_counted(tree: Row) -> None:
    """Those in no pair are refused by name, and the better one has the lower rank."""
    if not tree["prompt"]["replies"]:
        return
    found = formats.choose("message_tree/all", kind_of("rm")).read(tree, FormatOptions())
    pairs = [one for one in found if isinstance(one, Pair)]
    used = {m.content for p in pairs for m in (*p.prompt, *p.chosen, *p.rejected)}
    lost = [text for text in answers_of(tree["prompt"]) if text not in used]
    refused = " ".join(one.detail for one in found if isinstance(one, Refused))
    single = [text for text in lost if f"'{text}'" not in refused]
    assert not single
