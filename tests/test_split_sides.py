"""A test split that stays: what a row asks decides its side, whatever else is in the data."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st
from support import planned_examples, raised, read_manifest, table, write_rows

from pipeline.options.build_options import Budget, require_mixture
from pipeline.options.config import Config
from pipeline.options.recipe import builds_of
from pipeline.run_build import build
from pipeline.shards import collect, doubles, train_test
from pipeline.shards.budgets import Portions, portions
from pipeline.shards.choose import choose
from pipeline.shards.examples import PlannedExamples
from pipeline.tasks import kind_of
from stages import columns, formats
from stages.contract import FormatOptions, Record
from stages.errors import ExpectationError, PipelineError, UsageError
from stages.normalize.stage import Normalize
from stages.rows import groups

SEEDS = st.integers(-(2**63), 2**63 - 1)
GROUPS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40)
QUESTIONS = st.sampled_from(["What is 2+2?", "Say é.", "你好", "", "?", "a b"]) | st.text(
    max_size=8
)
SHARE = 0.4


def _normalized(task: str, name: str, rows: list[dict[str, Any]], by: str = "") -> Any:
    normalize = Normalize(kind_of(task), formats.load(name), FormatOptions(), group_by=by)
    return normalize([Record(at, 0, json.dumps(row).encode(), row) for at, row in enumerate(rows)])


def _groups(task: str, name: str, rows: list[dict[str, Any]]) -> list[int]:
    return _normalized(task, name, rows).column("group").to_pylist()


ANSWERS = st.sampled_from(["4", "It is so.", "<think>x</think>y"])
exchanges = st.fixed_dictionaries({"prompt": QUESTIONS, "completion": ANSWERS})


@given(st.lists(exchanges, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_a_row_has_its_group_among_any_rows(rows, random):
    """Alone, in another order, doubled, among others: the fast path and the careful one agree."""
    alone = [_groups("sft", "prompt_completion", [row])[0] for row in rows]
    assert _groups("sft", "prompt_completion", rows) == alone
    order = [*range(len(rows)), *range(len(rows))]
    random.shuffle(order)
    moved = _groups("sft", "prompt_completion", [rows[at] for at in order])
    assert moved == [alone[at] for at in order]


@given(GROUPS, GROUPS, SEEDS, st.floats(0, 1, exclude_max=True))
def test_no_row_moves_another(some, more, seed, share):
    def in_test(values: list[int]) -> list[bool]:
        return train_test.in_test(np.array(values, np.uint64), share, seed).tolist()

    assert in_test(some + more) == in_test(some) + in_test(more)
    assert in_test(some[::-1]) == in_test(some)[::-1]


@given(GROUPS, SEEDS, st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2))
def test_a_larger_share_keeps_what_a_smaller_one_tests(values, seed, shares):
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
def test_a_split_is_described_by_its_groups(values, seed):
    array = np.array(values, np.uint64)
    test = train_test.in_test(array, SHARE, seed)
    found = _outcome(array, test, SHARE)
    assert found.groups == len(set(values))
    assert found.groups_in_test == len(set(array[test].tolist()))
    assert found.share == round(test.sum() / len(values), 6)
    assert found.largest == round(max(map(values.count, values)) / len(values), 6)


def test_the_share_deviates_as_stated():
    """Over many seeds, for groups of very different sizes."""
    array = np.repeat(np.arange(1, 61, dtype=np.uint64), np.arange(1, 61))
    shares = [float(train_test.in_test(array, 0.2, seed).mean()) for seed in range(2000)]
    stated = _outcome(array, train_test.in_test(array, 0.2, 0), 0.2).deviation
    assert abs(np.mean(shares) - 0.2) < 0.01
    assert abs(np.std(shares) - stated) < 0.1 * stated


def test_a_group_on_both_sides_stops_the_build():
    array = np.array([1, 1, 2], np.uint64)
    with pytest.raises(PipelineError, match="in train and in test"):
        _outcome(array, np.array([True, False, False]), 0.5)


def test_near_spellings_are_one_question():
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


def test_one_question_has_one_side_in_every_task():
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


def test_texts_and_token_ids_have_groups_of_their_own():
    assert len(set(_groups("sft", "text", [{"text": "One."}, {"text": "Two."}]))) == 2
    ids = ([1, 2, 3], [1, 2, 4], [1, 5, 3])
    rows = [{"input_ids": one, "labels": [-100, -100, one[2]]} for one in ids]
    first, second, third = _groups("sft", "pretokenized", rows)
    assert first == second != third


def test_rows_without_a_value_in_the_column_are_refused():
    row: dict[str, Any] = {"prompt": "a", "completion": "b"}
    given = [row | {"topic": {"id": 1}}, row]
    batch = _normalized("sft", "prompt_completion", given, "topic.id")
    assert batch.column("reject_code").to_pylist() == [None, groups.NO_GROUP]
    assert batch.schema.field("group").type == pa.uint64()


LINKED = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=40)


@given(LINKED, SEEDS)
def test_no_question_and_no_group_is_on_both_sides(rows, seed):
    """Whatever hangs together by values and questions in turn; what asks nothing joins none."""
    group, asked = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
    options = {"test_size": SHARE, "group_by": "topic+question", "seed": seed}
    config = Config.of("sft", ("rows.jsonl",), "acme", Path("out"), **options)
    source = np.arange(len(rows), dtype=np.int16)
    examples = planned_examples(len(rows), source=source, group=group, asked=asked)
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
def test_a_question_is_what_is_asked_before_the_first_answer(conversations, skipped):
    turns = [[(*turn, None, False) for turn in one] for one in conversations]
    column = pa.array(turns, columns.MESSAGES)[skipped:]
    assert groups.first_questions(column) == [_asked(one) for one in conversations[skipped:]]


@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_texts_are_compared_by_letters_and_digits(text):
    """Fast and slow alike: a letter that is no ASCII takes the slow way."""
    slow = groups.comparable(text + "\u00df")
    alone = re.sub(r"\W+", "", unicodedata.normalize("NFKD", text).casefold())
    assert slow == alone + "ss"
    assert groups.comparable(text) == (alone or unicodedata.normalize("NFKD", text))


# Budgets of sources: what is chosen follows from content and seed; more contains less.

Own: TypeAlias = list[tuple[int, int, int]]
UNITS = ("rows", "tokens", "trained_tokens")

# An example: what it asks, tokens, how many of these are trained.
EXAMPLES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=40
)


def examples(of: Sequence[Own]) -> PlannedExamples:
    """Examples of several sources; those of one source have a digest each that stays with them."""
    rows = [(source, at, *one) for source, own in enumerate(of) for at, one in enumerate(own)]
    source, at, group, extra, trained = np.array(rows, np.int64).reshape(-1, 5).T
    digest = np.zeros(len(rows), doubles.DIGEST)
    digest["a"] = source * 1000 + at
    digest["b"] = extra
    return planned_examples(
        len(rows),
        length=(trained + extra).astype(np.int32),
        trained=trained.astype(np.int32),
        digest=digest,
        group=group.astype(np.uint64) + 1,
        source=source.astype(np.int16),
    )


def turned(made: PlannedExamples, order: Sequence[int]) -> PlannedExamples:
    """The same examples in another order."""
    names = ("length", "trained", "digest", "group", "source")
    return replace(made, **{name: getattr(made, name)[np.array(order)] for name in names})


def chosen(
    made: PlannedExamples,
    budgets: Sequence[Budget],
    seed: int = 0,
    total: int | None = None,
    test: Any = None,
) -> Portions:
    in_test = np.zeros(len(made), bool) if test is None else test
    return portions(made, ~in_test, in_test, budgets, seed=seed, total=total)


@given(EXAMPLES, st.sampled_from(UNITS), st.integers(1, 900), SEEDS, st.sampled_from([1, 2.5, 9]))
def test_an_amount_is_met_within_one_example(own, unit, amount, seed, epochs):
    made = examples([own])
    units = {"rows": np.ones(len(made)), "tokens": made.length, "trained_tokens": made.trained}
    size = units[unit].astype(np.int64)
    found = chosen(made, [Budget(**{unit: amount}, epochs=epochs)], seed)  # type: ignore[arg-type]
    given_ = int((found.times * size).sum())
    assert given_ <= amount
    (asked,) = found.asked
    assert (asked.unit, asked.amount, asked.given) == (unit, amount, given_)
    most = int(found.times.max())
    assert most - int(found.times.min()) <= 1  # whole passes, and one more of some
    assert most <= int(np.ceil(epochs))
    if asked.short:
        assert len(own) * epochs - 1 < found.times.sum() <= len(own) * epochs
    elif size.sum():
        assert amount - given_ < max(int(size.max()), 1)


@given(EXAMPLES, st.sampled_from(UNITS), st.lists(st.integers(1, 900), min_size=2, max_size=4))
def test_a_larger_budget_has_all_that_a_smaller_one_has(own, unit, amounts):
    made = examples([own])
    before = np.zeros(len(own), np.int64)
    for amount in sorted(amounts):
        times = chosen(made, [Budget(**{unit: amount}, epochs=5)]).times  # type: ignore[arg-type]
        assert (times >= before).all()
        before = times.astype(np.int64)


@given(EXAMPLES, EXAMPLES, SEEDS, st.randoms(use_true_random=False))
def test_no_order_of_rows_or_files_changes_what_is_chosen(one, other, seed, random):
    made = examples([one, other])
    test = np.array(made.group) % 2 == 0
    order = list(range(len(made)))
    random.shuffle(order)
    budgets = [Budget(share=0.3, epochs=2), Budget(share=0.7)]
    first = chosen(made, budgets, seed, test=test)
    second = chosen(turned(made, order), budgets, seed, test=test[order])
    assert (first.times[order] == second.times).all()
    assert first.asked == second.asked


@given(EXAMPLES, EXAMPLES, SEEDS, st.floats(0.1, 2.0))
def test_the_test_side_is_thinned_and_never_repeated(one, other, seed, epochs):
    made = examples([one, other])
    test = np.array(made.group) % 2 == 0
    found = chosen(made, [Budget(epochs=epochs), Budget(epochs=epochs)], seed, test=test)
    assert found.times[test].max(initial=0) <= 1
    for number in range(2):
        own = np.array(made.source) == number
        if epochs >= 1 and (own & ~test).any():
            assert (found.times[own & test] == 1).all()


@pytest.mark.parametrize("case", table("budgets.jsonl"), ids=lambda case: case["why"])
def test_how_many_examples_of_ten_tokens_are_used(case):
    """Or why such budgets of two sources cannot be met."""
    budgets, total = [Budget(**one) for one in case["budgets"]], case.get("total")
    if "refused" in case:
        with pytest.raises(UsageError, match=case["refused"]):
            require_mixture(dict(zip("ab", budgets, strict=True)), total)
        return
    made = examples([[(n, 1, 10) for n in range(count)] for count in case["has"]])
    found = chosen(made, budgets, total=total)
    assert np.bincount(np.array(made.source), found.times).tolist() == case["used"]
    assert any(asked.short for asked in found.asked) == case.get("short", False)


def _write(path: Path, name: str, count: int, start: int = 0) -> Path:
    rows = [
        {"prompt": f"{name}: what is {n}?", "completion": f"{name} says {'so ' * (n % 7)}{n}."}
        for n in range(start, start + count)
    ]
    return write_rows(path, rows)


def _recipe(folder: Path, top: str, *sources: str) -> Path:
    """A recipe that builds into ``out``; the data of each source is ``<name>.jsonl``."""
    head = f'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nkeep = 0\n{top}'
    tables = (
        f'[[source]]\nname = "{name}"\ndata = ["{name}.jsonl"]\n{rest}\n'
        for name, _, rest in (source.partition(" ") for source in sources)
    )
    (folder / "mix.toml").write_text(head + "".join(tables))
    return folder / "mix.toml"


def _stored(folder: Path) -> dict[str, Counter[tuple[str, str]]]:
    """How often each row of each source is stored, by split."""
    found = {}
    for name, side in load_from_disk(str(folder)).items():
        pairs = zip(side["sources"], side["row_ids"], strict=True)
        found[name] = Counter(p for s, r in pairs for p in zip(s, r, strict=True))
    return found


@pytest.mark.slow
def test_a_mixture_from_recipe_to_shards(pipeline, tmp_path, cache_dir):
    """Stored as asked, judged, told; a raised budget makes no part and keeps every example."""
    _write(tmp_path / "math.jsonl", "math", 400)
    _write(tmp_path / "chat.jsonl", "chat", 60)
    top = f'test-size = 0.1\ndedup = true\ncache-dir = "{cache_dir}"\n'
    budgets = ("math trained-tokens = 1000", "chat share = 0.5\nepochs = 3")
    recipe = _recipe(tmp_path, top, *budgets)
    pipeline("build", recipe).ended()
    parts = set((cache_dir / "parts").rglob("*.arrow"))
    manifest = read_manifest(tmp_path / "out")
    math, chat = manifest["sources"]
    assert math["asked"] == {"trained-tokens": 1000}
    assert 1000 - 20 < math["given"] <= 1000
    assert not math["short"]
    assert abs(chat["share"] - 0.5) < 0.01
    made = manifest["examples"]
    assert made["made"] == 460 == made["kept"] + made["left_out"]
    stored = _stored(tmp_path / "out")
    assert max(stored["train"].values()) in (2, 3)
    assert max(stored["test"].values()) == 1
    assert stored["train"].total() + stored["test"].total() == made["kept"] + made["copies"]
    assert not stored["train"].keys() & stored["test"].keys()
    assert all(row.startswith(f"{source}.jsonl:") for source, row in stored["train"])
    pipeline("check", tmp_path / "out").ended()

    pipeline("build", recipe, "--set", "source.math.trained-tokens=1100").ended()
    assert set((cache_dir / "parts").rglob("*.arrow")) == parts
    more = _stored(tmp_path / "out")
    for side, before in stored.items():
        assert not before - more[side]
    assert more["train"].total() > stored["train"].total()


def test_a_wrong_source_closes_the_gate(tmp_path, cache_dir, monkeypatch):
    """Names are read back, and compared with the inputs that the row ids name."""
    _write(tmp_path / "math.jsonl", "math", 5)
    _write(tmp_path / "chat.jsonl", "chat", 5)
    recipe = _recipe(tmp_path, f'workers = 1\ncache-dir = "{cache_dir}"\n', "math", "chat")
    named = collect.Collector.source_names

    def wrong(self: collect.Collector, picked: collect.Picks) -> Callable[[int, int], pa.Array]:
        names = named(self, picked)
        return lambda first, last: names(first, last)[::-1]

    monkeypatch.setattr(collect.Collector, "source_names", wrong)
    (config,) = builds_of(recipe)
    raised(ExpectationError, build, config, lambda *_: None, says="sources_named: 10 of 10")
    assert not list((tmp_path / "out").rglob("manifest.json"))
