"""``pipeline export``: a finished build (or export) in another trainer's columns, ids untouched."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from pipeline import exports, launch, manifest, publish, rows, stored
from pipeline.dataset_files import write_json, write_split, write_splits
from pipeline.exports import Export, Facts, Projection
from pipeline.seal import sealed
from stages import pack, pad
from stages.columns import Ints, numbers, offsets_of, whole
from stages.errors import DataError, UsageError
from stages.ragged import ragged

_CARRIED = ("tokenizer", "serving.json", publish.VALIDATION)  # of the build, as they are


@dataclass(frozen=True, slots=True)
class Stored:
    """A finished build or export, and how its rows are read in our columns."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def facts(self) -> Facts:
        tokenizer = (self.folder / "tokenizer" / "tokenizer.json").read_bytes()
        return replace(exports.facts_of(self.manifest), tokenizer_json=tokenizer)

    @property
    def projection(self) -> Projection | None:
        written_for = self.manifest.get("export")
        if not written_for:
            return None
        return exports.load(written_for["trainer"]).projection(self.facts)

    def shards(self, split: str) -> Iterator[pa.Table]:
        """A split's shards, in our columns."""
        for shard in self.manifest["splits"][split]["shards"]:
            yield stored.read(self.folder, shard["path"], self.projection)


def open_build(folder: Path) -> Stored:
    """A build whose every file is what its manifest says.

    Raises:
        UsageError: it is no build.
        DataError: a file is missing or has changed.
    """
    try:
        found = orjson.loads((folder / publish.MANIFEST).read_bytes())
        listed, columns = found["files"], found["columns"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} is no finished build: {type(error).__name__} at its manifest.json.",
            "Give the folder that pipeline run or pipeline export wrote.",
        ) from error
    present = manifest.hash_files(folder, {})
    for name, sha256 in listed.items():
        if present.get(name) != sha256:
            what = "has changed since" if name in present else "is missing from"
            raise DataError(f"{folder / name} {what} the build.", "Build it again.")
    assert isinstance(columns, list)
    return Stored(folder, found)


