"""What a column may mean is told by words in its name and by shapes of its values: generated over
words, spellings, shapes and tasks, so that nothing depends on one spelling."""

import itertools
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import WHOLE, normalizing, records
from support import few, table

from pipeline.shards.filter_expressions import NUMBER, TEXT, TRUTH, evaluate
from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions, Record, Row
from stages.normalize.stage import Normalize
from stages.normalize.survey import Survey, survey
from stages.rows import column_names, signals, words
from stages.rows.column_names import are_verdicts
from stages.rows.expressions import key_of, parse
from stages.rows.selection import Selection, condition
from stages.rows.shapes import keeping

PROSE = "First we look at both numbers, then we add them."
READINGS = {"sft": "prompt_completion", "rm": "preference", "prm": "stepwise"}

ALL = ("sft", "rm", "prm")
# Words of a class in several of their forms; the tasks that ask about them; values of their shape,
# and values that are none.
FAMILIES: dict[str, Any] = dict(table("signs_of_columns.jsonl"))
# What a name is about, whatever stands before it.
ABOUT = (
    "id ids idx index count tokens length size time date timestamp seed temperature latency cost "
    "source split lang language model name type category url version hash"
).split()
NEIGHBOURS = ("deepseek", "human", "annotator", "average", "overall", "r1")

Spell = Callable[[list[str]], str]
SPELLINGS: dict[str, Spell] = {
    "snake": "_".join,
    "kebab": "-".join,
    "blank": " ".join,
    "upper": lambda words: "_".join(words).upper(),
    "pascal": lambda words: "".join(word.capitalize() for word in words),
    "camel": lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    "numbered": lambda words: f"{'_'.join(words)}_2",
    "digit": lambda words: f"{'_'.join(words)}2",
}


def names(words: list[str], neighbours: bool = True) -> Iterator[str]:
    """A name in every spelling, alone and behind the name of somebody."""
    for spell in SPELLINGS.values():
        yield spell(words)
        if neighbours:
            yield from (spell([one, *words]) for one in NEIGHBOURS)


STAGES = {task: normalizing(task, reading) for task, reading in READINGS.items()}


def codes(task: str, more: list[tuple[str, Any]]) -> list[str | None]:
    """The codes that rows with one more column each are refused with."""
    row = WHOLE[READINGS[task]].row
    rows = [Record(at, 0, b"", {**row, name: value}) for at, (name, value) in enumerate(more)]
    return STAGES[task](rows).column("reject_code").to_pylist()


def refused(task: str, name: str, value: Any) -> str | None:
    """The code that a row with one more column is refused with."""
    return codes(task, [(name, value)])[0]


def judged(task: str, names: Iterable[str], values: list[Any]) -> dict[tuple[str, Any], bool]:
    """Whether each value under each name, which the format does not read, refuses its row."""
    more = [(n, v) for n in names if not of_a_format(task, n) for v in values]
    found = zip(more, codes(task, more), strict=True)
    return {(name, str(value)): code is not None for (name, value), code in found}


def surveyed(task: str, rows: list[Row]) -> Survey:
    """What a build would ask about such rows."""
    found = formats.load(READINGS[task])
    return survey(rows, found, kind_of(task), FormatOptions(), Selection())


def of_a_format(task: str, name: str) -> bool:
    """Whether the format reads a column of this name."""
    return name in formats.names_of(formats.load(READINGS[task]))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("family", few(list(FAMILIES), 3))
def test_every_form_in_every_spelling_is_asked_about(family):
    """Where the values have the shape of the class, and in the tasks that it matters to."""
    forms, tasks, held, others = FAMILIES[family]
    for task, form in itertools.product(tasks, forms.split()):
        found = judged(task, names([form]), held[:2]) | judged(task, [f"my_{form}"], held)
        assert all(found.values()), (task, [one for one, asked in found.items() if not asked])
        found = judged(task, [f"my_{form}"], others)
        assert not any(found.values()), (task, [one for one, asked in found.items() if asked])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("family", few(list(FAMILIES), 1))
