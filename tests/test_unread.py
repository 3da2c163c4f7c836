"""Nothing unread: what a row says is in an example, named as not read, or refuses the row."""

import cProfile
import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import WHOLE, normalizing, turns
from support import expanded, few, noted, printed, raised, rows_to, table

from pipeline.inputs import answers
from pipeline.inputs.detection import recognise_rows
from pipeline.options.config import Config
from pipeline.options.ways import applied, ways, written
from pipeline.tasks import kind_of
from stages import errors, formats
from stages.contract import FormatOptions, Record, Row
from stages.format import Format
from stages.formats.step_objects import RATINGS
from stages.normalize.survey import survey
from stages.rows import column_names, shapes, stop_text, words
from stages.rows.column_names import FLAGS, Watched
from stages.rows.selection import Selection, condition, names_something
from stages.rows.unread import Leaving, ReadRow, asked

MODEL = ("--model", "qwen2-1.5b")
Q, A = turns(("user", "q"), ("assistant", "a"))
ROWS = {name: (one.task, one.row) for name, one in WHOLE.items()}
LEAVING = Leaving({}, Selection(), frozenset(), frozenset(), ())  # nothing is settled
MARK = "xyzzy4711"  # a text that stands nowhere else

KNOWN = sorted({name for f in map(formats.load, ROWS) for name in formats.names_of(f)})
MEANT = sorted(words.listed())


def normalized(reading: str, row: Row, **more: Any) -> tuple[str, set[str], str | None]:
    """What one row becomes: everything that the examples hold, what is not read, the refusal."""
    task, _ = ROWS[reading]
    stage = normalizing(task, reading, **more)
    batch = stage([Record(0, 0, b"", row)])
    code = batch.column("reject_code").to_pylist()[0]
    return json.dumps(batch.to_pylist(), ensure_ascii=False), set(stage.tally.rows), code


def test_a_row_that_says_no_more_leaves_nothing_over() -> None:
    """A row of nothing but its format is read whole, and from the columns that it declares:
    ``--map`` takes these names, and there are no others."""
    for reading, (_, row) in ROWS.items():
        assert normalized(reading, row)[1:] == (set(), None), reading
        # A null beside the index of the first error says that there is none.
        row = {**row, "label": None} if reading == "processbench" else row
        watched = Watched({**dict.fromkeys(KNOWN), **row})
        found: Format = formats.load(reading)
        found.read(watched, FormatOptions())
        assert watched.read_columns <= set(formats.names_of(found)), reading


@settings(max_examples=300)
@given(
    reading=st.sampled_from(sorted(ROWS)),
    name=st.sampled_from(KNOWN) | st.sampled_from(MEANT) | st.text("abcDEF_é", min_size=1),
    value=st.sampled_from([MARK, [MARK], {"a": MARK}, [{"a": MARK}]]),
)
def test_one_more_column_is_read_or_named_or_refuses_the_row(reading, name, value):
    """Whatever the column is called: known to another format, meaningful, or never heard of."""
    row = ROWS[reading][1]
    if name not in row:
        held, unread, code = normalized(reading, {**row, name: value})
        assert MARK in held or name in unread or code is not None


@pytest.mark.parametrize("reading", ["openai", "preference"])
@pytest.mark.parametrize(
    ("key", "value"),
    [("cot", "why"), ("context", "a passage"), ("images", ["x.png"]), ("is_bad", True)],
)
def test_a_turn_with_nothing_in_a_key_hides_no_other_turn(reading, key, value):
    """Tables give every turn the same keys, most of them empty."""
    sides = {"openai": {"messages": "a"}, "preference": {"chosen": "c", "rejected": "r"}}
    for nothing in ("", [], {}, " ", None):
        row = {
            name: [{**Q, key: nothing}, {**A, "content": text, key: value}]
            for name, text in sides[reading].items()
        }
        code = "unknown_flag" if value is True else "unread_column"
        assert normalized(reading, row)[2] == code, nothing


def test_what_is_not_read_is_counted_in_every_object_of_a_list() -> None:
    """Rows with it are counted once, and bytes of all its values."""
    steps = [{"text": "s", "rating": 1, "page": MARK}, {"text": "t", "rating": 0, "page": MARK}]
    stage = normalizing("prm", "rated_steps")
    stage([Record(0, 0, b"", {"problem": "q", "steps": steps})])
    assert stage.tally.rows == {"steps[].page": 1}
    assert stage.tally.bytes == {"steps[].page": 2 * len(f'"{MARK}"')}


