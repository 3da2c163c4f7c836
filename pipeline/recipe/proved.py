"""A model as a build has it: what its probes saw, proved now or by a build before.

A verdict is kept in the cache under a hash of all that it depends on: profile, tokenizer, the
options that probes look at, the versions of the libraries that they ask, and the code. One that is
damaged, or of another key, is none: then the probes run. A model that fails is never kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pipeline import tasks
from pipeline.manifest import seal
from pipeline.manifest.dataset_files import write_json
from pipeline.options.config import Config
from pipeline.recipe.declared import resolved
from pipeline.recipe.fingerprints import code_version, hash_of
from stages import probes
from stages.binding import bind
from stages.files import file_hash
from stages.models import encoders
from stages.models.profile import ModelProfile, TargetModel, declare
from stages.tokenizers.resolve import Resolved


def find_model(config: Config) -> tuple[Resolved, TargetModel]:
    """Resolve and bind the model of a build.

    Raises:
        ModelError: there is no such model, or it does not prove what it must.
    """
    found, profile = resolved(config)
    with_steps = tasks.load(config.task).with_steps
    proved: list[TargetModel] = []

    def prove() -> Mapping[str, str]:
        proved.append(_bound(config, found, profile, with_steps))
        return proved[0].probes

    asked = [config.source.train_on, config.source.system, with_steps]
    subject = [asdict(profile), file_hash.of_content(found.tokenizer_json), asked]
    seen = _kept(config.run.cache_dir, "probes", subject, prove)
    if proved:
        return found, proved[0]
    model = declare(profile, found.tokenizer_json, with_steps)
    model.probes.update(seen)
    return found, model


def _bound(config: Config, found: Resolved, profile: ModelProfile, with_steps: bool) -> TargetModel:
    model = bind(profile, found.tokenizer_json, with_steps)
    subject = probes.ProbeSubject(
        model=model,
        stock=found.tokenizer_json,
        train_on=config.source.train_on,
        system=config.source.system,
    )
    model.probes.update(probes.require(subject, probes.rendering(model)))
    return model


def fast_encoder(cache: Path, tokenizer_json: bytes) -> str:
    """``encoders.choose``, which loads both encoders; None is loaded where the answer is kept."""

    def choose() -> Mapping[str, str]:
        return {"backend": encoders.choose(tokenizer_json)}

    backend = _kept(cache, "encoders", [file_hash.of_content(tokenizer_json)], choose).get(
        "backend", ""
    )
    return backend if backend in encoders.BACKENDS else encoders.choose(tokenizer_json)


def _kept(
    cache: Path, kind: str, subject: Sequence[object], prove: Callable[[], Mapping[str, str]]
) -> Mapping[str, str]:
    """What was proved of a subject, from the cache or now."""
    versions = [encoders.version_of(name) for name in (*encoders.BACKENDS, "jinja2")]
    key = hash_of([kind, subject, versions, code_version()])
    path = cache / "proved" / f"{key}.json"
    found = _read(path, key)
    if found is not None:
        return found
    proved = dict(prove())
    temporary = path.with_name(f"{key}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(temporary, seal.sealed({"key": key, "proved": proved}))
        temporary.replace(path)
    except OSError:  # without a writable cache it is proved again each time
        with suppress(OSError):  # a read-only disk refuses this even where there is no such file
            temporary.unlink()
    return proved


def _read(path: Path, key: str) -> dict[str, str] | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if seal.problem(data) is not None:
        return None
    content = json.loads(data)
    proved = content.get("proved")
    if content.get("key") != key or not isinstance(proved, dict):
        return None
    return proved if all(isinstance(value, str) for value in proved.values()) else None
