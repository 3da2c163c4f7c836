"""A model as a build has it: what its probes saw, proved now or by a build before; and what the
stages of a task are made from.

A verdict is kept in the cache under a hash of all that it depends on: profile, tokenizer, the
options that probes look at, the versions of the libraries that they ask, and the code. A model that
fails is never kept. A file that is damaged, or of another name, holds no answer; without a writable
cache every answer is found again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from expectations.contract import STREAM, Context
from pipeline import processes, ranges, tasks
from pipeline.inputs.declared import code_version, hash_of, resolved
from pipeline.options.config import Config
from stages import encoders, kinds
from stages.chat_template.render import Renderer
from stages.files import file_hash
from stages.profile import TargetModel, declare
from stages.tokenizers import probes
from stages.tokenizers.resolve import Resolved
from stages.tokens.segment_encoder import SegmentEncoder


def find_model(config: Config) -> tuple[Resolved, TargetModel]:
    """Resolve and bind the model of a build.

    Raises:
        ModelError: there is no such model, or it does not prove what it must.
    """
    found, profile = resolved(config)
    with_steps = tasks.load(config.task).with_steps
    model = declare(profile, found.tokenizer_json, with_steps)
    subject = probes.ProbeSubject(
        model=model,
        stock=found.tokenizer_json,
        train_on=config.source.train_on,
        system=config.source.system,
    )

    def prove() -> Mapping[str, str]:
        for kind in (probes.TOKENS, probes.rendering(model)):
            model.probes.update(probes.require(subject, kind))
        return model.probes

    asked = [config.source.train_on, config.source.system, with_steps]
    depends = [asdict(profile), file_hash.of_content(found.tokenizer_json), asked]
    model.probes.update(_kept(config.run.cache, "probes", depends, prove))
    return found, model


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

    return _kept(cache, "encoders", [file_hash.of_content(tokenizer_json)], choose)["backend"]


def _kept(
    cache: Path, kind: str, subject: Sequence[object], prove: Callable[[], Mapping[str, str]]
) -> Mapping[str, str]:
    """What was proved of a subject, from the cache or now."""
    versions = [encoders.version_of(name) for name in (*encoders.BACKENDS, "jinja2")]
    key = hash_of([kind, subject, versions, code_version()])
    found: Mapping[str, str] = ranges.noted(cache / "proved" / key, lambda: dict(prove()))
    return found


@dataclass(frozen=True, slots=True)
class Tools:
    """What a task's stages are made from."""

    config: Config
    kind: kinds.Kind
    model: TargetModel
    encoder: encoders.Encoder

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.model.profile.family

    @property
    def renderer(self) -> Renderer:
        return Renderer(self.model, self.config.source.train_on, self.config.parts.history)

    @property
    def segment_encoder(self) -> SegmentEncoder:
        config = self.config
        return SegmentEncoder(
            model=self.model,
            encoder=self.encoder,
            max_length=config.plan.longest_example,
            policy=config.parts.too_long,
        )

    @property
    def context(self) -> Context:
        return Context(
            kind=self.kind,
            layout=STREAM,
            max_length=self.config.plan.longest_example,
            model=self.model,
        )