def test_a_column_about_something_is_never_asked_about(family):
    """Its number, name, date or source; in every spelling, whatever the words before it. Tools that
    are declared are known by themselves."""
    forms, _, held, _ = FAMILIES[family]
    allowed = {"media": ("url",)}.get(family, ())
    told = [one for one in held if not (isinstance(one, bool) or signals.are_tools(one))]
    values = [7, "gpt-4", True, *told]
    ends = [end for end in ABOUT if end not in allowed]
    for form, end in zip(forms.split(), itertools.cycle(ends), strict=False):
        made = [*names([form, end]), *names(["num", form], neighbours=False)]
        for task in READINGS:
            found = judged(task, made, values[:3])
            assert not any(found.values()), (task, [one for one, asked in found.items() if asked])
    found = judged("sft", [f"{forms.split()[0]}_{end}" for end in ends], values)
    assert not any(found.values()), [one for one, asked in found.items() if asked]


def kept_by(option: str, name: str, values: list[Any]) -> list[bool]:
    """Which of the rows with these values an option keeps."""
    flag, text = shlex.split(option)
    if flag == "--where":
        return [condition(text).holds({name: one}) for one in values]
    type_ = {bool: TRUTH, str: TEXT}.get(type(values[-1]), NUMBER)
    key = key_of("column", name)
    told = [None if one is None else float(one) if type_ == NUMBER else one for one in values]
    return [*evaluate(parse(text), pl.DataFrame({key: told}), {key: type_}).fill_null(False)]


BAD = (
    "removed deleted discarded cancelled excluded spam duplicate needs_review exclude skip drop "
    "hidden invalid flagged"
).split()
SWITCHES: list[tuple[Any, Any]] = [(False, True), (0, 1), ("N", "Y"), ("no", "yes"), ("", "x")]
WHEN: list[Any] = ["2024-03-01T10:00:00Z", 1709287200, "a moderator"]


@pytest.mark.parametrize("task", ALL)
def test_what_says_that_a_row_is_bad_is_asked_about_in_every_form(task):
    """Once, with the option that keeps the others; a row that is not bad asks nothing."""
    forms = [(name, *pair) for word in BAD for name in (word, f"is_{word}") for pair in SWITCHES]
    forms += [
        (f"{word}_{end}", None, on) for word in BAD[:5] for end in ("at", "by") for on in WHEN
    ]
    for name, off, on in forms:
        row = WHOLE[READINGS[task]].row
        found = surveyed(task, [{**row, name: one} for one in (off, on, off)])
        column = found.columns.get(name)
        assert column is None or column.asked is not None, (task, name, on)
        assert column is not None, (task, name, on)
        values = [one for one in (off, on, off) if one not in (None, "")]
        option = keeping(name, values, everywhere=len(values) == 3)
        kept = kept_by(option, name, [off, on])
        assert kept == [True, False], (task, name, option)
    still = [(name, off) for name, off, _ in forms if name.removeprefix("is_") not in BAD[-2:]]
    assert {*codes(task, still)} == {None}


@pytest.mark.parametrize("task", READINGS)
def test_a_general_name_means_what_it_stands_in(task):
    """``scores.overall`` is a score, and ``context.text`` a context."""
    for inside in ("value", "text", "overall", "content"):
        assert "number" in signals.classes(f"my_scores.{inside}")
        assert "context" in signals.classes(f"context.{inside}")
    assert "number" in signals.classes("scores.depth")
    assert "context" not in signals.classes("context.depth")
    assert refused(task, "context", {"id": 1, "text": PROSE}) == "unread_column"


def test_a_telling_text_is_asked_about_under_any_name():
    """But not where the name is about something else."""
    for text in ("safe", "Unsafe", "incorrect", "failed", "No", "ja"):
        assert refused("sft", "gate", text) == "rated", text
        assert refused("sft", "gate_type", text) is None, text
    for text in ("tie", "Both bad", "neither"):
        assert refused("rm", "gate", text) == "rated", text
        assert refused("sft", "gate", text) is None, text


SIDES = ("chosen", "rejected", "a", "b", "1", "2", "winner", "loser")


@pytest.mark.parametrize("side", SIDES)
def test_a_rating_of_one_side_is_asked_about(side):
    """Before its word or behind it; a rating of no side says nothing about a pair."""
    spelled = [spell for name, spell in SPELLINGS.items() if name not in ("numbered", "digit")]
    for word, spell in itertools.product(("score", "rating", "reward", "safe"), spelled):
        for parts in ([word, "my", side], ["my", side, word]):
            assert refused("rm", spell(parts), 3), parts
    for name in ("prompt_score", "gpt4_score", "score_v2"):
        assert refused("rm", name, 3) is None
    assert refused("rm", "prompt_scores", [3, 4]) == "rated"
    assert refused("rm", "prompt_scores", [3, 4, 5]) is None


