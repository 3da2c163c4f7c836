"""What changed between two builds: every example of both is in exactly one group."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, write_rows

from pipeline.builds.build import Build
from pipeline.report import difference, numbers
from pipeline.shards.doubles import DIGEST


def _numbers(rows: list[tuple[int, int]]) -> numbers.Numbers:
    """Examples by row id and content."""
    what = np.zeros(len(rows), DIGEST)
    what["a"] = 7
    what["b"] = [content for _, content in rows]
    ones = np.ones(len(rows), np.int32)
    who = np.array([name for name, _ in rows], np.uint64)
    return numbers.Numbers(
        ("train",), ("x",), who, what, ones, ones, np.zeros(len(rows), np.uint8), ones * 0
    )


ROWS = st.dictionaries(st.integers(0, 30), st.integers(0, 6), max_size=20).map(
    lambda rows: list(rows.items())
)


@given(ROWS, ROWS)
def test_every_example_is_in_one_group(one, other):
    """Against the definition, by sets and counters: moved by content, changed by id."""
    found = numbers.match(_numbers(one), _numbers(other))
    left = [found.same.one, found.moved.one, found.changed.one, found.removed]
    right = [found.same.other, found.moved.other, found.changed.other, found.added]
    assert sorted(np.concatenate(left).tolist()) == list(range(len(one)))
    assert sorted(np.concatenate(right).tolist()) == list(range(len(other)))

    def pairs(group: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return [(one[a], other[b]) for a, b in zip(group.one, group.other, strict=True)]

    assert {a for a, _ in pairs(found.same)} == set(one) & set(other)
    assert all(a == b for a, b in pairs(found.same))
    a_left = Counter(content for row in one if row not in other for content in row[1:])
    b_left = Counter(content for row in other if row not in one for content in row[1:])
    assert Counter(a[1] for a, _ in pairs(found.moved)) == a_left & b_left
    assert all(a[1] == b[1] and a[0] != b[0] for a, b in pairs(found.moved))
    assert all(a[0] == b[0] and a[1] != b[1] for a, b in pairs(found.changed))
    removed = {one[at][0] for at in found.removed}
    added = {other[at][0] for at in found.added}
    assert not removed & added


@pytest.mark.slow
def test_content_is_all_that_a_trainer_reads(built):
    """Of every task: equal rows are equal in another layout, and any change of ids, labels, weights
    or ratings is one."""
    for task, name, layouts in (
        ("sft", "sft/word_problems.jsonl", ("packed", "ragged", "padded")),
        ("prm", "prm/math_shepherd.jsonl", ("packed", "ragged", "padded")),
        ("rm", "rm/pairs.jsonl", ("ragged", "padded")),
    ):
        data = SAMPLES / name
        read = [
            numbers.read(Build.open(built(task, data, "--layout", layout))) for layout in layouts
        ]
        assert len(read[0]) > 5
        for other in read[1:]:
            found = numbers.match(read[0], other)
            assert len(found.same) == len(read[0]) == len(other)
            for one in ("length", "trained"):
                assert sorted(getattr(read[0], one)) == sorted(getattr(other, one))


def _sft(path: Path, rows: list[tuple[str, str]]) -> Path:
    return write_rows(path, ({"question": q, "answer": a} for q, a in rows))


def test_options_of_sources_are_compared_by_name():
    """Another value, a source that came, one that went, and another order."""
    a, b = {"name": "a", "weight": 1}, {"name": "b", "weight": 1}
    heavy = {**b, "weight": 9}

    def told(one: list[Any], other: list[Any]) -> dict[str, Any]:
        return difference.by_source({"seed": {"a": 0, "b": 1}, "sources": {"a": one, "b": other}})

    rest = {"seed": {"a": 0, "b": 1}}
    assert told([a, b], [a, heavy]) == {**rest, "source.b.weight": {"a": 1, "b": 9}}
    assert told([a, b], [a]) == {**rest, "source.b": {"a": b, "b": None}}
    assert told([a], [a, b]) == {**rest, "source.b": {"a": None, "b": b}}
    order = {"order of sources": {"a": ["a", "b"], "b": ["b", "a"]}}
    assert told([a, b], [b, a]) == {**rest, **order}
    assert difference.by_source(rest) == rest


def test_versions_are_named_by_their_first_characters(make, tmp_path):
    """And other tasks are not compared."""
    data = _sft(tmp_path / "a.jsonl", [(f"Question {n}?", "Yes.") for n in range(9)])
    folder = make("sft", data, "r", keep=3)
    build_id = Build.open(folder / "current").manifest.build_id
    assert difference.opened(folder / build_id[:8]).folder == folder / build_id
