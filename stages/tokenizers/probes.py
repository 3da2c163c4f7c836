"""Probes: checks of the model before any row is processed. A module beside this has those of one
subject, PROBES.

A build runs every probe and stops at the first that fails; ``pipeline doctor`` runs them all and
shows what each saw. A probe that raises any other error counts as failed, never as passed.
"""

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tokenizers import Tokenizer

from stages import catalog, encoders
from stages.chat_template import reasoning, ways
from stages.chat_template.printed_fields import printed_fields
from stages.chat_template.render import Renderer, Row, exchange, template_of
from stages.chat_template.template import Template
from stages.encoders import parsed
from stages.errors import ModelError, PipelineError, RowError
from stages.profile import ModelProfile, TargetModel, declare
from stages.tokenizers.claims import Claims
from stages.tokens.segment_encoder import SegmentEncoder

MEMBERS = {
    "added_tokens": "stages.tokenizers.added_token_probes",
    "forged_text": "stages.tokenizers.added_token_probes:FORGED",
    "lost_text": "stages.tokenizers.added_token_probes:LOST_TEXT",
    "templates": "stages.tokenizers.template_probes",
    "tokens": "stages.tokenizers.token_probes",
}

TOKENS, TEMPLATE, PAIR = "tokens", "template", "pair"  # what a probe looks at


def rendering(model: TargetModel) -> str:
    """The kind of probes that check how a model's texts are rendered."""
    return PAIR if model.profile.pair else TEMPLATE


class BrokenError(Exception):
    """A check fails; the values fill in the probe's sentence ``fails``."""

    def __init__(self, **values: object) -> None:
        super().__init__(values)
        self.values = values


@dataclass
class ProbeSubject:
    """The model to be checked, and how it will be used.

    Attributes:
        stock: the tokenizer's bytes before anything was added to it.
        claims: what the files of a model directory declare.
        wide: try many texts (``pipeline doctor``), not only a few (start of every build).
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
        return SegmentEncoder(self.model, reference, max_length=1 << 30, policy="reject")

    @functools.cached_property
    def template(self) -> Template:
        """The chat template of the build."""
        return template_of(self.model)

    @functools.cached_property
    def _renderer(self) -> Renderer:
        return Renderer(self.model, self.train_on)

    @functools.cached_property
    def thought(self) -> dict[str, str]:
        """Fields of every answer: reasoning, where the template's prompt opens some."""
        name = reasoning.spelled_by(printed_fields(self.template.source))
        try:
            self._renderer(exchange("x", "y"))
        except RowError as error:
            if error.code == ways.UNPROMPTED and name is not None:
                return {name: "A thought."}
        return {}

    def renderer(self, row: Row) -> tuple[list[str], bytes, str]:
        """A row as the build renders it; its answers have reasoning where they must."""
        return self._renderer(row.with_answers(self.thought) if self.thought else row)


