"""One task per file: each provides TASK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stages import catalog
from stages.kinds import Kind, declared

if TYPE_CHECKING:  # a command's help lists tasks, and imports nothing heavy for it
    from pipeline.inputs.stage_tools import Tools
    from stages.contract import Stage


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
