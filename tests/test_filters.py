"""``--filter`` and ``--dedup-keep`` in builds: what is left, counted, and made again."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from support import Run, planned_examples, raised, table, write_rows

from pipeline.options.build_options import PlanOptions, SourceOptions
from pipeline.options.config import Config, carried
from pipeline.shards import doubles, values
from pipeline.shards.choose import choose
from pipeline.shards.examples import Fate, rows_left_out
from pipeline.shards.filters import SourceFilters
from stages import columns, contract, errors
from stages.rows import carried as carrying
from stages.rows.expressions import FIGURES, FUNCTIONS, parse

Rows = list[dict[str, Any]]
LANGUAGES = ("en", "de", None)
SFT = ("run", "sft", "--model", "qwen2-1.5b", "-o", "out")


def _rows(count: int = 40) -> Rows:
    """Word problems with columns to choose by; some columns are absent in some rows."""
    rows: Rows = []
    for n in range(count):
        row: dict[str, Any] = {
            "prompt": f"What is {n} and {n}?",
            "completion": "It is " + "so " * (n % 7) + f"{2 * n}.",
            "language": LANGUAGES[n % 3],
            "meta": {"score": n / 10, "from": "a"},
        }
        if n % 5 == 0:
            del row["meta"]
        rows.append(row)
    return rows


@pytest.fixture
def data(tmp_path) -> Path:
    """The file of these rows."""
    return write_rows(tmp_path / "data.jsonl", _rows())


def _parts(cache: Path) -> dict[str, int]:
    """The parts, each with the number of its file: one that is written again has another."""
    return {path.name: path.stat().st_ino for path in cache.glob("parts/*/*.arrow")}


def _build(pipeline: Run, data: Path, out: str, *words: object, task: str = "sft") -> Path:
    given = ("--model", "qwen2-1.5b", "--layout", "ragged", "-o", out)
    pipeline("run", task, data, *given, *words).ended()
    return data.parent / out


def _lines(folder: Path) -> list[int]:
    """The lines of the rows that a build has, from 0, in its order."""
    stored = load_from_disk(str(folder))["train"]["row_id"]
    return [int(name.rpartition(":")[2].partition("#")[0]) - 1 for name in stored]


@pytest.mark.slow
def test_another_limit_makes_no_part(pipeline, data, cache):
    """A part has what filters read, whatever they say; another name makes parts."""
    common = ("--cache-dir", cache, "--leave-rest")
    one = _build(pipeline, data, "one", *common, "--filter", "meta.score > 1 and n_turns > 1")
    before = _parts(cache)
    assert len(before) == 1
    more = ("--filter", "n_turns < 9", "--filter", "meta.score <= 2.5 or n_tokens > 2", "--dedup")
    two = _build(pipeline, data, "two", *common, *more, "--dedup-keep", "lowest:meta.score")
    assert _parts(cache) == before
    assert _lines(one) != _lines(two)
    _build(pipeline, data, "three", *common)
    assert len(_parts(cache)) == 2
    # What every part has needs no other part.
    _build(pipeline, data, "four", *common, "--filter", "n_tokens > 20 and n_trained > 2")
    assert len(_parts(cache)) == 2
    _build(pipeline, data, "five", *common, "--filter", "language = 'en'")
    assert len(_parts(cache)) == 3


@pytest.mark.parametrize(("words", "status", "says"), table("filters.toml")["no_choices"])
def test_what_cannot_be_chosen_by_is_refused(words, status, says, pipeline, data, tmp_path):
    pipeline(*SFT, data, "--leave-rest", *words).refused(status, says)
    assert not (tmp_path / "out").exists()


# The language of ``--filter``. Random texts are evaluated by SQLite, too: see test_witness.

Row = dict[str, Any]


def _options(*filters: str) -> SourceOptions:
    return SourceOptions(("x.jsonl",), filter=filters)


def _batch(rows: list[Row], asked: carrying.Carried) -> pa.RecordBatch:
    """What parts have of rows."""
    data = [{k: x for k, x in row.items() if not k.startswith("n_")} for row in rows]
    records = [contract.Record(line, None, b"", one) for line, one in enumerate(data)]
    columns = {
        "line": pa.array(range(len(rows)), pa.int64()),
        "length": pa.array([row["n_tokens"] for row in rows], pa.int32()),
        "trained": pa.array([row["n_trained"] for row in rows], pa.int32()),
    }
    return carrying.put(pa.RecordBatch.from_pydict(columns), asked, (), False, records)


def applied(rows: list[Row], *filters: str) -> tuple[list[int], list[bool]]:
    """The number of the filter that drops each row, and whether that one is null."""
    asked = carried(_options(*filters), PlanOptions())
    batch = _batch(rows, asked)
    seen = values.Seen(asked.paths)
    if asked.paths:
        seen.add(batch, lambda at: f"x.jsonl:{at + 1}")
    by, null = SourceFilters(tuple(map(parse, filters)), asked.paths, seen).apply(batch)
    return by.tolist(), null.tolist()


MEANS = table("filters.toml")["means"]


@pytest.mark.parametrize(("text", "said"), MEANS["texts"])
def test_a_text_says_of_each_row_what_it_means(text, said):
    """A value that is missing makes true or false of nothing that depends on it."""
    by, null = applied(MEANS["rows"], text)
    assert by == [int(one != "T") for one in said]
    assert null == [one == "N" for one in said]


@given(
    st.tuples(*[st.sampled_from([text for text, _ in MEANS["texts"]])] * 2),
    st.lists(st.sampled_from(MEANS["rows"]), max_size=12),
    st.randoms(),
)
def test_the_order_of_rows_and_pieces_changes_nothing(texts, rows, random):
    """A row counts for the first filter that is not true for it."""
    by, null = applied(rows, *texts)
    alone = [applied(rows, text)[0] for text in texts]
    assert by == [1 if first else 2 if second else 0 for first, second in zip(*alone, strict=True)]
    order = list(range(len(rows)))
    random.shuffle(order)
    again = applied([rows[at] for at in order], *texts)
    assert again == ([by[at] for at in order], [null[at] for at in order])


@pytest.mark.parametrize(("text", "at", "why"), table("filters.toml")["no_expressions"])
def test_what_is_no_expression_is_refused_with_its_place(text, at, why):
    refused = raised(errors.UsageError, parse, text)
    assert at in refused.what
    assert why in f"{refused.what} {refused.remedy}"


@pytest.mark.parametrize(("text", "why"), table("filters.toml")["types"])
def test_types_that_do_not_go_together_are_refused(text, why):
    rows: list[Row] = [{"n_tokens": 1, "n_trained": 1, "a": 1, "t": "x", "b": True}]
    assert why in raised(errors.UsageError, applied, rows, text).what


@pytest.mark.parametrize(("values", "said"), table("several_types.jsonl"))
def test_a_column_of_several_types_is_refused_with_rows(values, said):
    rows = [{"n_tokens": 1, "n_trained": 1, "a": value} for value in values]
    raised(errors.DataError, applied, rows, "a = 1", says=said)


def test_whole_numbers_are_compared_as_they_are():
    """2**53 + 1 is no double."""
    rows = [{"n_tokens": 1, "n_trained": 1, "a": 2**53 + n} for n in range(3)]
    assert applied(rows, f"a = {2**53 + 1}")[0] == [1, 0, 1]
    assert applied(rows, "a < 99999999999999999999")[0] == [0, 0, 0]
    assert applied(rows, "a > -99999999999999999999")[0] == [0, 0, 0]


def test_long_expressions_take_no_longer_for_each_part():
    rows = [{"n_tokens": 1, "n_trained": 1, "a": value} for value in (1, 2)]
    assert applied(rows, f"{' + '.join(['a'] * 40)} = 40")[0] == [0, 1]
    assert applied(rows, f"a in ({', '.join(map(str, range(2, 999)))})")[0] == [1, 0]


def test_a_name_in_double_quotes_is_a_column():
    rows = [{"n_tokens": 5, "n_trained": 1, "and": 3, "x y": 4}]
    assert applied(rows, '"and" = 3 and "x y" = 4')[0] == [0]
    named = parse('"n_tokens" > n_trained and "a ""b""" = 1')
    assert (named.columns, named.figures) == (("n_tokens", 'a "b"'), ("n_trained",))