def test_ratings_of_steps_are_asked_about_where_they_differ():
    """Also the place of the first mistake; a verdict on the whole changes no step."""
    labels = WHOLE["stepwise"].row["labels"]
    same, odd = [float(one) for one in labels], [float(not one) for one in labels]
    for name in ("my_ratings", "HardLabels", "step-quality"):
        assert refused("prm", name, same) is None
        assert refused("prm", name, odd) == "rated"
        assert refused("prm", name, [*odd, 1]) is None
        assert refused("prm", name, 1) is None
    first = next((at for at, one in enumerate(labels) if not one), None)
    fits = -1 if first is None else first
    for name in ("my_first_mistake", "errorStep", "mistake_index_2"):
        assert refused("prm", name, fits) is None
        assert refused("prm", name, 17) == "rated"
    assert refused("prm", "final_verdict", False) is None


def test_an_answer_that_ends_with_its_rating_is_a_judges():
    """The rating says no more than the answer does."""
    row = {**WHOLE["prompt_completion"].row, "completion": "Too short. [RESULT] 2"}
    for value in ("2", 2):
        assert not surveyed("sft", [{**row, "my_score": value}]).columns["my_score"].asked
    assert surveyed("sft", [{**row, "my_score": 1}]).columns["my_score"].asked


def test_few_texts_of_a_verdict_are_seen_in_the_sample_alone():
    """No row is refused for one of them, and many texts are no verdicts."""
    row = WHOLE["prompt_completion"].row
    for name in ("my_quality", "solutionGrade", "decision"):
        for count, asked in ((1, False), (2, True), (5, True), (20, False)):
            values = [f"class {at % count:c>3}" for at in range(60)]
            found = surveyed("sft", [{**row, name: value} for value in values])
            assert (found.columns[name].asked is not None) is asked, (name, count)
            assert refused("sft", name, values[0]) is None
    for name in ("my_topic", "gate_type", "gate"):
        found = surveyed("sft", [{**row, name: f"{at % 2}th topic"} for at in range(60)])
        assert found.columns[name].asked is None, name


def test_true_and_false_are_asked_about_where_both_are_in_the_sample():
    """Under a name that says nothing; in the build no row is refused for one of them."""
    for spell in SPELLINGS.values():
        for said, asked in ((["gate"], True), (["fell", "open"], True), (["gate", "type"], False)):
            name = spell(said)
            for values, both in (([True, False], True), ([False], False), ([True, "x"], False)):
                rows = [{**WHOLE["prompt_completion"].row, name: value} for value in values]
                column = surveyed("sft", rows).columns[name]
                assert (column.asked is not None) is (asked and both), (name, values)
            assert judged("sft", [name], [True, False]) == {
                (name, "True"): False,
                (name, "False"): False,
            }


def test_long_texts_that_are_most_together_are_all_named():
    """Each alone is less than most, and short ones beside them are none of them."""
    row = WHOLE["prompt_completion"].row
    for count in (1, 2, 3):
        long = {f"page{at}": f"{at}{PROSE * 4}" for at in range(count)}
        found = surveyed("sft", [{**row, **long, "note": "abc"}] * 3)
        marked = [name for name, column in found.columns.items() if column.asked is not None]
        assert (found.most, marked) == (("page0", []) if count == 1 else (None, [*long]))
    assert surveyed("sft", [{**row, "page": PROSE}] * 3).most is None


WORDS = sorted({form for forms, *_ in FAMILIES.values() for form in forms.split()} | {*ABOUT, "x"})
_PLAIN = (None, "", 0, 1, True, False, 0.5, "yes", "unsafe", "tie", "B", PROSE, "a.png")
_NESTED = (
    [1, 0],
    [1, 0, 1],
    [PROSE],
    {"a": 1},
    {"text": PROSE},
    [{"name": "f"}],
    '[{"name": "f"}]',
)
VALUES = st.sampled_from([*_PLAIN, *_NESTED])
NAMES = st.tuples(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), st.sampled_from([*SPELLINGS])
).map(lambda made: SPELLINGS[made[1]](made[0]))


