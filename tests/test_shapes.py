"""Shapes of pairs and of steps: what each is read as, asked about, or refused with its name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Ran, check_reading, read_manifest

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import (
    Conversation,
    Example,
    FormatOptions,
    Message,
    Pair,
    Refused,
    Row,
    StepChain,
)
from stages.conversations import loss_mask
from stages.detection.evidence import detect
from stages.errors import DataError, RowError

Run = Callable[..., Ran]
MODEL = ("--model", "qwen2-1.5b")


def user(content: str) -> Message:
    """A user's turn."""
    return Message("user", content)


def said(content: str, trained: bool | None = None) -> Message:
    """An assistant's turn."""
    return Message("assistant", content, trained=trained)


def turn(role: str, content: str, **more: Any) -> Row:
    """A turn in the spelling of ``messages``."""
    return {"role": role, "content": content, **more}


def node(role: str, text: str, *replies: Row, **more: Any) -> Row:
    """A message with the replies to it."""
    return {"role": role, "text": text, "replies": list(replies), **more}


Q, A, B = turn("user", "q"), turn("assistant", "a"), turn("assistant", "b")
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
UNRANKED: Row = {
    "prompt": node(
        "prompter",
        "q",
        node("assistant", "a", node("prompter", "r", node("assistant", "c"))),
        node("assistant", "b"),
    )
}
UNRANKED["prompt"]["replies"][0]["replies"].append(node("prompter", "s", node("assistant", "d")))
UNRANKED["prompt"]["replies"][0]["replies"].append(node("prompter", "nobody answers"))
RATED = [{"text": "s", "rating": 1}, {"text": "t", "rating": 0.25}, {"text": "u", "rating": None}]
SIGNED = [{"step": "s", "label": 1}, {"step": "t", "label": 0}, {"step": "u", "label": -1}]
CHAIN = [StepChain("P", ["s", "t", "u"], [1.0, 0.25, None])]
SEARCHED: Row = {
    "problem": "P",
    "tree": {
        "text": "P",
        "children": [
            {"text": "s", "value": 0.5, "children": [{"text": "t", "value": 1.0}]},
            {"text": "u", "value": 0, "children": []},
        ],
    },
}
GROWN: Row = {
    "prefix_tree": {
        "prefix": "P\n",
        "children": [
            {
                "prefix": "P\ns\n",
                "mc_value": 0.5,
                "children": [{"prefix": "P\ns\nt", "mc_value": 0.25}],
            }
        ],
    }
}

