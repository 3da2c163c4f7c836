"""Judges again what options, chance and budgets have chosen: the sides, the order, the sources."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow.compute as pc

from expectations import undo_layout
from pipeline.builder.evidence import Evidence, place_of
from pipeline.builds import stored
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.records import CONTAMINATED, NEAR_DUPLICATES
from pipeline.options import build_options, source
from stages.errors import counted
from stages.tokens import layouts, packed

_CHANCE, _MANY = 8, 5  # deviations that no split by chance reaches, where so many are expected
_NEIGHBOURS = 64  # that tell an order from one by chance
_SHARE = 0.001  # by which the share of a source may differ from the one that was asked for
_LINES = 1 << 40  # more than an input has


def problems(evidence: Evidence) -> Iterator[str]:
    """Choices that are not those that were asked for."""
    yield from _of_said(evidence)
    yield from _of_budgets(evidence.manifest)
    yield from _of_sides(evidence.manifest)
    yield from _of_order(evidence)
    yield from _of_alike(evidence)
    yield from _of_packs(evidence)
    yield from _of_read(evidence)


def _of_said(evidence: Evidence) -> Iterator[str]:
    """An option is what was said of it last: of a source before a build, of a build before all;
    what nobody has said is as it is by default. A source of files for the test split, which no
    table is of, is read as the build says."""
    said = evidence.said
    if said is None:
        return
    options, whole = evidence.manifest.options, {*build_options.PHASES} - {"run", "source"}
    named = "sources" in options
    common = {name: x for table in (*said.common, said.after) for name, x in table.items()}
    yield from _differing("", options, common, whole)
    for number, one in enumerate(evidence.asked):
        own = said.own[number] if number < len(said.own) else {}
        told = {**common, **own, **said.after}
        yield from _differing(f"source {one['name']}: " if named else "", one, told, {"source"})


def _differing(
    where: str, recorded_: Mapping[str, Any], said: Mapping[str, Any], phases: Collection[str]
) -> Iterator[str]:
    for phase in sorted(phases):
        names = {one.name for one in fields(build_options.PHASES[phase])}
        given = {name: value for name, value in said.items() if name in names}
        given |= {"data": ()} if phase == "source" else {}
        wanted = json.loads(json.dumps(source.recorded(build_options.PHASES[phase](**given))))
        there = json.loads(json.dumps({n: x for n, x in recorded_.items() if n in names}))
        for name in sorted(wanted.keys() | there.keys()):
            if there.get(name) != wanted.get(name):
                told = f"{there.get(name)!r}, and {wanted.get(name)!r} is what was said"
                yield f"{where}{name.replace('_', '-')} is {told}"


def _of_sides(manifest: Manifest) -> Iterator[str]:
    """Test has the share that was counted, and as many groups as chance gives."""
    told = manifest.sides
    if told is None or told.by == "files" or manifest.packs:
        return
    examples = Counter({name: side.examples for name, side in manifest.splits.items()})
    share = examples["test"] / (examples.total() - manifest.examples.copies)
    if round(share, 6) != told.share:
        yield f"sides: test has a share of {share:.6f} of the examples, and not {told.share:g}"
    wanted, rest = told.groups * told.asked, told.groups * (1 - told.asked)
    chance = _CHANCE * (wanted * (1 - told.asked)) ** 0.5
    if min(wanted, rest) >= _MANY and abs(told.groups_in_test - wanted) > chance:
        yield f"sides: {told.groups_in_test} of {told.groups} groups are in test, not {wanted:.0f}"


def _of_order(evidence: Evidence) -> Iterator[str]:
    """Examples stand in the order of the inputs, or as chance puts them where they are shuffled.

    Packs go by lengths, too, copies by passes, and a layout of another package as it says.
    """
    manifest = evidence.manifest
    ordered = manifest.layout in layouts.MEMBERS and manifest.packing is None
    if not ordered or manifest.export is not None or manifest.examples.copies:
        return
    many, found = evidence.counted("n_neighbours"), evidence.counted("n_ascents")
    if not manifest.options["shuffle"]:
        if found != many:
            yield f"shuffle: {counted(many - found, 'example')} stand before what was read earlier"
        return
    chance = _CHANCE * (many / 12) ** 0.5 if many >= _NEIGHBOURS else many
    if abs(found - many / 2) > chance:
        yield f"shuffle: {found} of {many} examples stand behind what was read earlier"


def _of_alike(evidence: Evidence) -> Iterator[str]:
    """What is left out for being like something else is not stored, and of rows that are alike the
    first stays, those of files for the test split before all others."""
    manifest, here = evidence.manifest, evidence.build.here
    stored = {one.name for side in evidence.examples.values() for one in side}
    for file in (CONTAMINATED, NEAR_DUPLICATES):
        if (here / file).is_file() and manifest.export is None:
            for name in sorted({one["id"] for one in evidence.lines(file)} & stored):
                yield f"{name} is stored, and stands in {file}"
    told = manifest.near_duplicates
    if told is None or not (here / NEAR_DUPLICATES).is_file():
        return
    lines = evidence.lines(NEAR_DUPLICATES)
    found = (len(lines), len({one["kept"] for one in lines}))
    if found != (told.examples, told.clusters):
        yield f"near_duplicates are {found} examples and clusters, and {told.examples} are named"
    order = {one.path: at for at, one in enumerate(manifest.inputs)}
    tests = {one["name"] for one in (evidence.case or {"inputs": ()})["inputs"] if one["test"]}
    first = manifest.options.get("dedup_keep", "first") == "first"
    for one in lines if evidence.case else ():
        (path, *behind), (other, *stays) = (place_of(one[name]) for name in ("id", "kept"))
        before = (path not in tests, order[path], *behind)
        if (path in tests and other not in tests) or (
            first and before < (other not in tests, order[other], *stays)
        ):
            yield f"{one['id']} is left out, and {one['kept']} stays, which comes after it"


def _of_packs(evidence: Evidence) -> Iterator[str]:
    """Of any build: packs of parts that have examples of two, packs of which two fit into one."""
    manifest, within = evidence.manifest, evidence.manifest.options["pack_within"] == "part"
    if manifest.layout != layouts.PACKED or not evidence.parts:
        return
    together = not within and not manifest.windows
    inputs = list(dict.fromkeys(one.name for one in evidence.parts))
    starts = np.array([inputs.index(one.name) * _LINES + one.first_line for one in evidence.parts])
    for name, side in manifest.splits.items():
        tables = (stored.read_file(evidence.build.here / one.path) for one in side.shards)
        for table in tables if within else ():
            bounds, names = undo_layout.names(table.select(["row_ids"]).combine_chunks())
            place = undo_layout.names_read(inputs, names)
            lines = place["source"] * _LINES + place["line"] - 1
            part = np.searchsorted(starts, lines, side="right")
            mixed_ = np.flatnonzero(part != np.repeat(part[bounds[:-1]], np.diff(bounds)))
            if len(mixed_):
                yield f"pack-within: {names[int(mixed_[0])]} is in a pack of another part"
        if together and side.examples <= packed.GLOBAL_EXAMPLES:
            filled = [pc.list_value_length(one.column("input_ids")) for one in tables]
            least = np.sort(np.concatenate(filled))[:2]
            if len(least) == 2 and least.sum() <= manifest.max_length:
                yield f"packs: two of {name} fit into one"


def _of_read(evidence: Evidence) -> Iterator[str]:
    """What conditions and groups read is not counted as unread."""
    told = (evidence.case or {"inputs": ()})["inputs"]
    for one, words in zip(evidence.manifest.inputs, (x["words"] for x in told), strict=False):
        read = {re.split("[=<>!]", text)[0].rstrip() for text in words["where"]}
        read.add((words["group_by"] or "").removesuffix("+question"))
        for name in sorted(read & {column.column for column in one.unread}):
            yield f"{name} of {one.path} is read, and counts as unread"


def _of_budgets(manifest: Manifest) -> Iterator[str]:
    """A budget is not exceeded, what it gave is stored, and a share is that of the recipe."""
    given = {"rows": "examples", "tokens": "tokens", "trained_tokens": "trained"}
    total = manifest.options.get("total")
    wanted = sum(one.amount for one in manifest.sources if one.wanted_share is not None)
    for one in manifest.sources:
        if one.unit in given:
            there = getattr(one.splits["train"], given[one.unit])
            if one.given > one.amount or there != one.given:
                told = f"{one.given:g} {one.unit} are given and {there} stored"
                yield f"source {one.name}: {told}, and its budget is {one.amount:g}"
        share = one.asked.get("share")
        if share is None or one.wanted_share is None or one.amount == wanted:
            continue
        whole = share * total if isinstance(total, int) else one.amount
        # Sources without a share may be larger than what a total leaves for them.
        met = isinstance(total, int) and wanted > total + len(manifest.sources)
        other = abs(one.wanted_share - share) > _SHARE + 1 / wanted and not met
        if other or abs(one.amount - whole) > 1:
            told = f"its share is {one.wanted_share:g}, {one.amount:g} trained tokens"
            yield f"source {one.name}: {told}, and {share:g} of {total or 'all'} is asked"
