"""What a row leaves open is asked about, as are two columns that rate the same steps and differ;
what makes no example is counted."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kind_of, table

from stages import formats
from stages.contract import FormatOptions, Pair, Refused, Row, StepChain
from stages.errors import AskError, DataError, RowError
from stages.normalize.evidence import detect
from stages.rows import column_names, examples, selection

# reading: a row, and by meaning a value that says something else
ROWS: dict[str, tuple[Row, dict[str, Any]]] = {
    one["reading"]: (one["row"], one["others"]) for one in table("second_columns.jsonl")
}
SECONDS = {
    reading: [
        (meaning, name)
        for meaning in values
        for name in formats.load(reading).columns[meaning]
        if name not in row and name not in ("labels", "responses", "answers")
    ]
    for reading, (row, values) in ROWS.items()
}


def read(reading: str, row: Row, **columns: str) -> list[Any]:
    """A row's examples."""
    return list(formats.load(reading).read(row, FormatOptions(columns=columns)))


def _as_held(reading: str, name: str, value: Any) -> Any:
    """A value as the column can hold it: lists of two answers, ranks with the best lowest."""
    if name in ("rank", "ranks"):
        return value[::-1]
    ends = ("responses", "answers", "completions", "outputs", "candidates", "summaries")
    return [value, "b"] if reading == "indexed_pair" and name in ends else value


@pytest.mark.parametrize("reading", ROWS)
def test_a_second_column_of_one_meaning_is_not_chosen_between(reading: str) -> None:
    """With another value it refuses the row, and asks about a file of such rows; null, an empty
    text, and the value that the row has already change nothing."""
    row, values = ROWS[reading]
    found = formats.load(reading)
    wanted = read(reading, row)
    assert len(wanted) == 1
    for meaning, name in SECONDS[reading]:
        odd = {**row, name: _as_held(reading, name, values[meaning])}
        with pytest.raises(AskError, match=name) as refused:
            read(reading, odd)
        assert "--" in refused.value.remedy
        doubt = found.doubt([row, odd], {})
        assert doubt is not None
        assert name in doubt[0]
        for empty in (None, "") if meaning not in ("margin", "numbers") else (None,):
            assert read(reading, {**row, name: empty}) == wanted, name
        mine = next((one for one in found.columns[meaning] if one in row), None)
        if meaning not in ("answers", "margin") and mine is not None:
            assert read(reading, {**row, name: _as_held(reading, name, row[mine])}) == wanted, name


def test_what_map_names_is_what_is_read() -> None:
    """The doubt's own options settle it, for the row and for the file."""
    row = {"query": "q", "response": "a", "output": "z", "rejected_response": "b"}
    (pair,) = read("rejected_response", row, output="output")
    assert isinstance(pair, Pair)
    assert pair.chosen[0].content == "z"
    found = formats.load("rejected_response")
    assert found.doubt([row], {"output": "output"}) is None


SCORES = st.lists(st.sampled_from([None, 0, 1, 2.5]), min_size=2, max_size=6)