@pytest.mark.parametrize("reading", ["openai", "query_response", "preference", "stepwise"])
def test_a_row_that_says_it_is_not_trained_is_not_trained(reading: str) -> None:
    """Turns say it of themselves; of a whole row, a user has to say what it means."""
    row = ROWS[reading][1]
    for name in ("train", "trainable", "loss"):
        for value in (False, 0):
            assert normalized(reading, {**row, name: value})[2] == "unread_weight", name
        for harmless in (True, 1, 0.0, 0.35, None):
            assert normalized(reading, {**row, name: harmless})[2] is None, name


@pytest.mark.parametrize("name", ["weight", "train"])
def test_flags_are_offered_for_turns_only_where_turns_are_read_with_them(name: str) -> None:
    """Not where an example is a pair or steps, nor in rows without turns."""
    for reading, (task, row) in ROWS.items():
        watched = Watched({**row, name: 0})
        examples = formats.load(reading).read(watched, FormatOptions())
        (left,) = LEAVING.of(watched, examples)
        why = asked(left, kind_of(task), ReadRow(watched, examples))
        with_turns = reading in ("openai", "sharegpt", "contents")
        assert (f"on the turns as {name}" in why.remedy) == with_turns, reading
        assert f"--ignore {name}" in why.remedy, reading
        if with_turns:
            ((column, (*ahead, answer)),) = row.items()
            flagged = {column: [*ahead, {**answer, name: 1}]}
            assert normalized(reading, flagged)[1:] == (set(), None), reading


def test_a_turn_costs_the_same_to_judge_however_many_there_are() -> None:
    """Of turns that repeat their text in another key."""

    def calls(count: int) -> int:
        texts = [f"turn {n:04}" for n in range(count)]
        said = itertools.cycle(("user", "assistant"))
        turns = [{"role": next(said), "content": text, "query": text} for text in texts]
        found, rows = formats.load("openai"), [{"messages": turns}]
        profile = cProfile.Profile()
        judged = profile.runcall(survey, rows, found, kind_of("sft"), FormatOptions(), Selection())
        assert judged.columns["messages[].query"].asked is None
        made = profile.runcall(normalized, "openai", rows[0])
        assert made[1:] == ({"messages[].query"}, None)
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)  # what is loaded once
    small, large = calls(10), calls(40)
    assert large <= 4 * small


