"""Record formats: what each kind of row says, and why a row is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import READ, normalizing, turns
from support import SAMPLES

from pipeline.tasks import kind_of
from stages import formats, readers
from stages.contract import (
    Conversation,
    Example,
    FormatOptions,
    Message,
    Pair,
    Record,
    Refused,
    Row,
    StepChain,
)
from stages.errors import DataError, RowError, UsageError
from stages.normalize.evidence import detect
from stages.normalize.stage import Normalize
from stages.rows import examples
from stages.rows.selection import renamed

Q, A, B = ("user", "q"), ("assistant", "a"), ("assistant", "b")


SIGNED_TEXT = st.text(st.sampled_from("+- 1a\n"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(SIGNED_TEXT, st.sampled_from("+-")), min_size=1, max_size=5),
    problem=SIGNED_TEXT,
    tag=st.sampled_from(["ки", "<extra_0>", "<step>"]),
)
def test_ratings_are_read_at_the_tags_whatever_the_texts_hold(
    steps: list[tuple[str, str]], problem: str, tag: str
) -> None:
    """For any texts, aligned input and label give back the ratings that they were made from."""
    pieces = [f"Step {i}: {text}" for i, (text, _) in enumerate(steps, 1)]
    signs = [sign for _, sign in steps]
    row = {
        "input": problem + "".join(piece + tag for piece in pieces),
        "label": problem + "".join(p + sign for p, sign in zip(pieces, signs, strict=True)),
    }
    (found,) = formats.load("math_shepherd").read(row, FormatOptions())
    assert isinstance(found, StepChain)
    assert found.labels == [1.0 if sign == "+" else 0.0 for sign in signs]
    assert (found.problem, found.steps) == (problem, pieces)
    assert found.pieces == [problem + pieces[0], *pieces[1:], ""]


def test_the_step_tag_and_the_separator_can_be_named() -> None:
    """A tag and a separator that nobody knows are read when they are named."""
    options = FormatOptions(step_tag="#", prompt_separator="||")
    row = {"input": "P|| s #\nt #", "value": ["+", "-"]}
    (found,) = formats.load("openrlhf_prm").read(row, options)
    assert isinstance(found, StepChain)
    chain = examples.chain(found)
    assert (chain.problem, chain.steps, chain.labels) == ("P", ["|| s", "t"], [1.0, 0.0])


@pytest.mark.parametrize(("neutral", "value"), [("null", None), ("good", 1.0), ("bad", 0.0)])
def test_alternatives_are_rated_as_neutral_says(neutral: str, value: float | None) -> None:
    """Rating 0 is what ``neutral`` says, alone and in the chain, and all else is as without it."""
    one = READ["prm800k"]
    wanted = [
        replace(made, labels=[value if rating is None else rating for rating in made.labels])
        if isinstance(made, StepChain)
        else made
        for made in one.examples
    ]
    assert formats.load("prm800k").read(one.row, FormatOptions(neutral=neutral)) == wanted


def test_completions_that_are_no_list_are_refused_as_a_row() -> None:
    """A row of another shape in a PRM800K file is refused by name and stops nothing."""
    row = {"question": {"problem": "P"}, "label": {"steps": [{"completions": 5}]}}
    door = normalizing("prm", "prm800k")
    (found,) = door([Record(0, 0, b"", row)]).to_pylist()
    assert found["reject_code"] == "malformed_row"
    assert found["reject_detail"]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_completion_is_in_an_example_or_refused_by_name(data: st.DataObject) -> None:
    """Whatever was chosen, rated or written, each completion's text ends a chain or has a code."""
    steps: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 4))):
        ratings = data.draw(st.lists(st.sampled_from([-1, 0, 1, None]), max_size=3))
        made = [{"text": f"{number}.{i}", "rating": r} for i, r in enumerate(ratings)]
        chosen = data.draw(st.one_of(st.none(), st.integers(0, len(made) - 1))) if made else None
        human = data.draw(st.sampled_from([None, {"text": f"{number}.h"}]))
        steps.append(
            {"completions": made or None, "chosen_completion": chosen, "human_completion": human}
        )
    row = {"question": {"problem": "P"}, "label": {"steps": steps}}
    found = formats.load("prm800k").read(row, FormatOptions())
    chains = [one for one in found if isinstance(one, StepChain)]
    used = {text for chain in chains for text in chain.steps}
    written = sum(len(step["completions"] or []) for step in steps)
    written += sum(step["human_completion"] is not None for step in steps)
    assert len(used) + sum(isinstance(one, Refused) for one in found) == written


