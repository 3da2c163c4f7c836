"""The page of a file: every column on it, and all questions at once with commands that build."""

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Run, expanded, printed, raised, table, write_rows

from pipeline.inputs import answers, readings, sheet
from pipeline.lines import MOST, of_columns
from pipeline.options.config import Config
from pipeline.options.ways import applied, ways, without, written
from stages.errors import DataError
from stages.rows.shapes import shape_of

MODEL = ("--model", "qwen2-1.5b")
TURNS = [
    {"role": "user", "content": "What is {n}?"},
    {"role": "assistant", "content": "It is {n}."},
]
READ: dict[str, dict[str, Any]] = {
    "sft": {"messages": TURNS},
    "rm": {"prompt": "What is {n}?", "chosen": "It is {n}.", "rejected": "No {n}."},
    "prm": {"prompt": "What is {n}?", "completions": ["One {n}.", "Two."], "labels": [True, False]},
}
# Columns that nothing reads and that are asked about, by themselves.
ASKED: dict[str, dict[str, list[Any]]] = dict(table("asked_of_tasks.jsonl"))


def _rows(count: int, row: dict[str, Any], more: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return expanded({"count": count, "row": row, "each": more})


@pytest.mark.parametrize("task", READ)
def test_all_questions_are_asked_at_once(task: str, pipeline: Run, tmp_path: Path) -> None:
    """Each column that is asked about is named and marked, and every command builds a plan."""
    write_rows(tmp_path / "rows.jsonl", _rows(12, READ[task], ASKED[task]))
    stopped = pipeline("plan", "rows.jsonl", "--task", task, *MODEL, "--json").ended(3)
    told = json.loads(stopped.out)
    assert f"{len(ASKED[task])} questions" in told["message"]
    page = {line["column"]: line for line in told["figures"]["sheet"]}
    moved = {"prompt"} if task == "rm" else set()  # is read before the context, under another name
    assert {name for name, line in page.items() if line["why"]} == {*ASKED[task], *moved}
    assert page.keys() >= {*READ[task]}
    shown = printed(stopped.err)
    assert shown == told["commands"]
    assert shown
    assert shown[-1].endswith("--leave-rest")
    for one in shown:
        pipeline(*shlex.split(one)[1:]).ended()


def _config(task: str = "sft", **options: Any) -> Config:
    return Config.of(task, ("rows.jsonl",), "qwen2-1.5b", Path("out"), **options)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text("abcd", min_size=1), _VALUES, max_size=4), min_size=1))
def test_every_column_is_on_the_page(more: list[dict[str, Any]]) -> None:
    """Whatever stands in it; a column that something stands in is read, or said to be left out."""
    rows = [{**_rows(1, READ["sft"], {})[0], **one} for one in more]
    page = sheet.lines(rows, "openai", _config(), {})
    tops = {re.split(r"[.\[]", line["column"])[0] for line in page}
    assert tops >= {name for row in rows for name, value in row.items() if value not in ({}, [])}
    for line in page:
        assert line["rows"] <= line["of"] == len(rows)
        assert line["becomes"] or not line["rows"], line
    assert len([*of_columns(page)]) == min(len(page), MOST) + 1 + (len(page) > MOST)


def test_what_becomes_of_columns() -> None:
    """Their roles, those that conditions read, and those that are left out."""
    rows = _rows(6, READ["rm"], {"margin": [1.5], "id": [7], "lang": ["de"], "notes": [{"a": 1}]})
    config = _config("rm", where=("lang=de",), ignore=("id",))
    page = {one["column"]: one["becomes"] for one in sheet.lines(rows, "preference", config, {})}
    assert page == {
        "prompt": "prompt", "chosen": "answers", "rejected": "answers", "margin": "margin",
        "id": "left out", "lang": "filter", "notes.a": "left out",
    }  # fmt: skip


@pytest.mark.parametrize(("values", "words"), table("shapes_in_words.jsonl"))
def test_shapes_in_words(values: list[Any], words: str) -> None:
    """What all values are, the most frequent kind first."""
    assert shape_of(values) == words


def test_answers_lead_to_the_questions_behind_them() -> None:
    """An answer that leads nowhere is not offered; of one that does, all that it leads to is."""
    open_to = {"a": ("--ignore a", "--ignore dead"), "b": ("--where b=1", "--ignore b")}

    def read(config: Config) -> str:
        source = config.source
        if "dead" in source.ignore:
            raise DataError("a dead end.", "Give another file.")
        for name, remedies in open_to.items():
            if name not in (*source.ignore, *(one.partition("=")[0] for one in source.where)):
                raise DataError(f"{name} is open.", f"Say which: {' or '.join(remedies)}.")
        return "read"

    with pytest.raises(DataError) as asked:
        answers.settled(read, _config(), lambda config, why: {"sheet": dict(why)})
    assert "2 questions" in asked.value.what
    offered = ways(asked.value.remedy)
    wanted = ["--ignore a --where b=1", "--ignore a --ignore b"]
    assert [written(way) for way in offered] == wanted
    assert asked.value.figures["sheet"] == {"a": "a is open.", "b": "b is open."}
    assert read(applied(offered[0], _config())) == "read"