@given(SCORES, st.sampled_from(["", "all", "extremes"]), st.booleans())
def test_answers_without_a_number_are_counted_and_never_ordered(
    scores: list[float | None], which: str, inside: bool
) -> None:
    """Each pair has the higher score in front; every answer is in one, or counted by name."""
    answers = [f"answer {place}" for place in range(len(scores))]
    row: Row = {"prompt": "q", "responses": answers, "scores": scores}
    if inside:
        objects = [{"text": a, "score": s} for a, s in zip(answers, scores, strict=True)]
        row = {"prompt": "q", "responses": objects}
    known = {a: s for a, s in zip(answers, scores, strict=True) if s is not None}
    reading = f"ranked/{which}" if which else "ranked"
    if len(known) < 2 or len(set(known.values())) < 2:
        with pytest.raises(RowError) as refused:
            read(reading, row)
        assert refused.value.code == ("unrated_answer" if len(known) < 2 else "tie")
        return
    made = read(reading, row)
    pairs = [one for one in made if isinstance(one, Pair)]
    for one in pairs:
        better, worse = known[str(one.chosen[0].content)], known[str(one.rejected[0].content)]
        assert better > worse
        assert one.margin == better - worse
    codes = [one.code for one in made if isinstance(one, Refused)]
    assert codes.count("unrated_answer") == len(scores) - len(known)
    assert codes.count("not_an_extreme") == (len(known) - 2 if which == "extremes" else 0)
    if which == "all":
        assert len(pairs) + codes.count("tie") == len(known) * (len(known) - 1) // 2


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4))
def test_answers_behind_the_first_are_counted(chosen: int, rejected: int) -> None:
    """One pair, and one refused sequence for every other answer."""
    row = {
        "prompt": "q",
        "chosen": [f"c{i}" for i in range(chosen)],
        "rejected": [f"r{i}" for i in range(rejected)],
    }
    pair, *others = read("answer_lists/first", row)
    assert isinstance(pair, Pair)
    assert [one.code for one in others if isinstance(one, Refused)] == ["not_the_first"] * (
        chosen + rejected - 2
    )


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _leaves(one, f"{path}.{key}")
    else:
        yield path


VALUES = st.recursive(
    st.integers(1, 9),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, st.data())
def test_a_path_leaves_exactly_the_rest(value: Any, data: st.DataObject) -> None:
    """Every leaf is under a path that was taken, or under one that is left; never both."""
    paths = list(_leaves(value, "ask"))
    taken = data.draw(st.lists(st.sampled_from(paths), unique=True, min_size=1))
    left = dict(selection.rest("ask", value, taken))
    assert all(selection.lookup({"ask": value}, path) == one for path, one in left.items())
    found = list(itertools.chain.from_iterable(_leaves(one, path) for path, one in left.items()))
    assert sorted(found + taken) == sorted(paths)


EMPTY_SIDES: dict[str, Row] = {
    "rejected_response": {"query": "q", "response": "a", "rejected_response": ""},
    "strength_pair": {"p": 1, "response_1": "a", "response_2": "", "preference_strength": -1},
    "indexed_pair": {"prompt": "q", "response_a": "", "response_b": "b", "winner": "A"},
    "preference": {"prompt": "q", "response_chosen": "a", "response_rejected": ""},
}


def test_an_empty_answer_is_refused_as_one() -> None:
    """Not as a column that is missing."""
    for reading, row in EMPTY_SIDES.items():
        (made,) = read(reading, {"prompt": "q", **row})
        assert isinstance(made, Pair)
        with pytest.raises(RowError, match="does not end with an answer"):
            examples.pair(made)


def test_few_rows_that_ask_are_left_to_be_refused() -> None:
    """One row in a hundred stops no file; each is refused with the options that settle it."""
    row, _ = ROWS["preference"]
    odd = {**row, "chosen_response": "z"}
    found = formats.load("preference")
    assert found.doubt([row] * 99 + [odd], {}) is None
    assert found.doubt([row] * 98 + [odd], {}) is not None
    with pytest.raises(AskError, match="--ignore chosen_response"):
        read("preference", odd)


def test_an_index_behind_a_sample_of_letters_is_no_guess() -> None:
    """Where the file's answers are named, a number may count from 0 or from 1."""
    row = {"prompt": "q", "response_a": "a", "response_b": "b", "winner": 1}
    with pytest.raises(RowError, match="an index from 0, an index from 1"):
        read("indexed_pair", row)
    with pytest.raises(RowError, match="names neither answer"):
        read("indexed_pair", {**row, "winner": "  "})


PROBLEM = {"problem": "P", "steps": ["s", "t", "u"]}
# What says the same as the ratings of a row, and what says something else.
RIVALS: dict[str, Row] = {one["reading"]: one for one in table("step_rivals.jsonl")}


