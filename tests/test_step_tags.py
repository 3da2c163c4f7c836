"""Steps in one text: tags of any spelling, also line breaks, in every place of such a text."""

import itertools
from typing import Any

import pytest

from pipeline.options.build_options import OPTIONS
from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.formats._rated_steps import TAGS
from stages.normalize.evidence import detect

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
    assert isinstance(example, StepChain)
    return example.problem.strip(), [step.strip() for step in example.steps], example.labels


@pytest.mark.parametrize("ratings", RATINGS)
def test_a_text_is_cut_at_its_tag_in_every_place(ratings: list[Any]) -> None:
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
def test_paragraphs_or_lines_are_steps_where_there_are_as_many_ratings(ratings: list[Any]) -> None:
    """Without any tag; a text with other numbers of both is refused with the option's name."""
    for tag, end in itertools.product(BREAKS[:3], ("", "\n", " \n\n")):
        for row in rows(tag, ratings, end):
            if "input" not in row:
                assert chain(row)[1] == STEPS, (tag, row)
    for row in rows("\n\n", [*ratings, ratings[0]], ""):
        if "input" not in row:
            with pytest.raises(RowError, match="--step-tag"):
                chain(row)


def test_escapes_of_a_tag() -> None:
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
