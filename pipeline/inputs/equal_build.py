"""Looks for an equal build before anything is made, proved, or even imported."""

import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pipeline import sources
from pipeline.builds import build, failed, limits, publish, stored, versions
from pipeline.builds.place import Place, place_of
from pipeline.inputs.declared import declared_recipe
from pipeline.inputs.scan import Input, located, scan, short_names
from pipeline.manifest import dataset_files
from pipeline.manifest.json_records import problem
from pipeline.manifest.manifest import MANIFEST, Named, id_of_recipe
from pipeline.manifest.records import RUN
from pipeline.options.config import Config
from stages.errors import PipelineError
from stages.files.file_hash import Identity, KnownHashes, identity


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at the output.

    Attributes:
        place: where the build is to be.
        inputs: in the order in which they were named.
        built: the equal build; None where there is none.
    """

    place: Place
    inputs: tuple[Input, ...]
    built: limits.Built | None


def id_of(fingerprint: str, inputs: Sequence[Input]) -> str:
    """Hash of the recipe and its inputs: equal ids, equal shards."""
    return id_of_recipe(fingerprint, [_named(one) for one in inputs])


def planned_id_of(fingerprint: str, inputs: Sequence[Input]) -> str:
    """The same of the versions that were looked at, before all bytes of them are read."""
    return id_of_recipe(fingerprint, [(one.name, one.seen, one.source_name) for one in inputs])


def _named(one: Input) -> Named:
    return one.name, one.sha256, one.source_name


def look(config: Config) -> Look:
    """Look whether the output is what the inputs would give; scan them where it is not.

    Sizes and times of inputs and output are compared first, and only what changed is read. The
    hashes of the rest are those that an earlier look has kept.

    Raises:
        UsageError: the output is not ours to replace, or an input does not exist.
        DataError, SurroundingsError: an input is damaged or not readable.
    """
    place, files, hashes = place_of(config.run), located(config), known_hashes(config)
    # An equal build does not have the pages that --data-docs asks for.
    is_before = config.run.data_docs is None and place.before.exists()

    def equal(inputs: Sequence[Named]) -> build.Build | None:
        return up_to_date(place, *_identify(config, inputs), hashes)

    known = [None if file.version else hashes.of(file.path) for file in files]
    if is_before and all(known):
        sources = [config.sources[file.source].name for file in files]
        there = equal([*zip(short_names(files), map(str, known), sources, strict=True)])
        if there is not None:
            hashes.save()
            return Look(place, (), _built(config, place, there))
    here = [file.path for file in files if file.version is None]
    began, before = time.time_ns(), {path: identity(path) for path in here}
    inputs = tuple(scan(config, files, hash_now=False))
    is_before = is_before and all(one.sha256 for one in inputs)
    there = equal([_named(one) for one in inputs]) if is_before else None
    if there is None:
        return Look(place, inputs, None)
    for one in inputs:
        if one.path in before:
            hashes.note(one.path, one.sha256, before[one.path], began)
    hashes.save()
    return Look(place, inputs, _built(config, place, there))


def known_hashes(config: Config, empty: bool = False) -> KnownHashes:
    """The hashes that are kept of a build's inputs, of what it is made of, and of its files.

    Args:
        empty: begin anew, without those that were kept before.
    """
    return KnownHashes(_hashes_path(config), trusted=not (empty or config.run.verify))


def _hashes_path(config: Config) -> Path:
    target = os.path.realpath(config.run.place)
    name = hashlib.sha256(os.fsencode(target)).hexdigest()
    return config.run.cache / "hashes" / f"{name}.json"


def hashes_before(config: Config) -> KnownHashes:
    """Those that an earlier build has kept, read once in a process: for what asks of every part."""
    path = _hashes_path(config)
    return _read_once(path, not config.run.verify, identity(path) if path.exists() else ())


@functools.lru_cache(maxsize=1)
def _read_once(path: Path, trusted: bool, state: Identity) -> KnownHashes:
    return KnownHashes(path, trusted)


def found_late(config: Config, place: Place, key: str) -> limits.Built | None:
    """The equal build, where the inputs were hashed only when their parts were made.

    Raises:
        UsageError, DataError: see ``_built``.
    """
    hashes = known_hashes(config)
    there = up_to_date(place, key, config.for_build, hashes) if place.before.exists() else None
    return None if there is None else _built(config, place, there)


def _built(config: Config, place: Place, there: build.Build) -> limits.Built:
    """The equal build; where it is another version than the current one, it becomes that.

    Raises:
        UsageError: the current version is of another task or model.
        DataError: it differs more from the current version than it may.
    """
    key, step = there.manifest.build_id, place.retain
    notes: tuple[str, ...] = ()
    if place.versions is not None and place.versions.current() != key:
        guarded = None if config.run.replace else limits.opened(place.before)
        if guarded is not None and place.withdrawn(key):
            what = f"these inputs give version {key[: versions.SHORT]}, which was rolled back"
            stays = "so the current version stays; --replace publishes it again"
            there, step, notes = guarded, lambda: ((), ()), (f"{what}, {stays}",)
        else:
            if guarded is not None:
                model, shown = there.manifest.model.name, place.shown_before
                limits.require_same_kind(guarded.manifest, config.task, model, shown=shown)
                limits.require_within(guarded, there, config.run.drift)
            step = partial(place.turn_to, key)
    built = limits.Built(
        build.Build(place.shown(there.manifest.build_id), there.manifest),
        fresh=False,
        left_out=tuple(sources.left_out(config.data)),
        left_by_tools=() if place.in_store else publish.left_by_tools(there.folder),
        current=place.link,
        notes=notes,
    )
    failed.publishing(built, partial(place.is_published, there.manifest.build_id))
    removed, kept = step()
    built = failed.publishing(replace(built, removed=removed, notes=(*notes, *kept)))
    failed.clear(config.run.place)  # of a build that was refused since
    return built


def _identify(config: Config, inputs: Sequence[Named]) -> tuple[str | None, Mapping[str, object]]:
    """The id of the build to be, and its options; None where the options do not go together, which
    is for ``resolve_recipe`` to say."""
    try:
        fingerprint, options = declared_recipe(config)
        return id_of_recipe(fingerprint, inputs), options
    except PipelineError:
        return None, {}


def up_to_date(
    place: Place, key: str | None, options: Mapping[str, object], hashes: KnownHashes
) -> build.Build | None:
    """The build that is there, if it has this id and every byte of it is there; else None.

    Files that other programs left in it do not count.

    Args:
        options: that it must have, as a manifest has them.

    Raises:
        PipelineError: it has the id, and was made with other options.
    """
    there = None if key is None else _there(place, key, hashes)
    if there is None:
        return None
    wanted, had = json.loads(json.dumps(options)), json.loads(json.dumps(there.manifest.options))
    other = [name for name in sorted({*wanted, *had}) if wanted.get(name) != had.get(name)]
    if other:
        raise PipelineError(
            f"The build {there.shown()} has the id of this one, and other options: "
            f"{', '.join(other)}.",
            "Give another directory with -o, and please report it: this is a bug.",
        )
    return there


def _there(place: Place, key: str, hashes: KnownHashes) -> build.Build | None:
    if place.in_store and place.versions is not None:
        data = place.versions.manifest_of(key)
        return None if data is None else build.Build(place.shown(key), build.read_manifest(data))
    target = place.build(key)
    try:
        there = build.Build.open(target)
        broken = any(problem((target / name).read_bytes()) for name in (MANIFEST, RUN))
        if there.manifest.build_id != key or broken:
            return None
        for one in there.differences(hashes.sha256):
            if one.code != stored.UNKNOWN or not dataset_files.is_one(one.name):
                return None
        return there
    except (PipelineError, OSError):
        return None
