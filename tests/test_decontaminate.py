"""Builds leave out the rows that ask what an evaluation asks, and list each with both texts.

Questions are found in rows exactly, whatever their case, spaces and digits.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import raised, read_manifest, read_rows, stored_rows, table, write_rows

from pipeline.shards import doubles
from stages import columns, kinds
from stages.normalize import overlap_search, overlap_words, signatures
from stages.normalize.overlap_words import letters_before, plain, solid

WORDS = (
    "apples boats coins drums eggs flags grapes hats inks jars kites lamps maps nets market "
    "harbour station library garden bakery museum workshop orchard school carries brings sends"
).split()
FULL_WIDTH = {ord(str(n)): chr(0xFF10 + n) for n in range(10)}


def _problems(count: int, seed: int) -> list[str]:
    """Different problems, of words and numbers."""
    draw = random.Random(seed)
    parts = (
        [f"{draw.randint(1000, 9999):,} {' '.join(draw.sample(WORDS, 6))}" for _ in range(3)]
        for _ in range(count)
    )
    return [f"{one}, {other} and {last}. How many things are there?" for one, other, last in parts]


ASKED = _problems(40, seed=1)
INNOCENT = _problems(300, seed=2)
SHORT = ["What is the capital of Peru?", "2 + 2 = ?", "Wer schrieb den Faust?"]
Planted: TypeAlias = tuple[Path, Path, set[str]]


def _train(path: Path, questions: list[str]) -> Path:
    rows = [{"prompt": one, "completion": f"Answer {n}."} for n, one in enumerate(questions)]
    return write_rows(path, rows)


def _hits(out: Path) -> list[dict[str, Any]]:
    return read_rows(out / "contaminated.jsonl")


@pytest.fixture(scope="module")
def planted(built, tmp_path_factory) -> Planted:
    """Rows of which some ask what an evaluation asks, their build, and the ids of those rows."""
    folder = tmp_path_factory.mktemp("planted")
    copies = ASKED[:20] + [one.translate(FULL_WIDTH).swapcase() for one in ASKED[20:]]
    copies += ["what is the capital of peru", "2+2=", "WER SCHRIEB DEN FAUST?!"]
    questions = INNOCENT + copies
    order = list(range(len(questions)))
    random.Random(3).shuffle(order)
    train = _train(folder / "train.jsonl", [questions[i] for i in order])
    ids = {f"train.jsonl:{line}" for line, i in enumerate(order, 1) if i >= len(INNOCENT)}
    asked = [{"id": n, "question": one, "answer": "?"} for n, one in enumerate(ASKED + SHORT)]
    evals = write_rows(folder / "evals.jsonl", asked)
    return train, built("sft", train, "--decontaminate", f"held-out={evals}"), ids


def test_every_planted_copy_is_found_and_no_other(planted, pipeline):
    """Exact copies, and those in another case, with other digits and spaces; short ones too. They
    are listed in the order of the rows, and every innocent row stays."""
    train, out, ids = planted
    manifest, hits = read_manifest(out), _hits(out)
    assert {hit["id"] for hit in hits} == ids
    lines = [int(hit["id"].rpartition(":")[2]) for hit in hits]
    assert lines == sorted(lines)
    kept = {name for pack in stored_rows(out) for name in pack["row_ids"]}
    assert kept == {f"train.jsonl:{line}" for line in range(1, 344)} - ids
    assert manifest["rows"] | {"in": 343, "used": 300, "contaminated": 43} == manifest["rows"]
    (record,) = manifest["decontamination"]["evaluations"]
    assert (record["name"], record["column"]) == ("held-out", "question")
    assert (record["questions"], record["found"], record["rows"]) == (43, 43, 43)
    asked = ASKED + SHORT
    assert all(hit["question"] == asked[hit["line"] - 1] for hit in hits)
    assert {hit["share"] for hit in hits} == {1.0}
    rows = read_rows(train)
    assert [hit["said"] for hit in hits] == [rows[line - 1]["prompt"] for line in lines]
    pipeline("check", out).ended()


def test_hits_are_shown_with_both_texts(planted, pipeline):
    """In the order of the rows; as an object for programs."""
    _, out, ids = planted
    shown = pipeline("overlaps", out, "--limit", 0).out
    assert all(name in shown for name in ids)
    assert "held-out: 43 rows left out for 43 of 43 questions" in shown
    assert "WER SCHRIEB DEN FAUST?!" in shown
    assert "Wer schrieb den Faust?" in shown
    found = pipeline("overlaps", out, "--json", "--limit", 3).told
    assert found["contaminated"] == _hits(out)[:3]
    assert found["decontamination"] == read_manifest(out)["decontamination"]
    pipeline("overlaps", out, "--evaluation", "none").refused(2, "held-out")


SIZE = 4
WORD = st.sampled_from("a b c d e ff gg".split())
TEXT = st.lists(WORD, max_size=24).map(" ".join)
ANY = st.text(max_size=40)


def _index(questions: Sequence[str | None], size: int = 8) -> overlap_search.Index:
    read = overlap_search.Questions(
        "question", tuple(range(1, len(questions) + 1)), tuple(questions)
    )
    return overlap_search.Index(overlap_search.Items.of([read]), size)


def _found(index: overlap_search.Index, *texts: str) -> dict[int, list[overlap_search.Overlap]]:
    """What each text shares, as a row of its own."""
    return index.overlaps(texts, np.arange(len(texts)))


@given(ANY)
def test_plain_words_of_ascii_are_those_of_other_texts(text):
    """There are two ways to make them, and they agree."""
    bare = "".join(one for one in text if one.isascii())
    assert plain(f"{bare} é").split() == [*plain(bare).split(), b"e"]


UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen".split()
)
UNITS += "fifteen sixteen seventeen eighteen nineteen".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def _spelled(number: int, joint: str) -> str:
    """A number in words."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        rest = f"-{UNITS[number % 10]}" if number % 10 else ""
        return f"{TENS[number // 10]}{rest}"
    size, word = next(
        (n, w) for n, w in ((10**6, "million"), (1000, "thousand"), (100, "hundred")) if number >= n
    )
    rest = f"{joint}{_spelled(number % size, joint)}" if number % size else ""
    return f"{_spelled(number // size, joint)} {word}{rest}"