_SAYS = ("--ignore {}", "--where {}=x", "--map prompt={}", "--map completion={}")
_SAID = st.sampled_from([said.format(name) for said in _SAYS for name in "ab"])


@given(st.lists(st.lists(_SAID, min_size=1, max_size=3, unique=True), min_size=2, max_size=4))
def test_no_command_takes_an_answer_back(remedies: list[list[str]]) -> None:
    """It reads no column that it leaves out, and no name from two columns."""

    def read(config: Config) -> str:
        source = config.source
        done = sum(map(len, (source.ignore, source.where, source.map)))
        if done == len(remedies):
            return "read"
        raise DataError(f"{'abcd'[done]} is open.", f"Say which: {', or '.join(remedies[done])}.")

    asked = raised(DataError, answers.settled, read, _config(), lambda config, why: {})
    for way in ways(asked.remedy):
        ignored = {value for flag, value in way if flag == "--ignore"}
        named = [value.split("=") for flag, value in way if flag == "--map"]
        chosen = {value[0] for flag, value in way if flag == "--where"}
        assert ignored.isdisjoint({*chosen, *(column for _, column in named)})
        assert len({name for name, _ in named}) == len(named)


@pytest.mark.parametrize("dead", ["--ignore dead", "--where x=1", "--map prompt=dead"])
def test_an_answer_that_leads_nowhere_is_not_offered(dead: str) -> None:
    """Nor are its words, where all answers of a question settle it by themselves."""

    def read(config: Config) -> str:
        if "a" in config.source.ignore:
            return "read"
        raise DataError("a is open.", f"Say which: hope with {dead}, or leave it out: --ignore a.")

    asked = raised(DataError, answers.settled, read, _config(), lambda config, why: [])
    assert asked.remedy == "Say which: leave it out: --ignore a."
    assert len(asked.what) == len("a is open.")


def test_what_follows_is_told_where_no_answer_is_enough() -> None:
    """The question behind the first answer, and no command."""

    def read(config: Config) -> str:
        if "a" in config.source.ignore:
            raise DataError("b is damaged.", "Repair it.")
        raise DataError("a is open.", "Add --ignore a.")

    with pytest.raises(DataError, match="With --ignore a, what follows is: b is damaged") as asked:
        answers.settled(read, _config(), lambda config, why: [])
    assert asked.value.remedy == "Repair it."


@pytest.mark.parametrize(
    ("code", "share", "good", "offered"),
    [
        ("tie", 1, False, []),
        ("tie", 0.5, False, ["--ignore a", "--ignore good"]),
        ("two_orders", 0.2, True, ["--ignore a", "--ignore good"]),
        ("two_orders", 0.3, True, ["--ignore good"]),
    ],
)
def test_an_answer_after_which_rows_are_refused(code, share, good, offered):
    """It is offered where no answer keeps more rows, or rows contradict themselves, but not all."""

    def read(config: Config) -> str:
        if not config.source.ignore:
            raise DataError("a is open.", "Say which: --ignore a, or --ignore good.")
        if "good" in config.source.ignore and good:
            return "read"
        raise answers.RefusedError.of("many.", "Add --ignore b.", code, "read", share)

    asked = raised(DataError, answers.settled, read, _config(), lambda config, why: [])
    assert [written(way) for way in ways(asked.remedy)] == offered
    # Asked by itself, what no option helps is no question.
    assert answers.settled(read, _config(ignore=("a",)), lambda config, why: []) == "read"


@pytest.mark.parametrize(("remedy", "dead", "left"), table("remedies.jsonl"))
def test_words_of_a_remedy_go_with_its_option(remedy: str, dead: str, left: str) -> None:
    """The other ways, and what is no option, stay as they were said."""
    (way,) = ways(dead)
    assert without(remedy, {way}) == left
    assert without(remedy, ()) == remedy


@pytest.mark.parametrize(
    ("one", "other"),
    [*itertools.permutations(("--map a=b", "--ignore c", "--where d=1", "--system Be"), 2)],
)
def test_an_answer_is_added_to_what_was_said(one: str, other: str) -> None:
    """Options that take several values keep those that were given."""
    config = _config()
    for text in (one, other):
        (way,) = ways(f"Add {text}.")
        config = applied(way, config)
    both = f"{one} {other}"
    (way,) = ways(f"Add {both}.")
    assert config == applied(way, _config())
    assert written(way) == both


