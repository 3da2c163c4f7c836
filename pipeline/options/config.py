"""A build's options, checked once, frozen: a phase for each thing that they decide about.

A part is named by a hash of ``source`` and ``parts``, and of the longest example that ``plan`` has
room for. A build's recipe is a hash of ``source``, ``parts``, ``plan`` and ``judge``. What is in
``run`` enters neither. ``phases`` declares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pipeline.options.budgets import Budget, require_mixture
from pipeline.options.phases import (
    ASKED,
    PHASE_OF,
    PHASES,
    RECORDED,
    JudgeOptions,
    PartOptions,
    PlanOptions,
    RunOptions,
    SourceOptions,
    default_cache,
)
from stages.errors import UsageError
from stages.overlap.settings import Likeness, Search

__all__ = [
    "PHASES",
    "PHASE_OF",
    "Config",
    "JudgeOptions",
    "PartOptions",
    "PlanOptions",
    "RunOptions",
    "Source",
    "SourceOptions",
    "by_phase",
    "default_cache",
    "from_record",
]

# The order of a manifest's first options. Files that were written keep their order of keys, so this
# is never changed; an option that is not listed comes after them, in the order of its phase.
_FIRST = (
    "task format map ignore where null_fields layout trainer padding_side pad_to max_length "
    "too_long max_reject system chat_template eos date train_on neutral prm_template "
    "prompt_separator step_tag salvage already_templated stop_text reasoning_in reasoning thinking "
    "stop add_token tolerance dedup test_size shuffle seed expectations"
).split()


_HASHED = ("expectations", "decontaminate", "overlap_words", "overlap_share", "overlap_in")


def _plain(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a build: inputs, how they are read, and how much of them is used.

    Attributes:
        name: empty for the one source of a command.
        max_reject: share of its refused rows that fails the build; None where they count with
            those of the other sources, towards the limit of the build.
    """

    options: SourceOptions
    name: str = ""
    max_reject: float | None = None
    budget: Budget = field(default_factory=Budget)

    @property
    def recorded(self) -> dict[str, object]:
        """The source in a manifest's options."""
        own = {"name": self.name, "max_reject": self.max_reject}
        return own | _in_order(_recorded(self.options)) | _recorded(self.budget)

    @classmethod
    def of_record(cls, recorded: Mapping[str, Any], data: tuple[str, ...]) -> Source:
        """The source that ``recorded`` gave; ``data``: where its inputs are now."""
        values: dict[str, Any] = {
            key: tuple(x) if isinstance(x, list) else x for key, x in recorded.items()
        }
        known = {one.name for one in fields(SourceOptions)} - {"data"}
        options = SourceOptions(data, **{name: values[name] for name in known & values.keys()})
        budget = Budget(**{one.name: values.get(one.name) for one in fields(Budget)})
        return cls(options, str(values["name"]), values["max_reject"], budget)


