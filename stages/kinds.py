"""What a row becomes: a kind of example each.

A kind says which columns normalize writes for its examples, and how a trainer uses their token ids.
A task names its kind, and a format the kinds that it reads; no other code compares names of kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages import catalog, contract
from stages.errors import RowError
from stages.rows import examples, loss_mask

if TYPE_CHECKING:  # commands list them, and import nothing heavy for it
    import pyarrow as pa

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
        passes_on: its methods pass texts of turns on, and see in them no more than
            ``normalize.outlines`` does. A kind that is derived from another says so again.
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
    passes_on = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "passes_on" not in vars(cls):
            cls.passes_on = False

    @property
    def labelled(self) -> bool:
        """Whether an example has one sequence, with a label for each token."""
        return not self.compares

    def turns(self, example: Any) -> tuple[list[contract.Message], ...]:
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


class Conversations(Kind):
    """Which turns are trained is decided by their flags, else by ``--train-on``."""

    name = formats = trains_as = CONVERSATION
    words = "conversations"
    columns = ("messages", "turn_weights", "tools", "note")
    texts = ("messages",)
    trains_answers = True
    trims = "turns"
    passes_on = True

    def turns(self, example: contract.Conversation) -> tuple[list[contract.Message], ...]:
        """Its turns."""
        return (example.messages,)

    def notes(self, example: contract.Conversation, normalize: Normalize) -> list[str]:
        """Peculiarities of its roles."""
        return examples.notes(example.messages)

    def ready(self, example: contract.Conversation, normalize: Normalize) -> list[Any]:
        """The conversation, or one for each trained turn."""
        ready = loss_mask.conversation(example, normalize.train_on)
        return [*loss_mask.turn_by_turn(ready)] if normalize.turn_by_turn else [ready]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Turns, their weights, tools."""
        from stages.chat_template import loss_weights
        from stages.rows.carried import tools_text, turns_column

        turns = [row.messages if row else () for row in ready]
        return {
            "messages": turns_column(turns),
            "turn_weights": loss_weights.of_turns(turns),
            "tools": [tools_text(row) for row in ready],
        }