def test_a_nan_is_no_value():
    rows = [{"n_tokens": 1, "n_trained": 1, "a": value} for value in (float("nan"), 2.0)]
    assert applied(rows, "a > 1") == ([1, 0], [True, False])


def test_every_function_and_figure_is_documented():
    text = (Path(__file__).parent.parent / "docs" / "choosing.md").read_text("utf-8")
    assert all(f"`{name}" in text for name in (*FUNCTIONS, *FIGURES))


def test_counts_of_turns_and_characters():
    said = [("system", "Hi"), ("user", "é?"), ("assistant", None), ("user", "ab")]
    turns = [
        {"role": role, "content": text, "fields": None, "trained": False} for role, text in said
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "line": pa.array([0, 1], pa.int64()),
            "one": pa.array([turns, turns[1:2]], columns.MESSAGES),
            "other": pa.array([turns[:1], turns], columns.MESSAGES),
        }
    )
    asked = carrying.Carried(counts=carrying.COUNTS)
    alone = carrying.put(batch, asked, ("one",), False, [])
    assert alone.column("n_turns").to_pylist() == [3, 1]
    assert alone.column("n_characters").to_pylist() == [6, 2]
    pair = carrying.put(batch, asked, ("one", "other"), True, [])
    assert pair.column("n_turns").to_pylist() == [3, 3]
    assert pair.column("n_characters").to_pylist() == [6, 6]
    assert np.all(carrying.put(batch, asked, (), False, []).column("n_turns").is_null())


