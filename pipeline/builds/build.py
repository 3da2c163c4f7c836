"""``Build``: a finished build, or an export of one, as one typed object. ::

build = Build.open("DIR")
build.manifest.rows.used
for table in build.splits["train"].tables():
    table.column("input_ids")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

from pipeline import exports
from pipeline.builds import stored
from pipeline.builds.place import Whereabouts, found
from pipeline.manifest import records
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    Header,
    Manifest,
    ShardRecord,
    SplitRecord,
)
from stages import findings
from stages.errors import DataError, UsageError, require_reading
from stages.files import file_hash
from stages.late import pa

_R = TypeVar("_R", bound=findings.JsonRecord)


def read_manifest(data: bytes) -> Manifest:
    """A manifest from its bytes.

    Raises:
        MalformedError: naming the key that is missing or of another type.
        UsageError: a newer version wrote it, in a schema that this one does not know.
    """
    # Only the header is sure to be readable: a newer schema may lack any other key.
    header = load(Header, data)
    if header.schema_version > SCHEMA_VERSION:
        raise UsageError(
            f"The build was made by version {header.version} in schema {header.schema_version}; "
            f"this version reads {SCHEMA_VERSION}.",
            "Install that version or a newer one: pip install --upgrade posttrain-pipeline",
        )
    return load(Manifest, data)


@dataclass(frozen=True)
class StoredShard:
    """One shard of a split.

    Attributes:
        record: its path in the build, rows, tokens, bytes and sha256.
    """

    build: Build = field(repr=False)
    record: ShardRecord

    @property
    def path(self) -> Path:
        """Where it lies on this machine: of a build in a store, its copy."""
        return self.build.path(self.record.path)

    def table(self) -> pa.Table:
        """Its rows in our columns (``manifest.columns``), whatever it is stored in.

        Ids and labels are list<int32>, labels -100 where not trained; ``row_id`` is string;
        ratings and loss weights are list<float32>. Memory-mapped, but for exports to other columns.

        Raises:
            DataError: it is missing or damaged.
            SurroundingsError: it may not be read.
        """
        return self._read(self.build.projection)

    def trainer_table(self) -> pa.Table:
        """Its rows as they are stored: an export's are in its trainer's columns.

        Raises:
            DataError: it is missing or damaged.
            SurroundingsError: it may not be read.
        """
        return self._read(None)

    def _read(self, projection: exports.Projection | None) -> pa.Table:
        path = self.path
        if projection is not None:
            self.build.path(stored.lineage_of(self.record.path))
        try:
            return stored.read(self.build.here, self.record.path, projection)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            require_reading(error)
            what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise DataError(f"{path} cannot be read: {what}.", "Build it again.") from error


@dataclass(frozen=True)
class StoredSplit:
    """``train`` or ``test``.

    Attributes:
        record: rows (packs, where they are packed), examples and tokens.
    """

    name: str
    record: SplitRecord = field(repr=False)
    shards: tuple[StoredShard, ...]

    def tables(self) -> Iterator[pa.Table]:
        """The shards in our columns, in order, one at a time; raises as ``Shard.table`` does."""
        return (shard.table() for shard in self.shards)


@dataclass(frozen=True)
class Build(Whereabouts):
    """A finished build, or an export; its files are read when they are asked for.

    Attributes:
        folder: where it lies: a folder, or an address in a store, as a path (``shown`` prints it).
        manifest: all that ``manifest.json`` says.
    """

    folder: Path
    manifest: Manifest = field(repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The build in a folder, or at an address in a store. Its files are not compared with their
        hashes (``require_intact``); those in a store are, when they are fetched.

        The link to the current version is followed once, here: what is read later is of the same
        version, whichever is current then.

        Raises:
            UsageError: the folder holds no build, or one in a newer schema.
            DataError: its manifest is damaged; the key is named. Or a file of it is a link.
            SurroundingsError: it may not be read.
        """
        place, data = found(folder)
        try:
            build = cls(place, read_manifest(data))
        except MalformedError as error:
            raise _damaged(str(place / MANIFEST), folder, error) from error
        for name in () if build.address else stored.links(place, build.manifest.files):
            raise DataError(
                f"{place / name} is a link, or in a linked folder, so it is not the build's own.",
                f"Put the file itself there (cp -RL {place} COPY copies all), or build again.",
            )
        return build

    def fetched(self) -> Build:
        """The same build with all its files on this machine; raises as ``path`` does."""
        if not self.address:
            return self
        for name in (*self.manifest.files, MANIFEST):
            self.path(name)
        return Build(self.here, self.manifest)

    @cached_property
    def splits(self) -> Mapping[str, StoredSplit]:
        """``train``, and ``test`` where the build has one."""
        return {
            name: StoredSplit(name, record, tuple(StoredShard(self, one) for one in record.shards))
            for name, record in self.manifest.splits.items()
        }

    @property
    def tokenizer(self) -> Path:
        """The folder that ``AutoTokenizer.from_pretrained`` takes."""
        for name in self.manifest.files:
            if name.startswith(f"{records.TOKENIZER}/"):
                self.path(name)
        return self.here / records.TOKENIZER

    @cached_property
    def tokenizer_json(self) -> bytes:
        """The tokenizer's own file.

        Raises:
            DataError: it is missing.
        """
        return self._bytes(f"{records.TOKENIZER}/tokenizer.json")

    @cached_property
    def run(self) -> records.RunRecord:
        """``run.json``: when, where and how it was made; exports have none.

        Raises:
            DataError: it is missing or damaged; so of the files below.
        """
        return self._record(records.RunRecord, records.RUN)

    @cached_property
    def serving(self) -> records.Serving:
        """``serving.json``: the stop contract."""
        return self._record(records.Serving, records.SERVING)

    @cached_property
    def validation(self) -> findings.Validation:
        """``validation.json``: the verdict of the expectations; an export has its build's."""
        return self._record(findings.Validation, records.VALIDATION)

    @cached_property
    def audits(self) -> findings.Audits:
        """``audits.json``: what the audits measured; exports have none."""
        return self._record(findings.Audits, records.AUDITS)

    def rejects(self) -> Iterator[records.Reject]:
        """The refused rows, in input order, one at a time; exports have none.

        Raises:
            DataError: ``rejects.jsonl`` is missing or damaged; the line is named.
        """
        return self._lines(records.Reject, records.REJECTS)

    def contaminated(self) -> Iterator[records.Hit]:
        """What was left out for a question of an evaluation file, in input order, one at a time.

        Raises:
            DataError: ``contaminated.jsonl`` is missing or damaged; the line is named.
        """
        asked = self.manifest.decontamination is not None
        return self._lines(records.Hit, records.CONTAMINATED) if asked else iter(())

    def near_duplicates(self) -> Iterator[records.NearDuplicate]:
        """What was left out for an example that is like it, in input order, one at a time.

        Raises:
            DataError: ``near_duplicates.jsonl`` is missing or damaged; the line is named.
        """
        asked = self.manifest.near_duplicates is not None
        return self._lines(records.NearDuplicate, records.NEAR_DUPLICATES) if asked else iter(())

    def _lines(self, kind: type[_R], name: str) -> Iterator[_R]:
        try:
            with self.path(name).open("rb") as lines:
                for at, line in enumerate(lines, 1):
                    try:
                        yield load(kind, line)
                    except MalformedError as error:
                        raise _damaged(self.shown(f"{name}:{at}"), self.shown(), error) from error
        except OSError as error:
            raise _missing(self.shown(name), self.shown(), error) from error

    def differences(
        self, sha256: Callable[[Path], str] = file_hash.sha256
    ) -> Iterator[stored.Difference]:
        """Files that are missing, changed, or not named by the manifest.

        Args:
            sha256: gives the hash of a file; by default every file is read.
        """
        return stored.differences(self.fetched().folder, self.manifest.files, sha256)

    def require_intact(self) -> Build:
        """The build itself, when every file that its manifest names is what was written.

        Raises:
            DataError: a file is missing or has changed.
        """
        for one in self.differences():
            if one.code != stored.UNKNOWN:  # a file that somebody added changes no row
                what = "has changed since" if one.code == stored.HASH else "is missing from"
                raise DataError(f"{self.shown(one.name)} {what} the build.", "Build it again.")
        return self

    @cached_property
    def facts(self) -> exports.ExportFacts:
        """What a trainer's export may know of it.

        Raises:
            DataError: its tokenizer is missing.
        """
        # The manifest has no tokenizer bytes, and exports of text need them to encode again.
        return replace(exports.facts_of(self.manifest), tokenizer_json=self.tokenizer_json)

    @cached_property
    def projection(self) -> exports.Projection | None:
        """Between our columns and those of an export; None where they are ours.

        Raises:
            UsageError: there is no such trainer here.
        """
        made_for = self.manifest.export
        return exports.load(made_for.trainer).projection(self.facts) if made_for else None

    def _bytes(self, name: str) -> bytes:
        try:
            return self.path(name).read_bytes()
        except OSError as error:
            raise _missing(self.shown(name), self.shown(), error) from error

    def _record(self, kind: type[_R], name: str) -> _R:
        try:
            return load(kind, self._bytes(name))
        except MalformedError as error:
            raise _damaged(self.shown(name), self.shown(), error) from error


def _missing(file: str, build: str, error: OSError) -> DataError:
    require_reading(error)
    return _broken(f"{file} cannot be read: {error.strerror}.", build)


def _damaged(file: str, build: str | Path, error: MalformedError) -> DataError:
    return _broken(f"{file} is damaged: {error}.", build)


def _broken(what: str, build: str | Path) -> DataError:
    return DataError(what, f"Build it again; pipeline check {build} says what else differs.")
