"""A model as a build has it: what its probes saw, proved now or by a build before.

A verdict is kept in the cache under a hash of all that it depends on: profile, tokenizer, the
options that probes look at, the versions of the libraries that they ask, and the code. A model that
fails is never kept. A file that is damaged, or of another name, holds no answer; without a writable
cache every answer is found again.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import processes, tasks
from pipeline.inputs.declared import resolved
from pipeline.inputs.versions import code_version, hash_of
from pipeline.manifest import json_records
from pipeline.manifest.dataset_files import write_json
from pipeline.options.config import Config
from stages import encoders, probes
from stages.files import file_hash
from stages.profile import ModelProfile, TargetModel, declare
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
    seen = _kept(config.run.cache, "probes", subject, prove)
    if proved:
        return found, proved[0]
    model = declare(profile, found.tokenizer_json, with_steps)
    model.probes.update(seen)
    return found, model


def _bound(config: Config, found: Resolved, profile: ModelProfile, with_steps: bool) -> TargetModel:
    model = probes.bind(profile, found.tokenizer_json, with_steps)
    subject = probes.ProbeSubject(
        model=model,
        stock=found.tokenizer_json,
        train_on=config.source.train_on,
        system=config.source.system,
    )
    model.probes.update(probes.require(subject, probes.rendering(model)))
    return model


def _chosen(tokenizer_json: bytes, _: None) -> str:
    return encoders.choose(tokenizer_json)


def _choose(tokenizer_json: bytes) -> str:
    """``encoders.choose``, by a copy of this process where it can be copied: whoever has encoded
    has threads. Both encoders are loaded here, for all copies."""
    if not processes.forkable():
        return encoders.choose(tokenizer_json)
    with suppress(Exception):  # ``choose`` knows what that means
        for name in encoders.BACKENDS:
            encoders.load(name, tokenizer_json)
    return processes.apart(_chosen, tokenizer_json, None)


def fast_encoder(cache: Path, tokenizer_json: bytes) -> str:
    """``encoders.choose``, which loads both encoders; None is loaded where the answer is kept."""

    def choose() -> Mapping[str, str]:
        return {"backend": _choose(tokenizer_json)}

    backend = _kept(cache, "encoders", [file_hash.of_content(tokenizer_json)], choose).get(
        "backend", ""
    )
    return backend if backend in encoders.BACKENDS else _choose(tokenizer_json)


def _read(folder: Path, key: str) -> dict[str, Any] | None:
    """The answer of this name; None where there is none."""
    try:
        content = json_records.content_of((folder / f"{key}.json").read_bytes())
    except (OSError, ValueError):
        return None
    answer = content.get("answer")
    return answer if content.get("key") == key and isinstance(answer, dict) else None


def _write(folder: Path, key: str, answer: Mapping[str, Any]) -> None:
    """Keep an answer, whole or not at all."""
    temporary = folder / f"{key}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(temporary, json_records.sealed_text({"key": key, "answer": dict(answer)}))
        temporary.replace(folder / f"{key}.json")
    except OSError:
        with suppress(OSError):  # a read-only disk refuses this even where there is no such file
            temporary.unlink()


def _kept(
    cache: Path, kind: str, subject: Sequence[object], prove: Callable[[], Mapping[str, str]]
) -> Mapping[str, str]:
    """What was proved of a subject, from the cache or now."""
    versions = [encoders.version_of(name) for name in (*encoders.BACKENDS, "jinja2")]
    key = hash_of([kind, subject, versions, code_version()])
    folder = cache / "proved"
    found = _read(folder, key)
    if found is not None and all(isinstance(value, str) for value in found.values()):
        return found
    proved = dict(prove())
    _write(folder, key, proved)
    return proved