@pytest.mark.parametrize("reading", RIVALS)
def test_a_second_rating_that_differs_is_asked_about(reading: str) -> None:
    """It refuses its row, and asks about a file of such rows, and each way that is offered works;
    one that says the same counts as read."""
    row, meaning, same, odd = (RIVALS[reading][key] for key in ("row", "meaning", "same", "others"))
    form, wanted = formats.load(reading), read(reading, row)
    mine = next(one for one in form.columns[meaning] if one in row)
    for name in form.columns[meaning]:
        if name in row:
            continue
        for value in odd:
            both = {**row, name: value}
            with pytest.raises(AskError, match=f"{name} could|{name} and .* could") as refused:
                read(reading, both)
            doubt = form.doubt([row, both], {})
            assert doubt is not None
            assert doubt[1] == refused.value.remedy
            assert f"--map {mine}={mine}" in doubt[1]
            assert f"--map {name}={name}" in doubt[1]
            assert read(reading, selection.Selection(ignore=(name,)).read(both)) == wanted
            assert read(reading, both, **{mine: mine}) == wanted
        for value in same:
            one = column_names.Watched({**row, name: value})
            assert read(reading, one) == wanted
            assert name in one.read_columns or value in ([None, None], [0.5])
            assert form.doubt([dict(one)], {}) is None


def test_ratings_are_compared_by_what_they_mean() -> None:
    """Written as + and -, or as numbers; nulls alone rate nothing, and the column that holds
    ratings is read, whichever comes first."""
    row: Row = {"prompt": "P", "completions": ["s", "t"]}
    for reading, labels, scores, wanted in (
        ("stepwise", ["+", "-"], [1, -1], [1.0, 0.0]),
        ("stepwise/signed", [1, -1], ["+", "-"], [1.0, 0.0]),
        ("stepwise", [None, None], [1, 0], [1.0, 0.0]),
    ):
        found = read(reading, {**row, "labels": labels, "scores": scores})
        assert found == [StepChain("P", ["s", "t"], [*wanted])], (labels, scores)
    alone = read("stepwise", {**row, "labels": [None, None]})
    assert alone == [StepChain("P", ["s", "t"], [None, None])]


def test_ratings_of_a_solution_among_several() -> None:
    """They refuse that solution alone, and the file is asked about with the path of the list."""
    good = {"steps": ["s", "t"], "labels": [1, 0], "scores": [True, False]}
    odd = {"steps": ["s", "t"], "labels": [1, 1], "rewards": [1, 0]}
    row = {"problem": "P", "solutions": [good, odd]}
    chain, refused = read("nested_steps", row)
    assert chain == StepChain("P", ["s", "t"], [1.0, 0.0])
    assert isinstance(refused, Refused)
    assert "labels and rewards could each be the rating of each step" in refused.detail
    with pytest.raises(DataError) as caught:
        detect([row], kind_of("prm"), "x.jsonl")
    ways = "--ignore 'solutions[].rewards' or --ignore 'solutions[].labels'"
    assert ways in caught.value.remedy


@pytest.mark.parametrize("other", ["text", "content", "step_text", "thought"])
def test_no_text_of_a_step_is_dropped(other: str) -> None:
    """A second text that differs is asked about; one that is empty or says the same is not."""
    step = {"step": "s", "rating": 1}
    for same in ("s", " s\n", "", None):
        row = column_names.Watched({"problem": "P", "steps": [{**step, other: same}]})
        (chain,) = read("rated_steps", row)
        assert [text.strip() for text in chain.steps] == ["s"]
        assert not list(row.unread())
    filled = {"problem": "P", "steps": [{**step, "step": "", other: "s"}]}
    assert read("rated_steps", filled) == [StepChain("P", ["s"], [1.0])]
    steps = [step, {**step, other: "all of s"}]
    for reading, row, place in (
        ("rated_steps", {"problem": "P", "steps": steps}, "steps[]"),
        ("nested_steps", {"problem": "P", "rollouts": [{"steps": steps}]}, "rollouts[].steps[]"),
    ):
        doubt = formats.load(reading).doubt([row], {})
        assert doubt is not None
        assert "could each be the text of a step" in doubt[0]
        assert f"--ignore '{place}.step'" in doubt[1]
        assert f"--ignore '{place}.{other}'" in doubt[1]
    both = {"problem": "P", "steps": steps[1:]}
    for dropped, kept in (("step", "all of s"), (other, "s")):
        row = selection.Selection(ignore=(f"steps[].{dropped}",)).read(both)
        assert read("rated_steps", row) == [StepChain("P", [kept], [1.0])]
    with pytest.raises(AskError, match="text of a step in steps"):
        read("rated_steps", {"problem": "P", "steps": steps})
    (refused,) = read("nested_steps", {"problem": "P", "rollouts": [{"steps": steps}]})
    assert isinstance(refused, Refused)