# Returns what was seen; None where the check does not apply to the model.
Check: TypeAlias = Callable[[ProbeSubject], "str | None"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One check.

    Attributes:
        proves: what holds when it passes, as a clause.
        fails: what is wrong when it fails; a format string for the values of ``BrokenError``.
        remedy: what to do about it.
        needs: probes that must pass first, or this one means nothing.
        kind: ``tokens`` run in ``bind``, ``template`` when rows can be rendered, and ``pair``
            instead of ``template`` for encoders.
    """

    name: str
    proves: str
    fails: str
    remedy: str
    check: Check = field(repr=False)
    needs: tuple[str, ...] = ()
    kind: str = TEMPLATE


class ProbeVerdict(NamedTuple):
    """The result of a probe.

    Attributes:
        passed: None where it was not run because a probe that it needs has failed.
        detail: what was seen, or the sentence of the failure.
        remedy: empty when it passed.
    """

    passed: bool | None
    detail: str
    remedy: str = ""


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("probes.toml").read_text("utf-8"))


class Probes(list[Probe]):
    """The probes of one subject; a function becomes one of them where ``add`` stands above it.

    Args:
        kind: of those that name none.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def add(self, check: Check) -> Probe:
        """The probe that a function checks: its name and its docstring are those of the probe, and
        ``probes.toml`` has what is said where it fails."""
        said = {"kind": self._kind, **_table()[check.__name__]}
        said["needs"] = tuple(said.get("needs", ()))
        sentence = " ".join((check.__doc__ or "").split()).removesuffix(".")
        proves = sentence[:1].lower() + sentence[1:]
        self.append(Probe(check.__name__, proves, check=check, **said))
        return self[-1]


def probes() -> list[Probe]:
    """Every probe, by name; an entry point may be one of them, or several."""
    given = [catalog.load(__name__, name, "PROBES") for name in catalog.names(__name__)]
    every = [probe for one in given for probe in ((one,) if isinstance(one, Probe) else one)]
    return sorted(every, key=lambda probe: probe.name)


def _verdict(probe: Probe, subject: ProbeSubject) -> ProbeVerdict | None:
    try:
        detail = probe.check(subject)
    except BrokenError as error:
        return ProbeVerdict(False, f"{probe.fails.format(**error.values)}.", probe.remedy)
    except PipelineError as error:
        message = error.what.removeprefix(f"{subject.model.profile.name}: ")
        return ProbeVerdict(False, message, error.remedy or probe.remedy)
    except Exception as error:
        message = f"the probe itself failed: {type(error).__name__}: {error}."
        return ProbeVerdict(False, message, probe.remedy)
    return None if detail is None else ProbeVerdict(True, detail)


def examine(subject: ProbeSubject, kinds: Iterable[str] = ()) -> dict[str, ProbeVerdict]:
    """Run every probe of some kinds; probes that others need come first.

    Args:
        kinds: by default all that apply to the model.

    Returns:
        Results in the order of the probes' names; probes that do not apply to the model are left
        out.
    """
    kinds = kinds or (TOKENS, rendering(subject.model))
    known = {probe.name: probe for probe in probes() if probe.kind in kinds}
    results: dict[str, ProbeVerdict | None] = {}

    def run(name: str) -> ProbeVerdict | None:
        if name not in results:
            needs = [need for need in known[name].needs if need in known]
            broken = ", ".join(need for need in needs if not _holds(run(need)))
            unrun = ProbeVerdict(None, f"not run: {broken} failed.")
            results[name] = unrun if broken else _verdict(known[name], subject)
        return results[name]

    verdicts = {name: run(name) for name in known}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}


def _holds(verdict: ProbeVerdict | None) -> bool:
    return verdict is None or verdict.passed is True


def require(subject: ProbeSubject, kind: str) -> dict[str, str]:
    """Run all probes of a kind.

    Returns:
        What was seen, by probe.

    Raises:
        ModelError: one fails.
    """
    verdicts = examine(subject, (kind,))
    for verdict in verdicts.values():
        if verdict.passed is False:
            name = subject.model.profile.name
            raise ModelError(f"{name}: {verdict.detail}", verdict.remedy)
    return {name: verdict.detail for name, verdict in verdicts.items()}


# What was found of a chat template, by the probes that tell of it.
_OF_TEMPLATES = (
    "earlier_turns_stay turns_survive reasoning_survives tools_survive end_of_turn_is_one_token"
).split()


def of_template(seen: Mapping[str, str]) -> str:
    """What was found of a chat template, in one line; empty for a model that has none.

    Args:
        seen: details by probe; the reason of a refusal, behind its colon, is left to the probe.
    """
    found = [seen[name].partition(": ")[0] for name in _OF_TEMPLATES if name in seen]
    return "; ".join(found) if _OF_TEMPLATES[0] in seen else ""


def bind(profile: ModelProfile, tokenizer_json: bytes, with_steps: bool) -> TargetModel:
    """The model of a profile, once what the profile declares of tokens holds for the tokenizer.

    Raises:
        ModelError: a token is not one id, not the id that the family has, lies outside the
            embedding, or two that must differ are the same.
    """
    model = declare(profile, tokenizer_json, with_steps)
    model.probes.update(require(ProbeSubject(model, tokenizer_json), TOKENS))
    return model
