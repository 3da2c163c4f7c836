"""Parts to shards: a shard holds what is picked, and nothing is left out for its digest alone."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations import contract, stored_rows, tallies
from expectations.invariants import shards
from pipeline.shards import collect, doubles, gather
from pipeline.shards.collect import Collector, PartSource
from pipeline.shards.expected import Expected
from pipeline.tasks import kind_of
from stages import columns, errors, findings
from stages.profile import TargetModel
from stages.tokens import layouts

SIZES = (7, 1, 12)
WIDTH = 16


def examples(rows: int) -> pa.Table:
    """Examples of a few tokens, some without a rating or a margin."""
    draw = np.random.default_rng(rows)
    lists = [draw.integers(0, 9, n).tolist() for n in draw.integers(1, 9, rows)]
    data = {
        "row_id": [f"data.jsonl:{i + 1}" for i in range(rows)],
        "input_ids": lists,
        "labels": [[-100, *x[1:]] for x in lists],
        "margin": [None if 300 < i < 310 else float(i) for i in range(rows)],
        "step_positions": [[0] for _ in lists],
        "step_labels": [[None] if i % 400 == 5 else [1.0] for i in range(rows)],
    }
    return pa.table(data, schema=columns.schema(list(data)))


@pytest.mark.parametrize("layout", ["ragged", "padded", "packed"])
def test_bytes_do_not_depend_on_blocks(tmp_path: Path, layout: str) -> None:
    """Rows that are laid out together are written as if each batch had been laid out alone."""
    table = examples(700)
    if layout == "packed":
        table = table.drop_columns(["margin"])
    shape = layouts.Shape(width=WIDTH)
    written = set()
    table = table.combine_chunks()
    for at_once in (gather.BATCH_ROWS, 2 * gather.BATCH_ROWS, 4 * gather.BATCH_ROWS):
        path = tmp_path / f"{at_once}.arrow"
        gather.write(
            path,
            np.ones(700, np.int64),
            examples=lambda first, last: table.take(pa.array(np.arange(first, last))),
            rows=lambda block, sizes: layouts.load(layout).rows(block, sizes, shape),
            at_once=at_once,
        )
        written.add(path.read_bytes())
    assert len(written) == 1


def write_part(folder: Path, number: int, source: str, first: int, data: Any) -> PartSource:
    """Columns as a part of a file."""
    table = pa.table(data, schema=columns.schema(list(data)))
    path = folder / f"{number}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return PartSource(str(path), source, first)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[PartSource]:
    """Three parts of two files."""
    folder = tmp_path_factory.mktemp("parts")
    made = []
    for number, rows in enumerate(SIZES):
        draw = np.random.default_rng(number)
        lengths = draw.integers(1, 6, rows)
        folded = [draw.integers(-9, 9, n).tolist() for n in lengths]
        data = {
            "line": np.arange(rows) * 2,
            "sequence": np.full(rows, -1 if number else 0),
            "length": lengths,
            "digest": [bytes([number, i] * 8) for i in range(rows)],
            "folded": folded,
            "loss_weights": [[0.5] * n if i % 3 == 0 else [] for i, n in enumerate(lengths)],
        }
        made.append(write_part(folder, number, f"{number // 2}.jsonl", 100 * number, data))
    return made


@given(order=st.lists(st.integers(0, sum(SIZES) - 1), min_size=1, max_size=40), cut=st.integers(0))
def test_what_is_fetched_and_what_is_expected_are_the_examples(
    parts: list[PartSource], order: list[int], cut: int
) -> None:
    """In any order, repeated or not, and in any two blocks: both readings, against a plain one."""
    starts = columns.offsets_of(np.array(SIZES))
    collect, chosen = Collector(parts, starts), np.array(order)
    picked = collect.picks(chosen)
    lists, names = collect.blocks(picked, "folded"), collect.row_ids(picked)
    inputs = stored_rows.Sources(("0.jsonl", "1.jsonl"), (False, False))
    stored = ["folded", "loss_weights"]
    expected = Expected(collect, parts, inputs, starts=starts, order=chosen, stored=stored)
    rows = [(number, row) for number, size in enumerate(SIZES) for row in range(size)]
    middle = cut % len(order)
    for first, last in ((0, middle), (middle, len(order))):
        if first == last:
            continue
        wanted = [rows[i] for i in order[first:last]]
        values = [collect.column(part, "folded")[row].as_py() for part, row in wanted]
        assert lists(first, last).to_pylist() == values
        said = [
            f"{part // 2}.jsonl:{100 * part + 2 * row + 1}{'' if part else '#0'}"
            for part, row in wanted
        ]
        assert names(first, last).to_pylist() == said
        planned = expected(first, last)
        at, flat = planned.lists["folded"]
        assert [flat[a:b].tolist() for a, b in pairwise(at)] == values
        weights = planned.lists["loss_weights"][1].view(np.float32)
        plain = [[0.5] * len(v) if row % 3 == 0 else [float(x < 0) for x in v]
                 for v, (_, row) in zip(values, wanted, strict=True)]  # fmt: skip
        assert weights.tolist() == [x for one in plain for x in one]
        assert planned.place["source"].tolist() == [part // 2 for part, _ in wanted]
        assert planned.place["line"].tolist() == [100 * p + 2 * r + 1 for p, r in wanted]
        digests = np.stack(planned.digest, axis=1).tobytes()
        assert digests == b"".join(bytes([part, row] * 8) for part, row in wanted)


def test_rows_that_decide_break_what_any_row_breaks(model: TargetModel) -> None:
    """On any metrics, in any pieces: a check that any row breaks is broken by a row that is kept,
    and by all that break it where these are few."""
    context = contract.Context(kind_of("sft"), "ragged", 64, model, contract.PLANNED)
    checks, bounds = tallies.checks_of(context, contract.EXAMPLE), contract.parameters(context)
    names = dict.fromkeys(name for check in checks for name in check.columns)
    odd = [-(2**63), -1, 0, 1, 2, 99, 2**63 - 1]
    for seed in range(60):
        draw = np.random.default_rng(seed)
        rows, share, usual = int(draw.integers(1, 60)), [0.0, 0.1, 1.0][seed % 3], seed % 2
        metrics = {
            name: np.where(draw.random(rows) < share, draw.choice(odd, rows), usual)
            for name in names
        }
        cut = int(draw.integers(0, rows))
        pieces = [{n: v[s] for n, v in metrics.items()} for s in (slice(cut), slice(cut, None))]
        kept = [tallies.tally(piece, checks) for piece in pieces if len(piece["n_tokens"])]
        found, whole = tallies.joined(kept, checks), tallies.tally(metrics, checks)
        assert found.rows == whole.rows
        assert found.at.tolist() == whole.at.tolist()
        for check in checks:
            bad = set(np.flatnonzero(check.broken(metrics, bounds)).tolist())
            shown = set(found.at[check.broken(found.shown, bounds)].tolist())
            assert shown == bad if len(bad) <= findings.NAMED else len(shown) >= findings.NAMED
        for name, column in found.shown.items():
            assert column.tolist() == metrics[name][found.at].tolist()


@given(
    rows=st.lists(st.tuples(*[st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])] * 3), max_size=9)
)
def test_distinct_rows_are_counted(rows: list[tuple[int, int, int]]) -> None:
    """Also of numbers too large to be joined into one."""
    a, b, c = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    assert shards.n_distinct(shards.as_one(a, b, c)) == len(set(rows))
    assert shards.n_distinct_pairs(a, b) == len({row[:2] for row in rows})


LISTS = st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=3), min_size=1, max_size=8)


@given(LISTS, LISTS, st.booleans())
def test_examples_with_one_digest_must_be_equal(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[list[int]],
    other: list[list[int]],
    honest: bool,
) -> None:
    """Digests that follow from the lists pass; one for all of them names two that differ."""
    folder = tmp_path_factory.mktemp("parts")
    sources = []
    for number, lists in enumerate((one, other)):
        many = range(len(lists))
        data = {"line": many, "sequence": [-1 for _ in many], "folded": lists, "margin": many}
        sources.append(write_part(folder, number, f"{number}.jsonl", 0, data))
    every = [*one, *other]
    digest = np.zeros(len(every), doubles.DIGEST)
    digest["b"] = [every.index(values) if honest else 7 for values in every]
    starts = np.array([0, len(one), len(every)])
    pairs = doubles.pairs(digest)
    names = ("folded", "margin")  # the margin differs, and says nothing about equality
    if honest or all(values == every[0] for values in every):
        collect.require_equal(pairs, sources, starts, names)
    else:
        odd = next(i for i, values in enumerate(every) if values != every[0])
        name = f"0.jsonl:{odd + 1}" if odd < len(one) else f"1.jsonl:{odd - len(one) + 1}"
        with pytest.raises(errors.DataError, match=f"{name} and 0.jsonl:1 differ"):
            collect.require_equal(pairs, sources, starts, names)