@given(st.integers(0, 999_999), st.sampled_from([" ", " and "]))
def test_numbers_in_words_are_digits(number, joint):
    """In the words of a text, and where signs count."""
    text = f"there were {_spelled(number, joint)} of them"
    assert plain(text).split() == f"there were {number} of them".encode().split()
    assert plain(text.title()).split() == plain(f"There were {number} of them").split()


def test_words_that_are_no_numbers_stay():
    """Parts of other words, and numbers side by side."""
    assert plain("someone often weighs a tone").split() == b"someone often weighs a tone".split()
    assert plain("two three, twenty forty").split() == b"2 3 20 40".split()


@given(ANY)
def test_each_letter_has_a_place_in_its_text(text):
    """Where an excerpt begins follows from it."""
    ungrouped = text.replace(",", "")
    assert letters_before(ungrouped)[-1] == len(solid(plain(ungrouped)))


def _share(question: str, text: str) -> float:
    """The share by its definition."""
    asked, there = question.split(), text.split()
    runs = {tuple(there[i : i + SIZE]) for i in range(len(there) - SIZE + 1)}
    starts = [i for i in range(len(asked) - SIZE + 1) if tuple(asked[i : i + SIZE]) in runs]
    covered = {place for start in starts for place in range(start, start + SIZE)}
    return len(covered) / len(asked) if asked else 0.0


@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(TEXT, min_size=1, max_size=6))
def test_shares_are_what_they_are_by_definition(questions, texts):
    """And so a row without a shared run is no hit."""
    found = _found(_index(questions, SIZE), *texts)
    for row, text in enumerate(texts):
        shares = {one.item: one for one in found.get(row, [])}
        for item, question in enumerate(questions):
            long = len(question.split()) >= SIZE
            letters = question.replace(" ", "")
            if long and not (len(letters) >= 16 and letters in text.replace(" ", "")):
                assert (shares[item].share if item in shares else 0.0) == _share(question, text)
            elif long:
                assert shares[item].contained


FOUND = table("found_questions.toml")


@pytest.mark.parametrize("of", FOUND.values(), ids=FOUND)
def test_questions_are_found_whole(of):
    """In a longer text, too, as it stands there."""
    texts = [text for text, *_ in of["texts"]]
    found = _found(_index(of["questions"]), *texts)
    whole = {row: [one.item for one in some if one.contained] for row, some in found.items()}
    assert whole == {row: [*item] for row, (_, *item) in enumerate(of["texts"]) if item}
    assert all(one.said == texts[row] for row, some in found.items() for one in some)


def test_numbers_are_the_same_however_their_thousands_are_written():
    """In runs too, where a part of the question is missing."""
    question = "a town of 1,000 people has 25 streets and each of them is 2,500 metres long today"
    row = "there is a town of 1000 people has 25 streets and each of them is 2500 metres"
    (overlap,) = _found(_index([question]), row)[0]
    assert overlap.share == 15 / 17
    assert not overlap.contained
    assert overlap.match == question.replace(",", "").removesuffix(" long today")


