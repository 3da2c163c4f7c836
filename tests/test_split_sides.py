"""A test split that stays: what a row asks decides its side, whatever else is in the data."""

import json
import re
import unicodedata
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from support import Make, Run, read_manifest, read_rows, write_rows

from pipeline.options.config import Config
from pipeline.publish.check import check
from pipeline.shards import doubles, train_test
from pipeline.shards.choose import choose
from pipeline.shards.examples import PlannedExamples
from pipeline.tasks import kind_of
from stages import columns, formats
from stages.contract import FormatOptions, Record
from stages.errors import PipelineError, UsageError
from stages.normalize.stage import Normalize
from stages.rows import groups

SEEDS = st.integers(-(2**63), 2**63 - 1)
GROUPS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40)
QUESTIONS = st.sampled_from(["What is 2+2?", "Say é.", "你好", "", "?", "a b"]) | st.text(
    max_size=8
)
SHARE = 0.4


def _rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Questions and answers, all different."""
    return [
        {"prompt": f"What is {n} and {n}?", "completion": f"It is {2 * n}."}
        for n in range(start, start + count)
    ]


def _split(make: Make, data: Path, **options: Any) -> dict[str, set[str]]:
    """The prompts of each side of a build; its files are in one folder."""
    folder = make("sft", data, layout="ragged", **options)
    asked = {
        f"{path.name}:{line}": row["prompt"]
        for path in (data if data.is_dir() else data.parent).glob("*.jsonl")
        for line, row in enumerate(read_rows(path), 1)
    }
    stored = load_from_disk(str(folder)).items()
    return {side: {asked[name] for name in rows["row_id"]} for side, rows in stored}


def _normalized(task: str, name: str, rows: list[dict[str, Any]], by: str = "") -> Any:
    normalize = Normalize(kind_of(task), formats.load(name), FormatOptions(), group_by=by)
    return normalize([Record(at, 0, json.dumps(row).encode(), row) for at, row in enumerate(rows)])


def _groups(task: str, name: str, rows: list[dict[str, Any]]) -> list[int]:
    found: list[int] = _normalized(task, name, rows).column("group").to_pylist()
    return found


ANSWERS = st.sampled_from(["4", "It is so.", "<think>x</think>y"])
exchanges = st.fixed_dictionaries({"prompt": QUESTIONS, "completion": ANSWERS})


@given(st.lists(exchanges, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_a_row_has_its_group_among_any_rows(rows: list[dict[str, Any]], random: Any) -> None:
    """Alone, in another order, doubled, among others: the fast path and the careful one agree."""
    alone = [_groups("sft", "prompt_completion", [row])[0] for row in rows]
    assert _groups("sft", "prompt_completion", rows) == alone
    order = [*range(len(rows)), *range(len(rows))]
    random.shuffle(order)
    moved = _groups("sft", "prompt_completion", [rows[at] for at in order])
    assert moved == [alone[at] for at in order]


@given(GROUPS, GROUPS, SEEDS, st.floats(0, 1, exclude_max=True))
def test_no_row_moves_another(some: list[int], more: list[int], seed: int, share: float) -> None:
    def in_test(values: list[int]) -> list[bool]:
        return train_test.in_test(np.array(values, np.uint64), share, seed).tolist()

    assert in_test(some + more) == in_test(some) + in_test(more)
    assert in_test(some[::-1]) == in_test(some)[::-1]


@given(GROUPS, SEEDS, st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2))
def test_a_larger_share_keeps_what_a_smaller_one_tests(
    values: list[int], seed: int, shares: tuple[float, float]
) -> None:
    small, large = (
        train_test.in_test(np.array(values, np.uint64), s, seed) for s in sorted(shares)
    )
    assert not (small & ~large).any()


def _outcome(values: train_test.Groups, test: Any, share: float) -> train_test.SplitRule:
    """What came of a split of examples with these groups."""
    return train_test.rule_of(
        [train_test.counted(values, np.ones(len(values), np.uint8), test)], share
    )


@given(GROUPS, SEEDS)
def test_a_split_is_described_by_its_groups(values: list[int], seed: int) -> None:
    array = np.array(values, np.uint64)
    test = train_test.in_test(array, SHARE, seed)
    found = _outcome(array, test, SHARE)
    assert found.groups == len(set(values))
    assert found.groups_in_test == len(set(array[test].tolist()))
    assert found.share == round(test.sum() / len(values), 6)
    assert found.largest == round(max(map(values.count, values)) / len(values), 6)


def test_the_share_deviates_as_stated() -> None:
    """Over many seeds, for groups of very different sizes."""
    array = np.repeat(np.arange(1, 61, dtype=np.uint64), np.arange(1, 61))
    shares = [float(train_test.in_test(array, 0.2, seed).mean()) for seed in range(2000)]
    stated = _outcome(array, train_test.in_test(array, 0.2, 0), 0.2).deviation
    assert abs(np.mean(shares) - 0.2) < 0.01
    assert abs(np.std(shares) - stated) < 0.1 * stated


def test_a_group_on_both_sides_stops_the_build() -> None:
    array = np.array([1, 1, 2], np.uint64)
    with pytest.raises(PipelineError, match="in train and in test"):
        _outcome(array, np.array([True, False, False]), 0.5)


def test_near_spellings_are_one_question() -> None:
    """And texts without letters are told apart."""
    for texts, count in (
        (("What is 2+2?", " what  is\n2+2 ", "Another question"), 2),
        (("Café", unicodedata.normalize("NFD", "CAFÉ")), 1),
        (("a\u200bb", "ab"), 1),
        (("ﬁne", "fine"), 1),
        (("naïve", "naive"), 1),
        (("?", "!", "👍"), 3),
    ):
        rows = [{"prompt": text, "completion": "x"} for text in texts]
        assert len(set(_groups("sft", "prompt_completion", rows))) == count, texts


def test_one_question_has_one_side_in_every_task() -> None:
    """So test questions of one task are not trained on in another."""
    asked = "What is 1+1?"
    turns = [{"role": "user", "content": asked}]
    said = [{"role": "assistant", "content": text} for text in ("2", "3")]
    chat = [{"role": "system", "content": "Be brief."}, *turns, said[0], *turns, said[1]]
    sides = {"chosen": [*turns, said[0]], "rejected": [*turns, said[1]]}
    found = [
        *_groups("sft", "openai", [{"messages": chat}]),
        *_groups("sft", "prompt_completion", [{"prompt": asked, "completion": "2"}]),
        *_groups("rm", "preference", [{"prompt": asked, "chosen": "2", "rejected": "3"}, sides]),
        *_groups("prm", "stepwise", [{"prompt": asked, "completions": ["2"], "labels": [True]}]),
    ]
    assert len(set(found)) == 1


def test_texts_and_token_ids_have_groups_of_their_own() -> None:
    assert len(set(_groups("sft", "text", [{"text": "One."}, {"text": "Two."}]))) == 2
    ids = ([1, 2, 3], [1, 2, 4], [1, 5, 3])
    rows = [{"input_ids": one, "labels": [-100, -100, one[2]]} for one in ids]
    first, second, third = _groups("sft", "pretokenized", rows)
    assert first == second != third


def test_rows_without_a_value_in_the_column_are_refused() -> None:
    row: dict[str, Any] = {"prompt": "a", "completion": "b"}
    given = [row | {"topic": {"id": 1}}, row]
    batch = _normalized("sft", "prompt_completion", given, "topic.id")
    assert batch.column("reject_code").to_pylist() == [None, groups.NO_GROUP]
    assert batch.schema.field("group").type == pa.uint64()


def test_named_files_are_the_test_split(make: Make, cache_dir: Path, tmp_path: Path) -> None:
    """What asks the same as a row of theirs is not trained on, whatever its answer and spelling."""
    trained = [*_rows(20), {"prompt": "what IS 42 and 42", "completion": "So much."}]
    data = write_rows(tmp_path / "data.jsonl", trained)
    test = write_rows(tmp_path / "held.jsonl", [*_rows(5, 15), *_rows(3, 40)])
    sides_ = _split(make, data, test=(str(test),))
    assert sides_["test"] == {row["prompt"] for row in [*_rows(5, 15), *_rows(3, 40)]}
    assert sides_["train"] == {row["prompt"] for row in _rows(15)}
    manifest = read_manifest(tmp_path / "out")
    assert manifest["rows"]["contaminated"] == 6
    assert manifest["sides"]["by"] == "files"
    assert check(tmp_path / "out", cache_dir).faults == []


def test_named_files_and_a_share_are_not_both_given(pipeline: Run, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.jsonl", _rows(20))
    test = write_rows(tmp_path / "held.jsonl", _rows(3, 40))
    command = ("run", "sft", "--model", "qwen2-1.5b", "-o", tmp_path / "out")
    ran = pipeline(*command, data, "--test", test, "--test-size", "0.1")
    ran.refused(2, "--test and --test-size both say")
    again = write_rows(tmp_path / "again.jsonl", _rows(20, 0))
    pipeline(*command, data, "--test", again).refused(2, "leave nothing to train on")


@pytest.mark.slow
def test_a_value_and_a_question_stay_together(pipeline: Run, make: Make, tmp_path: Path) -> None:
    """A column alone leaks: the error names a pair and the option, which keeps both together."""
    rows = [
        row | {"topic": n % 23, "completion": f"{row['completion']} {n}"}
        for n, row in enumerate(_rows(20) * 3)
    ]
    rows += [row | {"topic": f"x{n}"} for n, row in enumerate(_rows(40, 50))]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    command = ("run", "sft", "--model", "qwen2-1.5b", "-o", tmp_path / "out", data)
    ran = pipeline(*command, "--test-size", 0.3, "--group-by", "topic").refused(3)
    found = re.search(
        r"\((\d+) of (\d+) .*: rows.jsonl:(\d+) asks what rows.jsonl:(\d+) ask", ran.err
    )
    assert found is not None, ran.err
    leaked, tested, one, other = map(int, found.groups())
    assert 0.01 < leaked / tested <= 1
    assert rows[one - 1]["prompt"] == rows[other - 1]["prompt"]
    assert "--group-by COLUMN+question" in ran.err
    sides_ = _split(make, data, test_size=0.3, group_by="topic+question")
    own = {row["topic"]: row["prompt"] in sides_["test"] for row in rows}
    assert sides_["train"]
    assert not sides_["train"] & sides_["test"]
    assert all(own[row["topic"]] == (row["prompt"] in sides_["test"]) for row in rows)
    manifest = read_manifest(tmp_path / "out")
    assert manifest["sides"]["column"] == "topic+question"
    assert not manifest["inputs"][0].get("unread")


LINKED = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=40)


@given(LINKED, SEEDS)
def test_no_question_and_no_group_is_on_both_sides(rows: list[tuple[int, int]], seed: int) -> None:
    """Whatever hangs together by values and questions in turn; what asks nothing joins none."""
    group, asked = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
    options = {"test_size": SHARE, "group_by": "topic+question", "seed": seed}
    config = Config.of("sft", ("rows.jsonl",), "acme", Path("out"), **options)
    ones = np.ones(len(rows), np.int32)
    digest = np.zeros(len(rows), doubles.DIGEST)
    digest["a"] = np.arange(len(rows))
    at = np.arange(len(rows))
    examples = PlannedExamples(
        at[:1], at, ones, ones, digest, at.astype(np.int16), group=group, asked=asked
    )
    try:
        test = choose(config, examples).test
    except UsageError:  # all of them hang together
        return
    for values in (group, asked[asked > 0]):
        own = test if values is group else test[asked > 0]
        assert not set(values[own].tolist()) & set(values[~own].tolist())


SPOKEN = st.sampled_from(["system", "user", "assistant", "tool"])
TURNS = st.lists(st.tuples(SPOKEN, st.sampled_from([None, "", "a", "b c"])), max_size=5)


def _asked(turns: list[tuple[str, str | None]]) -> str:
    """What is said before the first answer; without anything before it, all that is said."""
    said = [(role, text or "") for role, text in turns if role != "system"]
    before = [*takewhile(lambda turn: turn[0] != "assistant", said)]
    return "\n".join(text for _, text in before or said)


@given(st.lists(TURNS, max_size=8), st.integers(0, 3))
def test_a_question_is_what_is_asked_before_the_first_answer(
    conversations: list[list[tuple[str, str | None]]], skipped: int
) -> None:
    turns = [[(*turn, None, False) for turn in one] for one in conversations]
    column = pa.array(turns, columns.MESSAGES)[skipped:]
    assert groups.first_questions(column) == [_asked(one) for one in conversations[skipped:]]


@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_texts_are_compared_by_letters_and_digits(text: str) -> None:
    """Fast and slow alike: a letter that is no ASCII takes the slow way."""
    slow = groups.comparable(text + "\u00df")
    alone = re.sub(r"\W+", "", unicodedata.normalize("NFKD", text).casefold())
    assert slow == alone + "ss"
    assert groups.comparable(text) == (alone or unicodedata.normalize("NFKD", text))
