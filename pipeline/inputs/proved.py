"""A model as a build has it: what its probes saw, proved now or by a build before.

A verdict is kept in the cache under a hash of all that it depends on: profile, tokenizer, the
options that probes look at, the versions of the libraries that they ask, and the code. A model that
fails is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline import processes, tasks
from pipeline.inputs import kept_answers
from pipeline.inputs.declared import resolved
from pipeline.inputs.fingerprints import code_version, hash_of
from pipeline.job import JOB
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


def _kept(
    cache: Path, kind: str, subject: Sequence[object], prove: Callable[[], Mapping[str, str]]
) -> Mapping[str, str]:
    """What was proved of a subject, from the cache or now."""
    versions = [encoders.version_of(name) for name in (*encoders.BACKENDS, "jinja2")]
    key = hash_of([kind, subject, versions, code_version()])
    folder = cache / "proved"
    found = kept_answers.read(folder, key)
    if found is not None and all(isinstance(value, str) for value in found.values()):
        return found
    proved = dict(prove())
    kept_answers.write(folder, key, proved)
    return proved
