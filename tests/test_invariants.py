"""Invariants: each one is seen to fail, on metrics and on real rows, and names the row."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import law_metrics
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from damages import damages
from encoding import encoded, encoding
from rows import normalizing
from support import table

from expectations import contract, tallies
from expectations.contract import APART, DATASET, EXAMPLE, RENDERED, ROW, SHARD, STREAM, Context
from expectations.gate import Validate
from expectations.invariants import applying, invariants, subjects
from expectations.stored_rows import Planned, Sources, StoredRows
from expectations.undo_layout import IndexRows
from pipeline.shards import pack_index
from pipeline.tasks import kind_of
from stages import findings, profile
from stages.chat_template import loss_weights
from stages.contract import Batch, Row
from stages.tokens import packed, padded, ragged

LIMIT = 256
WIDTH = 64
PACKS = (2, 1, 2)  # examples in each pack
LAYOUTS = {
    "sft": ("ragged", "packed", "padded"),
    "rm": ("ragged", "padded"),
    "prm": ("ragged", "packed", "padded"),
}
CASES = [(task, layout) for task, layouts in LAYOUTS.items() for layout in layouts]


@dataclass(frozen=True)
class Bench:
    """The models of the tasks, and their good tables."""

    models: dict[str, profile.TargetModel]
    batches: dict[str, Batch]

    def context(self, task: str, layout: str, side: str = "left") -> Context:
        """What the tables are judged against."""
        model = self.models[task]
        profile = replace(model.profile, padding_side=side)
        bound = replace(model, profile=profile)
        return Context(kind_of(task), layout, LIMIT, bound, more=(RENDERED, APART))

    def batch_table(self, task: str) -> pa.Table:
        """The good rows of a task as they come out of ``encode``."""
        return loss_weights.stored(pa.table(self.batches[task]))

    def table(self, task: str, layout: str, side: str = "left") -> pa.Table:
        """The good table of a task in a layout, as a shard holds it."""
        names = pa.array([f"x:{line + 1}" for line in self.batches[task]["line"].to_pylist()])
        examples = self.batch_table(task).append_column("row_id", names)
        if layout == "packed":
            kept = [n for n in examples.schema.names if n in PACKED]
            return packed.pack(examples.select(kept), np.array(PACKS))
        if layout == "padded":
            return padded.pad(examples, WIDTH, side, self.models[task].pad_id)
        return ragged.ordered(examples)


PACKED = ("row_id", "input_ids", "labels", "step_positions", "step_labels")


def good_rows(task: str, model: profile.TargetModel) -> Batch:
    """The sample rows of a task through its stages."""
    found = [one for one in table("good_rows.jsonl") if one["task"] == task]
    gate = Validate(Context(kind_of(task), "ragged", LIMIT, model))
    normalize = normalizing(task, found[0]["format"])
    stages = (*encoding(task, model, limit=LIMIT), gate)
    batch = encoded(normalize, stages, [one["row"] for one in found])
    assert batch["reject_code"].null_count == batch.num_rows
    return batch


@pytest.fixture(scope="module")
def bench(model, step_model) -> Bench:
    """Tables that break nothing."""
    models = {"sft": model, "rm": model, "prm": step_model}
    return Bench(models, {task: good_rows(task, bound) for task, bound in models.items()})


MEASURED = {EXAMPLE: law_metrics.examples, ROW: law_metrics.training_rows}
Rows = dict[str, tuple[int, ...]]  # by law


def judge(table: pa.Table, context: Context) -> tuple[Rows, dict[str, int]]:
    """A table as it was written, one record batch at a time.

    Returns:
        The rows that broke each law, and how many each law was asked about.
    """
    broken: Rows = {}
    checked: dict[str, int] = {}
    batches = [pa.Table.from_batches([b]) for b in table.to_batches() if b.num_rows]
    for level in (EXAMPLE,) if context.layout == "ragged" else (EXAMPLE, ROW):
        if not batches:
            continue
        metrics = pl.concat([MEASURED[level](StoredRows(batch, context)) for batch in batches])
        for law in applying(context, level):
            bad = law_metrics.broken(law, metrics, context)
            checked[law.name] = len(bad)
            if bad.any():
                broken[law.name] = tuple(np.flatnonzero(bad).tolist())
    return broken, checked


NUMBERS = dict(table("numbers.jsonl"))
GOOD = {
    DATASET: {"efficiency_ppm": 950_000, "positives_ppm": 500_000},
    SHARD: {"opens_pyarrow": 1, "opens_polars": 1, "opens_datasets": 1},
}


def planned(frame: pl.DataFrame) -> Planned:
    """The plan of what is stored."""
    tokens = "n_tokens" if "n_tokens" in frame.columns else "chosen_n_tokens"
    place = {name: frame[name].to_numpy() for name in ("source", "line", "sequence")}
    digest = (frame["digest_a"].to_numpy(), frame["digest_b"].to_numpy())
    return Planned(frame[tokens].to_numpy(), place, digest=digest)


def indexed(
    context: Context, order: tuple[int, ...] = (0, 2, 1), sizes: tuple[int, ...] = (2, 1)
) -> pl.DataFrame:
    """Metrics of packs that are an index of three examples, planned in such an order and sizes."""
    table = pa.table({"examples": [[0, 2], [1]], "tokens": [8, 4]}, schema=pack_index.SCHEMA)
    plan = (np.array(order), np.array(sizes))
    rows = IndexRows(table, np.array([3, 4, 5]), context, plan)
    return pl.DataFrame(tallies.of_index(rows))


def test_entries_that_are_not_where_they_were_planned_are_counted(bench):
    """In each pack; packs of other sizes have moved, and of other counts all have."""
    context = bench.context("sft", "indexed")
    for order, sizes, moved in (
        ((0, 2, 1), (2, 1), [0, 0]),
        ((2, 0, 1), (2, 1), [2, 0]),
        ((0, 2, 1), (1, 2), [1, 1]),
        ((0, 2), (2,), [3, 2]),
    ):
        assert indexed(context, order, sizes)["n_misplaced"].to_list() == moved


def metrics_of(bench: Bench, task: str, layout: str, level: str) -> pl.DataFrame:
    """Metrics of good rows."""
    if level in NUMBERS:
        return pl.DataFrame(dict.fromkeys(NUMBERS[level].split(), 0) | GOOD[level])
    if layout != STREAM and level == EXAMPLE:
        table, context = bench.table(task, layout), bench.context(task, layout)
        sources = Sources(("x",), (True,))
        plan = planned(law_metrics.examples(StoredRows(table, context, sources)))
        return law_metrics.examples(StoredRows(table, context, sources, plan))
    if layout == "indexed":
        return indexed(bench.context(task, layout))
    table = bench.batch_table(task) if layout == STREAM else bench.table(task, layout)
    return MEASURED[level](StoredRows(table, bench.context(task, layout)))


PLACES = [
    *((task, layout, EXAMPLE) for task, layout in CASES),
    *((task, layout, ROW) for task, layout in CASES if layout != "ragged"),
    *((task, STREAM, EXAMPLE) for task in LAYOUTS),
    *((task, layout, level) for task, layout in CASES for level in (SHARD, DATASET)),
    *(("sft", "indexed", level) for level in (ROW, DATASET)),
]
BREAKS = {
    place: [
        law
        for law in invariants()
        if law.level == place[2]
        # Those of encoders are tested with encoders, and what is not of the stream alone on shards.
        and Context(
            kind_of(place[0]), place[1], 64, None, more=(RENDERED, APART)
        ).traits.issuperset(law.needs)
        and (STREAM in law.needs) == (place[1] == STREAM)
    ]
    for place in PLACES
}


def tripped(metrics: pl.DataFrame, context: Context, level: str) -> set[str]:
    """The invariants that a frame of metrics trips."""
    laws = applying(context, level)
    return {law.name for law in laws if law_metrics.broken(law, metrics, context).any()}


@pytest.mark.parametrize("place", BREAKS, ids="-".join)
def test_each_invariant_is_tripped_by_what_it_says_breaks_it(bench, place):
    """Good metrics trip nothing; the declared break trips exactly the law that declares it."""
    task, layout, level = place
    metrics = metrics_of(bench, task, layout, level)
    context = bench.context(task, layout)
    if layout != STREAM:
        context = replace(context, evidence=contract.PLANNED)
    assert tripped(metrics, context, level) == set()
    for law in BREAKS[place]:
        present = {name: value for name, value in law.breaks.items() if name in metrics.columns}
        assert present, law.name
        bad = metrics.with_columns(
            pl.lit(value).cast(metrics.schema[name]).alias(name) for name, value in present.items()
        )
        assert tripped(bad, context, level) == {law.name}


def test_every_invariant_is_tested_where_it_applies():
    """No invariant is left out, and each says why it is there."""
    general = {law.name for law in invariants() if contract.ENCODER not in law.needs}
    assert {law.name for laws in BREAKS.values() for law in laws} == general
    for law in invariants():
        assert law.breaks
        assert law.why
        assert law.severity in findings.SEVERITIES


def test_a_subject_has_metrics_and_laws_of_the_same_tables():
    """No file holds only one of the two, or a law about a table that it does not measure."""
    for name, subject in subjects().items():
        measured = {metrics.level for metrics in subject.metrics}
        assert subject.invariants, name
        assert {law.level for law in subject.invariants} == measured, name


@pytest.mark.parametrize(("task", "layout"), CASES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_good_tables_break_nothing(bench, task, layout, side):
    """Every law that applies was checked on every row, and none is broken."""
    context = bench.context(task, layout, side)
    table = bench.table(task, layout, side)
    broken, checked = judge(table, context)
    assert broken == {}
    rows = {EXAMPLE: 5, ROW: table.num_rows}
    laws = [law for level in rows for law in applying(context, level)]
    assert checked == {law.name: rows[law.level] for law in laws}


def corrupted(table: pa.Table, change: Callable[[list[Row]], None]) -> pa.Table:
    """The table with one row changed."""
    rows = copy.deepcopy(table.to_pylist())
    change(rows)
    return pa.Table.from_pylist(rows, schema=table.schema)


DAMAGES = {one.does: one for one in damages("table", layouts=["ragged", "packed", "padded"])}
APPLIED = [
    (name, task, layout)
    for name, damage in DAMAGES.items()
    for task in damage.tasks
    for layout in damage.layouts
    if layout in LAYOUTS[task]
]


def damaged(table: pa.Table, context: Context, name: str) -> pa.Table:
    """The row of the third example changed; in the packed layout it is alone there."""
    at = 1 if context.layout == "packed" else 2
    return corrupted(table, lambda rows: DAMAGES[name].do(rows, at, context.model))


@pytest.mark.parametrize(
    ("name", "task", "layout"), APPLIED, ids=["-".join(applied) for applied in APPLIED]
)
def test_one_corrupted_row_breaks_the_right_law_and_is_named(bench, name, task, layout):
    """A single change in a good table is found under the law it breaks, and at its row only."""
    context = bench.context(task, layout)
    found, _ = judge(damaged(bench.table(task, layout), context, name), context)
    assert set(found) == set(DAMAGES[name].breaks)
    levels = {law.name: law.level for law in invariants()}
    in_rows = 1 if layout == "packed" else 2
    assert found == {law: (in_rows if levels[law] == ROW else 2,) for law in found}


@pytest.mark.parametrize(("task", "layout"), CASES)
def test_what_is_longer_than_the_limit_is_named(bench, task, layout):
    """Exactly the examples above the limit break the law on lengths."""
    ids = ("chosen_ids", "rejected_ids") if task == "rm" else ("input_ids",)
    rows = bench.table(task, "ragged").to_pylist()
    lengths = [max(len(row[name]) for name in ids) for row in rows]
    limit = sorted(lengths)[2]
    context = replace(bench.context(task, layout), max_length=limit)
    found, _ = judge(bench.table(task, layout), context)
    over = tuple(i for i, length in enumerate(lengths) if length > limit)
    assert over
    assert found["length_within_bounds"] == over


@pytest.mark.parametrize(("task", "layout"), CASES)
def test_a_slice_is_judged_like_the_table(bench, task, layout):
    """Rows are judged by what they hold, wherever in memory they lie; no rows are no findings."""
    context = bench.context(task, layout)
    table = bench.table(task, layout)
    counts = PACKS if layout == "packed" else (1,) * 5
    for start, stop in ((1, len(counts)), (0, 1), (1, 2)):
        broken, checked = judge(table.slice(start, stop - start), context)
        assert broken == {}
        assert checked["ids_in_vocabulary"] == sum(counts[start:stop])
    assert judge(table.schema.empty_table(), context) == ({}, {})


# In the stream every example stands alone, as in the ragged layout.
IN_STREAM = [(name, task) for name, task, layout in APPLIED if layout == "ragged"]


@pytest.mark.parametrize(
    ("name", "task"), IN_STREAM, ids=["-".join(applied) for applied in IN_STREAM]
)
def test_the_stream_refuses_the_row_by_the_law_it_breaks(bench, name, task):
    """The gate in the stream refuses exactly the corrupted row, and gives the law as the code."""
    context = bench.context(task, "ragged")
    batch = bench.batches[task]
    table = damaged(pa.table(batch), context, name)
    bad = Validate(context)(table.combine_chunks().to_batches()[0])
    codes = bad["reject_code"].to_pylist()
    assert [code is None for code in codes] == [True, True, False, True, True]
    assert codes[2] in {*DAMAGES[name].breaks, "controls_from_template"}
    assert bad["reject_detail"][2].as_py()
    assert bad.num_rows == batch.num_rows


@pytest.mark.parametrize("task", LAYOUTS)
def test_a_forged_control_token_is_refused_in_the_stream(bench, task):
    """A control id that the template did not print is found by its number alone."""
    context = bench.context(task, "ragged")

    def forge(rows: list[Row]) -> None:
        for name in ("chosen_ids", "rejected_ids") if task == "rm" else ("input_ids",):
            rows[2][name][4] = context.model.controls["<|im_start|>"]

    table = corrupted(pa.table(bench.batches[task]), forge)
    validate = Validate(context)
    found = validate(table.combine_chunks().to_batches()[0])
    assert found["reject_code"].to_pylist() == [None, None, "controls_from_template", None, None]
    assert validate(bench.batches[task].slice(0, 0)).num_rows == 0


def test_an_earlier_refusal_stays(bench):
    """A row that was refused before keeps its reason."""
    context = bench.context("sft", "ragged")
    table = damaged(pa.table(bench.batches["sft"]), context, "train nothing")
    batch = table.combine_chunks().to_batches()[0]
    codes = pa.array([None, None, "too_long", None, None], pa.string())
    index = batch.schema.get_field_index("reject_code")
    found = Validate(context)(batch.set_column(index, "reject_code", codes))
    assert found["reject_code"].to_pylist() == codes.to_pylist()