def _even(total: int, parts: int) -> list[int]:
    """Bounds of so many parts of nearly one size, none empty."""
    parts = max(1, min(parts, total))
    return [total * i // parts for i in range(parts + 1)]


def _laid_out(table: pa.Table, sizes: Ints, facts: Facts, width: int) -> pa.Table:
    if facts.layout == "packed":
        return pack.pack(table, sizes)
    if facts.layout == "padded":
        return pad.pad(table, width, facts.model["padding_side"], facts.model["pad_token_id"])
    return ragged(table)


def _length(table: pa.Table) -> Ints:
    """Tokens of each example; of a pair's longer side."""
    names = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    each = [np.diff(numbers(whole(table.column(name)))[0]) for name in names]
    return np.asarray(np.maximum.reduce(each), np.int64)


def _relaid(source: Stored, split: str, facts: Facts) -> Iterator[tuple[pa.Table, Ints]]:
    """Shards of one split in another layout, with the number of examples in each row."""
    shards = [rows.examples(t, source.facts.layout) for t in source.shards(split)]
    count = len(shards)
    table = pa.concat_tables(shards)
    lengths = _length(table.combine_chunks())
    order, sizes = np.arange(len(table)), np.ones(len(table), np.int64)
    width = pad.width("longest", int(lengths.max()), facts.max_length)
    if facts.layout == "packed":
        packs = pack.plan(lengths, facts.max_length)
        order, sizes = np.argsort(packs, kind="stable"), np.bincount(packs)
    at, bounds = offsets_of(sizes), _even(len(sizes), count)
    for start, stop in itertools.pairwise(bounds):
        mine = order[at[start] : at[stop]]
        block = table.take(pa.array(mine)).combine_chunks()
        yield _laid_out(block, sizes[start:stop], facts, width), sizes[start:stop]


def _as_stored(source: Stored, split: str) -> Iterator[tuple[pa.Table, Ints]]:
    for table in source.shards(split):
        packed = "seq_lengths" in table.schema.names
        ones = np.ones(len(table), np.int64)
        sizes = np.diff(numbers(whole(table.column("seq_lengths")))[0]) if packed else ones
        yield table, sizes


def _tokens(table: pa.Table) -> tuple[int, int]:
    """Real tokens of a shard, and stored ones."""
    names = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    total = sum(len(whole(table.column(n)).flatten()) for n in names)
    masks = [n for n in table.schema.names if n.endswith("attention_mask")]
    if not masks:
        return total, total
    return sum(int(whole(table.column(n)).flatten().to_numpy().sum()) for n in masks), total


def _write_split(
    source: Stored,
    split: str,
    facts: Facts,
    folder: Path,
    projection: Projection | None = None,
    container: str = "arrow",
) -> tuple[dict[str, Any], int]:
    """A split's shards; without a projection in our columns."""
    same = facts.layout == source.facts.layout
    tables = list(_as_stored(source, split) if same else _relaid(source, split, facts))
    count = len(tables)
    shards, examples, padding, schema = [], 0, 0, None
    for index, (table, sizes) in enumerate(tables):
        path = f"{split}/data-{index:05d}-of-{count:05d}.{container}"
        with stored.Sink(folder, path, projection) as sink:
            for start in range(0, len(table), stored.BATCH_ROWS):
                sink.write(table.slice(start, stored.BATCH_ROWS).combine_chunks())
        tokens, total = _tokens(table)
        size, digest = (folder / path).stat().st_size, sink.sha256()
        shards.append(
            {"path": path, "rows": len(table), "tokens": tokens, "bytes": size, "sha256": digest}
        )
        examples, padding = examples + int(sizes.sum()), padding + total - tokens
        schema = stored.read_file(folder / path).schema
    if container == "arrow":
        names = [Path(str(shard["path"])).name for shard in shards]
        write_split(folder, split, schema, names, str(shards[0]["sha256"]))
    described = {
        "rows": sum(len(table) for table, _ in tables),
        "examples": examples,
        "tokens": sum(int(str(shard["tokens"])) for shard in shards),
        "shards": shards,
    }
    return described, padding


def _fit(source: Stored, export: Export, layout: str) -> Facts:
    """The facts of the export to be: its layout is the build's where the trainer takes that."""
    facts = source.facts
    if not layout:
        taken = export.takes.get(facts.task, ())
        layout = facts.layout if facts.layout in taken else export.layout(facts.task, taken)
    facts = replace(facts, layout=layout)
    export.require(facts)
    return facts


def _describe(
    source: Stored, facts: Facts, export: Export, splits: dict[str, Any], padding: int
) -> dict[str, Any]:
    found = dict(source.manifest)
    rows_made = sum(split["rows"] for split in splits.values())
    tokens = sum(split["tokens"] for split in splits.values())
    found["layout"], found["splits"] = facts.layout, splits
    found["tokens"] = {**found["tokens"], "padding": padding}
    found["for"] = None
    found["export"] = {"trainer": export.name, "of": source.manifest["build_id"]}
    found["build_id"] = manifest.id_of(found)
    found["packing"] = found["padding"] = None
    if facts.layout == "packed":
        same = facts.layout == source.facts.layout
        bound = (source.manifest["packing"] or {}).get("lower_bound") if same else None
        efficiency = round(tokens / (rows_made * facts.max_length), 6)
        found["packing"] = {"packs": rows_made, "efficiency": efficiency, "lower_bound": bound}
    if facts.layout == "padded":
        width = (tokens + padding) // rows_made // (2 if facts.task == "rm" else 1)
        found["padding"] = {"width": width, "waste": round(padding / (tokens + padding), 6)}
    return found


def _write(source: Stored, export: Export, facts: Facts, staged: Path) -> None:
    """A whole export, in an empty directory."""
    projection = export.projection(facts)
    written = {
        split: _write_split(source, split, facts, staged, projection, export.container)
        for split in facts.splits
    }
    padding = sum(found[1] for found in written.values())
    if export.container == "arrow":
        write_splits(staged, list(written))
    for entry in _CARRIED:
        origin = source.folder / entry
        if origin.is_dir():
            shutil.copytree(origin, staged / entry)
        elif origin.exists():
            shutil.copyfile(origin, staged / entry)
    splits = {split: found[0] for split, found in written.items()}
    described = _describe(source, facts, export, splits, padding)
    described["columns"] = _columns(staged, splits, export, facts)
    described["trainers"] = exports.verdicts(exports.facts_of(described))
    launch.write(staged, export, described)
    described["files"] = dict(sorted(manifest.hash_files(staged, {}).items()))
    write_json(staged / publish.MANIFEST, sealed(described))


def bring_back(source: Stored, folder: Path) -> dict[str, Any]:
    """Write an export's rows in our columns, as a build has them, into an empty folder.

    Returns:
        What a manifest says of its splits.
    """
    splits = {s: _write_split(source, s, source.facts, folder)[0] for s in source.facts.splits}
    write_splits(folder, list(splits))
    return splits


def export_build(name: str, folder: Path, output: Path, layout: str = "") -> Path:
    """Write a build for another trainer; returns the new manifest's path.

    Raises:
        UsageError: the trainer cannot train from it, with the reason.
        DataError: the build is damaged.
    """
    export, source = exports.load(name), open_build(folder)
    facts = _fit(source, export, layout)
    target = publish.check_target(output)
    if target == Path(folder).resolve():
        raise UsageError(f"{output} is the build itself.", "Give another directory with -o.")
    with publish.staging(target) as staged:
        _write(source, export, facts, staged)
        publish.publish(staged, target)
    return output / publish.MANIFEST


def for_trainer(folder: Path, described: dict[str, Any], name: str) -> dict[str, Any]:
    """What the manifest says of trainers, once the shards are there; writes for the one of --for.

    A trainer that reads our columns trains on the build itself. For any other its own rows are
    written beside, in a folder of its name, which is an export like any other.

    Raises:
        UsageError: it cannot train from this build.
    """
    tables = [
        stored.read_file(folder / shard["path"])
        for split in described["splits"].values()
        for shard in split["shards"]
    ]
    added: dict[str, Any] = {"columns": tables[0].schema.names, "for": name or None, "export": None}
    if described["prm"]:
        labels = [chunk for table in tables for chunk in table.column("step_labels").chunks]
        unlabelled = any(chunk.flatten().null_count for chunk in labels)
        added["prm"] = described["prm"] | {"unlabelled": unlabelled}
    whole_manifest = described | added
    source = Stored(folder, whole_manifest)
    added["trainers"] = exports.verdicts(source.facts)
    if name:
        export = exports.load(name)
        export.require(source.facts)
        if export.projection(source.facts) is None:
            launch.write(folder, export, whole_manifest)
        else:
            (folder / name).mkdir()
            _write(source, export, source.facts, folder / name)
            launch.forward(folder, name)
    return added


def _columns(folder: Path, splits: dict[str, Any], export: Export, facts: Facts) -> list[str]:
    """Our columns of the first shard, read back."""
    path = next(iter(splits.values()))["shards"][0]["path"]
    return list(stored.read(folder, path, export.projection(facts)).schema.names)


def manifest_json(path: Path) -> str:
    """A manifest on one line."""
    return json.dumps(json.loads(path.read_bytes()), ensure_ascii=False)
