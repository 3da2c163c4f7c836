"""The files of a publication, those of the build and those that are made for its readers; and what
came of it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import tasks
from pipeline.builds import stored
from pipeline.builds.build import Build
from pipeline.builds.packs import examples
from pipeline.lines import templates
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import dump, sealed
from pipeline.manifest.manifest import MANIFEST, Manifest, PublishedRecord
from pipeline.manifest.records import CONTAMINATED, NEAR_DUPLICATES, REJECTS, REPORT, RUN, Reject
from pipeline.report import card, page
from pipeline.report.card import Publisher, licenses_of, recorded_sources, title
from stages.columns import IGNORED, TYPES
from stages.encoders import parsed
from stages.errors import UsageError
from stages.files import file_hash

Report = Callable[[str, int, int], None]  # what is done, how many of it, of how many


class Sent(NamedTuple):
    """What was done at a place.

    Attributes:
        names: files that were sent now; empty where all were there already.
        bytes: of these.
        removed: files of the build that was there before.
        revision: the hub's commit; empty elsewhere.
    """

    names: tuple[str, ...]
    bytes: int
    removed: tuple[str, ...]
    revision: str = ""


_NO_RUN = "`run.json`, which says on which machine the build was made, is left out."
_NO_TEXTS = (
    "The text of rows that are not in the dataset is left out of `report.html` and of lists such "
    "as `rejects.jsonl`; their ids, lines and codes are there."
)
# Lists of rows that are not in the dataset: which of their keys quote a row, or what it is like.
_QUOTES = {
    REJECTS: ("detail", "raw"),
    CONTAMINATED: ("match", "said", "question"),
    NEAR_DUPLICATES: ("said", "kept_said"),
}


class Piece(NamedTuple):
    """One file to send.

    Attributes:
        name: its path in the publication.
        path: where its bytes are now.
        sha256, size: of these bytes.
    """

    name: str
    path: Path
    sha256: str
    size: int


class Publication(NamedTuple):
    """What is sent.

    Attributes:
        pieces: every file but the manifest, in the order in which they are sent: shards first, and
            the files by which readers find them last.
        last: the manifest, without which nothing that arrived counts as a build.
    """

    manifest: Manifest
    pieces: tuple[Piece, ...]
    last: Piece

    @property
    def all(self) -> tuple[Piece, ...]:
        """Every file."""
        return (*self.pieces, self.last)


class _WithoutTexts(Build):
    """A build whose refused rows are named and counted, but not quoted."""

    def rejects(self) -> Iterator[Reject]:
        for one in super().rejects():
            yield replace(one, raw="", detail="")  # details quote the row


def _unquoted(source: Path, target: Path, keys: tuple[str, ...]) -> None:
    """Copy a list of rows with empty texts in place of these."""
    with source.open("rb") as lines, target.open("wb") as file:
        for line in lines:
            file.write(json.dumps({**json.loads(line), **dict.fromkeys(keys, "")}).encode() + b"\n")


def _made(build: Build, work: Path, publisher: Publisher, with_rejects: bool) -> None:
    """Write the files that are made for readers, and those that are written in another way."""
    write_view(build, work)
    said = [_NO_RUN] if (build.folder / RUN).is_file() else []
    quoting = [name for name in _QUOTES if (build.folder / name).is_file()]  # exports have none
    if quoting and not with_rejects:
        said.append(_NO_TEXTS)
        for name in quoting:
            _unquoted(build.folder / name, work / name, _QUOTES[name])
        (work / REPORT).write_bytes(page.make(_WithoutTexts(build.folder, build.manifest)).encode())
    told = replace(publisher, view=f"{FOLDER}/*.parquet", left_out=tuple(said))
    (work / card.CARD).write_bytes(card.make(build, told).encode())


def _order(manifest: Manifest, name: str) -> tuple[int, str]:
    """Shards first; what a reader begins with last."""
    shards = {one.path for one in manifest.shards}
    if name in shards or name in {stored.arrow_of(path) for path in shards}:
        return 0, name
    return (2 if name in (card.CARD, "dataset_dict.json") else 1), name


def assemble(build: Build, work: Path, publisher: Publisher, *, with_rejects: bool) -> Publication:
    """Write the files that a publication has beside those of the build, and list all of them.

    Args:
        work: an empty folder, which must be there until they are sent.
        with_rejects: with the text of refused rows.

    Raises:
        UsageError: the build is a publication already.
        DataError: a file of it is damaged.
    """
    if build.manifest.published is not None:
        raise UsageError(
            f"{build.folder} is a published copy.", "Publish the build that it was made from."
        )
    publisher = publisher.about(build.manifest)
    _made(build, work, publisher, with_rejects)
    mine = {p.relative_to(work).as_posix() for p in work.rglob("*") if p.is_file()}
    files = {**build.manifest.files, **{n: file_hash.sha256(work / n) for n in sorted(mine)}}
    files[CROISSANT] = describe(build, files, work, publisher)
    record = PublishedRecord(
        of=build.manifest.content_sha256,
        license=publisher.license or None,
        origins=publisher.origins,
        with_rejects=with_rejects,
    )
    manifest = sealed(replace(build.manifest, files=dict(sorted(files.items())), published=record))
    (work / MANIFEST).write_bytes(dump(manifest))
    names = sorted(manifest.files, key=lambda name: _order(manifest, name))
    pieces = [_piece(build.folder, work, name, manifest.files[name]) for name in names]
    last = _piece(build.folder, work, MANIFEST, file_hash.sha256(work / MANIFEST))
    return Publication(manifest, tuple(pieces), last)


def _piece(folder: Path, work: Path, name: str, sha256: str) -> Piece:
    path = work / name if (work / name).is_file() else folder / name
    return Piece(name, path, sha256, path.stat().st_size)


# What a publication has for its readers: the Parquet view and ``croissant.json``.
#
# The view is the examples as text, for people and for viewers of tables: one file a split, one
# example a row, with ``row_id``, the text that its token ids stand for, and how many tokens it has.
# It is for reading; what is trained on are the shards.

FOLDER = "view"
_ROWS = 1024  # examples that are decoded at a time
_CARRIED = ("source", "step_labels", "margin")


def name_of(split: str) -> str:
    """The file of a split, relative to the build."""
    return f"{FOLDER}/{split}.parquet"


def _stretches(labels: np.ndarray[Any, np.dtype[np.int32]]) -> list[tuple[int, int]]:
    """Where trained tokens follow each other: first and past the last."""
    trained = np.concatenate(([False], labels != IGNORED, [False]))
    edges = np.flatnonzero(trained[1:] != trained[:-1])
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _texts(tokenizer: Any, lists: list[list[int]]) -> pa.Array:
    return pa.array(tokenizer.decode_batch(lists, skip_special_tokens=False), pa.string())


def _pairs(table: pa.Table, tokenizer: Any) -> dict[str, pa.Array]:
    """Prompt and both answers; the sides share their first ``prompt_length`` tokens."""
    shared = table.column("prompt_length").to_pylist()
    sides = {name: table.column(f"{name}_ids").to_pylist() for name in ("chosen", "rejected")}
    prompts = [ids[:n] for ids, n in zip(sides["chosen"], shared, strict=True)]
    texts = {"prompt": _texts(tokenizer, prompts)}
    for name, lists in sides.items():
        texts[name] = _texts(tokenizer, [ids[n:] for ids, n in zip(lists, shared, strict=True)])
    counts = (len(a) + len(b) for a, b in zip(*sides.values(), strict=True))
    return {**texts, "tokens": pa.array(counts, pa.int32())}


def _single(table: pa.Table, tokenizer: Any) -> dict[str, pa.Array]:
    """The whole text, and each stretch of it that is trained."""
    ids, labels = (table.column(name).to_pylist() for name in ("input_ids", "labels"))
    spans = [_stretches(np.asarray(row, np.int32)) for row in labels]
    flat = [row[a:b] for row, where in zip(ids, spans, strict=True) for a, b in where]
    offsets = np.cumsum([0, *map(len, spans)]).astype(np.int32)
    trained = pa.ListArray.from_arrays(pa.array(offsets), _texts(tokenizer, flat))
    return {
        "text": _texts(tokenizer, ids),
        "trained": trained,
        "tokens": pa.array(map(len, ids), pa.int32()),
        "trained_tokens": pa.array((sum(b - a for a, b in one) for one in spans), pa.int32()),
    }


def _tables(build: Build, split: str, tokenizer: Any) -> Iterator[pa.Table]:
    """The rows of the view, some at a time."""
    columns = _pairs if tasks.kind_of(build.manifest.task).compares else _single
    for shard in build.splits[split].tables():
        # Columns of a task of the user's own cannot be taken out of a layout.
        known = [name for name in shard.schema.names if name in TYPES or name == "row_ids"]
        single = examples(shard.select(known))
        for start in range(0, len(single), _ROWS):
            table = single.slice(start, _ROWS).combine_chunks()
            kept = {name: table.column(name) for name in _CARRIED if name in table.schema.names}
            found = {"row_id": table.column("row_id"), **columns(table, tokenizer)}
            yield pa.table({**found, **kept})


def write_view(build: Build, work: Path) -> None:
    """Write the view of every split into a folder.

    Raises:
        DataError: a shard or the tokenizer is damaged.
    """
    tokenizer = parsed(build.tokenizer_json)
    (work / FOLDER).mkdir()
    for split in build.splits:
        writer: pq.ParquetWriter | None = None
        for table in _tables(build, split, tokenizer):
            if writer is None:
                writer = pq.ParquetWriter(work / name_of(split), table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()


# ``croissant.json``: the publication in the vocabulary of MLCommons' Croissant 1.0 (JSON-LD).
#
# Its records are those of the Parquet view; the shards are listed as files.


CROISSANT = "croissant.json"
_PARQUET, _ARROW = "application/x-parquet", "application/vnd.apache.arrow.stream"
_TYPES = {pa.string(): "sc:Text", pa.int32(): "sc:Integer", pa.float32(): "sc:Float"}


def _columns(view: Path) -> Iterator[tuple[str, str, bool]]:
    """Name and type of each column of a view, and whether it holds lists of these."""
    for column in pq.read_schema(view):
        repeated = pa.types.is_list(column.type)
        yield column.name, _TYPES[column.type.value_type if repeated else column.type], repeated


def describe(build: Build, files: Mapping[str, str], work: Path, publisher: Publisher) -> str:
    """Write the document into a folder; its sha256.

    Args:
        files: sha256 of the publication's files, by name.
        work: where the Parquet view is.
    """
    manifest, views = build.manifest, {split: name_of(split) for split in build.splits}
    shards = [shard for shard in manifest.shards if shard.path.endswith(".arrow")]
    listed = [(n, files[n], (work / n).stat().st_size, _PARQUET) for n in views.values()]
    listed += [(one.path, one.sha256, one.bytes, _ARROW) for one in shards]
    origins = [*publisher.origins, *(one.get("origin") for one in recorded_sources(manifest))]
    text = (
        templates(Path(__file__).parent)
        .get_template(f"{CROISSANT}.jinja")
        .render(
            m=manifest,
            name=title(manifest, publisher),
            licenses=licenses_of(manifest, publisher),
            origins=list(dict.fromkeys(filter(None, origins))),
            files=listed,
            splits=[(split, view, [*_columns(work / view)]) for split, view in views.items()],
        )
    )
    write_json(work / CROISSANT, json.loads(text))
    return file_hash.sha256(work / CROISSANT)
