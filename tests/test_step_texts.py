"""Steps as text: what a chat takes off them is counted, what stands between them is the model's."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import normalizing
from support import raised, table
from test_render import declared

from pipeline.options.build_options import OPTIONS
from pipeline.tasks import kind_of
from stages import contract, errors, formats
from stages.chat_template.render import Renderer
from stages.chat_template.render_steps import RenderSteps
from stages.chat_template.segments import STEP
from stages.contract import FormatOptions, Row
from stages.errors import RowError
from stages.formats._rated_steps import TAGS
from stages.normalize.evidence import detect
from stages.rows import examples
from stages.tokens.outline_tokens import segments_of

TAG = "ки"


KEPT = (["a", "b"], ["a\n", "b"], ["a", "\nb"], ["a ", "b \n"], ["Step 1: a ", "\nStep 2: b "])
REWRITTEN = (["  a", "b"], ["a", " b"], ["a", "\n\tb"], ["a\n\n", "b"], ["a\n", "\nb"])


def test_indentation_and_blank_lines_are_what_counts():
    """One line break between two steps is the contract; more, or an indent, is the row's own."""
    for steps in (*KEPT, ["a\n \nb", "c"]):  # inside a step nothing changes
        assert not examples.is_rewritten(steps), steps
    for steps in (*REWRITTEN, ["a", "b\n\n"], ["\n\na", "b"]):
        assert examples.is_rewritten(steps), steps


@given(st.lists(st.text(" \n\tab"), min_size=1, max_size=4))
def test_what_is_not_noted_differs_by_one_line_break_and_trailing_blanks(steps):
    """Else equal: the joined texts have the same lines once blanks at line ends are gone."""
    if examples.is_rewritten(steps) or not all(step.strip() for step in steps):
        return
    joined = "\n".join(step.strip() for step in steps)
    written = "\n".join(step.strip("\n") if step.strip(" \t\n") else step for step in steps)
    tidy = [[line.rstrip() for line in text.splitlines()] for text in (joined, written)]
    assert [x for x in tidy[0] if x] == [x for x in tidy[1] if x]


def test_the_process_reward_model_reads_steps_as_its_card_gives_them():
    """The marker behind each step and nothing between two; the family's own system text."""
    row = {"prompt": "1 + 1?", "completions": ["Add.", "It is 2."], "labels": [1, 0]}
    model = declared("qwen2.5-math-prm-7b")
    batch = normalizing("prm", "stepwise")([contract.Record(0, 0, b"", row)])
    (segments,) = segments_of(RenderSteps(Renderer(model))(batch), "").to_pylist()
    marker = model.profile.step_tokens.step
    printed = [one["text"] + marker * bool(one["kind"] & STEP) for one in segments]
    assert "".join(printed) == (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within "
        "\\boxed{}.<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
        "Add.<extra_0>It is 2.<extra_0><|im_end|>\n"
    )


@pytest.mark.parametrize("one", table("joined_steps.jsonl"), ids=lambda one: one["text"][:30])
def test_a_joined_text_is_split_where_the_answer_begins(one):
    """Where the question goes on to its second step, those that begin again are the answer's. Where
    nothing says which first step begins the answer, a longer separator does; one without a number
    says where the problem ends, whatever follows."""
    options = contract.FormatOptions(prompt_separator=one.get("separator", "Step 1:"))
    row = {"input": one["text"], "value": [1] * one["text"].count(TAG)}
    read = formats.load("openrlhf_prm").read
    if "says" in one:
        refused = raised(errors.RowError, read, row, options, says=one["says"])
        assert refused.code == "two_first_steps"
        return
    (made,) = read(row, options)
    assert one.keys() & {"problem", "steps"}
    assert made.problem == one.get("problem", made.problem)
    assert made.steps == one.get("steps", made.steps)


def test_notes_are_a_column_of_the_door():
    """Refused rows have none."""
    rows: list[contract.Row] = [
        {"prompt": "P", "completions": [" s"], "labels": [1]},
        {"prompt": "", "completions": [" s"], "labels": [1]},
        {"prompt": "P", "completions": ["s"], "labels": [1]},
    ]
    records = [contract.Record(i, 0, b"", row) for i, row in enumerate(rows)]
    batch = normalizing("prm", "stepwise")(records)
    assert batch.column("note").to_pylist() == ["steps_rewritten", None, None]


# Steps in one text: tags of any spelling, also line breaks, in every place of such a text.

STEPS = ["Step 1: a", "Step 2: b", "Step 3: c"]
RATINGS: list[list[Any]] = [["+", "+", "-"], [1, 1, 0], [1.0, 0.5, 0.0]]
BREAKS = ["\n", "\n\n", "\n\n\n\n", "\t"]


def rows(tag: str, ratings: Any, end: str) -> list[Row]:
    """Rows of every shape with the steps in one text."""
    text = tag.join(STEPS) + end
    return [
        {"question": "q", "process": text, "label": ratings},
        {"problem": "q", "steps": text, "labels": ratings},
        {"prompt": "q", "completions": text, "values": ratings},
        {"input": f"q {text}", "value": ratings},
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}],
            "labels": ratings,
        },
    ]


def chain(row: Row, **options: Any) -> tuple[str, list[str], list[float | None]]:
    """What a row says: problem, steps and ratings."""
    found = detect([row] * 3, kind_of("prm"), "x.jsonl")
    [example] = formats.load(found.reading).read(row, FormatOptions(**options))
    return example.problem.strip(), [step.strip() for step in example.steps], example.labels


@pytest.mark.parametrize("ratings", RATINGS)
def test_a_text_is_cut_at_its_tag_in_every_place(ratings):
    """A known tag, another one by name, and line breaks by name; these need not end the text."""
    labels = [1.0 if r == "+" else 0.0 if r == "-" else float(r) for r in ratings]
    for tag, known in [(tag, True) for tag in TAGS] + [("[STEP]", False), (" §\n", False)]:
        for row in rows(tag, ratings, tag):
            options = {} if known else {"step_tag": tag}
            assert chain(row, **options) == ("q", STEPS, labels), (tag, row)
    for tag, end in itertools.product(BREAKS, ("", "\n", " \n\n")):
        for row in rows(tag, ratings, end):
            assert chain(row, step_tag=tag) == ("q", STEPS, labels), (tag, end, row)


@pytest.mark.parametrize("ratings", RATINGS)
def test_paragraphs_or_lines_are_steps_where_there_are_as_many_ratings(ratings):
    """Without any tag; a text with other numbers of both is refused with the option's name."""
    for tag, end in itertools.product(BREAKS[:3], ("", "\n", " \n\n")):
        for row in rows(tag, ratings, end):
            if "input" not in row:
                assert chain(row)[1] == STEPS, (tag, row)
    for row in rows("\n\n", [*ratings, ratings[0]], ""):
        if "input" not in row:
            raised(RowError, chain, row, says="--step-tag")


def test_escapes_of_a_tag():
    """As a shell passes them on; a text without any stays as it is."""
    for name in ("step_tag", "prompt_separator"):
        settled = OPTIONS[name].value.settled
        for written, meant in {
            "\\n": "\n",
            "\\n\\n": "\n\n",
            "a\\t": "a\t",
            "\\\\n": "\\n",
        }.items():
            assert settled(written) == meant
        for plain in (*TAGS, "Step 1:", "\n", "", "\\x"):
            assert settled(plain) == plain
    assert OPTIONS["step_tag"].value.settled(None) is None
