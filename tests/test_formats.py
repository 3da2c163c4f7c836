"""Record formats: what each kind of row says, and why a row is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import READ, normalizing, turns

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

SAMPLES = Path(__file__).parent.parent / "sample_data"


def user(content: str, **more: Any) -> Message:
    """A user's turn."""
    return Message("user", content, **more)


Q, A, B = ("user", "q"), ("assistant", "a"), ("assistant", "b")


# The same solution in three spellings.
PROBLEM = "Ann has 2 + 3 apples and eats 1 - 0. How many are left?"
SOLUTION = ["Step 1: 2 + 3 = 5", "Step 2: 5 - 1 = 4 +", "Step 3: The answer is: -4 + 8"]
SIGNS = ["+", "-", "+"]


def joined(marks: list[str]) -> str:
    """The problem and its steps, a mark behind each."""
    steps = "\n".join(f"{step} {mark}" for step, mark in zip(SOLUTION, marks, strict=True))
    return f"{PROBLEM} {steps}"


def chains(name: str, row: Row, **options: Any) -> list[StepChain]:
    """The row's examples as they go on to rendering."""
    found = formats.choose(name, kind_of("prm")).read(row, FormatOptions(**options))
    return [examples.chain(one) for one in found if isinstance(one, StepChain)]


def content(chain: StepChain) -> tuple[str, list[str], list[float | None]]:
    """What a chain says, without its spelling."""
    return chain.problem, chain.steps, chain.labels


def test_equal_solutions_are_equal_examples_in_every_format() -> None:
    """Aligned texts, a tagged text with a list, and lists of steps give the same example."""
    shepherd = {"input": joined(["ки"] * 3), "label": joined(SIGNS)}
    openrlhf = {"input": joined(["ки"] * 3), "value": SIGNS}
    stepwise = {"prompt": PROBLEM, "completions": SOLUTION, "labels": [True, False, True]}
    wanted = (PROBLEM, SOLUTION, [1.0, 0.0, 1.0])
    for name, row in (
        ("math_shepherd", shepherd),
        ("openrlhf_prm", openrlhf),
        ("stepwise", stepwise),
    ):
        assert [content(chain) for chain in chains(name, row)] == [wanted]


def test_arithmetic_signs_are_never_labels() -> None:
    """Only the character at a tag's place is a rating, however many signs stand around it."""
    row = {
        "input": "1+1-1? Step 1: 1+1=+2 ки\nStep 2: +2-1=+1 - ки\nStep 3: + ки",
        "label": "1+1-1? Step 1: 1+1=+2 -\nStep 2: +2-1=+1 - +\nStep 3: + -",
    }
    (chain,) = chains("math_shepherd", row)
    assert chain.problem == "1+1-1?"
    assert chain.steps == ["Step 1: 1+1=+2", "Step 2: +2-1=+1 -", "Step 3: +"]
    assert chain.labels == [0.0, 1.0, 0.0]


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
    row = {"input": "P|| s #\nt #", "value": ["+", "-"]}
    (chain,) = chains("openrlhf_prm", row, step_tag="#", prompt_separator="||")
    assert content(chain) == ("P", ["|| s", "t"], [1.0, 0.0])


def completion(text: str, rating: int | None) -> dict[str, Any]:
    """One alternative."""
    return {"text": text, "rating": rating, "flagged": None}


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


@given(st.data())
def test_every_completion_is_in_an_example_or_refused_by_name(data: st.DataObject) -> None:
    """Whatever was chosen, rated or written, each completion's text ends a chain or has a code."""
    steps: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 4))):
        ratings = data.draw(st.lists(st.sampled_from([-1, 0, 1, None]), max_size=3))
        made = [completion(f"{number}.{i}", rating) for i, rating in enumerate(ratings)]
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


@settings(max_examples=120, deadline=None)
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


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("sft", {"messages": turns(Q, A), "prompt": "q", "completion": "a"}),
        ("sft", {"text": "t", "instruction": "q", "output": "a"}),
        ("prm", {"input": "P ки", "label": "P +", "completions": ["s"], "labels": [True]}),
    ],
)
def test_rows_that_read_two_ways_are_not_guessed_at(task: str, row: Row) -> None:
    """Where two formats fit equally well the user says which."""
    with pytest.raises(DataError, match="reads as") as caught:
        detect([row], kind_of(task), "x.jsonl")
    assert "--format" in caught.value.remedy


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "a", "label": True},
        {"prompt": turns(Q), "completion": turns(A), "label": False},
    ],
)
def test_unpaired_data_is_refused_for_reward_models(row: Row) -> None:
    """One answer and a thumb up or down is no pair; the message says so."""
    with pytest.raises(DataError, match="unpaired") as caught:
        detect([row, row], kind_of("rm"), "x.jsonl")
    assert caught.value.exit_code == 3


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
    row = {"data": {"ask": "q"}, "reply": "a", "question": "not this", "id": 7}
    mapping = {"question": "data.ask", "answer": "reply"}
    assert renamed(row, mapping) == {
        "data": {"ask": "q"},
        "question": "q",
        "answer": "a",
        "id": 7,
    }
    swapped = renamed(
        {"chosen": "b", "rejected": "a"}, {"chosen": "rejected", "rejected": "chosen"}
    )
    assert swapped == {"chosen": "a", "rejected": "b"}
    assert renamed({"x": 1}, {"prompt": "x.y.z"}) == {"x": 1, "prompt": None}


