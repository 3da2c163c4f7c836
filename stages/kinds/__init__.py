"""What a row becomes: one kind of example a file.

A kind says which columns normalize writes of its examples, and what their token ids are to a
trainer. A task names its kind, and a format the kinds that it gives; nothing else compares names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages import catalog

if TYPE_CHECKING:  # commands list tasks by their kinds, and import nothing heavy for it
    import pyarrow as pa

    from stages.contract import Message
    from stages.normalize import Normalize

CONVERSATION, PAIR, STEPS, TOKENS = "conversation", "pair", "steps", "tokens"


class Kind:
    """One kind of example; each provides KIND.

    Attributes:
        words: what its rows are called in messages.
        formats: the name under which formats feed it; a kind of yours may be fed by pairs.
        columns: those that normalize writes, beside ``normalized.IDENTITY``.
        types: of columns that no other kind has; a task that stores them names them.
        texts: columns whose texts may hold the markers of a template, as ordinary text.
        ids: the columns of token ids that its encoded examples have, one for each sequence.
        requires: the columns that a stored row must have, in every layout.
        trains_answers: every answer of an example is trained, so that what says how good one is
            must be asked about.
        compares: a loss compares two sequences of an example.
        marks: labels are read at markers, one after each step.
        given: the token ids came with the row; nothing is rendered.
        trims: what ``--too-long trim-...`` drops from the end of its examples; empty for nothing.
        plain: rows of nothing but a question and its answer may become columns at once.
    """

    name: str
    words: str
    formats: str
    columns: tuple[str, ...]
    types: Mapping[str, pa.DataType] = {}
    texts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ("input_ids",)
    requires: tuple[str, ...] = ("input_ids", "labels")
    trains_answers = False
    compares = False
    marks = False
    given = False
    trims = ""
    plain = False

    @property
    def labelled(self) -> bool:
        """Whether an example has one sequence, with a label for each token."""
        return not self.compares

    def turns(self, example: Any) -> tuple[list[Message], ...]:
        """The conversations of an example, whose reasoning is placed or taken out."""
        return ()

    def notes(self, example: Any, normalize: Normalize) -> list[str]:
        """What is odd about an example but refuses nothing, by the names of ``notes.WORDS``."""
        return []

    def ready(self, example: Any, normalize: Normalize) -> list[Any]:
        """The sequences of an example, each as ``filled`` takes it.

        Raises:
            RowError: it teaches nothing, or something wrong.
        """
        raise NotImplementedError

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """The columns of sequences; None stands for one that is refused."""
        raise NotImplementedError


def names() -> list[str]:
    """Every kind."""
    return catalog.names(__name__)


def load(name: str) -> Kind:
    """The kind of this name.

    Raises:
        UsageError: there is none.
    """
    kind: Kind = catalog.load(__name__, name, "KIND")
    return declared(kind)


def declared(kind: Kind) -> Kind:
    """The kind, once the types of its own columns are known where columns are made."""
    if kind.types:
        from stages import columns

        columns.TYPES.update(kind.types)
    return kind