# reading that rows are detected as, task, row, examples
READ: dict[str, tuple[str, str, Row, list[Example]]] = {
    "message_pair": (
        "message_pair",
        "rm",
        {"chosen_messages": [Q, A], "rejected_messages": [Q, B], "margin": 2},
        [Pair([user("q")], [said("a")], [said("b")], 2.0)],
    ),
    "message_pair_prompt": (
        "message_pair",
        "rm",
        {"prompt": "q", "messages_chosen": [A], "messages_rejected": [B]},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "verdict": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "a", "answer_b": "b", "verdict": "B>>A"},
        [Pair([user("q")], [said("b")], [said("a")])],
    ),
    "verdict_in_brackets": (
        "indexed_pair",
        "rm",
        {"question": "q", "response_1": "a", "response_2": "b", "judgment": "[[A > B]]"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "verdict_in_label": (
        "indexed_pair",
        "rm",
        {"question": "q", "responses": ["a", "b"], "label": "A<B"},
        [Pair([user("q")], [said("b")], [said("a")])],
    ),
    "one_answer_each": (
        "answer_lists",
        "rm",
        {"prompt": "q", "chosen": ["a"], "rejected": ["b"]},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "one_conversation_each": (
        "answer_lists",
        "rm",
        {"chosen": [[Q, A]], "rejected": [[Q, B]]},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "message_tree": (
        "message_tree",
        "rm",
        TREE,
        [
            Refused("deleted_message", "'gone': deleted is true"),
            Refused("unranked_answer", "'none' has no rank"),
            Pair([user("q")], [said("a")], [said("b")]),
            Refused("only_answer", "'c' has no other answer to compare it with"),
        ],
    ),
    "message_paths": (
        "message_paths",
        "sft",
        UNRANKED,
        [
            Conversation([user("q"), said("a")]),
            Conversation([user("q"), said("a", False), user("r"), said("c")]),
            Conversation([user("q"), said("a", False), user("s"), said("d")]),
            Refused("no_answer", "'nobody answers' has no answer"),
            Conversation([user("q"), said("b")]),
        ],
    ),
    "strength": (
        "strength_pair",
        "rm",
        {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": -2},
        [Pair([user("q")], [said("a")], [said("b")], 2.0)],
    ),
    "strength_of_turns": (
        "strength_pair",
        "rm",
        {"prompt": [Q], "response1": "a", "response2": "b", "overall_preference": -3},
        [Pair([user("q")], [said("a")], [said("b")], 3.0)],
    ),
    "scored_completions": (
        "ranked",
        "rm",
        {
            "instruction": "q",
            "completions": [
                {"response": "b", "overall_score": 3.0, "model": "m"},
                {"response": "a", "overall_score": 7.5, "model": "n"},
            ],
        },
        [Pair([user("q")], [said("a")], [said("b")], 4.5)],
    ),
    "rated_steps": ("rated_steps", "prm", {"problem": "P", "steps": RATED}, CHAIN),
    "rated_steps_signed": (
        "rated_steps/signed",
        "prm",
        {"problem": "P", "steps": SIGNED},
        [StepChain("P", ["s", "t", "u"], [1.0, None, 0.0])],
    ),
    "stepwise_signed": (
        "stepwise/signed",
        "prm",
        {"problem": "P", "steps": ["s", "t", "u"], "ratings": [1, 0, -1]},
        [StepChain("P", ["s", "t", "u"], [1.0, None, 0.0])],
    ),
    "rated_steps_booleans": (
        "rated_steps",
        "prm",
        {"question": "P", "process": [{"content": "s", "correct": True}]},
        [StepChain("P", ["s"], [1.0])],
    ),
    "nested_steps": (
        "nested_steps",
        "prm",
        {
            "question": "P",
            "chain_of_thoughts": [
                {"steps": RATED, "final": 1},
                {"steps": ["s", "t"], "labels": [True, False]},
                {"steps": ["s", "t"], "labels": [True]},
            ],
        },
        [
            *CHAIN,
            StepChain("P", ["s", "t"], [1.0, 0.0]),
            Refused("label_count", "chain_of_thoughts[2]: 2 steps and 1 label"),
        ],
    ),
    "nested_steps_signed": (
        "nested_steps/signed",
        "prm",
        {"question": "P", "solutions": [{"steps": SIGNED}, {"steps": ["s"], "ratings": [-1]}]},
        [StepChain("P", ["s", "t", "u"], [1.0, None, 0.0]), StepChain("P", ["s"], [0.0])],
    ),
    "step_tree": (
        "step_tree",
        "prm",
        SEARCHED,
        [StepChain("P", ["s", "t"], [0.5, 1.0]), StepChain("P", ["u"], [0.0])],
    ),
    "step_tree_of_prefixes": (
        "step_tree",
        "prm",
        GROWN,
        [StepChain("P\n", ["s\n", "t"], [0.5, 0.25])],
    ),
    "rated_messages": (
        "rated_messages",
        "prm",
        {"messages": [Q, {**A, "rating": 0.75}, {**B, "rating": None}]},
        [StepChain("q", ["a", "b"], [0.75, None])],
    ),
    "rated_messages_signed": (
        "rated_messages/signed",
        "prm",
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "gpt", "value": "a", "score": -1},
            ]
        },
        [StepChain("q", ["a"], [0.0])],
    ),
}


@pytest.mark.parametrize(("name", "task", "row", "wanted"), READ.values(), ids=READ)
def test_each_shape_says_what_it_says(
    name: str, task: str, row: Row, wanted: list[Example]
) -> None:
    """Detected among all formats of its task, and turned into exactly these examples."""
    check_reading(name, task, row, wanted)


# reading, task, row, code
REFUSED: dict[str, tuple[str, str, Row, str]] = {
    "verdict_tie": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "a", "answer_b": "b", "verdict": "A=B"},
        "tie",
    ),
    "verdict_tie_in_words": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "a", "answer_b": "b", "verdict": "[[Tie]]"},
        "tie",
    ),
    "verdict_third_letter": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "a", "answer_b": "b", "winner": "[[C]]"},
        "tie",
    ),
    "verdict_of_one": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "a", "answer_b": "b", "verdict": "A>A"},
        "bad_label",
    ),
    "several_unasked": (
        "answer_lists",
        "rm",
        {"prompt": "q", "chosen": ["a", "c"], "rejected": ["b"]},
        "several_answers",
    ),
    "no_answer_in_list": (
        "answer_lists",
        "rm",
        {"prompt": "q", "chosen": [], "rejected": ["b"]},
        "empty_answer",
    ),
    "tree_without_answers": ("message_tree", "rm", {"prompt": node("prompter", "q")}, "no_pair"),
    "ranked_paths_unasked": ("message_paths", "sft", TREE, "ranked_answers"),
    "strength_none": (
        "strength_pair",
        "rm",
        {"prompt": "q", "response_1": "a", "response_2": "b", "preference_strength": 0},
        "tie",
    ),
    "regression": (
        "regression_reward",
        "rm",
        {"prompt": "q", "response": "a", "reward": 0.5},
        "regression_reward",
    ),
    "unsigned": ("rated_steps", "prm", {"problem": "P", "steps": SIGNED}, "bad_label"),
    "stepwise_signed_half": (
        "stepwise/signed",
        "prm",
        {"problem": "P", "steps": ["s", "t"], "ratings": [1, 0.5]},
        "bad_label",
    ),
    "signed_half": (
        "rated_steps/signed",
        "prm",
        {"problem": "P", "steps": [{"text": "s", "rating": 0.5}]},
        "bad_label",
    ),
    "turn_between_steps": (
        "rated_messages",
        "prm",
        {"messages": [Q, {**A, "rating": 1}, turn("tool", "42"), {**B, "rating": 0}]},
        "turns_between_steps",
    ),
    "tree_of_other_prefixes": (
        "step_tree",
        "prm",
        {"problem": "P", "tree": {"prefix": "a", "children": [{"prefix": "b", "value": 1}]}},
        "not_cumulative",
    ),
    "tree_without_problem": (
        "step_tree",
        "prm",
        {"tree": {"children": [{"text": "s", "value": 1}]}},
        "no_problem",
    ),
}