# What no printed command may do, whatever the columns are called: by what stands in the rows, each
# with what a command may not say.
_TALK = [{"role": "user", "content": "Why so?"}, {"role": "assistant", "content": "It is so."}]
_PLAIN = {
    "sft": lambda i: {"zzz": f"What is {i} and {i * 3}?", "yyy": f"It is {i * 4}, since {i} is."},
    "rm": lambda i: {
        "prompt": f"What is {i} and {i * 3}?",
        "answer_a": f"It is {i * 4}, since {i} is.",
        "answer_b": f"Nobody can say {i}.",
        "better": "ab"[i % 2],
    },
}
_NEVER = {
    "constant": ("sft", lambda i: "Tell me a story of this.", "={} "),
    "few": ("sft", lambda i: ["Sum it all up.", "Take it apart."][i % 2], "={} "),
    "turns": ("sft", lambda i: _TALK, "ignore {} "),
    "sides": ("rm", lambda i: f"answer_{'ab'[i // 2 % 2]}", "where {}="),
    "brackets": ("sft", lambda i: json.dumps([f"It is {i}, no?", f"Or {i} and more."]), "text={} "),
}


@pytest.mark.parametrize("what", _NEVER)
@pytest.mark.parametrize("name", ["task", "flagged", "conversation", "Prompt", "reply", "qqq"])
def test_no_command_trains_what_nobody_would(what: str, name: str, tmp_path: Path) -> None:
    """No constant or few texts for what is asked or answered, no turns left out, no choice by the
    name of a side, no brackets of a list."""
    task, value, never = _NEVER[what]
    path = write_rows(
        tmp_path / "x.jsonl", [{name: value(i), **_PLAIN[task](i)} for i in range(40)]
    )
    config = Config.of(task, (str(path),), "qwen2-1.5b", tmp_path / "out")
    try:
        (found,) = readings.recognise_looks(readings.opened(config)[1], config)
        said = [" ".join(f"--map {one}={path} " for one, path in found.format.renamed.items())]
    except DataError as error:
        said = [f"{written(way)} " for way in ways(error.remedy)]
    assert not [one for one in said if never.format(name) in one], said


@pytest.mark.parametrize("task", ["sft", "rm"])
def test_brackets_of_lists_on_both_sides_are_asked_about(task: str, tmp_path: Path) -> None:
    """Sides may be JSON as it stands, where the user says so, behind what is inside; no question
    is."""
    names = {"sft": ("question", "answer"), "rm": ("prompt", "chosen", "rejected")}[task]
    rows = [{n: json.dumps([f"{n} {i} is.", f"{n} {i} was."]) for n in names} for i in range(20)]
    if task == "rm":
        rows = [{**row, "prompt": f"What is {i}, and why?"} for i, row in enumerate(rows)]
    path = write_rows(tmp_path / "x.jsonl", rows)
    config = Config.of(task, (str(path),), "qwen2-1.5b", tmp_path / "out")
    with pytest.raises(DataError, match="lists stand as text") as asked:
        readings.recognise_looks(readings.opened(config)[1], config)
    said = [f"{written(way)} " for way in ways(asked.value.remedy)]
    whole = [one for one in said if any(f"={name} " in one for name in names)]
    assert whole == (said[1:] if task == "rm" else []), said


_OF_TASKS: dict[str, dict[str, Any]] = {
    "rm": {"user_prompt": "What is {n}?", "better": "It is {n}.", "worse": "Nobody knows {n}."},
    "prm": {"problem": "What is {n}?", "solution_steps": ["One {n}.", "Two."], "marks": [1, 0]},
    "sft": {"dialogue": TURNS, "resolved": True},
}


@pytest.mark.parametrize(("given", "task"), [*itertools.permutations(_OF_TASKS, 2)])
def test_rows_of_another_task_are_told_so(given: str, task: str, tmp_path: Path) -> None:
    """With its name; what is to be compared or rated is trained by no command of answers."""
    path = write_rows(tmp_path / "x.jsonl", _rows(20, _OF_TASKS[task], {}))
    config = Config.of(given, (str(path),), "qwen2-1.5b", tmp_path / "out")
    with pytest.raises(DataError) as asked:
        readings.recognise_looks(readings.opened(config)[1], config)
    assert f"as {task} data" in asked.value.what or f"run {task}" in asked.value.remedy
    assert all(way[0] == ("--task", task) for way in ways(asked.value.remedy)), asked.value.remedy
