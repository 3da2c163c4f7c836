"""A model as a build has it: what its probes saw, proved now or by a build before.

A verdict is kept in the cache under a hash of all that it depends on: profile, tokenizer, the
options that probes look at, the versions of the libraries that they ask, and the code. A model that
fails is never kept. A file that is damaged, or of another name, holds no answer; without a writable
cache every answer is found again.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from pipeline import processes, tasks
from pipeline.executors import JOB
from pipeline.inputs.declared import resolved
from pipeline.inputs.versions import code_version, hash_of
from pipeline.manifest import json_records
from pipeline.manifest.dataset_files import write_json
from pipeline.options.config import Config
from stages import encoders, probes
from stages.encoders import Fast, Reference, load, parsed
from stages.files import file_hash
from stages.profile import ModelProfile, TargetModel, declare, tokenizer_of
from stages.tokenizers import builtin
from stages.tokenizers.profiles import named
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


@dataclass(frozen=True, slots=True)
class _Trial:
    """Both encoders, to be compared where workers come from, which load them anyway."""

    tokenizer_json: bytes

    def load(self) -> None:
        """Load them without encoding: the copy that encodes has threads of its own."""
        with suppress(Exception):  # ``choose`` knows what that means
            for name in encoders.BACKENDS:
                encoders.load(name, self.tokenizer_json)


def _chosen(trial: _Trial, _: None) -> str:
    return encoders.choose(trial.tokenizer_json)


def _choose(tokenizer_json: bytes) -> str:
    """``encoders.choose``, in a worker where there are some: this process encodes little."""
    if processes.copied is None:
        return encoders.choose(tokenizer_json)
    ((_, backend),) = processes.copied(_chosen, _Trial(tokenizer_json), [None], 1, job=JOB)
    return str(backend)


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


# Parses a build's tokenizer while the program is still being imported, and loads encoders where
# workers come from while the build is prepared.
#
# The library that parses lets other threads run meanwhile. What is found here is only kept for
# whoever asks for it: nothing depends on it, and no error is reported.


FAST_FROM = 1 << 20  # bytes of inputs: fewer are encoded sooner than the fast encoder is loaded


@contextmanager
def tokenizer(config: Config) -> Iterator[None]:
    """Until the block ends, a thread parses the tokenizer of a built-in profile, if the cache has
    it. No other process may be forked meanwhile."""
    profile = _built_in(config)
    if profile is None:
        yield
        return
    # Only here: two threads that import modules which import each other would meet half of one.
    importlib.import_module("tokenizers")
    thread = Thread(target=_parse, args=(config, profile))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def load_encoders(config: Config, fast: bool) -> None:
    """Load the encoders of a built-in profile, if the cache has its tokenizer; nothing is encoded,
    which would leave a thread behind.

    Args:
        fast: there is so much to encode that the fast one will be wanted.
    """
    profile = _built_in(config)
    content = None if profile is None else _content(config, profile)
    if content is not None:
        load(Reference.name, content)
        if fast:
            load(Fast.name, content)


def _built_in(config: Config) -> ModelProfile | None:
    """The profile whose tokenizer follows from its name; None where it takes more to know it."""
    profile = named(config.parts.model)
    known = profile is not None and profile.ranks is not None and not config.parts.add_token
    return profile if known else None


def _content(config: Config, profile: ModelProfile) -> bytes | None:
    """The tokenizer as the build will have it; None where the cache does not have it."""
    assert profile.ranks is not None
    content = builtin.kept(profile.ranks, config.run.cache)
    with_steps = tasks.load(config.task).with_steps
    return None if content is None else tokenizer_of(profile, content, with_steps)


def _parse(config: Config, profile: ModelProfile) -> None:
    with suppress(Exception):
        content = _content(config, profile)
        if content is not None:
            parsed(content)