# file under sample_data, task, format, codes of the refused rows
SAMPLE_FILES: dict[str, tuple[str, str, str, list[str]]] = {
    "sft/chat.jsonl": ("sft", "openai", "17 rows", ["bad_json", "empty_answer", "no_user_turn"]),
    "sft/instructions.json": ("sft", "alpaca", "9 rows", []),
    "sft/turn_weights.jsonl": ("sft", "openai", "5 rows", []),
    "sft/word_problems.jsonl": ("sft", "query_response", "10 rows", []),
    "sft/zh_dialogues.jsonl": ("sft", "sharegpt", "5 rows", ["no_answer"]),
    "rm/pairs.jsonl": ("rm", "preference", "12 rows", ["empty_answer", "identical_pair"]),
    "rm/pairs_margin.jsonl": ("rm", "preference", "6 rows", []),
    "rm/pairs_messages.jsonl": ("rm", "preference", "11 rows", ["no_prompt"]),
    "prm/math_shepherd.jsonl": ("prm", "math_shepherd", "16 rows", ["misaligned", "no_steps"]),
    "prm/value_list.jsonl": ("prm", "openrlhf_prm", "15 rows", ["label_count"]),
    "prm/stepwise.jsonl": ("prm", "stepwise", "15 rows", ["label_count"]),
    "prm/stepwise_soft.jsonl": ("prm", "stepwise", "6 rows", []),
    "prm/first_error.json": ("prm", "processbench", "14 rows", []),
    "prm/alternatives.jsonl": ("prm", "prm800k", "2 rows", ["nothing_labelled"]),
}


def records(path: Path) -> list[Record]:
    """Every record of a sample file."""
    reader = readers.load(readers.suffixes()[path.suffix])
    return [
        record
        for split in reader.splits(str(path))
        for batch in reader.read(split)
        for record in batch.records
    ]


@pytest.mark.parametrize(
    ("name", "task", "format_name", "count", "codes"),
    [(name, *rest) for name, rest in SAMPLE_FILES.items()],
    ids=SAMPLE_FILES,
)
def test_sample_files_are_recognised_and_read(
    name: str, task: str, format_name: str, count: str, codes: list[str]
) -> None:
    """Each sample file has the format it shows; only the rows meant to be refused are refused."""
    found = records(SAMPLES / name)
    rows = [record.data for record in found if record.data is not None]
    detected = detect(rows, kind_of(task), name).format
    assert detected.name == format_name
    assert f"{len(found)} rows" == count
    batch = Normalize(kind_of(task), detected, FormatOptions())(found)
    refused = batch["reject_code"].drop_null().to_pylist()
    assert sorted(refused) == codes
    assert set(batch["line"].to_pylist()) == {record.line for record in found}


def test_every_sample_file_is_tested() -> None:
    """No sample file is left out above."""
    there = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.json*")}
    assert there == set(SAMPLE_FILES)


def test_equal_samples_give_equal_step_chains() -> None:
    """The same solutions, stored in three formats, give the same examples line by line."""
    made = []
    for name in ("math_shepherd", "value_list", "stepwise"):
        path = SAMPLES / "prm" / f"{name}.jsonl"
        found = formats.load(SAMPLE_FILES[f"prm/{name}.jsonl"][1])
        batch = Normalize(kind_of("prm"), found, FormatOptions())(records(path)[:14])
        made.append(batch.select(["problem", "steps", "step_labels"]).to_pylist())
    assert made[0] == made[1] == made[2]
    assert all(row["problem"] for row in made[0])


THINK = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("column", ["prompt", "question", "instruction"])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("opening", ["", "<think>\n", "So"])
def test_a_templated_prompt_of_a_pair_is_never_templated_again(
    column: str, listed: bool, opening: str
) -> None:
    """Refused unasked; read once with the option; what it begins goes into texts alone."""
    sides: list[Any] = [turns(A), turns(B)] if listed else ["a", "b"]
    row = {column: THINK + opening, "chosen": sides[0], "rejected": sides[1]}
    form = formats.load("preference")
    with pytest.raises(RowError, match="already carries a chat template") as caught:
        form.read(row, FormatOptions())
    assert caught.value.code == "already_templated"
    allowed = FormatOptions(already_templated=True)
    if listed and opening:
        with pytest.raises(RowError, match="begins the answer with"):
            form.read(row, allowed)
        return
    (pair,) = form.read(row, allowed)
    assert isinstance(pair, Pair)
    assert pair.prompt == [user("q")]
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


@pytest.mark.parametrize("value", ["User", "human", "gpt", "ASSISTANT"])
def test_a_masked_speaker_is_not_trained(value: str) -> None:
    """Whatever the spelling of the role, in the mask or in the turns."""
    said = [{"from": "human", "value": "q"}, {"from": "Assistant", "value": "a"}]
    row = {"mask": value, "conversations": said}
    (found,) = formats.load("sharegpt").read(row, FormatOptions())
    assert isinstance(found, Conversation)
    masked = "assistant" if value in ("gpt", "ASSISTANT") else "user"
    assert [turn.trained for turn in found.messages] == [
        False if turn.role == masked else None for turn in found.messages
    ]
