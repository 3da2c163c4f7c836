"""A build's options, each in the phase that it decides about; checked once, frozen.

A part is named by a hash of ``source`` and ``parts``, and of the longest example that ``plan`` has
room for. A build's recipe is a hash of ``source``, ``parts``, ``plan`` and ``judge``. What is in
``run`` enters neither. A new option is one field here, and its line in ``command_line``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from stages import layouts
from stages.errors import UsageError
from stages.kinds import Kind
from stages.rows.selection import condition

_AS = "recorded as"  # metadata of a field: how its value is written down, where not as it is
_NAMED = {
    _AS: None
}  # not at all: a name or a path, in whose place the hash of what it names counts


def _hashed(files: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    """Names and texts of files, recorded as names and hashes."""
    return [
        {"file": name, "sha256": hashlib.sha256(text.encode()).hexdigest()} for name, text in files
    ]


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/posttrain-pipeline``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "posttrain-pipeline"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How rows are read into examples: what may differ between two inputs.

    Parts depend on all of it but the spelling of ``data``: an input counts by its name among the
    others and by the hash of its bytes.
    """

    data: tuple[str, ...] = field(metadata=_NAMED)
    format: str = "auto"
    map: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    null_fields: str | None = None
    system: str | None = None
    train_on: str = "assistant"
    neutral: str = "null"
    prompt_separator: str = "Step 1:"
    step_tag: str | None = None
    salvage: bool = False
    already_templated: bool = False
    stop_text: str = "reject"
    reasoning_in: str = "template"
    reasoning: str = "keep"

    def __post_init__(self) -> None:
        for text in self.where:
            condition(text)  # raises where it cannot be read
        if self.reasoning == "mask" and self.train_on == "all":
            raise UsageError(
                "--reasoning mask is not for --train-on all.",
                "Leave --train-on all out, or use --reasoning strip.",
            )


