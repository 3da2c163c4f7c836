"""``--filter`` and ``--dedup-keep`` in builds: what is left, counted, and made again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from support import Run, read_manifest, table, write_rows

from pipeline.shards import doubles

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
def data(tmp_path: Path) -> Path:
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


def _balanced(manifest: Mapping[str, Any]) -> None:
    rows, examples = manifest["rows"], manifest["examples"]
    lost = ("rejected", "duplicates", "filtered")
    assert rows["in"] == rows["used"] + sum(rows[name] for name in lost)
    assert examples["made"] == examples["kept"] + sum(examples[name] for name in lost)


def test_a_filter_leaves_out_what_it_says(pipeline: Run, data: Path) -> None:
    rows = _rows()
    text = "language = 'en' and meta.score >= 0.9"
    built = _build(pipeline, data, "out", "--filter", text, "--filter", "n_trained < 10")
    kept = _lines(built)
    fits = [r["language"] == "en" and r.get("meta", {}).get("score", 0) >= 0.9 for r in rows]
    assert all(fits[line] for line in kept)
    manifest, left = read_manifest(built), sum(fits)
    _balanced(manifest)
    first, second = manifest["filters"]
    assert (first["expression"], first["source"]) == (text, None)
    assert first["examples"] == first["rows"] == len(rows) - left
    # Null: no language, or English without a score.
    null = sum(
        (row["language"] is None and row.get("meta", {}).get("score", 1) >= 0.9)
        or (row["language"] == "en" and "meta" not in row)
        for row in rows
    )
    assert first["null"] == null
    assert len(kept) == left - second["examples"] == manifest["examples"]["kept"]
    assert 0 < second["examples"] < left
    assert second["null"] == 0
    trained = load_from_disk(str(built))["train"]["labels"]
    assert max(sum(label != -100 for label in labels) for labels in trained) < 15
    unread = {one["column"] for one in manifest["inputs"][0]["unread"]}
    assert unread == {"meta.from"}
    assert pipeline("check", built, "--json").ended().told["rows_made_again"] == len(rows)
    assert "meta.score &gt;= 0.9" in (built / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_another_limit_makes_no_part(pipeline: Run, data: Path, cache: Path) -> None:
    """A part has what filters read, whatever they say; another name makes parts."""
    common = ("--cache-dir", cache)
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


@pytest.mark.slow
def test_a_filter_depends_on_no_order(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    rows = _rows()
    data = write_rows(tmp_path / "data" / "a.jsonl", rows[:25]).parent
    write_rows(data / "b.jsonl", rows[25:])
    asked = ("--filter", "meta.score > 1", "--dedup", "--dedup-keep", "highest:meta.score")
    one = _build(pipeline, data, "one", *asked, "--workers", "1")
    two = _build(pipeline, data, "two", *asked, "--workers", "2", "--cache-dir", cache)
    assert (one / "manifest.json").read_bytes() == (two / "manifest.json").read_bytes()
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    mixed = write_rows(tmp_path / "mixed.jsonl", [rows[at] for at in order])
    other = _build(pipeline, mixed, "other", *asked)
    names = load_from_disk(str(one))["train"]["row_id"]
    own = {int(n.split(":")[1]) - 1 + (25 if n.startswith("b") else 0) for n in names}
    assert {order[at] for at in _lines(other)} == own


@pytest.mark.slow
def test_the_best_of_equal_examples_stays(pipeline: Run, tmp_path: Path) -> None:
    """Of equal scores the first, no score is the least, and a double of a filtered one stays."""
    said = [("Say it.", score) for score in (None, 1, 5, 5.0, 9)] + [
        ("Other.", None),
        ("Other.", -3),
    ]
    rows = [{"prompt": text, "completion": "It.", "quality": score} for text, score in said]
    data = write_rows(tmp_path / "data.jsonl", rows)
    for words, kept in (
        (("--dedup-keep", "first"), [0, 5]),
        (("--dedup-keep", "lowest:quality"), [1, 6]),
        (("--dedup-keep", "highest:quality", "--filter", "quality < 9 or quality is null"), [2, 6]),
        (("--filter", "quality is not null"), [1, 6]),
    ):
        built = _build(pipeline, data, "out", "--dedup", "--ignore", "quality", *words)
        _balanced(read_manifest(built))
        pipeline("check", built).ended()
        assert _lines(built) == kept, words


@pytest.mark.parametrize(("words", "status", "says"), table("filters.toml")["no_choices"])
def test_what_cannot_be_chosen_by_is_refused(
    words: list[str], status: int, says: str, pipeline: Run, data: Path, tmp_path: Path
) -> None:
    pipeline(*SFT, data, *words).refused(status, says)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_absent_column_may_be_expected(pipeline: Run, data: Path) -> None:
    texts = ("spam is null", "coalesce(spam, 0) = 0", "not (spam is not null)")
    words = [word for text in texts for word in ("--filter", text)]
    assert len(_lines(_build(pipeline, data, "out", *words))) == 40


@pytest.mark.slow
def test_a_column_of_several_types_names_rows_of_the_file(pipeline: Run, tmp_path: Path) -> None:
    """Also where each file by itself has one type."""
    for name, values in (("a", [1, 2]), ("b", [3, "4"]), ("c", ["5", "6"])):
        rows = [{"prompt": f"{name}{x}?", "completion": "It.", "rank": x} for x in values]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    for files, said in (
        (("b",), "a number in b.jsonl:1 and a text in b.jsonl:2"),
        (("a", "c"), "a number in a.jsonl:1 and a text in c.jsonl:1"),
    ):
        data = [tmp_path / f"{name}.jsonl" for name in files]
        pipeline(*SFT, *data, "--filter", "rank > 1").refused(3, said)


@pytest.mark.slow
def test_a_column_called_like_a_figure_is_asked_about(pipeline: Run, tmp_path: Path) -> None:
    rows = [{**row, "n_tokens": 7 + n} for n, row in enumerate(_rows())]
    data = write_rows(tmp_path / "data.jsonl", rows)
    common = (*SFT, data)
    ran = pipeline(*common, "--filter", "n_tokens > 20")
    ran.refused(2, "data.jsonl has a column n_tokens of its own")
    column = _build(pipeline, data, "column", "--filter", '"n_tokens" > 20')
    assert _lines(column) == list(range(14, 40))
    figure = _build(pipeline, data, "figure", "--filter", "n_tokens > 20", "--ignore", "n_tokens")
    assert _lines(figure) != _lines(column)


def test_a_filter_on_a_rating_decides_what_is_trained(pipeline: Run, tmp_path: Path) -> None:
    """Without one the build asks, since every answer would be trained."""
    rows = [{**row, "rating": n % 5} for n, row in enumerate(_rows())]
    data = write_rows(tmp_path / "data.jsonl", rows)
    keep = ("--dedup", "--dedup-keep", "highest:rating")
    pipeline(*SFT, data, *keep).refused(3)
    built = _build(pipeline, data, "out", "--filter", "rating >= 3", *keep)
    assert _lines(built) == [n for n in range(40) if n % 5 >= 3]


@pytest.mark.slow
def test_a_row_is_filtered_only_where_all_its_examples_are(pipeline: Run, tmp_path: Path) -> None:
    """PRM800K gives several examples a row; each filter decides for an example."""
    good = [{"text": f"Step {n}", "rating": 1} for n in range(3)]
    bad = [{"text": "No " * (3 * n + 1), "rating": -1} for n in range(3)]
    steps = [
        {"completions": [*both], "human_completion": None, "chosen_completion": 0}
        for both in zip(good, bad, strict=True)
    ]
    rows = [
        {"question": {"problem": "1+1?"}, "label": {"steps": own, "finish_reason": "solution"}}
        for own in (steps, steps[:1]) * 2
    ]
    data = write_rows(tmp_path / "data.jsonl", rows)
    whole = read_manifest(_build(pipeline, data, "whole", task="prm"))
    assert whole["examples"]["made"] > whole["rows"]["in"]
    built = _build(pipeline, data, "out", "--filter", "n_steps > 1", task="prm")
    manifest = read_manifest(built)
    _balanced(manifest)
    assert set(_lines(built)) == {0, 2}
    assert manifest["rows"]["filtered"] == manifest["filters"][0]["rows"] == 2
    assert manifest["filters"][0]["examples"] > 2
    pipeline("check", built).ended()
    positions = load_from_disk(str(built))["train"]["step_positions"]
    assert min(map(len, positions)) == 2


@pytest.mark.slow
def test_plan_says_what_a_build_leaves_out(pipeline: Run, data: Path) -> None:
    words = ("--filter", "language = 'en'", "--filter", "meta.score > 1")
    common = ("plan", "--task", "sft", data, "--model", "qwen2-1.5b")
    planned = pipeline(*common, "--json", *words).ended().told["filters"]
    built = read_manifest(_build(pipeline, data, "out", *words))["filters"]
    for one, other in zip(planned, built, strict=True):
        assert (one["examples"], one["null"]) == (other["examples"], other["null"])
    text = pipeline(*common, *words).out
    assert "language = 'en' leaves out 26 of 40 sampled examples, 13 of them" in text
    pipeline(*common, "--filter", "lang = 'en'").refused(2)
    pipeline(*common, "--filter", "n_tokens < 2").refused(3)


@pytest.mark.slow
def test_sources_have_filters_and_lose_doubles(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """What a source says wins over the top; the manifest counts by source and by pair of them. One
    without examples has no columns to miss."""
    rows = _rows()
    write_rows(tmp_path / "a.jsonl", rows)
    write_rows(tmp_path / "b.jsonl", [{**row, "language": "fr"} for row in rows[20:]] + rows[:3])
    write_rows(tmp_path / "c.jsonl", [{**row, "completion": ""} for row in rows[:3]])
    recipe = tmp_path / "mix.toml"
    text = (
        'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nkeep = 0\nmax-reject = 0.5\n'
        'dedup = true\nlayout = "ragged"\nfilter = ["language is not null", "n_tokens < 200"]\n'
    )
    text += "".join(f'[[source]]\nname = "{n}"\ndata = "{n}.jsonl"\n' for n in "acb")
    text += 'filter = "n_tokens >= LIMIT"\n'
    recipe.write_text(text.replace("LIMIT", "3"))
    ran = pipeline("build", recipe, "--cache-dir", cache).ended()
    manifest = read_manifest(tmp_path / "out")
    _balanced(manifest)
    assert manifest["rows"]["rejected"] == 3
    found = [(one["source"], one["expression"], one["examples"]) for one in manifest["filters"]]
    assert found == [
        ("a", "language is not null", sum(row["language"] is None for row in rows)),
        ("a", "n_tokens < 200", 0),
        ("c", "language is not null", 0),
        ("c", "n_tokens < 200", 0),
        ("b", "n_tokens >= 3", 0),
    ]
    lost = 23 - sum(row["language"] is None for row in (*rows[20:], *rows[:3]))
    assert manifest["doubles"] == [{"source": "b", "kept_in": "a", "examples": lost}]
    assert f"{lost} examples of b, equal to examples of a" in ran.err
    before = _parts(cache)
    recipe.write_text(text.replace("LIMIT", "35"))
    pipeline("build", recipe, "--cache-dir", cache).ended()
    assert _parts(cache) == before
    pipeline("check", tmp_path / "out", "--cache-dir", cache).ended()
    recipe.write_text(text.replace(">= LIMIT", "> > 3"))
    said = "mix.toml:18: source 3: --filter 'n_tokens > > 3', at '>' (character 12)"
    pipeline("build", recipe).refused(2, said)


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-3, 3)), max_size=12))
def test_what_stays_is_the_best_of_its_equals(pairs: list[tuple[int, int | None]]) -> None:
    digests = np.zeros(len(pairs), doubles.DIGEST)
    digests["b"] = [content for content, _ in pairs]
    score = np.array([np.nan if x is None else x for _, x in pairs], np.float64)
    again, stays = doubles.pairs(digests, score)
    worth = [(float("-inf") if x is None else x, -at) for at, (_, x) in enumerate(pairs)]
    for at, (content, _) in enumerate(pairs):
        equal = [one for one in range(len(pairs)) if pairs[one][0] == content]
        best = max(equal, key=worth.__getitem__)
        assert (at in again) == (at != best)
        assert dict(zip(again.tolist(), stays.tolist(), strict=True)).get(at, best) == best
