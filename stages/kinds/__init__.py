"""What a row becomes: one kind of example a file.

A kind says which columns normalize writes for its examples, and how a trainer uses their token ids.
A task names its kind, and a format the kinds that it reads; no other code compares names of kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages import catalog

if TYPE_CHECKING:  # commands list tasks by their kinds, and import nothing heavy for it
    import pyarrow as pa

    from stages.contract import Message
    from stages.normalize.stage import Normalize

CONVERSATION, PAIR, STEPS, TOKENS = "conversation", "pair", "steps", "tokens"


class Kind(ABC):
    """One kind of example; each provides KIND.

    Attributes:
        words: what its rows are called in messages.
        formats: the kind of the formats that are read for it; your own kind may name ``pair``.
        trains_as: the kind that trainers know it by; yours has its columns, and may have more.
        columns: those that normalize writes, besides ``rows.batches.IDENTITY``.
        types: Arrow types of columns that no other kind has.
        texts: columns of texts, which are searched for the markers of chat templates.
        ids: the columns of token ids of its encoded examples, one for each sequence.
        requires: the columns that a stored row must have, in every layout.
        trains_answers: every answer of an example is trained, so a column that rates answers must
            not be ignored silently.
        compares: a loss compares two sequences of an example.
        marks: labels are read at markers, one after each step.
        given: the row contains token ids; nothing is rendered.
        trims: what ``--too-long trim-...`` drops from the end of its examples; empty for nothing.
        legend: what its tokens are coloured as, by the names of ``pipeline.report.drawing``.
        end_of_turn: what a token that ends a turn is for.
        plain: rows that say no more than an example needs take the fast path of normalize. A kind
            that is derived from another says so again, since that path calls none of its methods.
    """

    name: str
    words: str
    formats: str
    trains_as: str
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
    legend: tuple[str, ...] = ("context", "trained")
    end_of_turn = "trained at the end of every trained turn"
    plain = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "plain" not in vars(cls):
            cls.plain = False

    @property
    def labelled(self) -> bool:
        """Whether an example has one sequence, with a label for each token."""
        return not self.compares

    def turns(self, example: Any) -> tuple[list[Message], ...]:
        """The conversations of an example in which reasoning is placed or stripped."""
        return ()

    def notes(self, example: Any, normalize: Normalize) -> list[str]:
        """Peculiarities of an example that is kept, by the names of ``notes.WORDS``."""
        return []

    def questions(self, batch: pa.RecordBatch) -> list[str]:
        """What each of its sequences asks; two that ask the same are on one side of a split."""
        column = batch.column(self.texts[0])
        if not hasattr(column, "offsets"):
            return [text or "" for text in column.to_pylist()]
        from stages.rows import groups

        return groups.first_questions(column)

    @abstractmethod
    def ready(self, example: Any, normalize: Normalize) -> list[Any]:
        """The sequences of an example, each in the form that ``filled`` takes.

        Raises:
            RowError: it would train nothing, or something wrong.
        """

    @abstractmethod
    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """The columns of sequences; None stands for one that is refused."""


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
    """The kind, after the types of its own columns were added to ``columns.TYPES``."""
    if kind.types:
        from stages import columns

        columns.TYPES.update(kind.types)
    return kind
