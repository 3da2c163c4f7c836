"""Steps in one text or in turns, with a tag after each or a turn that rates it."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _steps, _turns
from stages.formats._asked import Asking
from stages.kinds import STEPS


class _MathShepherd(Format):
    """Two aligned texts: a step tag in ``input``, the rating at the same place in ``label``.

    Only the characters of ``label`` that stand where ``input`` has the tag are ratings; every other
    ``+`` and ``-`` is arithmetic.
    """

    name = "math_shepherd"
    kinds = (STEPS,)
    columns: Columns = {"text": ("input",), "ratings": ("label",), **_turns.BEFORE}
    prompts = ("input",)
    step_texts = (("input",), ("label",))

    def matches(self, row: Row) -> str | None:
        texts = isinstance(row.get("input"), str) and isinstance(row.get("label"), str)
        return "input and label texts" if texts else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _steps.require_alone(row, options)
        pieces = _steps.cut(_turns.text(row, "input"), options)
        labels = _steps.aligned(pieces, _turns.text(row, "label"))
        return [_steps.chain(pieces, labels, options)]


_VALUES = ("value", "label", "labels", "values")


class _OpenRLHF(Asking):
    """``input`` text with a step tag, and a list of ratings: ``+``/``-`` or numbers."""

    name = "openrlhf_prm"
    kinds = (STEPS,)
    columns: Columns = {"text": ("input",), "ratings": _VALUES, **_turns.BEFORE}
    prompts = ("input",)
    step_text = (("input",), _VALUES)

    def matches(self, row: Row) -> str | None:
        name = _turns.first_of(row, _VALUES)
        if isinstance(row.get("input"), str) and name and isinstance(row[name], list):
            return f"input text and a list in {name}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _steps.require_alone(row, options)
        name = _steps.rated(row, _VALUES, options.columns)
        pieces = _steps.cut(_turns.text(row, "input"), options)
        labels = _steps.ratings(row.get(name), len(pieces) - 1, name)
        return [_steps.chain(pieces, labels, options)]


_LABELS = ("labels", "label", "values", "value", "ratings", "step_labels")


class _TaggedMessages(Asking):
    """A question and an answer with a step token after each step, and a list of ``labels``."""

    name = "tagged_messages"
    kinds = (STEPS,)
    columns: Columns = {**_steps.TURNS, "ratings": _LABELS}

    def matches(self, row: Row) -> str | None:
        column, labels = _steps.turn_column(row), _turns.first_of(row, _LABELS)
        if column is None or labels is None or not isinstance(row[labels], list):
            return None
        role, content = _steps.spoken(row[column])[-1]
        known = role == "assistant" and isinstance(content, str)
        return f"{column} with steps in the answer, and {labels}" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column = _steps.rated(row, _LABELS, options.columns)
        turns = _steps.conversation(row, options)
        if [message.role for message in turns] != ["user", "assistant"]:
            raise RowError("bad_column", "the turns are not one question and one answer")
        pieces = _steps.cut(turns[1].content or "", options)
        _steps.require_tail(pieces)
        labels = _steps.ratings(row.get(column), len(pieces) - 1, column)
        return [StepChain(turns[0].content or "", pieces[:-1], labels)]


class _StepConversations(Format):
    """A conversation whose user turns are steps and whose assistant turns rate them, ``+`` or
    ``-``.

    The problem stands in the first user turn, before the first step.
    """

    name = "step_conversations"
    kinds = (STEPS,)
    columns: Columns = _steps.TURNS

    def matches(self, row: Row) -> str | None:
        column = _steps.turn_column(row)
        turns = _steps.spoken(row[column]) if column else []
        answers = [content for role, content in turns if role == "assistant"]
        if answers and all(isinstance(a, str) and a.strip() in ("+", "-") for a in answers):
            return f"{column} with one step per user turn, then + or -"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        turns = _steps.conversation(row, options)
        roles = [message.role for message in turns]
        if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
            raise RowError("bad_column", "the turns do not alternate between a step and its rating")
        labels = [
            _steps.rating(message.content, f"the rating of step {i + 1}")
            for i, message in enumerate(turns[1::2])
        ]
        pieces = [message.content or "" for message in turns[::2]]
        return [_steps.chain([*pieces, ""], labels, options, own_text=False)]


TABLE = (_MathShepherd(), _OpenRLHF(), _TaggedMessages(), _StepConversations())
