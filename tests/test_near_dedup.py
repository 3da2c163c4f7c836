"""Rows that are nearly alike: one of each cluster is used, and questions that are stay together."""

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Run, files_of, read_manifest, read_rows, write_rows

from pipeline.shards import doubles
from stages.overlap import signatures, words

SIZE = 3
WORDS = [f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nrst"]


def _text(draw: random.Random, count: int = 60) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(count))


def _changed(text: str, draw: random.Random, places: int) -> str:
    """The same with other words at some places."""
    found = text.split()
    for place in draw.sample(range(len(found)), places):
        found[place] = f"x{draw.randrange(10**6)}"
    return " ".join(found)


def _runs(text: str) -> set[tuple[bytes, ...]]:
    found = words.plain(text).split()
    padded = [*found, *[b""] * (SIZE - 1)]
    return {tuple(padded[i : i + SIZE]) for i in range(len(found))}


def _jaccard(one: str, other: str) -> float:
    first, second = _runs(one), _runs(other)
    return len(first & second) / len(first | second) if first | second else 0.0


def _signed(texts: list[str]) -> signatures.Signatures:
    return signatures.of_texts(texts, np.arange(len(texts)), len(texts), SIZE)


def test_signatures_estimate_how_alike_two_texts_are() -> None:
    """By the share of their numbers that are equal: within a few standard deviations, unbiased."""
    draw = random.Random(1)
    errors = []
    for _ in range(300):
        one = _text(draw)
        other = _changed(one, draw, draw.randrange(1, 20))
        first, second = _signed([one, other])
        errors.append(float((first == second).mean()) - _jaccard(one, other))
    assert abs(np.mean(errors)) < 0.01
    assert np.max(np.abs(errors)) < 0.2


def test_a_signature_follows_from_the_words_alone() -> None:
    """Not from case, spaces, signs and other rows; rows without words have an empty one."""
    texts = ["One two, three four!", "one  TWO three four", "one two three five", "?!", ""]
    made = _signed(texts)
    assert (made[0] == made[1]).all()
    assert not (made[0] == made[2]).all()
    assert signatures.empty(made).tolist() == [False, False, False, True, True]
    assert all((_signed([text])[0] == own).all() for text, own in zip(texts, made, strict=True))
    both = signatures.of_texts(["One two", "three four"], np.array([0, 0]), 2, SIZE)
    assert (both[0] == made[0]).all()
    assert signatures.empty(both).tolist() == [False, True]


@given(st.floats(0.3, 1))
def test_pairs_at_the_limit_share_a_band(limit: float) -> None:
    """With the certainty that is promised, and the bands are not shorter than that asks for."""
    count, size = doubles.bands(limit)
    assert count * size <= signatures.NUMBERS
    assert 1 - (1 - limit**size) ** count >= doubles.CERTAINTY


def _naive(rows: signatures.Signatures, limit: float) -> list[int]:
    """The first member of each row's cluster, from all pairs."""
    firsts = list(range(len(rows)))
    for other in range(len(rows)):
        for one in range(other):
            if (rows[one] == rows[other]).mean() >= limit:
                low, high = sorted((firsts[one], firsts[other]))
                firsts = [low if first == high else first for first in firsts]
    return firsts


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0.4, 0.6, 0.8]), st.integers(1, 4))
def test_clusters_are_what_all_pairs_give(seed: int, limit: float, parts: int) -> None:
    """Whatever parts the rows are in; clusters hang together by pairs."""
    draw = random.Random(seed)
    texts = [_text(draw) for _ in range(4)]
    for _ in range(26):
        texts.append(_changed(draw.choice(texts), draw, draw.randrange(4)))
    draw.shuffle(texts)
    rows = _signed(texts)
    found = doubles.clusters(np.array_split(rows, parts), limit)
    assert found.tolist() == _naive(rows, limit)


def test_the_one_that_stays() -> None:
    """The first, or the one with the highest score; only of those that are used."""
    rows = _signed(["a b c d e", "x y z", "a b c d e", "a b c d e", "", ""])
    used = np.ones(6, bool)
    found = doubles.alike([rows], used, 0.8)
    assert (found.dropped.tolist(), found.kept.tolist()) == ([2, 3], [0, 0])
    assert (found.likeness.tolist(), found.clusters) == ([1.0, 1.0], 1)
    score = np.array([0, 0, np.nan, 5, 0, 0])
    found = doubles.alike([rows], used, 0.8, score)
    assert (found.dropped.tolist(), found.kept.tolist()) == ([0, 2], [3, 3])
    used[0] = False
    found = doubles.alike([rows], used, 0.8)
    assert (found.dropped.tolist(), found.kept.tolist()) == ([3], [2])
    tested = np.array([0, 0, 0, 1, 0, 0], bool)  # of named test files, which stay as they are
    for by in (None, np.array([9.0, 9, 9, 0, 0, 0])):
        found = doubles.alike([rows], np.ones(6, bool), 0.8, by, before=tested)
        assert (found.dropped.tolist(), found.kept.tolist()) == ([0, 2], [3, 3])