@pytest.mark.parametrize("other", ["text", "content", "thought", "action"])
def test_no_text_of_a_node_is_dropped(other: str) -> None:
    """The same of a node in a tree."""

    def tree(**more: str | None) -> Row:
        return {"problem": "P", "tree": {"children": [{"step": "s", "value": 1, **more}]}}

    for same in ("s", " s\n", "", None):
        row = column_names.Watched(tree(**{other: same}))
        (chain,) = read("step_tree", row)
        assert [text.strip() for text in chain.steps] == ["s"]
        assert not list(row.unread())
    assert read("step_tree", tree(**{"step": "", other: "s"})) == [StepChain("P", ["s"], [1.0])]
    both = tree(**{other: "all of s"})
    doubt = formats.load("step_tree").doubt([both], {})
    assert doubt is not None
    assert f"--ignore 'tree.**.{other}'" in doubt[1]
    with pytest.raises(RowError, match="could each be the text of a node"):
        read("step_tree", both)


def test_a_verdict_beside_the_first_error_is_no_index() -> None:
    """Whatever the label holds, the file is asked about before anything is trained. Rows of 0 and 1
    are a question only where no other column says that they are indices."""
    for label, first, count in ((1, -1, 3), (0, 2, 1), (3, -1, 1), (True, 1, 1), ("math", 1, 1)):
        row = {**PROBLEM, "label": label, "first_error": first}
        with pytest.raises(DataError, match="label and first_error could each be the index"):
            detect([row] * count, kind_of("prm"), "x.jsonl")
    rows = [{**PROBLEM, "label": n % 2} for n in range(4)]
    with pytest.raises(DataError, match="verdict"):
        detect(rows, kind_of("prm"), "x.jsonl")
    both = [{**row, "first_error": row["label"]} for row in rows]
    assert detect(both, kind_of("prm"), "x.jsonl").reading == "processbench"


@given(
    firsts=st.lists(st.integers(-1, 2), min_size=1, max_size=5),
    base=st.sampled_from([0, 1]),
    name=st.sampled_from(formats.load("processbench").columns["first error"][1:]),
)
def test_an_index_counts_as_the_file_shows(firsts: list[int], base: int, name: str) -> None:
    """From 0 where a step 0 occurs, from 1 where a last step does; else the build asks."""
    rows = [{**PROBLEM, name: first + base if first >= 0 else None} for first in firsts]
    if set(firsts) == {-1}:  # read alike from 0 and from 1
        assert detect(rows, kind_of("prm"), "x.jsonl").reading == "processbench"
        return
    shown = {0, -1} <= set(firsts) if base == 0 else 2 in firsts
    if not shown:
        with pytest.raises(DataError, match="from 0 or from 1") as caught:
            detect(rows, kind_of("prm"), "x.jsonl")
        for way in ("0-based", "1-based"):
            assert f"--format processbench/{way}" in caught.value.remedy
        return
    found = detect(rows, kind_of("prm"), "x.jsonl")
    assert found.reading == f"processbench/{base}-based"
    for row, first in zip(rows, firsts, strict=True):
        (chain,) = read(found.reading, row)
        wanted = [1.0] * 3 if first < 0 else [1.0] * first + [0.0] + [None] * (2 - first)
        assert chain.labels == wanted


