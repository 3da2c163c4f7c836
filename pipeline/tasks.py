"""What is trained: a task each, and the stages that its rows go through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stages import catalog, kinds
from stages.kinds import Kind, declared

if TYPE_CHECKING:  # commands list them, and import nothing heavy for it
    from pipeline.inputs.proved import Tools
    from stages.contract import Batch, Stage


class Task(Protocol):
    """One kind of training data.

    Attributes:
        kind: of its examples.
        help: what it is, in a sentence of the command line.
        options: those that it reads beside what every task reads, by their names in ``Config``.
        layouts: those it can be stored in, the default first.
        with_steps: whether the tokenizer gets the step tokens.
        stored: columns that a part keeps.
        kept: columns that training rows are made from.
    """

    name: str
    kind: Kind
    help: str
    options: tuple[str, ...]
    layouts: tuple[str, ...]
    with_steps: bool
    stored: tuple[str, ...]
    kept: tuple[str, ...]

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        """What a batch goes through after normalize."""
        ...


def names() -> list[str]:
    """Every task."""
    return catalog.names(__name__)


def readers_of(option: str) -> list[str]:
    """The tasks that read an option which is not read by all; empty for one that is."""
    return [name for name in names() if option in load(name).options]


# Options that only a layout or a kind reads, so only the tasks that have it.
_OF_PACKS = ("pack_within", "index_only")
_OF_TRIMMING = ("too_long",)


def concerns(option: str, task: Task) -> bool:
    """Whether an option can be anything but its default in builds of a task."""
    if option in _OF_PACKS:
        return "packed" in task.layouts
    if option in _OF_TRIMMING:
        return bool(task.kind.trims)
    own = readers_of(option)
    return not own or task.name in own


def kind_of(name: str) -> Kind:
    """The kind of examples of a task."""
    return load(name).kind


def load(name: str) -> Task:
    """The task of this name."""
    task: Task = catalog.load(__name__, name, "TASK")
    declared(task.kind)
    return task


class Sft:
    """Conversations whose assistant turns are trained."""

    name = "sft"
    kind = kinds.load(kinds.CONVERSATION)
    help = "Supervised fine-tuning: conversations whose assistant turns are trained."
    options = (
        "train_on",
        "reasoning",
        "reasoning_in",
        "thinking",
        "history",
        "stop_text",
        "greeting",
    )
    layouts = ("packed", "ragged", "padded")
    with_steps = False
    stored = ("folded", "loss_weights")
    kept = ("input_ids", "labels", "loss_weights")

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.gate import Validate
        from stages.chat_template.render import Render
        from stages.tokens.encode import Encode

        return (
            Render(
                tools.renderer,
                system=tools.config.source.system,
                mask_reasoning=tools.config.source.reasoning == "mask",
            ),
            Encode(tools.segment_encoder),
            Validate(tools.context),
        )


class _RenderPair:
    """Renders both sides, each up to its last end of turn, where the reward is read."""

    name = "render"
    reads = ("chosen_messages", "rejected_messages", "tools")
    writes = (
        *("chosen_outline", "chosen_texts", "chosen_segments"),
        *("rejected_outline", "rejected_texts", "rejected_segments"),
        "rendered",
    )

    def __init__(self, tools: Tools) -> None:
        from stages.chat_template.render import Render

        system = tools.config.source.system
        self._sides = [
            Render(tools.renderer, prefix, ends_with_turn=True, system=system)
            for prefix in ("chosen_", "rejected_")
        ]

    def __call__(self, batch: Batch) -> Batch:
        for side in self._sides:
            batch = side(batch)
        return batch


class Rm:
    """Pairs whose sides end where the reward is read."""

    name = "rm"
    kind = kinds.load(kinds.PAIR)
    help = "Reward models: pairs of answers to one prompt."
    options = ("reasoning", "reasoning_in", "thinking", "stop_text", "greeting")
    layouts: tuple[str, ...] = ("ragged", "padded")
    with_steps = False
    kept = ("chosen_ids", "rejected_ids", "prompt_length", "margin")
    stored = kept

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.gate import Validate
        from stages.chat_template.render_pair import PairRenderer, RenderTexts
        from stages.tokens.encode import EncodePair

        render: Stage = _RenderPair(tools)
        if tools.family == "encoder":
            render = RenderTexts(PairRenderer(tools.model), tools.config.source.system)
        return (render, EncodePair(tools.segment_encoder), Validate(tools.context))


class Prm:
    """Solutions with a marker after each step, where its rating is read."""

    name = "prm"
    kind = kinds.load(kinds.STEPS)
    help = "Process reward models: solutions whose steps are rated."
    options = ("neutral", "prm_template", "prompt_separator", "step_tag")
    layouts = ("packed", "ragged", "padded")
    with_steps = True
    kept = ("input_ids", "labels", "step_positions", "step_labels")
    stored = ("folded", "step_positions", "step_labels")

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.gate import Validate
        from stages.chat_template.render_steps import RenderSteps
        from stages.tokens.encode import EncodeSteps
        from stages.tokens.folded_labels import Mark

        raw = tools.config.parts.prm_template == "raw"
        return (
            RenderSteps(tools.renderer, raw, tools.config.source.system),
            Mark(tools.model),
            EncodeSteps(tools.model, tools.segment_encoder),
            Validate(tools.context),
        )


MEMBERS = {task.name: task for task in (Sft(), Rm(), Prm())}
