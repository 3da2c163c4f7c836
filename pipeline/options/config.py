"""A build's options, checked once, frozen: a phase for each thing that they decide about.

A part is named by a hash of ``source`` and ``parts``, and of the longest example that ``plan`` has
room for. A build's recipe is a hash of ``source``, ``parts``, ``plan`` and ``judge``. What is in
``run`` enters neither. ``phases`` declares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.options import build_options as phases
from pipeline.options import many_values, overlaps
from pipeline.options.source import Said, Source, in_order, recorded, with_test
from stages.errors import UsageError

if TYPE_CHECKING:  # commands read options, and import nothing heavy for it
    from stages.rows.carried import Carried


FEW_ROWS = 4  # of a small file, which may be refused beyond ``--max-reject``


@dataclass(frozen=True, slots=True)
class Config:
    """One build's options. ``Config.of`` takes them flat, by their names on the command line.

    Attributes:
        notes: for the user, shown with the result.
        said: what they follow from; None where that is not known.
    """

    sources: tuple[Source, ...]
    parts: phases.PartOptions
    plan: phases.PlanOptions
    judge: phases.JudgeOptions
    run: phases.RunOptions
    notes: tuple[str, ...] = field(default=(), compare=False)
    said: Said | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for one in self.sources:
            self._require_fitting(one.options)
        trained = {one.name: one.budget for one in self.sources if not one.test}
        phases.require_mixture(trained, self.plan.total)
        overlaps.require_fitting(self.plan)

    def _require_fitting(self, own: phases.SourceOptions) -> None:
        """A source's options go together with those of the other phases."""
        kind = self.parts.kind
        if own.train_on != "assistant" and not kind.trains_answers:
            raise UsageError(f"--train-on {own.train_on} is not for {self.task}.", "Leave it out.")
        if own.reasoning == "mask" and not kind.trains_answers:
            raise UsageError(
                f"--reasoning mask is not for {self.task}.",
                "Leave it out, or use --reasoning strip.",
            )
        if self.parts.history != "rendered" and (own.train_on == "all" or not kind.trains_answers):
            what = "--train-on all" if kind.trains_answers else self.task
            raise UsageError(f"--history {self.parts.history} is not for {what}.", "Leave it out.")
        _require_figures(own, self.parts)
        if own.group_by is not None and not self.plan.test_size:
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
        source = Source(phases.SourceOptions(**values.pop("source")))
        made = {phase: phases.PHASES[phase](**values[phase]) for phase in values}
        sources = with_test((source,), made["plan"].test, source.options)
        return cls(sources=sources, said=Said((given,)), **made)

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
        return replace(flat, sources=tuple(map(Source.of_record, named, data)), said=None)

    def but(self, **options: Any) -> Config:
        """The same with other values of some options, in all sources; raises as ``of`` does."""
        values = by_phase(options)
        of_source = values.pop("source")
        changed: dict[str, Any] = {p: replace(getattr(self, p), **own) for p, own in values.items()}
        sources = tuple(
            replace(one, options=replace(one.options, **of_source)) for one in self.sources
        )
        said = self.said and replace(self.said, after={**self.said.after, **options})
        return replace(self, sources=sources, said=said, **changed)

    def only(self, number: int) -> Config:
        """The same for the inputs of one source alone, all of which are used."""
        return replace(self, sources=(replace(self.sources[number], budget=phases.Budget()),))

    def leaving(self, left: Iterable[tuple[int, Iterable[str]]]) -> Config:
        """The same; ``--leave-rest`` leaves columns out of the rows of some sources.

        Args:
            left: of each input the number of its source, and columns.
        """
        sources = list(self.sources)
        for number, paths in left:
            mine = sources[number]
            sources[number] = replace(mine, left=tuple(sorted({*mine.left, *paths})))
        return replace(self, sources=tuple(sources))

    @property
    def data(self) -> tuple[str, ...]:
        """What all sources are made of."""
        return tuple(path for one in self.sources for path in one.options.data)

    @property
    def source(self) -> phases.SourceOptions:
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
    def carried(self) -> Carried:
        """What the parts of the one source have of a row because something chooses by it."""
        return carried(self.source, self.plan)

    @property
    def for_parts(self) -> dict[str, object]:
        """What the parts of one source depend on beside the model and the bytes of their splits."""
        carried = self.carried
        derived = overlaps.for_parts(self.plan) | {
            "longest_example": self.plan.longest_example,
            "groups": self.groups,
            "carried": [carried.paths, carried.counts],
        }
        if left := self.sources[0].left:
            derived["left"] = left
        # Not the filters: a part has what they read, whatever they say about it.
        source = {name: x for name, x in recorded(self.source).items() if name != "filter"}
        return in_order(source | recorded(self.parts)) | derived

    @property
    def for_build(self) -> dict[str, object]:
        """What the build's bytes depend on beside its model and inputs: a manifest's options.

        Those of named sources are in ``sources``, in their order.
        """
        common = recorded(self.parts) | recorded(self.plan) | recorded(self.judge)
        if self.sources == (Source(self.sources[0].options),):
            return in_order(recorded(self.sources[0].options) | common)
        return in_order(common) | {"sources": [one.recorded for one in self.sources]}


def carried(source: phases.SourceOptions, plan: phases.PlanOptions) -> Carried:
    """What filters and the choice among equal examples need of a row: names, never limits."""
    from stages.rows.carried import COUNTS, Carried  # few builds do
    from stages.rows.expressions import parse

    expressions = [parse(text) for text in source.filter]
    paths = {path for one in expressions for path in one.columns}
    figures = {name for one in expressions for name in one.figures}
    keep = many_values.Keep.of(plan.dedup_keep).column
    return Carried(
        paths=tuple(sorted(paths | {keep} if keep else paths)),
        counts=tuple(name for name in COUNTS if name in figures),
    )


def _require_figures(source: phases.SourceOptions, parts: phases.PartOptions) -> None:
    """The examples of the task have the figures that filters read."""
    kind = parts.kind
    foreign = {"margin": not kind.compares, "n_turns": kind.marks}
    foreign["n_steps"] = foreign["n_unrated"] = not kind.marks
    for text in source.filter:
        from stages.rows.expressions import parse  # few builds have a filter

        for name in parse(text).figures:
            if foreign.get(name):
                raise UsageError(
                    f"--filter {text!r} reads {name}, which examples of {parts.task} do not have.",
                    f'For a column of that name write "{name}" in double quotes.',
                )


def by_phase(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Options by phase and name.

    Raises:
        TypeError: one is none.
    """
    values: dict[str, dict[str, Any]] = {phase: {} for phase in phases.PHASES}
    for name, value in options.items():
        if name not in phases.PHASE_OF:
            raise TypeError(f"there is no option {name!r}")
        values[phases.PHASE_OF[name]][name] = value
    return values


def from_record(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a manifest or a stage file holds, as ``Config.of`` takes them.

    Those that this version does not know are left out, and so are the files of users, of which a
    manifest has the hashes alone.
    """
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recorded.items()
        if phases.PHASE_OF.get(name, "run") != "run" and name not in overlaps.NOT_READ_BACK
    }