def test_a_0_may_say_that_no_step_is_wrong() -> None:
    """It proves a count from 0 only where -1 or null says that; else the build asks, and offers
    first to count from 1 where 0 is the most frequent number."""
    for firsts, likelier in (((0, 1, 1, 2), "0-based"), ((0, 0, 0, 1, 2, 1), "1-based")):
        rows = [{**PROBLEM, "first_error_step": n} for n in firsts]
        with pytest.raises(DataError, match="which may be the first step or say") as asked:
            detect(rows, kind_of("prm"), "x.jsonl")
        assert asked.value.remedy.startswith(f"Say which with --format processbench/{likelier}")
    for none in (-1, None):
        more = [*rows, {**PROBLEM, "first_error_step": none}]
        assert detect(more, kind_of("prm"), "x.jsonl").reading == "processbench/0-based"


def test_solutions_without_errors_need_no_numbering() -> None:
    """They build, and a number that the sample did not have is refused, not guessed."""
    for none in (-1, None):
        row = {**PROBLEM, "first_error_step": none}
        found = detect([row], kind_of("prm"), "x.jsonl")
        assert found.reading == "processbench"
        assert read(found.reading, row) == [StepChain("P", ["s", "t", "u"], [1.0, 1.0, 1.0])]
        with pytest.raises(RowError, match="--format processbench/0-based or"):
            read(found.reading, {**PROBLEM, "first_error_step": 2})


def test_only_what_map_names_shows_how_it_is_read() -> None:
    """A second column with the meaning is not looked at, also where the first is null."""
    for meant, own, second, other, reading in (
        ("label", 0, "first_error_step", 3, "processbench"),
        ("first_error", 3, "label", 1, "processbench/1-based"),
        ("error_steps", [3], "errors", [0, 1], "error_list/1-based"),
        ("ratings", [1, 0, 1], "labels", [1, -1, 1], "stepwise"),
    ):
        rows = [{**PROBLEM, meant: own, second: other}]
        variant, _ = formats.load(reading.partition("/")[0]).settle(rows, {meant: "own"})
        assert variant == reading.partition("/")[2], meant
    row = {**PROBLEM, "label": 1, "first_error": None}
    (chain,) = read("processbench", row, first_error="first_error")
    assert chain.labels == [1.0, 1.0, 1.0]


def test_numbers_from_both_ends_are_asked_about() -> None:
    """A step 0 and one past the end: the one is no step from 1, and the other none from 0. A 0
    where steps count from 1 says that none is wrong."""
    rows = [{**PROBLEM, "first_error_step": n} for n in (0, 3)]
    assert detect(rows, kind_of("prm"), "x.jsonl").reading == "processbench/1-based"
    more = [*rows, {**PROBLEM, "first_error_step": -1}]  # which says itself that none is wrong
    with pytest.raises(DataError, match="both a step 0 and a step past the end"):
        detect(more, kind_of("prm"), "x.jsonl")
    with pytest.raises(RowError, match="is not a step of 3"):
        read("processbench/0-based", rows[1])
    (chain,) = read("processbench/1-based", rows[0])
    assert chain.labels == [1.0, 1.0, 1.0]


def test_label_counts_from_0_whatever_it_shows() -> None:
    """Where it is to count from 1, it is read under another name."""
    row = {**PROBLEM, "label": 2}
    assert detect([row, row], kind_of("prm"), "x.jsonl").reading == "processbench"
    assert read("processbench", row) == [StepChain("P", ["s", "t", "u"], [1.0, 1.0, 0.0])]
    with pytest.raises(RowError, match="--map first_error=label"):
        read("processbench/1-based", row)
    renamed = {**PROBLEM, "first_error": 2}
    (chain,) = read("processbench/1-based", renamed, first_error="label")
    assert chain.labels == [1.0, 0.0, None]