KEYS = (
    "messages conversations prompt completion completions chosen rejected text input output "
    "instruction label labels value question answer steps problem system tools margin "
    "score_chosen score_rejected role content from rating chosen_completion human_completion "
    "weight train loss tool_calls name type instances history response_chosen response_rejected "
    "output_1 output_2 winner ranked responses scores rank error_steps first_error prefixes "
    "input_ids loss_mask attention_mask message_thinking message_content reasoning function_call "
    "arguments better_response_id context"
).split()
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "user", "gpt", "tool", "function_call", "+", "[]", "{", "null"])
    | st.sampled_from(["P Step 1: a ки", "P Step 1: a +", '{"name": "f"}', "text"])
)
SHAPES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(row=st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), raw=st.booleans())
def test_no_row_crashes_the_door(row: Row, raw: bool) -> None:
    """Any object comes out of any format's door once or refused; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        for base in formats.for_kind(kind_of(task)):
            for found in (base, *base.variants.values()):
                door = Normalize(kind_of(task), found, FormatOptions(), raw=raw, reasoning=None)
                batch = door([Record(0, 0, b"", row)])
                assert batch.num_rows == 1 or found.fans_out
                assert found.matches(row) is None or isinstance(found.matches(row), str)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), max_size=4))
def test_no_rows_crash_detection(rows: list[Row]) -> None:
    """Any sample has one reading or is refused with a sentence; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        try:
            found = detect(rows, kind_of(task), "x.jsonl")
        except DataError as error:
            said = str(error)
        else:
            said = found.evidence
            assert kind_of(task).name in found.format.kinds
        assert "\n" not in said


def test_the_format_of_most_rows_is_detected() -> None:
    """Some odd rows do not hide the format; their own refusal will name them."""
    good, odd = {"instruction": "q", "output": "a"}, {"id": 1}
    assert detect([good, odd, good], kind_of("sft"), "x.jsonl").reading == "alpaca"
    with pytest.raises(DataError, match="no format of conversations fits"):
        detect([good, odd, odd], kind_of("sft"), "x.jsonl")


def test_rows_that_read_two_ways_are_not_guessed_at() -> None:
    """Where two formats fit equally well the user says which."""
    turned: Row = {"messages": turns(Q, A), "prompt": "q", "completion": "a"}
    stepped: Row = {"input": "P ки", "label": "P +", "completions": ["s"], "labels": [True]}
    for task, row in (("sft", turned), ("prm", stepped)):
        with pytest.raises(DataError, match="reads as") as caught:
            detect([row], kind_of(task), "x.jsonl")
        assert "--format" in caught.value.remedy


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
def test_undetectable_rows_are_refused_with_their_columns(task: str) -> None:
    """The message names the columns that were found and the formats that read rows."""
    with pytest.raises(DataError, match="alpha, beta") as caught:
        detect([{"beta": 1, "alpha": 2}], kind_of(task), "x.jsonl")
    names = {found.name for found in formats.usable_for(kind_of(task))}
    assert all(name in caught.value.remedy for name in names)
    refused = {found.name for found in formats.for_kind(kind_of(task))} - names
    assert not any(name in caught.value.remedy for name in refused)


def test_a_format_of_another_task_is_a_usage_error() -> None:
    """A format that cannot feed the task is refused, and so is one that does not exist."""
    with pytest.raises(UsageError, match="gives conversations, not preference pairs"):
        formats.choose("alpaca", kind_of("rm"))
    with pytest.raises(UsageError, match="alpacca") as caught:
        formats.choose("alpacca", kind_of("sft"))
    assert "alpaca" in caught.value.remedy


def test_columns_named_by_hand_reach_their_format() -> None:
    """A mapping renames columns, nested ones by their dotted path, and hides the old name."""
    row = {"data": {"ask": "q"}, "reply": "a", "question": "not this"}
    found = renamed(row, {"question": "data.ask", "answer": "reply"})
    assert found == {"data": {"ask": "q"}, "question": "q", "answer": "a"}
    sides = {"chosen": "rejected", "rejected": "chosen"}
    assert renamed({"chosen": "b", "rejected": "a"}, sides) == {"chosen": "a", "rejected": "b"}
    assert renamed({"x": 1}, {"prompt": "x.y.z"}) == {"x": 1, "prompt": None}


