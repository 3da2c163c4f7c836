"""Reads an export back from the disk as its trainer would, and compares it with its build.

Nothing here is shared with what writes an export: rows are found again by their ids, and a layout
is undone by the gate's own code. ``trainer_rows`` compares each trainer's columns with what they
must say of an example, ``launch_gate`` the launch scripts with the manifest. ``pipeline check``
does the same with an export alone: its rows are then compared with what it says itself of each
example beside the trainer's columns.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations import invariants, stored_rows, tallies, undo_layout
from expectations.contract import EXAMPLE, ROW, STORED, Context, parameters
from expectations.stored_rows import Lists, differs
from expectations.undo_layout import column
from pipeline import tasks
from pipeline.builder import launch_gate, trainer_rows
from pipeline.builds import stored
from pipeline.builds.build import Build
from pipeline.builds.stored_model import stored_model
from pipeline.inputs.recipe import traits
from pipeline.manifest.manifest import MANIFEST, Manifest
from pipeline.shards.measured import OURS
from stages.columns import Ints, list_parts, make_list, numbers, offsets_of
from stages.errors import DataError, OwnLawError
from stages.profile import TargetModel
from stages.tokens import layouts

SHOWN = 3  # differences that an error names


class Problem(NamedTuple):
    """A difference: the file, the row id where it is of a row, and what differs."""

    file: str
    row: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {f'{self.row}: ' if self.row else ''}{self.what}"


def context_of(manifest: Manifest, model: TargetModel) -> Context:
    """What the laws of the rows of a build or an export depend on."""
    width = str(manifest.options.get("pad_to"))
    longest = layouts.load(manifest.layout).room(width, manifest.max_length)
    return Context(
        kind=tasks.kind_of(manifest.task),
        layout=manifest.layout,
        max_length=longest,
        model=model,
        evidence=STORED,
        more=_traits(manifest),
    )


def policies(manifest: Manifest) -> list[tuple[str, str]]:
    """What of each source's rows is trained, and what becomes of their reasoning."""
    named = manifest.options.get("sources", ())
    own: list[Mapping[str, object]] = list(named) if isinstance(named, list | tuple) else []
    return [(str(x.get("train_on")), str(x.get("reasoning"))) for x in own or [manifest.options]]


def _traits(manifest: Manifest) -> tuple[str, ...]:
    names = [name for one in manifest.inputs for name in (one.formats or {one.format: 0})]
    apart = manifest.sides is not None and manifest.sides.by == "question"
    return traits(names, policies(manifest), apart)


def require(written: Build, source: Build) -> None:
    """Require that an export in a folder says what its build says.

    Raises:
        OwnLawError: a row, or a launch script, says something else.
    """
    _refuse(problems(written, source))


def require_scripts(build: Build, trainer: str) -> None:
    """Require that the launch scripts of a build for a trainer say what its manifest says.

    Raises:
        OwnLawError: one says something else.
    """
    found = launch_gate.problems(build, trainer)
    _refuse([Problem(name, "", what) for name, what in found])


def _refuse(found: list[Problem]) -> None:
    if found:
        more = f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        lines = "".join(f"\n  {one}" for one in found[:SHOWN])
        raise OwnLawError(f"The export differs from its build:{lines}{more}", OURS)


def problems(written: Build, source: Build | None) -> list[Problem]:
    """All differences of an export.

    Args:
        source: the build that it is of; None where only the export is there.
    """
    found = [
        Problem(name, "", what)
        for name, what in launch_gate.problems(written, whole=source is not None)
    ]
    if source is not None and [*written.splits] != [*source.splits]:
        what = f"its splits are {', '.join(written.splits)}, and not {', '.join(source.splits)}"
        found.append(Problem(MANIFEST, "", what))
    model, sizes = stored_model(written), Counter[str]()
    for split in written.splits.values():
        try:
            found += _Split(written, split.name, source, model, sizes).problems()
        except (DataError, ValueError, KeyError) as error:  # whatever wrong rows make of readers
            found.append(Problem(split.shards[0].record.path, "", f"it cannot be read: {error}"))
    tokens = written.manifest.tokens
    said = {"total": tokens.total, "padding": tokens.padding}
    if not found and said != {name: sizes[name] for name in said}:
        found.append(Problem(MANIFEST, "", f"tokens are {said}, and the shards have {dict(sizes)}"))
    return found


# What is stored, example by example, and what must be.


def _examples(table: pa.Table, context: Context) -> pa.Table:
    """The examples of rows in our columns, one a row, with their layout undone."""
    found = {"row_id": undo_layout.names(table)[1]}
    named = undo_layout.source_names(table)
    if named is not None:
        found["source"] = named
    if context.kind.compares:
        for prefix, side in undo_layout.sides(table, context).items():
            found[f"{prefix}ids"] = make_list(side.offsets, pa.array(side.ids))
        one = ("prompt_length", "margin")
        return pa.table(found | {n: table.column(n) for n in one if n in table.schema.names})
    some = undo_layout.examples(table, context)
    at = some.sequences.offsets
    found["input_ids"] = make_list(at, pa.array(some.sequences.ids))
    found["labels"] = make_list(at, pa.array(some.labels))
    if some.weights is not None:
        found["loss_weights"] = make_list(at, pa.array(some.weights[0]))
    if some.steps is not None:
        found["step_positions"], found["step_labels"] = some.steps
    return pa.table(found)