@pytest.mark.slow
def test_a_named_test_file_keeps_its_rows(pipeline: Run, tmp_path: Path) -> None:
    """Rows of the data that are like one of them are left out, whichever is named first."""
    rows, copies = _rows()
    tested = write_rows(tmp_path / "exam.jsonl", [rows[n - 1] for n in sorted(copies)])
    data = [row for n, row in enumerate(rows, 1) if n not in copies]
    for one in data:  # other questions, or they would be left out for asking what the exam asks
        one["prompt"] = one["prompt"][::-1]
    words = ("--near-dedup", "0.3", "--test", tested)
    manifest = _build(pipeline, tmp_path / "out", data, *words)
    assert manifest["splits"]["test"]["examples"] == len(copies)
    assert {one["kept"].partition(":")[0] for one in _listed(tmp_path / "out")} == {"exam.jsonl"}


GROUPED = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=14)


@given(GROUPED)
def test_groups_of_a_cluster_become_one(rows: list[tuple[int, int]]) -> None:
    """And no others: what hangs together by groups and clusters has the least of its groups."""
    groups = np.array([10 * group for group, _ in rows], np.uint64)
    clusters = np.array([cluster for _, cluster in rows], np.int64)
    found = doubles.joined(groups, clusters, alone=0)
    links = [{("g", g), ("c", c)} for g, c in rows if g]
    for row, (group, _) in enumerate(rows):
        reached = {("g", group)}
        while group and any(link & reached and not link <= reached for link in links):
            reached |= set().union(*(link for link in links if link & reached))
        assert found[row] == min(10 * number for kind, number in reached if kind == "g")


def _rows(seed: int = 5, count: int = 60) -> tuple[list[dict[str, Any]], set[int]]:
    """Different rows, then near copies of some; and the numbers of the copies."""
    draw = random.Random(seed)
    rows = [{"prompt": _text(draw, 40), "completion": _text(draw, 40)} for _ in range(count)]
    rows += [{**r, "completion": _changed(r["completion"], draw, 1).upper()} for r in rows[:12]]
    return rows, set(range(count + 1, count + 13))


def _build(pipeline: Run, folder: Path, rows: list[dict[str, Any]], *words: object) -> Any:
    data = write_rows(folder.parent / "t.jsonl", rows)
    pipeline("run", "sft", data, "--model", "qwen2-1.5b", "-o", folder, *words).ended()
    return read_manifest(folder)


def _listed(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / "near_duplicates.jsonl")


@pytest.mark.slow
def test_near_copies_are_left_out(pipeline: Run, tmp_path: Path) -> None:
    """Each is listed with the row that stays and both texts; the ledger and every law hold."""
    rows, copies = _rows()
    rows.append(rows[0])
    words = ("--dedup", "--near-dedup", "0.8", "--workers")
    manifest = _build(pipeline, tmp_path / "one", rows, *words, 1)
    counts = {"in": 73, "used": 60, "duplicates": 1, "near_duplicates": 12}
    assert manifest["rows"] | counts == manifest["rows"]
    listed = _listed(tmp_path / "one")
    assert [(one["id"], one["kept"]) for one in listed] == [
        (f"t.jsonl:{60 + n}", f"t.jsonl:{n}") for n in range(1, 13)
    ]
    assert {f"t.jsonl:{n}" for n in copies} == {one["id"] for one in listed}
    for one in listed:
        assert 0.8 <= one["likeness"] < 1
        assert one["said"] != one["kept_said"]
    assert manifest["near_duplicates"]["clusters"] == 12
    pipeline("check", tmp_path / "one").ended()
    _build(pipeline, tmp_path / "two", rows, *words, 2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    shown = pipeline("overlaps", tmp_path / "one").out
    assert "t.jsonl:61  is 0." in shown
    assert "12 rows left out as near-duplicates of 12 others" in shown


def test_a_plan_says_what_would_be_left_out(pipeline: Run, tmp_path: Path) -> None:
    """Of its sample."""
    rows, _ = _rows()
    data = write_rows(tmp_path / "t.jsonl", rows)
    words = ("plan", data, "--model", "qwen2-1.5b", "--near-dedup", "0.8")
    assert "12 examples of 72 sampled rows, near-duplicates of others" in pipeline(*words).out
    found = pipeline(*words, "--json").told["near_duplicates"]
    assert found == {"examples": 12, "first": ["t.jsonl:61", "t.jsonl:62", "t.jsonl:63"]}


@pytest.mark.slow
def test_questions_that_are_alike_are_on_one_side(pipeline: Run, tmp_path: Path) -> None:
    """Their answers differ, so all of them are used; and the split is still met."""
    draw = random.Random(9)
    asked = [_text(draw, 40) for _ in range(60)]
    both = [(one, _changed(one, draw, 1)) for one in asked]
    rows = [{"prompt": one, "completion": _text(draw)} for pair in both for one in pair]
    words = ("--near-dedup", "0.7", "--test-size", "0.4", "--layout", "ragged")
    manifest = _build(pipeline, tmp_path / "out", rows, *words)
    assert manifest["rows"]["used"] == 120
    assert manifest["sides"]["groups"] == 60
    sides = {
        int(row_id.rpartition(":")[2]): side
        for side, part in load_from_disk(str(tmp_path / "out")).items()
        for row_id in part["row_id"]
    }
    assert set(sides.values()) == {"train", "test"}
    assert all(sides[2 * n + 1] == sides[2 * n + 2] for n in range(60))


def test_without_the_library_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how it is installed."""
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(Exception, match=r"posttrain-pipeline\[near\]"):
        signatures.version()