@pytest.mark.parametrize(("name", "task", "row", "code"), REFUSED.values(), ids=REFUSED)
def test_what_says_nothing_clear_is_refused(name: str, task: str, row: Row, code: str) -> None:
    """By its code, with a reason."""
    with pytest.raises(RowError) as refused:
        formats.choose(name, kind_of(task)).read(row, FormatOptions())
    assert refused.value.code == code
    assert refused.value.detail


SEVERAL: Row = {"prompt": "q", "chosen": ["a", "c"], "rejected": ["b", "d"]}
REWARD: Row = {"prompt": "q", "response": "a", "helpfulness": 3, "verbosity": 1}
# rows that leave something open, and the readings that are offered
ASKED: dict[str, tuple[str, Row, list[str]]] = {
    "several_answers": ("rm", SEVERAL, ["answer_lists/first", "answer_lists/all"]),
    "ranked_paths": ("sft", TREE, ["message_paths/best", "message_paths/all"]),
}


@pytest.mark.parametrize(("task", "row", "offered"), ASKED.values(), ids=ASKED)
def test_what_is_open_is_asked_and_each_answer_reads(
    task: str, row: Row, offered: list[str]
) -> None:
    """The choices are in the message, and each of them makes examples."""
    with pytest.raises(DataError) as asked:
        detect([row] * 2, kind_of(task), "x.jsonl")
    assert all(f"--format {one}" in asked.value.remedy for one in offered)
    for one in offered:
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
    assert [one for one in best if isinstance(one, Conversation)] == [
        Conversation([user("q"), said("a"), user("r"), said("c")])
    ]
    codes = [one.code for one in best if isinstance(one, Refused)]
    assert codes == ["deleted_message", "not_the_best", "not_the_best"]
    whole = formats.choose("message_paths/all", kind_of("sft")).read(TREE, FormatOptions())
    assert sum(isinstance(one, Conversation) for one in whole) == 3


