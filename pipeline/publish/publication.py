"""The files of a publication, those of the build and those that are made for its readers; and what
came of it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.builds import stored
from pipeline.builds.build import Build
from pipeline.manifest.json_records import dump, sealed
from pipeline.manifest.manifest import MANIFEST, Manifest, PublishedRecord
from pipeline.manifest.records import CONTAMINATED, NEAR_DUPLICATES, REJECTS, REPORT, RUN, Reject
from pipeline.publish import view
from pipeline.report import card, page
from pipeline.report.card import Publisher
from stages.errors import UsageError
from stages.files import file_hash

Report = Callable[[str, int, int], None]  # what is done, how many of it, of how many


@dataclass(frozen=True, slots=True)
class Sent:
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


@dataclass(frozen=True, slots=True)
class Piece:
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


@dataclass(frozen=True, slots=True)
class Publication:
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
    view.write_view(build, work)
    said = [_NO_RUN] if (build.folder / RUN).is_file() else []
    quoting = [name for name in _QUOTES if (build.folder / name).is_file()]  # exports have none
    if quoting and not with_rejects:
        said.append(_NO_TEXTS)
        for name in quoting:
            _unquoted(build.folder / name, work / name, _QUOTES[name])
        quiet = _WithoutTexts(build.folder, build.manifest)
        (work / REPORT).write_bytes(page.make(quiet).encode())
    told = replace(publisher, view=f"{view.FOLDER}/*.parquet", left_out=tuple(said))
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
    files[view.CROISSANT] = view.describe(build, files, work, publisher)
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
