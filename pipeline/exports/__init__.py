"""Trainers by name: each EXPORT says which builds one takes, and how; small ones share a file.

A projection converts our columns to a trainer's and back. Columns that the trainer does not have
are stored beside the shards, in the same rows, in ``__lineage__/``; so an export can be exported
again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pipeline import tasks
from pipeline.manifest.manifest import Manifest, TrainerRecord
from pipeline.manifest.records import ModelRecord, PairRecord
from stages import catalog
from stages.errors import UsageError, counted
from stages.kinds import Kind
from stages.tokens import layouts

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.tokens.ragged import Ragged

MEMBERS = {
    "axolotl": "pipeline.exports.llamafactory:AXOLOTL",
    "medicalgpt": "pipeline.exports.llamafactory:MEDICALGPT",
    "megatron": "pipeline.exports.trl:MEGATRON",
    "open_r1": "pipeline.exports.trl:OPEN_R1",
    "openrlhf_text": "pipeline.exports.openrlhf:TEXT",
    "transformers": "pipeline.exports.trl:TRANSFORMERS",
    "verl": "pipeline.exports.openrlhf:VERL",
}

PREFERENCE = ("packed", "ragged", "padded")


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """The facts about a build that an export may use; all of them are in the manifest.

    Attributes:
        bound: the manifest's ``model``; None before the model is known.
        columns: of the training rows, ours; empty before a shard is written.
        splits: names, in order; ``rows``: stored in ``train``, packs where they are packed.
        tokenizer_json: of the build; empty where nothing is projected yet.
        soft: some step's rating is neither 0 nor 1; ``unlabelled``: some step has none.
        without_margin: pairs whose ``margin`` is null in a build that has the column.
        recurrent: see ``ModelProfile``.
    """

    task: str
    layout: str
    max_length: int
    bound: ModelRecord | None
    columns: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("train",)
    rows: int = 0
    soft: bool = False
    unlabelled: bool = False
    without_margin: int = 0
    recurrent: str = ""
    tokenizer_json: bytes = field(default=b"", repr=False)

    @property
    def model(self) -> ModelRecord:
        """The manifest's ``model``; only for use where files are written, when it is known."""
        assert self.bound is not None
        return self.bound

    @property
    def kind(self) -> Kind:
        """Of the examples."""
        return tasks.kind_of(self.task)

    @property
    def stored(self) -> "Ragged":
        """How they are stored."""
        return layouts.load(self.layout)

    @property
    def pair(self) -> PairRecord | None:
        """How an encoder's two texts are framed; None for decoders."""
        return self.bound.pair if self.bound else None


class Projection(NamedTuple):
    """Our columns to a trainer's, and back.

    Attributes:
        keeps: our columns that ``back`` gives again; the others go into ``__lineage__/``.
        forward: from our table to the trainer's; raises UsageError for rows that it cannot express.
        back: from the trainer's table to the columns of ``keeps``.
    """

    keeps: tuple[str, ...]
    forward: "Callable[[pa.Table], pa.Table]"
    back: "Callable[[pa.Table], pa.Table]"