def _of_build(source: Build, split: str, model: TargetModel) -> pa.Table:
    """The examples that a split of the build trains, in its order."""
    context = context_of(source.manifest, model)
    tables = source.splits[split].tables()
    every = pa.concat_tables([_examples(table.combine_chunks(), context) for table in tables])
    if split in source.manifest.packs:
        index = stored.read_file(source.path(source.manifest.packs[split].path))
        every = every.take(list_parts(column(index, "examples"))[1])
    return every


def _places(found: pa.Array, wanted: pa.Array) -> Ints | None:
    """Where each of the found names stands among the wanted; None where they are not the same. A
    name that is there twice stands for its first place first."""
    known = pc.unique(wanted)
    mine, theirs = (pc.index_in(x, known).fill_null(-1).to_numpy() for x in (found, wanted))
    by, of = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
    if not np.array_equal(mine[by], theirs[of]):
        return None
    places = np.empty(len(by), np.int64)
    places[by] = of
    return places


@dataclass(frozen=True)
class _Split:
    """One split of an export; ``sizes`` counts its tokens and its padding."""

    written: Build
    name: str
    source: Build | None
    model: TargetModel
    sizes: Counter[str]

    def problems(self) -> Iterator[Problem]:
        """Its differences."""
        shards, facts = self.written.splits[self.name].shards, self.written.facts
        # A row of the trainer may hold several examples; how many, its ids say.
        tables = [shard.table() for shard in shards]
        named = [undo_layout.names(table.combine_chunks()) for table in tables]
        context = context_of(self.written.manifest, self.model)
        every = None
        if self.source is not None:
            every = _of_build(self.source, self.name, self.model)
            names = pa.concat_arrays([ids for _, ids in named])
            places = _places(names, pa.chunked_array(every.column("row_id")).combine_chunks())
            if places is None:
                yield Problem(shards[0].record.path, "", f"{self.name} has not the build's rows")
                return
            rows = offsets_of(np.concatenate([np.diff(at) for at, _ in named]))
            moved = self._moved(places, rows)
            if moved is not None:
                text = "it stands in another place than the build has it in"
                yield Problem(shards[0].record.path, names[moved].as_py(), text)
            every = every if np.array_equal(places, np.arange(len(places))) else every.take(places)
        start = 0
        for shard, table, (at, names) in zip(shards, tables, named, strict=True):
            ours = _examples(table.combine_chunks(), context)
            for name in context.kind.ids:
                tokens = len(list_parts(column(ours, name))[1])
                self.sizes["total"] += tokens
                self.sizes["padding"] += len(list_parts(column(table, name))[1]) - tokens
            wanted = ours if every is None else every.slice(start, len(names)).combine_chunks()
            start += len(names)
            path = self.written.here / shard.record.path
            read = stored.read_file(path).combine_chunks()
            checked = trainer_rows.Rows(read, at, wanted, facts)
            checks = [*_compared(ours, wanted), *trainer_rows.read(checked, self.written)]
            checks += _broken(table.combine_chunks(), context)
            for what, bad in checks:
                for one in np.flatnonzero(bad)[:SHOWN].tolist():
                    yield Problem(shard.record.path, names[one].as_py(), what)
            copy = stored.read_file(self.written.here / stored.arrow_of(shard.record.path))
            if copy.num_rows != read.num_rows:
                text = f"{stored.arrow_of(shard.record.path)} has other rows for datasets"
                yield Problem(shard.record.path, "", text)

    def _moved(self, places: Ints, rows: Ints) -> int | None:
        """The first example that is not where it must be: in the build's order or, in another
        layout, in that order within each row, and rows in the order of their first example."""
        assert self.source is not None
        same = self.source.manifest.layout == self.written.manifest.layout
        steps = np.diff(places, prepend=-1)
        if not same:
            firsts = rows[:-1]
            steps[firsts] = np.diff(places[firsts], prepend=-1)
        bad = np.flatnonzero(steps != 1 if same else steps < 1)
        return int(bad[0]) if len(bad) else None


def _lists(values: pa.ListArray) -> Lists:
    floats = pa.types.is_floating(values.type.value_type)
    return stored_rows.ratings(values) if floats else numbers(values)


def _compared(ours: pa.Table, wanted: pa.Table) -> trainer_rows.Checks:
    """Our columns of an export against those of the build."""
    for name in wanted.schema.names:
        if name not in ours.schema.names:
            yield f"{name} is missing", np.ones(len(wanted), bool)
        elif pa.types.is_list(wanted.schema.field(name).type):
            pair = (_lists(column(one, name)) for one in (ours, wanted))
            yield f"{name} is not the build's", differs(*pair)
        else:
            same = pc.equal(ours.column(name), wanted.column(name))
            both = pc.and_(ours.column(name).is_null(), wanted.column(name).is_null())
            bad = pc.invert(pc.or_kleene(same, both)).fill_null(True)
            yield f"{name} is not the build's", np.asarray(bad.to_numpy(), bool)


def _broken(table: pa.Table, context: Context) -> trainer_rows.Checks:
    """The laws that the rows break, as those of a build must keep them; by their first example."""
    rows = stored_rows.StoredRows(table, replace(context, evidence="row"))
    bounds = parameters(context)
    for level in (EXAMPLE, ROW):
        laws = invariants.applying(rows.context, level)
        metrics = tallies.measured(rows, level) if laws else {}
        for law in laws:
            bad = np.logical_or.reduce([c.broken(metrics, bounds) for c in law.checks_for(context)])
            if level == ROW and bad.any():
                first = rows.names[0][:-1][bad]
                bad = np.isin(np.arange(len(rows)), first)
            yield f"it breaks {law.name}: {law.why}", bad