def test_the_instruction_of_an_evaluation_is_no_part_of_its_questions():
    """Rows with the same instruction, but other questions, are innocent."""
    begin = "Read the question and answer with the letter of the right choice and nothing else."
    topics = [f"t{n} u{n} v{n} w{n} x{n} y{n} z{n} r{n} s{n}" for n in range(30)]
    index = _index([f"{begin} {topic}" for topic in topics])
    found = _found(index, f"{begin} quite another thing", f"{begin} {topics[3]}", topics[4])
    assert max(one.share for one in found.get(0, [])) < 0.5 if 0 in found else True
    assert [one.item for one in found[1] if one.share > 0.5] == [3]
    assert [one.item for one in found[2] if one.share > 0.5] == [4]


def _said(kind: str, rows: list[dict[str, Any]], *, whole: bool) -> tuple[list[str], list[int]]:
    """The texts of rows that are compared, and the row of each."""
    batch = pa.RecordBatch.from_pylist(rows, schema=columns.schema(list(rows[0])))
    texts, numbers = signatures.compared_texts(batch, kinds.load(kind), whole=whole)
    return list(texts), numbers.tolist()


def test_what_is_compared_of_a_row():
    """Turns that are no answers, all of them where it has no others; of all of a row its answers,
    steps, tools and calls too: rows that differ in their tools alone are not alike."""
    roles = [["system", "user", "assistant"], ["assistant"], []]
    rows = [{"messages": [{"role": role, "content": f"{role}?"} for role in own]} for own in roles]
    texts = ["system?", "user?", "assistant?"]
    assert _said("conversation", rows, whole=False) == (texts, [0, 0, 1])
    assert _said("conversation", rows[1:], whole=True) == (["assistant?"], [0])
    call = {"role": "assistant", "content": None, "fields": '{"tool_calls": []}'}
    one, other = ({"role": "user", "content": text} for text in "UV")
    rows = [{"messages": [one, call], "tools": "T"}, {"messages": [other], "tools": None}]
    texts = ["U", "", '{"tool_calls": []}', "T", "V", ""]
    assert _said("conversation", rows, whole=True) == (texts, [0, 0, 0, 0, 1, 1])
    assert _said("conversation", rows, whole=False)[0] == ["U", "V"]
    answers = ({"role": "assistant", "content": text} for text in "AB")
    sides = ("chosen_messages", "rejected_messages")
    pair = {side: [one, answer] for side, answer in zip(sides, answers, strict=True)}
    assert _said("pair", [pair], whole=False)[0] == ["U"]
    assert _said("pair", [pair], whole=True)[0] == ["U", "A", "U", "B"]
    steps = [{"problem": "P", "steps": ["1", "2"]}, {"problem": None, "steps": []}]
    assert _said("steps", steps, whole=False)[0] == ["P", ""]
    assert _said("steps", steps, whole=True)[0] == ["P", "1", "2", ""]


# Rows that are nearly alike: one of each cluster is used, and questions that are stay together.