@settings(max_examples=150)
@given(st.sampled_from([*READINGS]), NAMES, st.lists(VALUES, min_size=1, max_size=6))
def test_a_row_is_refused_only_for_what_the_sample_would_have_asked(task, name, values):
    """Whatever becomes of a value alone, in a sample it is asked about, and the other way round but
    for what only a sample shows."""
    if of_a_format(task, name):
        return
    rows = [{**WHOLE[READINGS[task]].row, name: value} for value in values]
    columns = surveyed(task, rows).columns
    asked = name in columns and columns[name].asked is not None
    if name in columns and are_verdicts(name, columns[name].values, kind_of(task)):
        return
    assert any(codes(task, [(name, value) for value in values])) is asked


def test_a_column_that_is_taken_from_inside_is_not_left_out():
    """Neither in the first row, which is read alone, nor in others that are like it."""
    options = FormatOptions(columns={"question": "ask.text"})
    one = Normalize(kind_of("sft"), formats.load("query_response"), options)
    for more, left in (({}, {}), ({"by": "x"}, {"ask.by": 4})):
        rows = [{"ask": {"text": f"q{at}", **more}, "answer": f"a{at}"} for at in range(4)]
        one.restart()
        one(records(rows))
        assert one.tally.rows == left


def test_what_is_low_is_good_where_the_word_says_so():
    """A negation turns a word round."""
    for word in ("toxic", "toxicity", "harmful", "refusal", "failed", "hallucination", "flagged"):
        assert signals.is_low(f"is_{word}"), word
        assert not signals.is_low(f"non{word}"), word
    for word in ("safe", "valid", "correct", "verified", "solved"):
        assert not signals.is_low(f"my_{word}"), word
        negated = "in" if word in ("valid", "correct") else "un"
        assert signals.is_low(f"my_{negated}{word}"), word


TABLE = tomllib.loads(Path(words.__file__).with_suffix(".toml").read_text("utf-8"))
PLAIN = [
    w for name in ("question", "answer", "context") for w in TABLE["means"][name]["both"].split()
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3), st.integers(0, 99))
def test_a_name_has_the_same_words_in_every_spelling(said, number):
    """Numbers are parts of their own, and no words."""
    for name, spell in SPELLINGS.items():
        spelled = spell(said)
        assert words.words(spelled) == tuple(said), spelled
        if name not in ("numbered", "digit"):
            for joint in ("", "_"):
                assert words.parts(f"{spelled}{joint}{number}") == (*said, str(number))


def test_words_without_a_separator_are_cut_and_halves_of_one_are_joined():
    """Where both halves are words of the table, or both together are one."""
    for first, second in itertools.permutations(PLAIN, 2):
        assert words.parts(first + second) == (first, second) or first + second in PLAIN
    for one in ("feed_back", "feedBack", "FEED-BACK"):
        assert words.parts(one) == ("feedback",)
    for word in ("toxic", "preferred", "safe", "valid"):
        assert words.parts(f"non_{word}") == (f"non{word}",)
    assert words.parts("non_final") == ("non", "final")
    assert words.parts("Complex_CoT") == ("complex", "cot")


def test_a_digit_above_the_line_counts_nothing():
    """Units such as m² are no numbered answers."""
    assert words.ranks_in(["x²", "y²"]) == []


def test_a_role_and_a_sign_are_of_one_class():
    """What plays a role under a name is asked about under it, where no format reads it."""
    for name, uses in TABLE["means"].items():
        for word in uses.get("both", "").split():
            word = word.rstrip("*!")
            assert words.role(word) == name, word
            assert name in words.signs(word), word


@pytest.mark.parametrize("key", ["calls", "actions", "zzz"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_calls_of_a_turn_are_asked_about_whatever_they_are_called(key: str, wrapped: bool) -> None:
    """By their shape: a list of objects with a name and arguments."""
    call = {"name": "find", "arguments": {"id": 1}}
    value = [{"id": "1", "function": call} if wrapped else call]
    found = [code for code, _ in column_names.reasons(f"messages[].{key}", value, kind_of("sft"))]
    assert found == ["unread_column"]
    assert not signals.are_calls([{"name": "find"}])
