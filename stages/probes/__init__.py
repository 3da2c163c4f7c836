"""One probe per file: each provides PROBE, a claim about a model that is proved before any row.

A build runs every probe and stops at the first that fails; ``pipeline doctor`` runs them all and
shows what each saw. A probe that breaks down in another way counts as failed, never as passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tokenizers import Tokenizer

from stages import catalog, encoders
from stages.encode import SegmentEncoder
from stages.encoders import parsed
from stages.errors import ModelError, PipelineError
from stages.profile import TargetModel
from stages.render import Renderer, template_of
from stages.template import Template
from stages.tokenizers.claims import Claims

TOKENS, TEMPLATE, PAIR = "tokens", "template", "pair"  # what a probe looks at


def rendering(model: TargetModel) -> str:
    """The kind of probes that judge how a model's texts are put together."""
    return PAIR if model.profile.pair else TEMPLATE


class BrokenError(Exception):
    """A claim does not hold; the values are those of the probe's sentence."""

    def __init__(self, **values: object) -> None:
        super().__init__(values)
        self.values = values


@dataclass
class Subject:
    """A model to be proved, and how it will be used.

    Attributes:
        stock: the tokenizer's bytes before anything was added to it.
        claims: what the files of a model directory say themselves.
        wide: look at many texts (``pipeline doctor``), not at a few (every build's start).
    """

    model: TargetModel
    stock: bytes
    train_on: str = "assistant"
    system: str | None = None
    wide: bool = False
    claims: Claims = field(default_factory=Claims)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The reference tokenizer of the build."""
        return parsed(self.model.tokenizer_json)

    @functools.cached_property
    def encoder(self) -> SegmentEncoder:
        """The encoder of the build, by the reference tokenizer."""
        reference = encoders.load("tokenizers", self.model.tokenizer_json)
        return SegmentEncoder(self.model, reference, 1 << 30, "reject")

    @functools.cached_property
    def template(self) -> Template:
        """The chat template of the build."""
        return template_of(self.model)

    @functools.cached_property
    def renderer(self) -> Renderer:
        """The renderer of the build."""
        return Renderer(self.model, self.train_on)


# What was seen; None where the claim does not concern the model.
Check: TypeAlias = Callable[[Subject], "str | None"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One claim.

    Attributes:
        proves: the claim, as a clause.
        fails: what is wrong when it does not hold, with the values of ``BrokenError``.
        remedy: what to do about it.
        needs: probes without which this one has nothing to stand on.
        kind: ``tokens`` are proved by ``bind``, ``template`` once rows can be rendered, and
            ``pair`` in its place for encoders.
    """

    name: str
    proves: str
    fails: str
    remedy: str
    check: Check = field(repr=False)
    needs: tuple[str, ...] = ()
    kind: str = TEMPLATE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe found.

    Attributes:
        passed: None where it was not run, since a probe that it needs has failed.
        detail: what was seen, or the sentence of the failure.
        remedy: empty when it passed.
    """

    passed: bool | None
    detail: str
    remedy: str = ""


def probes() -> list[Probe]:
    """Every probe, by name."""
    return [catalog.load(__name__, name, "PROBE") for name in catalog.names(__name__)]


def _verdict(probe: Probe, subject: Subject) -> Verdict | None:
    try:
        detail = probe.check(subject)
    except BrokenError as error:
        return Verdict(False, f"{probe.fails.format(**error.values)}.", probe.remedy)
    except PipelineError as error:
        message = error.what.removeprefix(f"{subject.model.profile.name}: ")
        return Verdict(False, message, error.remedy or probe.remedy)
    except Exception as error:
        message = f"the probe itself failed: {type(error).__name__}: {error}."
        return Verdict(False, message, probe.remedy)
    return None if detail is None else Verdict(True, detail)


def examine(subject: Subject, kinds: Iterable[str] = ()) -> dict[str, Verdict]:
    """Run every probe of some kinds, those that others need first.

    Args:
        kinds: all that concern the model, unless given.

    Returns:
        What each found, in the order of their names; claims that do not concern the model are
        left out.
    """
    kinds = kinds or (TOKENS, rendering(subject.model))
    known = {probe.name: probe for probe in probes() if probe.kind in kinds}
    results: dict[str, Verdict | None] = {}

    def run(name: str) -> Verdict | None:
        if name not in results:
            probe = known[name]
            broken = [n for n in probe.needs if n in known and not _holds(run(n))]
            if broken:
                results[name] = Verdict(None, f"not run: {', '.join(broken)} failed.")
            else:
                results[name] = _verdict(probe, subject)
        return results[name]

    verdicts = {name: run(name) for name in known}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}


def _holds(verdict: Verdict | None) -> bool:
    return verdict is None or verdict.passed is True


def require(subject: Subject, kind: str) -> dict[str, str]:
    """Prove all claims of a kind.

    Returns:
        What was seen, by probe.

    Raises:
        ModelError: one does not hold.
    """
    verdicts = examine(subject, (kind,))
    for verdict in verdicts.values():
        if verdict.passed is False:
            name = subject.model.profile.name
            raise ModelError(f"{name}: {verdict.detail}", verdict.remedy)
    return {name: verdict.detail for name, verdict in verdicts.items()}
