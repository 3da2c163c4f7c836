"""Every probe over one model, and how a server has to stop it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import tasks
from pipeline.serving import serving
from stages import probes
from stages.profile import TargetModel, declare
from stages.tokenizers import claims
from stages.tokenizers.resolve import Overrides, resolve


@dataclass(frozen=True, slots=True)
class ExaminedModel:
    """A model, the verdict of each probe, and where its tokenizer came from."""

    model: TargetModel
    source: str
    verdicts: dict[str, probes.ProbeVerdict]

    @property
    def sound(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts.values())


@dataclass(frozen=True, slots=True)
class ModelToExamine:
    """The model to examine; names as on the command line."""

    model: str
    task: str
    cache_dir: Path
    chat_template: str | None = None
    eos: str | None = None
    date: str | None = None
    system: str | None = None
    train_on: str = "assistant"
    fetch: bool = False


def examine(wanted: ModelToExamine, wide: bool = True) -> ExaminedModel:
    """Run every probe.

    Args:
        wide: run them on many texts; otherwise on the few that each build runs them on.

    Raises:
        ModelError: there is no such model, or its files do not describe one.
    """
    overrides = Overrides(wanted.chat_template, wanted.eos, wanted.date)
    resolved = resolve(wanted.model, wanted.cache_dir, overrides, fetch=wanted.fetch)
    with_steps = tasks.load(wanted.task).with_steps and resolved.profile.pair is None
    model = declare(resolved.profile, resolved.tokenizer_json, with_steps)
    subject = probes.ProbeSubject(
        model,
        stock=resolved.tokenizer_json,
        train_on=wanted.train_on,
        system=wanted.system,
        wide=wide,
    )
    folder = Path(wanted.model).expanduser()
    if resolved.source == "directory" and folder.is_dir():
        subject = replace(subject, claims=claims.read(folder))
    return ExaminedModel(model, resolved.source, probes.examine(subject))


def described(examined: ExaminedModel, stops: tuple[str, ...]) -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    return {
        "model": examined.model.profile.name,
        "tokenizer": examined.source,
        "passed": examined.sound,
        "probes": {
            name: {"passed": v.passed, "detail": v.detail, "remedy": v.remedy}
            for name, v in examined.verdicts.items()
        },
        "serving": serving.contract(examined.model, stops) if examined.sound else None,
    }