@dataclass(frozen=True, slots=True)
class Export:
    """One trainer.

    Attributes:
        name: what ``--for`` takes.
        versions: those whose code the export was written for, with the package's name.
        takes: layouts by kind of example; a kind that is missing is refused with ``why_not``.
        detail: a note for its user, about a combination that works.
        launch: the shell script ``launch/<name>.sh``.
        files: more files under ``launch/``, by name.
        refuses: why a combination of facts cannot work, beyond task and layout.
        projection: None stores our columns as they are.
        container: ``arrow``, ``parquet`` or ``jsonl``.
        takes_weights: reads ``loss_weights``.
        takes_margins: reads ``margin``; where it does not, the verdict says so.
        no_margin: how it treats a pair whose margin is null; for the verdict.
        takes_encoders: trains reward models that read their first token (RoBERTa, BERT).
        two_classes: trains step rewards as two classes, so it cannot express soft labels.
        shares: whether documents share a row when it trains, as those of a pack do.
        apart: the ``model_type`` of each model with recurrent layers to which all ``versions`` say
            where the documents of a row end.
    """

    name: str
    versions: str
    takes: Mapping[str, tuple[str, ...]]
    detail: Callable[[ExportFacts], str]
    launch: Callable[[ExportFacts], str]
    why_not: Mapping[str, str] = field(default_factory=dict)
    refuses: Callable[[ExportFacts], str | None] = lambda facts: None
    files: Callable[[ExportFacts], Mapping[str, str]] = lambda facts: {}
    projection: Callable[[ExportFacts], Projection | None] = lambda facts: None
    container: str = "arrow"
    takes_weights: bool = False
    takes_margins: bool = False
    no_margin: str = ""
    takes_encoders: bool = False
    two_classes: bool = False
    shares: Callable[[ExportFacts], bool] = lambda facts: facts.stored.packs
    apart: tuple[str, ...] = ()

    def layout(self, task: str, offered: tuple[str, ...]) -> str:
        """The first of packed, ragged, padded that this trainer takes and the task offers.

        Raises:
            UsageError: it does not train such a task.
        """
        taken = self.takes.get(tasks.kind_of(task).trains_as, ())
        chosen = next((x for x in PREFERENCE if x in taken and x in offered), None)
        if chosen is None:
            raise UsageError(self._no_task(task), "Build without --for, or for another trainer.")
        return chosen

    def _no_task(self, task: str) -> str:
        why = (
            self.why_not.get(tasks.kind_of(task).trains_as)
            or f"it has no {task} trainer that takes token ids"
        )
        return f"{self.name} cannot train from a build of {task}: {why}."

    def reason(self, facts: ExportFacts) -> str | None:
        """Why this trainer cannot train from such a build; None when it can."""
        taken = self.takes.get(facts.kind.trains_as)
        if taken is None:
            return self._no_task(facts.task)
        if facts.layout == layouts.INDEXED and layouts.PACKED in taken:
            return (
                f"{self.name} reads rows, and this build has packs as an index of them; "
                f"pipeline export {self.name} DIR -o OUT writes the rows."
            )
        if facts.layout not in taken:
            offered = " or ".join(taken)
            return (
                f"Layout {facts.layout} is not offered for {self.name} ({facts.task}): "
                f"it takes {offered}."
            )
        if "loss_weights" in facts.columns and not self.takes_weights:
            return f"{self.name} reads no loss weights, and this build has fractional ones."
        if facts.pair and not self.takes_encoders:
            return (
                f"{self.name} reads the reward at the last token; an encoder has it at the first."
            )
        if facts.soft and self.two_classes:
            return (
                f"{self.name} trains step rewards as two classes: they cannot express soft labels."
            )
        if facts.recurrent and facts.recurrent not in self.apart and self.shares(facts):
            alone = [one for one in taken if not self.shares(replace(facts, layout=one))]
            way = f"use --layout {' or '.join(alone)}" if alone else "use another trainer"
            return (
                f"{self.versions} does not say to the recurrent layers of {facts.recurrent} where "
                f"a document of a row ends, so they would run on into the next: {way}."
            )
        return self.refuses(facts)

    def require(self, facts: ExportFacts) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: with the reason.
        """
        why = self.reason(facts)
        if why is not None:
            raise UsageError(why, "See what each takes with: pipeline list trainers")


def facts_of(manifest: Manifest) -> ExportFacts:
    """The facts about a finished build, from its manifest."""
    prm, margins = manifest.prm, manifest.margins
    return ExportFacts(
        task=manifest.task,
        layout=manifest.layout,
        max_length=manifest.max_length,
        bound=manifest.model,
        columns=manifest.columns,
        splits=tuple(manifest.splits),
        rows=manifest.splits["train"].rows if "train" in manifest.splits else 0,
        soft=prm is not None and prm.label_kind == "soft",
        unlabelled=prm is not None and prm.unlabelled,
        # of a build where others have one; older manifests have no count
        without_margin=margins.absent if margins and margins.present else 0,
        recurrent=manifest.model.recurrent,
    )


def key(name: str) -> str:
    """The name of a trainer's file, which has underscores for dashes."""
    return name.replace("-", "_")


def load(name: str) -> Export:
    """The export of this name.

    Raises:
        UsageError: there is none.
    """
    known = names()
    if name not in known:
        raise catalog.unknown("trainer", name, known)
    export: Export = catalog.load(__name__, key(name), "EXPORT")
    return export


def names() -> list[str]:
    """Every trainer, as ``--for`` spells it."""
    return [name.replace("_", "-") for name in catalog.names(__name__)]


def verdicts(facts: ExportFacts) -> dict[str, TrainerRecord]:
    """The manifest's ``trainers``: for each, whether it can train from this build, and why."""
    records = {}
    for name in names():
        export = load(name)
        why = export.reason(facts)
        text = why if why is not None else f"{export.versions}: {export.detail(facts)}"
        if why is None and "margin" in facts.columns and not export.takes_margins:
            text += "; it does not read the margins that this build has"
        elif why is None and facts.without_margin and export.no_margin:
            text += (
                f"; {counted(facts.without_margin, 'pair')} without a margin: {export.no_margin}"
            )
        records[name] = TrainerRecord(why is None, text)
    return records