@dataclass(frozen=True, slots=True)
class Config:
    """One build's options. ``Config.of`` takes them flat, by their names on the command line."""

    sources: tuple[Source, ...]
    parts: PartOptions
    plan: PlanOptions
    judge: JudgeOptions
    run: RunOptions

    def __post_init__(self) -> None:
        for one in self.sources:
            self._require_fitting(one.options)
        require_mixture({one.name: one.budget for one in self.sources}, self.plan.total)

    def _require_fitting(self, source: SourceOptions) -> None:
        """A source's options go together with those of the other phases."""
        kind = self.parts.kind
        if source.train_on != "assistant" and not kind.trains_answers:
            raise UsageError(
                f"--train-on {source.train_on} is not for {self.task}.", "Leave it out."
            )
        if source.reasoning == "mask" and not kind.trains_answers:
            raise UsageError(
                f"--reasoning mask is not for {self.task}.",
                "Leave it out, or use --reasoning strip.",
            )
        if source.group_by is not None and not self.plan.test_size:
            raise UsageError(
                "--group-by is for builds with a test split.", "Give --test-size, or leave it out."
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
        values = by_phase(given)
        source = Source(SourceOptions(**values.pop("source")))
        made = {phase: PHASES[phase](**values[phase]) for phase in values}
        return cls(sources=(source,), **made)

    @classmethod
    def of_record(
        cls, recorded: Mapping[str, Any], data: Sequence[tuple[str, ...]], **options: Any
    ) -> Config:
        """The options that a manifest holds.

        Args:
            data: where the inputs of each source are now.
            options: those that a manifest does not have, ``model`` and ``output`` among them.

        Raises:
            UsageError, TypeError: see ``of``.
        """
        flat = cls.of(data=data[0], **from_record(recorded), **options)
        named = recorded.get("sources")
        if named is None:
            return flat
        sources = tuple(map(Source.of_record, named, data))
        return replace(flat, sources=sources)

    def but(self, **options: Any) -> Config:
        """The same with other values of some options, in all sources; raises as ``of`` does."""
        values = by_phase(options)
        of_source = values.pop("source")
        changed = {
            phase: replace(getattr(self, phase), **given)
            for phase, given in values.items()
            if given
        }
        if of_source:
            changed["sources"] = tuple(
                replace(one, options=replace(one.options, **of_source)) for one in self.sources
            )
        return replace(self, **changed)

    def only(self, number: int) -> Config:
        """The same for the inputs of one source alone, all of which are used."""
        return replace(self, sources=(replace(self.sources[number], budget=Budget()),))

    @property
    def data(self) -> tuple[str, ...]:
        """What all sources are made of."""
        return tuple(path for one in self.sources for path in one.options.data)

    @property
    def source(self) -> SourceOptions:
        """How the rows of the one source are read.

        Raises:
            ValueError: there are several; each input belongs to one of them.
        """
        (one,) = self.sources
        return one.options

    @property
    def task(self) -> str:
        """The task's name."""
        return self.parts.task

    @property
    def groups(self) -> str | None:
        """The column that decides which rows of the one source are on one side of a split, or an
        empty text where their questions do; None where rows are not grouped."""
        return (self.source.group_by or "") if self.grouped else None

    @property
    def grouped(self) -> bool:
        """Whether parts say which rows belong together: for a split, and for budgets.

        Those of named sources always do: a first budget encodes nothing again.
        """
        return self.plan.test_size > 0 or self.plan.total is not None or self.named

    @property
    def named(self) -> bool:
        """Whether the sources have names, as those of a recipe do."""
        return bool(self.sources[0].name)

    @property
    def search(self) -> Search | None:
        """The evaluations that rows are searched for; None without any."""
        plan = self.plan
        if not plan.decontaminate:
            return None
        return Search(plan.decontaminate, plan.overlap_words, plan.overlap_in == "row")

    @property
    def likeness(self) -> Likeness | None:
        """How rows are compared with each other; None where they are not."""
        plan = self.plan
        if not plan.near_dedup:
            return None
        return Likeness(plan.near_words, plan.near_in == "row", sides=bool(plan.test_size))

    @property
    def for_parts(self) -> dict[str, object]:
        """What the parts of one source depend on beside the model and the bytes of their splits."""
        derived: dict[str, object] = {
            "longest_example": self.plan.longest_example,
            "groups": self.groups,
        }
        if self.search is not None:
            derived["overlaps"] = self.search.content
        if self.likeness is not None:
            from stages.overlap import signatures  # which imports a library

            columns = [list(one) for one in self.likeness.columns]
            derived["likeness"] = [self.likeness.size, columns, signatures.version()]
        return _in_order(_recorded(self.source) | _recorded(self.parts)) | derived

    @property
    def for_build(self) -> dict[str, object]:
        """What the build's bytes depend on beside its model and inputs: a manifest's options.

        Those of named sources are in ``sources``, in their order.
        """
        common = _recorded(self.parts) | _recorded(self.plan) | _recorded(self.judge)
        if self.sources == (Source(self.sources[0].options),):
            return _in_order(_recorded(self.sources[0].options) | common)
        return _in_order(common) | {"sources": [one.recorded for one in self.sources]}


def by_phase(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
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


def _recorded(options: Any) -> dict[str, object]:
    """The options of a phase, ready for JSON."""
    recorded = {}
    for option in fields(options):
        written, value = option.metadata.get(RECORDED, _plain), getattr(options, option.name)
        asked = value != option.default or not option.metadata.get(ASKED)
        if written is not None and asked:
            recorded[option.name] = written(value)
    return recorded


def _in_order(recorded: dict[str, object]) -> dict[str, object]:
    """The same in a manifest's order."""
    return {name: recorded[name] for name in _FIRST if name in recorded} | recorded


def from_record(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a manifest or a stage file holds, as ``Config.of`` takes them.

    Those that this version does not know are left out, and so are the files of users, of which a
    manifest has the hashes alone.
    """
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recorded.items()
        if name in PHASE_OF and PHASE_OF[name] != "run" and name not in _HASHED
    }
