"""The same content in different forms gives the same examples, and what a row says is used or
refuses the row: no column, flag, call or turn goes by itself."""

import itertools
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support import table

from pipeline.tasks import kind_of
from stages import contract
from stages.format import Format
from stages.normalize import evidence, stage

TAG = "<extra_0>"
WORDS = st.text(st.sampled_from("ab +-1é好\n.:<"), min_size=1, max_size=10)
FILLED = WORDS.filter(lambda text: bool(text.strip()))


def door(
    rows: Sequence[contract.Row], task: str, **options: Any
) -> tuple[str, list[dict[str, Any]]]:
    """The reading of some rows, and what they become."""
    found = evidence.detect(rows, kind_of(task), "x.jsonl")
    records = [contract.Record(i, 0, b"", row) for i, row in enumerate(rows)]
    batch = stage.Normalize(kind_of(task), found.format, contract.FormatOptions(**options))(records)
    own = ["sequence", *(["note"] if task == "prm" else [])]  # what this row lost, not the example
    return found.reading, batch.drop_columns(own).to_pylist()


def spoken(
    *said: tuple[str, str], role: str = "role", content: str = "content"
) -> list[contract.Row]:
    """Turns in either spelling."""
    return [{role: who, content: text} for who, text in said]


def joined(problem: str, steps: list[str], marks: list[str], gap: str) -> str:
    """A problem and its steps as one text, with a mark behind each step."""
    parts = [f"{step} {mark}" for step, mark in zip(steps, marks, strict=True)]
    return f"{problem}{gap}" + "\n".join(parts)


@given(
    problem=FILLED,
    solution=st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=4),
    gap=st.sampled_from([" ", "\n", "\n\n"]),
)
def test_five_forms_of_a_rated_solution(problem, solution, gap):
    """Aligned texts, a list of signs, lists of steps, step conversations and tagged messages."""
    steps = [f"Step {i}: {text}" for i, (text, _) in enumerate(solution, 1)]
    signs = ["+" if good else "-" for _, good in solution]
    text = joined(problem, steps, ["ки"] * len(steps), gap)
    first, *later = steps
    turns = [("user", f"{problem}{gap}{first}"), *(("user", step) for step in later)]
    rated = [
        pair for turn, sign in zip(turns, signs, strict=True) for pair in (turn, ("gpt", sign))
    ]
    forms: dict[str, contract.Row] = {
        "math_shepherd": {"input": text, "label": joined(problem, steps, signs, gap)},
        "openrlhf_prm": {"input": text, "value": signs},
        "stepwise": {"prompt": problem, "completions": steps, "labels": [g for _, g in solution]},
        "step_conversations": {"conversations": spoken(*rated, role="from", content="value")},
        "tagged_messages": {
            "messages": spoken(("user", problem), ("assistant", TAG.join([*steps, "\n"]))),
            "labels": [float(good) for _, good in solution],
        },
        "openrlhf_prm beside": {
            "question": problem,
            "process": TAG.join([*steps, "\n"]),
            "labels": [float(good) for _, good in solution],
        },
        "soft_prefix": {
            "question": problem,
            "prefixes": ["\n".join(steps[: i + 1]) for i in range(len(steps))],
            "values": [int(good) for _, good in solution],
        },
    }
    made = {}
    for name, row in forms.items():
        reading, made[name] = door([row], "prm")
        assert reading == name.partition(" ")[0]
        assert made[name][0]["reject_code"] is None
    assert made["stepwise"][0]["problem"] == problem.strip()
    assert made["stepwise"][0]["steps"] == [step.strip() for step in steps]
    assert all(rows == made["stepwise"] for rows in made.values())


def test_spellings_of_one_thing():
    """Arguments as text or as an object, calls wrapped or bare, tools as a list or as text;
    reasoning in a field of its own under any of its names; typed parts, which are their text."""
    for _, spelled in itertools.groupby(table("spellings.jsonl"), itemgetter(0)):
        (_, first), *others = spelled
        for _, row in others:
            assert door([row], "sft")[1] == door([first], "sft")[1], row


class _Empty(Format):
    """A format that finds nothing in a row, and says nothing about it."""

    name = "empty"
    kinds = ("conversation",)
    columns: contract.Columns = {"rows": ("rows",)}

    def matches(self, row: contract.Row) -> str | None:
        return "rows"

    def read(self, row: contract.Row, options: contract.FormatOptions) -> list[contract.Example]:
        return []


def test_a_row_without_any_example_is_refused():
    """A format that gives none for a row loses nothing: the row is refused by name."""
    batch = stage.Normalize(kind_of("sft"), _Empty(), contract.FormatOptions())(
        [contract.Record(0, 0, b"", {"rows": 1})]
    )
    assert batch.column("reject_code").to_pylist() == ["no_examples"]