NEAR_SIZE = 3
NEAR_WORDS = [f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nrst"]


def _text(draw: random.Random, count: int = 60) -> str:
    return " ".join(draw.choice(NEAR_WORDS) for _ in range(count))


def _changed(text: str, draw: random.Random, places: int) -> str:
    """The same with other words at some places."""
    found = text.split()
    for place in draw.sample(range(len(found)), places):
        found[place] = f"x{draw.randrange(10**6)}"
    return " ".join(found)


def _runs(text: str) -> set[tuple[bytes, ...]]:
    found = overlap_words.plain(text).split()
    padded = [*found, *[b""] * (NEAR_SIZE - 1)]
    return {tuple(padded[i : i + NEAR_SIZE]) for i in range(len(found))}


def _jaccard(one: str, other: str) -> float:
    first, second = _runs(one), _runs(other)
    return len(first & second) / len(first | second) if first | second else 0.0


def _signed(texts: list[str]) -> signatures.Signatures:
    return signatures.of_texts(texts, np.arange(len(texts)), len(texts), NEAR_SIZE)


def test_signatures_estimate_how_alike_two_texts_are():
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


def test_a_signature_follows_from_the_words_alone():
    """Not from case, spaces, signs and other rows; rows without words have an empty one."""
    texts = ["One two, three four!", "one  TWO three four", "one two three five", "?!", ""]
    made = _signed(texts)
    assert (made[0] == made[1]).all()
    assert not (made[0] == made[2]).all()
    assert signatures.empty(made).tolist() == [False, False, False, True, True]
    assert all((_signed([text])[0] == own).all() for text, own in zip(texts, made, strict=True))
    both = signatures.of_texts(["One two", "three four"], np.array([0, 0]), 2, NEAR_SIZE)
    assert (both[0] == made[0]).all()
    assert signatures.empty(both).tolist() == [False, True]


@given(st.floats(0.3, 1))
def test_pairs_at_the_limit_share_a_band(limit):
    """With the certainty that is promised, and the bands are not shorter than that asks for."""
    count, size = doubles.bands(limit)
    assert count * size <= signatures.NUMBERS
    assert 1 - (1 - limit**size) ** count >= doubles.CERTAINTY


def _naive(
    rows: signatures.Signatures, limit: float, bands: list[signatures.Signatures]
) -> list[int]:
    """The first member of each row's cluster, from all pairs that are equal or share a band."""
    firsts = list(range(len(rows)))
    for other in range(len(rows)):
        for one in range(other):
            near = [(each[one] == each[other]).all() for each in (rows, *bands)]
            if any(near) and (rows[one] == rows[other]).mean() >= limit:
                low, high = sorted((firsts[one], firsts[other]))
                firsts = [low if first == high else first for first in firsts]
    return firsts


@settings(max_examples=10)
@example(245, 0.8, 1)  # of two rows that are alike neither is the first of those with a band
@given(st.integers(0, 2**32), st.sampled_from([0.4, 0.6, 0.8]), st.integers(1, 4))
def test_clusters_hang_together_by_pairs(seed, limit, parts):
    """By all that share a band and are alike, and by no others, whatever parts the rows are in."""
    draw = random.Random(seed)
    texts = [_text(draw) for _ in range(4)]
    for _ in range(26):
        texts.append(_changed(draw.choice(texts), draw, draw.randrange(4)))
    draw.shuffle(texts)
    rows = _signed(texts)
    count, size = doubles.bands(limit)
    bands = [rows[:, at * size : (at + 1) * size] for at in range(count)]
    found = doubles.clusters(np.array_split(rows, parts), limit).tolist()
    assert found == _naive(rows, limit, bands)


def test_the_one_that_stays():
    """The first, or the one with the highest score; only of those that are used."""
    rows = _signed(["a b c d e", "x y z", "a b c d e", "a b c d e", "", ""])
    used = np.ones(6, bool)
    found = doubles.alike([rows], used, 0.8)
    assert (found.dropped.tolist(), found.kept.tolist()) == ([2, 3], [0, 0])
    assert (found.likeness.tolist(), found.clusters) == ([1.0, 1.0], 1)
    found = doubles.alike([rows], used, 0.8, np.array([0, 0, np.nan, 5, 0, 0]))
    assert (found.dropped.tolist(), found.kept.tolist()) == ([0, 2], [3, 3])
    used[0] = False
    found = doubles.alike([rows], used, 0.8)
    assert (found.dropped.tolist(), found.kept.tolist()) == ([3], [2])
    tested = np.array([0, 0, 0, 1, 0, 0], bool)  # of named test files, which stay as they are
    for by in (None, np.array([9.0, 9, 9, 0, 0, 0])):
        found = doubles.alike([rows], np.ones(6, bool), 0.8, by, before=tested)
        assert (found.dropped.tolist(), found.kept.tolist()) == ([0, 2], [3, 3])


@given(*[st.lists(st.integers(0, 5), max_size=9)] * 2)
def test_examples_that_equal_one_of_others_are_counted(some, others):
    """As those of a test split that are trained on, too."""
    digests = [np.zeros(len(one), doubles.DIGEST) for one in (some, others)]
    for digest, one in zip(digests, (some, others), strict=True):
        digest["a"] = one
    assert doubles.count_in(*digests) == sum(one in others for one in some)


GROUPED = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=14)


@given(GROUPED)
def test_groups_of_a_cluster_become_one(rows):
    """And no others: what hangs together by groups and clusters has the least of its groups."""
    groups = np.array([10 * group for group, _ in rows], np.uint64)
    found = doubles.joined(groups, np.array([cluster for _, cluster in rows], np.int64), alone=0)
    links = [{("g", g), ("c", c)} for g, c in rows if g]
    for row, (group, _) in enumerate(rows):
        reached = {("g", group)}
        while group and any(link & reached and not link <= reached for link in links):
            reached |= set().union(*(link for link in links if link & reached))
        assert found[row] == min(10 * number for kind, number in reached if kind == "g")


def test_without_the_library_the_command_says_so(monkeypatch):
    """And how it is installed."""
    monkeypatch.setitem(sys.modules, "rensa", None)
    raised(Exception, signatures.version, says=r"posttrain-pipeline\[near\]")