def test_numbers_in_a_row_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To see what of them was read: token ids are thousands."""
    searched = noted(monkeypatch, column_names, "_has_objects")
    row = Watched({key: [1] * 99 for key in ("input_ids", "labels", "attention_mask")})
    formats.load("pretokenized").read(row, FormatOptions())
    assert list(row.unread()) == []
    assert len(searched) == 3


def test_an_object_behind_anything_is_watched() -> None:
    """Whatever a list begins with, and however often it was read."""
    for before in (None, 1, "a", [1], {"text": "a"}):
        row = Watched({"answers": [before, {"text": "b", "note": MARK}]})
        for _ in range(2):
            row["answers"][1]["text"]
        assert list(row.unread()) == [("answers[].note", MARK)], before


TURNS = {reading: row for reading, (_, row) in ROWS.items() if "messages" in row}


@settings(max_examples=150)
@given(
    reading=st.sampled_from(sorted(TURNS)),
    key=st.one_of(st.sampled_from(MEANT), st.text("abcXYZ_", min_size=1)),
    value=st.sampled_from([MARK, True, False, 0, 1, 0.5, [MARK], {"a": MARK}]),
    place=st.integers(0, 1),
)
def test_one_more_key_of_a_turn_is_read_or_named_or_refuses_the_row(reading, key, value, place):
    """A flag that nothing reads never trains silently what it may forbid.

    A second rating that says what the step's own rating of 1 says is read, and changes nothing.
    """
    turns = [dict(turn) for turn in TURNS[reading]["messages"]]
    if key in turns[place] or key in ("from", "value", "content", "role"):
        return
    turns[place][key] = value
    held, unread, code = normalized(reading, {**TURNS[reading], "messages": turns})
    decided = key in FLAGS and value in (True, False, 0, 1, 0.5)
    decided |= key in stop_text.FLAGS and value is False  # the turn is finished
    decided |= (reading, place) == ("rated_messages", 1) and key in RATINGS and value in (True, 1)
    assert decided or MARK in held or f"messages[].{key}" in unread or code is not None
    if isinstance(value, bool) and not decided:
        assert code is not None


def test_every_spelling_of_a_flag_is_read() -> None:
    """0 leaves the turn out of the loss, as ``weight`` does."""
    weighed = normalized("openai", {"messages": [Q, A, Q, {**A, "weight": 0}]})
    assert '"trained": false' in weighed[0]
    for key in FLAGS:
        assert normalized("openai", {"messages": [Q, A, Q, {**A, key: 0}]}) == weighed, key


def test_a_condition_takes_the_rows_that_it_says() -> None:
    """JSON values where the text is one, texts elsewhere; true and 1 are not the same. A condition
    that says nothing has no reading, so none is guessed."""
    for text, row, holds in table("conditions.jsonl"):
        assert condition(text).holds(row) is holds, text
    for text in ("label", "=true", "score>high", ""):
        raised(errors.UsageError, condition, text, says="--where")


def test_a_column_is_left_out_wherever_its_path_leads() -> None:
    """Top columns, keys of objects, keys of every object of a list; nothing else is touched."""
    row: Row = {"a": 1, "b": {"c": 1, "d": 2}, "m": [{"x": 1, "y": 2}, {"y": 3}], "e.f": 1}
    selection = Selection(ignore=("a", "b.c", "m[].x", "e.f"))
    assert selection.read(row) == {"b": {"d": 2}, "m": [{"y": 2}, {"y": 3}]}
    assert row["m"][0] == {"x": 1, "y": 2}
    assert not names_something(row, "m[].z")


@pytest.mark.parametrize("case", few(table("asked_columns.jsonl"), 1), ids=lambda one: one["name"])
def test_a_column_that_may_matter_is_asked_about_and_the_answer_builds(case, pipeline, tmp_path):
    """``plan`` and ``run`` stop alike with status 3, and what they print settles it."""
    task, rows, answer = (case[name] for name in ("task", "rows", "answer"))
    path = rows_to(tmp_path / "rows.jsonl", *rows)
    command = ("run", task, path, *MODEL, "-o", tmp_path / "out")
    ran = pipeline(*command).refused(3, answer)
    planned = pipeline("plan", "--task", task, path, *MODEL).refused(3)
    message, _, left = ran.err.rstrip().partition("\nWhy the build was refused is in ")
    assert planned.err.rstrip().partition("\nRun:\n")[0] == message
    assert left.startswith("out.failed/report.html")
    commands = printed(ran.err)
    assert answer in (commands[0] if case.get("first", True) else " ".join(commands))
    pipeline(*command, *shlex.split(answer)).ended()


def test_only_rows_that_are_known_to_be_better_are_offered() -> None:
    """A high toxicity is bad, the place of a mistake has no order, values that are all alike order
    nothing, and neither a subject nor the number of a class is a verdict. Rows without a value are
    kept, and of numbers without a middle the better half."""
    for path, values, everywhere, offered in table("offered_conditions.jsonl"):
        assert shapes.keeping(path, values, everywhere) == offered, (path, values)


def _first_way(rows: list[Row]) -> str:
    """What the first option of the question about some rows is; empty where nothing is asked."""
    config = Config.of("sft", ("rows.jsonl",), "qwen2-1.5b", Path("out"))
    with pytest.raises(errors.DataError) as asked:
        recognise_rows(rows, "rows.jsonl", config, False, other_tasks=False)
    found = ways(asked.value.remedy)
    return " ".join(" ".join(pair) for pair in found[0]) if found else ""


@pytest.mark.parametrize("place", ["column", "object", "objects", "turns"])
@pytest.mark.parametrize(("name", "good", "bad", "sign"), table("first_ways.jsonl"))
def test_the_first_way_leaves_out_what_is_bad(name, good, bad, sign, place):
    """Whatever it is called, whatever says so, and wherever it stands; leaving the column out, so
    that all is trained, comes behind it."""

    def row(at: int) -> Row:
        said = bad if at % 5 == 4 else good
        talk = [{"role": "user", "content": f"q {at}"}, {"role": "assistant", "content": f"a {at}"}]
        if place == "turns":
            return {"messages": [talk[0], {**talk[1], name: said}]}
        inside = {"object": {name: said}, "objects": [{name: good}, {name: said}]}
        return {"messages": talk, name if place == "column" else "checks": inside.get(place, said)}

    path = {"column": name, "object": f"checks.{name}", "objects": f"checks[].{name}"}
    where = f"{path.get(place, f'messages[].{name}')}{sign}"
    assert _first_way([*map(row, range(20))]) == f"--where {where}"


@pytest.mark.parametrize("check", ["expected_answer", "ground_truth", "gold", "target", "ref"])
@pytest.mark.parametrize("own", ["answer", "solution", "predicted_answer", "pred"])
def test_answers_that_differ_from_what_they_are_checked_against_are_asked_about(own, check):
    """What is trained, or was taken out of it, whatever both are called; where all agree, or only
    one differs, nothing is asked. No filter is offered that would keep what differs."""

    def rows(wrong: int, by: int = 400, of: int = 40) -> list[Row]:
        found = [str(100 + at + by * (at < wrong)) for at in range(of)]
        told = found if own == "answer" else [f"Counting on from there, we get {n}." for n in found]
        more = {own: found} if own.startswith("pred") else {}
        answer = own if own in ("answer", "solution") else "solution"
        each = zip(*({**more, answer: told}.values()), strict=True)
        names = [*more, answer]
        return [
            {
                "problem": f"What is {100 + at} and 0?",
                **dict(zip(names, one, strict=True)),
                check: str(100 + at),
            }
            for at, one in enumerate(each)
        ]

    holds = f"contains({own}, {check})" if own == "solution" else f"{own} = {check}"
    assert _first_way(rows(8)) == f"--filter {holds}"
    kept = own == "solution"  # 1100 has 100 in it
    assert _first_way(rows(8, 1000)) == (f"--ignore {check}" if kept else f"--filter {holds}")
    config = Config.of("sft", ("rows.jsonl",), "qwen2-1.5b", Path("out"))
    for wrong in (0, 1):
        assert recognise_rows(rows(wrong), "rows.jsonl", config, False, other_tasks=False).reading


@given(
    st.from_regex(r"[a-z]{3,9}(_[a-z]{3,9})?", fullmatch=True).filter(
        lambda name: name not in KNOWN
    ),
    st.sampled_from(["parameters", "input_schema"]),
    st.booleans(),
    st.booleans(),
)
def test_declared_tools_are_asked_about_under_any_name(name, schema, nested, as_text):
    """Calls would be trained without what they call: the shape of the value says so."""
    tool: Any = {"name": "look", schema: {"type": "object", "properties": {}}}
    tools: Any = [{"type": "function", "function": tool} if nested else tool]
    row: Row = {"messages": [Q, A], name: json.dumps(tools) if as_text else tools}
    watched = Watched(row)
    examples = formats.load("openai").read(watched, FormatOptions())
    (left,) = LEAVING.of(watched, examples)
    error = asked(left, kind_of("sft"), ReadRow(watched, examples))
    assert f"--map tools={name}" in error.remedy


@given(st.integers(1, 3), st.integers(1, 60))
def test_a_stray_minus_one_decides_for_no_other_row(strays: int, zeros: int) -> None:
    """Among many zeros, a -1 may be a mistake: what 0 says is asked."""
    rows = [{"prompt": "P", "completions": ["s", "t"], "labels": [1, 0]} for _ in range(zeros)]
    rows += [{"prompt": "P", "completions": ["s", "t"], "labels": [1, -1]} for _ in range(strays)]
    found = formats.load("stepwise")
    if zeros <= 20 * strays:
        assert found.settle(rows, FormatOptions())[0] == "signed"
        return
    caught = raised(errors.UndecidedError, found.settle, rows, FormatOptions())
    assert {*caught.choices} == {"signed", "unsigned"}


@pytest.mark.parametrize("often", [1, 20])
def test_where_nothing_is_rated_good_no_zero_is_offered_as_good(often, pipeline, tmp_path):
    """Ratings of 0 and -1 alone: no command that is printed makes the zeros good."""
    lines = [
        {"prompt": f"P {n}", "completions": ["first", "second"], "labels": [0, -int(n < often)]}
        for n in range(60)
    ]
    rows_to(tmp_path / "rated.jsonl", *lines)
    ran = pipeline("plan", "rated.jsonl", "--task", "prm", *MODEL)
    assert "--neutral" not in ran.err
    found, good = formats.load("stepwise"), FormatOptions(neutral="good")
    if often == 1:
        assert "Say which with --format stepwise/unsigned" in ran.err
        caught = raised(errors.UndecidedError, found.settle, lines, FormatOptions())
        assert caught.choices == ("unsigned", "signed")
    assert not found.variants["signed"].is_believable(lines, good)
    assert found.variants["signed"].is_believable([{**lines[0], "labels": [1, -1]}], good)


@pytest.mark.parametrize(
    ("answer", "reasoning"),
    [("attempt", "reasoning"), ("answer", "thinking_trajectory"), ("response", "cot")],
)
def test_reasoning_and_verdicts_go_with_the_answer_of_their_own(answer, reasoning):
    """Whatever they are called: the one that more verdicts call good goes first, no way has the
    reasoning of another, and a verdict on an answer that is not trained filters nothing."""
    whose = ("zephyr", "ours", "nova")
    rows = [
        {"question": f"What is {at} + 1?", "solution": f"The sum is {at + 1}."}
        | {f"{one}_{reasoning}": f"We add 1 to {at} as {one} does." for one in whose}
        | {f"{one}_{answer}": f"As {one} says, it is {at + 1}." for one in whose}
        | {f"{one}_grade": "Yes" if at % (4 - n) else "No" for n, one in enumerate(whose[:2])}
        for at in range(20)
    ]
    offered = _offered(rows)
    mapped = [{value for flag, value in way if flag == "--map"} for way in offered]
    first = {f"message_thinking=zephyr_{reasoning}", f"message_content=zephyr_{answer}"}
    assert mapped[0] >= first
    for one in mapped:
        assert sum(any(f"={who}_" in value for value in one) for who in whose) <= 1, one
    graded = {value for _, value in offered[0] if "grade" in value}
    assert graded == {"zephyr_grade=Yes", "ours_grade"}


def _offered(rows: list[Row], task: str = "sft") -> list[Any]:
    """The answers to all that some rows ask; each that is offered reads them."""
    asked = raised(errors.DataError, _settled, rows, task)
    offered = ways(asked.remedy)
    assert all(_settled(rows, task, way) for way in offered)
    return offered


def _settled(rows: list[Row], task: str = "sft", way: Any = ()) -> Any:
    """The reading of rows with the options of a way."""
    config = applied(way, Config.of(task, ("rows.jsonl",), "qwen2-1.5b", Path("out")))

    def read(own: Config) -> Any:
        return recognise_rows(rows, "rows.jsonl", own, False, other_tasks=False)

    return answers.settled(read, config, lambda *_: ())


@pytest.mark.parametrize("name", ["in_gsm8k_train", "in_mmlu_test", "in_human_eval_set"])
def test_a_row_that_another_set_has_too_is_asked_about(name: str) -> None:
    """For every task."""
    for reading in ("openai", "preference", "stepwise"):
        assert normalized(reading, {**ROWS[reading][1], name: True})[2] == "unread_weight"
        assert normalized(reading, {**ROWS[reading][1], name: False})[2] is None
        assert normalized(reading, {**ROWS[reading][1], "in_" + name[-4:]: True})[2] is None


@pytest.mark.parametrize("case", table("first_answers.jsonl"), ids=lambda case: case["name"])
def test_the_first_answer_is_the_one_that_loses_least(case: dict[str, Any]) -> None:
    """No command trains a class or a single turn, or takes one of several measures of one thing.
    What is bad is left out, and no row for a verdict that it lacks; of numbers without a middle,
    and where a good answer may stand beside the trained one, the column is. Verdicts decide before
    measures, a verdict on the trained answer alone is about it, numbers behind the first wrong step
    show that it was looked at, and of two system texts the column that brings one goes."""
    rows, task = expanded(case), case["task"]
    if case["wanted"] is None:
        assert _settled(rows, task)
        return
    offered = _offered(rows, task)
    first = " ".join(shlex.split(written(offered[0]))) if offered else ""
    assert first == case["wanted"]
    for row in rows if "kept" in case else ():
        assert normalized(case["kept"], row)[2] is None


@pytest.mark.parametrize("base", [0, 1])
def test_steps_behind_the_first_wrong_one_are_rated_where_that_is_said(base: int) -> None:
    row = {"problem": "p", "steps": ["a", "b", "c", "d"], "error_steps": [1 + base]}
    for whole, labels in (("-whole", [1, 0, 1, 1]), ("", [1, 0, None, None])):
        (chain,) = formats.load(f"error_list/{base}-based{whole}").read(row, FormatOptions())
        assert chain.labels == labels