@dataclass(frozen=True, slots=True)
class PartOptions:
    """How examples become token ids and labels: what parts depend on beside their source.

    The spelling of ``model`` does not count, since it may be a path: its profile and the bytes of
    its tokenizer do.
    """

    task: str
    model: str = field(metadata=_NAMED)
    too_long: str = "reject"
    chat_template: str | None = None  # the template's source, not its file
    eos: str | None = None
    date: str | None = None
    prm_template: str = "chat"
    thinking: str = "auto"
    add_token: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        trims = self.kind.trims
        if self.too_long not in ("reject", f"trim-{trims}"):
            known = f"Use --too-long trim-{trims}." if trims else "Leave it out."
            raise UsageError(f"--too-long {self.too_long} is not for {self.task}.", known)
        if self.thinking != "auto" and self.kind.marks:
            raise UsageError(f"--thinking is not for {self.task}.", "Leave it out.")

    @property
    def kind(self) -> Kind:
        """Of the task's examples."""
        from pipeline import tasks  # they are made from a Config

        return tasks.kind_of(self.task)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How encoded examples become shards, and what is written beside these.

    Another plan of the same parts encodes nothing again, unless it has room for other lengths.
    """

    layout: str = ""  # the first that task and trainer have in common
    trainer: str = ""  # --for
    padding_side: str = ""  # the family's own: left, encoders right
    pad_to: str = "longest"
    pack_within: str = "build"
    max_length: int = 4096
    stop: tuple[str, ...] = ()
    dedup: bool = False
    test_size: float = 0.0
    shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise UsageError(f"--max-length {self.max_length} is too small.", "Give at least 8.")
        number = int(self.pad_to) if self.pad_to.isascii() and self.pad_to.isdigit() else 0
        if self.pad_to not in ("longest", "max-length") and number < 8:
            raise UsageError(
                f"--pad-to must be a width, not {self.pad_to!r}.",
                "Give longest, max-length or a number of tokens, at least 8.",
            )
        if self.pack_within not in ("build", "part"):
            raise UsageError(
                f"--pack-within must be build or part, not {self.pack_within!r}.",
                "Leave it out to pack the whole build at once.",
            )
        if self.pack_within == "part" and self.layout and not layouts.load(self.layout).packs:
            raise UsageError(
                f"--pack-within part is not for layout {self.layout}.", "Leave it out."
            )
        if not all(self.stop):
            raise UsageError("--stop is empty.", "Give the text at which a server must stop.")
        whole = self.test_size < 1 or float(self.test_size).is_integer()
        if not (0 <= self.test_size < 2**53 and whole):  # NaN included
            raise UsageError(
                f"--test-size must be a share or a number of rows, not {self.test_size}.",
                "Give a share below 1, or a number of rows.",
            )

    @property
    def longest_example(self) -> int:
        """Tokens that an example may have: a fixed width below ``--max-length`` binds too.

        Longer ones are refused or trimmed when they are encoded, so parts depend on it.
        """
        if not self.layout:  # it is still to be chosen
            return self.max_length
        return layouts.load(self.layout).room(self.pad_to, self.max_length)


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What a build is held to before it is published; no row of a shard depends on it."""

    max_reject: float = 0.01
    empty: str = "refuse"  # an empty file among others
    tolerance: Mapping[str, float] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    expectations: tuple[tuple[str, str], ...] = field(default=(), metadata={_AS: _hashed})

    def __post_init__(self) -> None:
        if not 0 <= self.max_reject <= 1:
            raise UsageError(f"--max-reject must be between 0 and 1, not {self.max_reject}.")
        for name, limit in self.drift.items():
            if name not in DRIFTS or not 0 <= limit < float("inf"):
                raise UsageError(
                    f"--drift {name}={limit:g} is not a limit.",
                    f"Name {', '.join(DRIFTS)} and a share, as in --drift rows=0.2.",
                )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where and how the work is done: no byte of a build depends on it."""

    output: Path
    keep: int = 0  # versions under a link; 0: the output is the build
    replace: bool = False  # whatever is there, as long as it is a build
    workers: int = 0
    engine: str = "local"
    cache_dir: Path = field(default_factory=default_cache)
    data_docs: Path | None = None  # where Great Expectations' own pages go
    verify: bool = False  # hash every file of an equal build, whatever its size and times say

    @property
    def processes(self) -> int:
        """How many a build may use: ``--workers``, or one for each core."""
        if self.workers:
            return self.workers
        known = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


DRIFTS = ("rows", "trained_tokens", "source_share")  # numbers that --drift limits

PHASES: dict[str, type[Any]] = {
    "source": SourceOptions,
    "parts": PartOptions,
    "plan": PlanOptions,
    "judge": JudgeOptions,
    "run": RunOptions,
}
PHASE_OF = {option.name: phase for phase, kind in PHASES.items() for option in fields(kind)}

# The order of a manifest's first options. Files that were written keep their order of keys, so this
# is never changed; an option that is not listed comes after them, in the order of its phase.
_FIRST = (
    "task format map ignore where null_fields layout trainer padding_side pad_to max_length "
    "too_long max_reject system chat_template eos date train_on neutral prm_template "
    "prompt_separator step_tag salvage already_templated stop_text reasoning_in reasoning thinking "
    "stop add_token tolerance dedup test_size shuffle seed expectations"
).split()


def _plain(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Config:
    """One build's options. ``Config.of`` takes them flat, by their names on the command line."""

    source: SourceOptions
    parts: PartOptions
    plan: PlanOptions
    judge: JudgeOptions
    run: RunOptions

    def __post_init__(self) -> None:
        source, kind = self.source, self.parts.kind
        if source.train_on != "assistant" and not kind.trains_answers:
            raise UsageError(
                f"--train-on {source.train_on} is not for {self.task}.", "Leave it out."
            )
        if source.reasoning == "mask" and not kind.trains_answers:
            raise UsageError(
                f"--reasoning mask is not for {self.task}.",
                "Leave it out, or use --reasoning strip.",
            )

    @classmethod
    def of(
        cls, task: str, data: tuple[str, ...], model: str, output: Path, **options: Any
    ) -> Config:
        """The options of a build, each put into its phase; those not given have their defaults.

        Raises:
            UsageError: a value is not valid, or two do not go together.
            TypeError: there is no such option.
        """
        given = {"task": task, "data": data, "model": model, "output": output, **options}
        values = _by_phase(given)
        return cls(**{phase: kind(**values[phase]) for phase, kind in PHASES.items()})

    def but(self, **options: Any) -> Config:
        """The same with other values of some options; raises as ``of`` does."""
        changed = {
            phase: replace(getattr(self, phase), **values)
            for phase, values in _by_phase(options).items()
            if values
        }
        return replace(self, **changed)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.parts.task

    @property
    def for_parts(self) -> dict[str, object]:
        """What all parts depend on beside the model and the bytes of their splits."""
        return self._recorded("source", "parts") | {"longest_example": self.plan.longest_example}

    @property
    def for_build(self) -> dict[str, object]:
        """What the build's bytes depend on beside its model and inputs: a manifest's options."""
        return self._recorded("source", "parts", "plan", "judge")

    def _recorded(self, *phases: str) -> dict[str, object]:
        """The options of some phases, ready for JSON and in a manifest's order."""
        recorded = {}
        for phase in phases:
            options = getattr(self, phase)
            for option in fields(options):
                written = option.metadata.get(_AS, _plain)
                if written is not None:
                    recorded[option.name] = written(getattr(options, option.name))
        first = {name: recorded[name] for name in _FIRST if name in recorded}
        return first | recorded


def _by_phase(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by phase and name.

    Raises:
        TypeError: one is none.
    """
    values: dict[str, dict[str, Any]] = {phase: {} for phase in PHASES}
    for name, value in options.items():
        if name not in PHASE_OF:
            raise TypeError(f"there is no option {name!r}")
        values[PHASE_OF[name]][name] = value
    return values


def from_record(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a manifest or a stage file holds, as ``Config.of`` takes them.

    Those that this version does not know are left out, and so are the users' suites, of which a
    manifest has the hashes alone.
    """
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recorded.items()
        if name in PHASE_OF and PHASE_OF[name] != "run" and name != "expectations"
    }