def test_the_sign_of_a_strength_can_be_turned() -> None:
    """By --format; the evidence says which way it is read."""
    name, task, row, _ = READ["strength"]
    assert (
        "below 0 the first answer is the better one" in detect([row], kind_of(task), "x").evidence
    )
    assert texts(name, row) == [("a", "b")]
    assert texts("strength_pair/positive-is-first", row) == [("b", "a")]


def test_one_answer_with_a_number_is_refused_by_name() -> None:
    """The message says what such data is for, and what would be read."""
    with pytest.raises(DataError, match="regression") as refused:
        detect([REWARD, REWARD], kind_of("rm"), "x.jsonl")
    assert "one response with one helpfulness" in refused.value.what
    assert "chosen and rejected" in refused.value.remedy


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


@settings(deadline=None, max_examples=60)
@given(trees())
def test_every_answer_of_a_tree_is_trained_once_or_counted(tree: Row) -> None:
    """All paths together train each answer exactly once."""
    found = formats.choose("message_paths/all", kind_of("sft")).read(tree, FormatOptions())
    made = [one for one in found if isinstance(one, Conversation)]
    ready = [loss_mask.conversation(one, "assistant") for one in made]
    trained = [m.content for one in ready for m in one.messages if m.trained]
    assert sorted(map(str, trained)) == sorted(answers_of(tree["prompt"]))


@settings(deadline=None, max_examples=60)
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


def _lines(path: Path, *rows: Row) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


FILES: dict[str, list[str]] = {
    task: [name for name, (_, its, _, _) in READ.items() if its == task]
    for task in ("sft", "rm", "prm")
}


@pytest.mark.parametrize(
    "task", ["rm", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sft", "prm"))]
)
def test_each_shape_is_planned_and_built(pipeline: Run, tmp_path: Path, task: str) -> None:
    """One file a shape, all in one build: plan and run see the same readings and examples."""
    names = FILES[task]
    files = [_lines(tmp_path / f"{name}.jsonl", READ[name][2]) for name in names]
    command = (*files, *MODEL)
    planned = pipeline("plan", *command, "--task", task, "--json")
    assert planned.status == 0, planned.err
    said_ = json.loads(planned.out)
    done = pipeline("run", task, *command, "-o", "out", "--max-reject", 1)
    assert done.status == 0, done.err
    manifest = read_manifest(tmp_path / "out")
    wanted = [example for name in names for example in READ[name][3]]
    refused = [example.code for example in wanted if isinstance(example, Refused)]
    assert manifest["examples"]["kept"] == len(wanted) - len(refused)
    assert sorted(refused) == sorted(
        code for code, n in manifest["examples"]["rejected_by_code"].items() for _ in range(n)
    )
    readings = [READ[name][0] for name in names]
    assert [one["format"] for one in said_["inputs"]] == readings
    assert [one["format"] for one in manifest["inputs"]] == readings


def test_questions_and_refusals_at_the_command_line(pipeline: Run, tmp_path: Path) -> None:
    """Exit 3 with the choices; the first of the offered flags builds."""
    name = _lines(tmp_path / "several.jsonl", SEVERAL, SEVERAL | {"prompt": "r"})
    asked = pipeline("run", "rm", name, *MODEL, "-o", "out")
    assert asked.status == 3
    words = shlex.split(asked.err.replace(".", " "))
    offered = words[words.index("--format") + 1]
    done = pipeline("run", "rm", name, *MODEL, "-o", "out", "--format", offered)
    assert done.status == 0, done.err
    name = _lines(tmp_path / "reward.jsonl", REWARD)
    refused = pipeline("run", "rm", name, *MODEL, "-o", "none")
    assert refused.status == 3
    assert "data for a regression" in refused.err