def test_a_value_of_another_row_is_noticed():
    """Rows are looked up again by code of its own; any damage to a value shows."""
    rows: list[Row] = [
        {"n_tokens": 1, "n_trained": 1, "a": n, "t": str(n), "b": n % 2 == 0, "meta": {"q": n / 2}}
        for n in range(5)
    ]
    rows[3] |= {"a": None, "t": None, "b": None, "meta": []}
    asked = carrying.Carried(("a", "b", "meta.q", "t"))
    batch = _batch(rows, asked)
    records = {n: contract.Record(n, None, b"", row) for n, row in enumerate(rows)}
    values.check_values(batch, asked.paths, records, "row {}".format)
    for first, other in ((0, 1), (2, 3), (3, 4)):
        moved = list(range(5))
        moved[first], moved[other] = other, first
        shifted = batch.column("carried").take(pa.array(moved))
        damaged = batch.set_column(batch.schema.get_field_index("carried"), "carried", shifted)
        with pytest.raises(errors.ReadingError, match=f"row {first}: the value at"):
            values.check_values(damaged, asked.paths, records, "row {}".format)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 2), st.none() | st.integers(0, 3)), max_size=15
    ),
    st.booleans(),
    st.integers(1, 3),
)
def test_every_example_has_one_fate(said, dedup, fan_out):
    """Used, filtered or a double; a double of what is filtered stays; the counts of rows add up."""
    digests = np.zeros(len(said), doubles.DIGEST)
    digests["a"] = [content for content, _, _ in said]
    examples = planned_examples(
        len(said),
        row=np.arange(len(said)) // fan_out,
        digest=digests,
        filtered=np.array([by for _, by, _ in said], np.uint16),
        score=np.array([np.nan if x is None else x for _, _, x in said], np.float64),
    )
    config = Config.of("sft", ("x.jsonl",), "qwen2-1.5b", Path("out"), dedup=dedup)
    choice = choose(config, examples)
    fates = choice.fate.tolist()
    assert [fate == Fate.FILTERED for fate in fates] == [by > 0 for _, by, _ in said]
    left = [at for at, (_, by, _) in enumerate(said) if not by]
    if dedup:
        kept = [at for at in left if fates[at] == Fate.USED]
        assert sorted({said[at][0] for at in left}) == sorted(said[at][0] for at in kept)
        for at in kept:
            equals = [one for one in left if said[one][0] == said[at][0]]
            worth = [(-1 if said[one][2] is None else said[one][2], -one) for one in equals]
            assert max(zip(worth, equals, strict=True))[1] == at
    else:
        assert set(fates) <= {Fate.USED, Fate.FILTERED}
    rows = rows_left_out(examples, choice.fate)
    assert sum(rows.values()) + examples.rows(choice.used) == examples.rows()
    whole = [all(by for _, by, _ in said[at : at + fan_out]) for at in range(0, len(said), fan_out)]
    assert rows["filtered"] == sum(whole)