class Pairs(Kind):
    """Both sides are whole conversations; a loss compares the turns after the shared prompt."""

    name = formats = trains_as = PAIR
    words = "preference pairs"
    columns = ("chosen_messages", "rejected_messages", "tools", "margin", "note")
    texts = ("chosen_messages", "rejected_messages")
    ids = ("chosen_ids", "rejected_ids")
    requires = (*ids, "prompt_length")
    compares = True
    legend = ("context", "answer", "scored")
    end_of_turn = "the last token of both sides"
    passes_on = True

    def turns(self, example: contract.Pair) -> tuple[list[contract.Message], ...]:
        """Prompt, chosen and rejected answer."""
        return (example.prompt, example.chosen, example.rejected)

    def notes(self, example: contract.Pair, normalize: Normalize) -> list[str]:
        """Peculiarities of the roles of both sides, and whether a user speaks in one of them."""
        sides = ([*example.prompt, *side] for side in (example.chosen, example.rejected))
        found = dict.fromkeys(note for side in sides for note in examples.notes(side))
        asked = any(turn.role == "user" for turn in (*example.chosen, *example.rejected))
        return [*found, *(["sides_part_early"] * asked)]

    def ready(self, example: contract.Pair, normalize: Normalize) -> list[Any]:
        """Both sides and the margin."""
        from stages.chat_template.printed_fields import EVERY

        printed = None if EVERY in normalize.printed else normalize.printed
        return [(*examples.pair(example, printed), example.margin)]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Turns of both sides, tools, margins."""
        from stages.rows.carried import tools_text, turns_column

        chosen, rejected = ([row[i].messages if row else () for row in ready] for i in (0, 1))
        return {
            "chosen_messages": turns_column(chosen),
            "rejected_messages": turns_column(rejected),
            "tools": [tools_text(row[0]) if row else None for row in ready],
            "margin": [row[2] if row else None for row in ready],
        }


class Steps(Kind):
    """A problem and its steps; with ``raw`` the row's own text between its tags."""

    name = formats = trains_as = STEPS
    words = "rated steps"
    columns = ("problem", "system", "steps", "tail", "step_labels", "note")
    texts = ("problem", "steps")
    requires = (*Kind.requires, "step_positions", "step_labels")
    marks = True
    legend = ("context", "good", "bad", "open")
    end_of_turn = "closes the answer, untrained"
    trims = "steps"
    passes_on = True

    def notes(self, example: contract.StepChain, normalize: Normalize) -> list[str]:
        """Whether stripping the steps removes indents or blank lines."""
        rewritten = not normalize.raw and examples.is_rewritten(example.steps)
        return ["steps_rewritten"] if rewritten else []

    def ready(self, example: contract.StepChain, normalize: Normalize) -> list[Any]:
        """The chain with stripped steps, and its steps as the row has them.

        Raises:
            RowError: see ``examples.chain``; or it has a system text, which ``raw`` does not print.
        """
        if normalize.raw and example.system:
            detail = "the row has a system text, and --prm-template raw prints none"
            raise RowError("system_text", detail)
        return [(examples.chain(example), example.steps)]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Problem, system text, steps, the text after the last step, ratings."""
        chains = [row[0] if row else None for row in ready]
        said = [_said(row, normalize) for row in ready]
        return {
            "problem": [chain.problem if chain else None for chain in chains],
            "system": [chain.system if chain else None for chain in chains],
            "steps": [steps for steps, _ in said],
            "tail": [tail for _, tail in said],
            "step_labels": [chain.labels if chain else [] for chain in chains],
        }


def _said(
    row: tuple[contract.StepChain, list[str]] | None, normalize: Normalize
) -> tuple[list[str], str | None]:
    """The steps of a chain, and the text after them, as its row has them where that is asked for.

    Args:
        row: a chain and its steps as written; None for one that is refused.
    """
    if row is None:
        return [], None
    chain, written = row
    if not normalize.raw:
        return chain.steps, None
    if chain.pieces is not None:
        return chain.pieces[:-1], chain.pieces[-1]
    return _one_text(chain.problem, written, normalize.step_separator), ""


def _one_text(problem: str, steps: list[str], separator: str) -> list[str]:
    """The pieces of one text from a problem and steps given as a list: the steps as written, with a
    separator where the row has no line break between them."""
    pieces, before = [], problem
    for number, step in enumerate(steps):
        between = separator if number else "\n"
        broken = before.endswith("\n") or step.startswith("\n")
        pieces.append(step if broken else f"{between}{step}")
        before = step
    return [problem + pieces[0], *pieces[1:]]


class TokenIds(Kind):
    """Takes the place of conversations where the format reads token ids."""

    name = formats = TOKENS
    trains_as = CONVERSATION
    words = "token ids"
    columns = ("input_ids", "labels")
    given = True

    def ready(self, example: contract.Tokens, normalize: Normalize) -> list[Any]:
        """The ids themselves."""
        return [example]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Ids and labels."""
        return {
            "input_ids": [row.ids if row else [] for row in ready],
            "labels": [row.labels if row else [] for row in ready],
        }

    def questions(self, batch: pa.RecordBatch) -> list[str]:
        """The ids before the first that is trained; all where none is before it."""
        from stages.columns import IGNORED

        asked = []
        rows = (batch.column(name).to_pylist() for name in self.columns)
        for ids, labels in zip(*rows, strict=True):
            first = next((at for at, label in enumerate(labels[1:], 1) if label != IGNORED), 0)
            asked.append(" ".join(f"_{token}" for token in ids[: first or None]))
        return asked


MEMBERS = {kind.name: kind for kind in (Conversations(), Pairs(), Steps(), TokenIds())}