# file under sample_data: format, rows, codes of the refused ones
SAMPLE_FILES: dict[str, tuple[str, int, list[str]]] = {
    "sft/chat.jsonl": ("openai", 17, ["bad_json", "empty_answer", "no_user_turn"]),
    "sft/instructions.json": ("alpaca", 9, []),
    "sft/turn_weights.jsonl": ("openai", 5, []),
    "sft/word_problems.jsonl": ("query_response", 10, []),
    "sft/zh_dialogues.jsonl": ("sharegpt", 5, ["no_answer"]),
    "rm/pairs.jsonl": ("preference", 12, ["empty_answer", "identical_pair"]),
    "rm/pairs_margin.jsonl": ("preference", 6, []),
    "rm/pairs_messages.jsonl": ("preference", 11, ["no_prompt"]),
    "prm/math_shepherd.jsonl": ("math_shepherd", 16, ["misaligned", "no_steps"]),
    "prm/value_list.jsonl": ("openrlhf_prm", 15, ["label_count"]),
    "prm/stepwise.jsonl": ("stepwise", 15, ["label_count"]),
    "prm/stepwise_soft.jsonl": ("stepwise", 6, []),
    "prm/first_error.json": ("processbench", 14, []),
    "prm/alternatives.jsonl": ("prm800k", 2, ["nothing_labelled"]),
}


def test_sample_files_are_recognised_and_read() -> None:
    """Each has the format it shows, only the rows meant to be refused are, and none is left out;
    the same solutions, stored in three formats, give the same examples line by line."""
    there = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.json*")}
    assert there == set(SAMPLE_FILES)
    made = []
    for name, (reading, count, codes) in SAMPLE_FILES.items():
        reader = readers.load(readers.suffixes()[f".{name.partition('.')[2]}"])
        splits = reader.splits(str(SAMPLES / name))
        batches = [batch for split in splits for batch in reader.read(split)]
        found = [record for batch in batches for record in batch.records]
        kind = kind_of(name.partition("/")[0])
        rows = [record.data for record in found if record.data is not None]
        detected = detect(rows, kind, name).format
        assert (detected.name, len(found)) == (reading, count), name
        batch = Normalize(kind, detected, FormatOptions())(found)
        assert sorted(batch["reject_code"].drop_null().to_pylist()) == codes, name
        assert set(batch["line"].to_pylist()) == {record.line for record in found}
        if reading in ("math_shepherd", "openrlhf_prm") or name == "prm/stepwise.jsonl":
            made.append(batch.select(["problem", "steps", "step_labels"]).to_pylist()[:14])
    assert made[0] == made[1] == made[2]
    assert all(row["problem"] for row in made[0])


THINK = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("opening", ["", "<think>\n", "So"])
def test_a_templated_prompt_of_a_pair_is_never_templated_again(opening: str) -> None:
    """Refused unasked; read once with the option; what it begins goes into texts alone."""
    form, allowed = formats.load("preference"), FormatOptions(already_templated=True)
    for column, listed in itertools.product(("prompt", "question", "instruction"), (True, False)):
        sides: list[Any] = [turns(A), turns(B)] if listed else ["a", "b"]
        row = {column: THINK + opening, "chosen": sides[0], "rejected": sides[1]}
        with pytest.raises(RowError, match="already carries a chat template") as caught:
            form.read(row, FormatOptions())
        assert caught.value.code == "already_templated"
        if listed and opening:
            with pytest.raises(RowError, match="begins the answer with"):
                form.read(row, allowed)
            continue
        (pair,) = form.read(row, allowed)
        assert isinstance(pair, Pair)
        assert pair.prompt == [Message("user", "q")]
        wanted = ["a", "b"] if listed else [opening + side for side in sides]
        assert [pair.chosen[0].content, pair.rejected[0].content] == wanted


def test_an_input_has_no_place_behind_a_templated_instruction() -> None:
    """It would stand where the answer begins."""
    row = {"instruction": THINK, "input": "more", "output": "a"}
    with pytest.raises(RowError, match="input has no place after it"):
        formats.load("alpaca").read(row, FormatOptions(already_templated=True))


def test_a_format_that_crashes_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no format fits, the nearest one is asked what is wrong; it must not break down."""

    def broken(*_: object) -> list[Example]:
        raise TypeError("a fault of ours")

    with pytest.raises(DataError, match="but not its values"):
        detect([{"problem": 1, "steps": 2}] * 3, kind_of("prm"), "x.jsonl")
    for found in formats.usable_for(kind_of("prm")):
        monkeypatch.setattr(type(found), "read", broken)
    with pytest.raises(TypeError, match="a fault of ours"):
        detect([{"problem": 1, "steps": 2}] * 3, kind_of("prm"), "x.jsonl")


def test_a_masked_speaker_is_not_trained() -> None:
    """Whatever the spelling of the role, in the mask or in the turns."""
    said = [{"from": "human", "value": "q"}, {"from": "Assistant", "value": "a"}]
    for value in ("User", "human", "gpt", "ASSISTANT"):
        row = {"mask": value, "conversations": said}
        (found,) = formats.load("sharegpt").read(row, FormatOptions())
        assert isinstance(found, Conversation)
        trained = [None, False] if value in ("gpt", "ASSISTANT") else [False, None]
        assert [turn.trained for turn in found.messages] == trained, value
