"""Steps in a list beside their ratings, or in one text or in turns with a tag after each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _rated_steps, _ratings, _turns
from stages.formats._asked import Asking, meant
from stages.kinds import STEPS
from stages.rows.column_names import peek

_LABELS = tuple(
    "labels label ratings rating step_labels rewards scores step_rewards step_scores".split()
)


def _counts_from_minus_one(value: Any) -> bool:
    """Whether these are ratings of -1, 0 and 1, as a -1 among them shows."""
    known = isinstance(value, list) and all(
        one is None or (type(one) in (int, float) and one in (-1, 0, 1)) for one in value
    )
    return known and _ratings.is_signed(value)


def _fits(value: Any, steps: int) -> bool:
    """Whether a value can be a rating per step; bare integers could also be step numbers."""
    if _counts_from_minus_one(value):
        return len(value) == steps
    if not isinstance(value, list) or not all(map(_ratings.is_rating, value)):
        return False
    return len(value) == steps or any(type(one) is not int for one in value)


def _labels(row: Row, names: Sequence[str] = _LABELS) -> str | None:
    """The column with a rating for each step."""
    steps = _rated_steps.step_column(row)
    if steps is None:
        return None
    return next((name for name in names if _fits(peek(row, name), len(peek(row, steps)))), None)


class _Stepwise(Asking, _ratings.Signed):
    """``prompt``, ``completions`` (the steps) and ``labels`` (one per step, hard or soft).

    ``stepwise/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).
    """

    name = "stepwise"
    columns: Columns = {**_rated_steps.LISTED, "ratings": _LABELS}
    prompts = _rated_steps.PROBLEMS
    passes_on = (*_rated_steps.PROBLEMS, *_rated_steps.LISTS, *_LABELS)

    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        names = meant(_LABELS, columns)
        lists = [peek(row, _labels(row, names) or "") for row in rows]
        return [value for values in lists if _counts_from_minus_one(values) for value in values]

    def matches(self, row: Row) -> str | None:
        labels = _labels(row)
        return f"{_rated_steps.step_column(row)} and a rating each in {labels}" if labels else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        steps = _rated_steps.listed(row, "completions")
        column = _ratings.rated(row, _LABELS, options.columns)
        labels = _ratings.ratings(row.get(column), len(steps), column, self._label(options))
        return [StepChain(_rated_steps.problem(row, options), steps, labels)]


_PREFIXES = ("prefixes", "prefix", "partial_solutions", "step_prefixes", "cumulative_steps")
_VALUES = ("values", "value", "mc_values", "mc_value", "soft_labels", "scores", "labels", "label")


def _steps_of(prefixes: list[str]) -> list[str]:
    """What each prefix adds to the one before.

    Raises:
        RowError: one does not begin with the one before.
    """
    steps = []
    before = ""
    for number, prefix in enumerate(prefixes, 1):
        if not prefix.startswith(before):
            raise RowError("not_cumulative", f"prefix {number} does not begin with the one before")
        steps.append(prefix[len(before) :])
        before = prefix
    return steps


class _SoftPrefix(Asking):
    """``prefixes`` of a solution, each a step longer than the one before, and a value for each.

    The values are shares of continuations that reached the right answer, from 0 to 1.
    """

    name = "soft_prefix"
    kinds = (STEPS,)
    columns: Columns = {**_rated_steps.PROBLEM, "prefixes": _PREFIXES, "values": _VALUES}
    prompts = _rated_steps.PROBLEMS

    def matches(self, row: Row) -> str | None:
        prefixes, values = _turns.first_of(row, _PREFIXES), _turns.first_of(row, _VALUES)
        if prefixes is None or values is None:
            return None
        lists = isinstance(row[prefixes], list) and isinstance(row[values], list)
        return f"{prefixes} and {values}" if lists else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _turns.chosen_of(row, _PREFIXES, options.columns) or "prefixes"
        steps = _steps_of(_rated_steps.texts(row.get(name), name))
        column = _ratings.rated(row, _VALUES, options.columns)
        labels = _ratings.ratings(row.get(column), len(steps), column)
        return [StepChain(_rated_steps.problem(row, options), steps, labels)]


# Steps in one text or in turns, with a tag after each or a turn that rates it.


class _MathShepherd(Format):
    """Two aligned texts: a step tag in ``input``, the rating at the same place in ``label``.

    Only the characters of ``label`` that stand where ``input`` has the tag are ratings; every other
    ``+`` and ``-`` is arithmetic.
    """

    name = "math_shepherd"
    kinds = (STEPS,)
    columns: Columns = {"text": ("input",), "ratings": ("label",), **_turns.BEFORE}
    prompts = ("input",)

    def matches(self, row: Row) -> str | None:
        texts = isinstance(row.get("input"), str) and isinstance(row.get("label"), str)
        return "input and label texts" if texts else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _rated_steps.require_alone(row)
        pieces = _rated_steps.cut(_turns.text(row, "input"), options)
        labels = _ratings.aligned(pieces, _turns.text(row, "label"))
        return [_rated_steps.chain(pieces, labels, options)]


_TEXT_VALUES = ("value", "label", "labels", "values")


def _count(row: Row, column: str) -> int | None:
    """How many ratings a column has."""
    value = peek(row, column)
    return len(value) if isinstance(value, list) else None


def _text(row: Row) -> str | None:
    """The column with the steps in one text: beside their problem, or with it in one."""
    asked = any(isinstance(peek(row, name), str) for name in _rated_steps.PROBLEMS)
    names = (*_rated_steps.LISTS * asked, "input")
    return next((name for name in names if isinstance(peek(row, name), str)), None)


class _OpenRLHF(Asking):
    """``input`` text with a step tag, or ``question`` and the steps in one text (``process``), and
    a list of ratings: ``+``/``-`` or numbers."""

    name = "openrlhf_prm"
    kinds = (STEPS,)
    columns: Columns = {
        "text": ("input", *_rated_steps.LISTS),
        "ratings": _TEXT_VALUES,
        **_rated_steps.PROBLEM,
    }
    prompts = ("input",)

    def matches(self, row: Row) -> str | None:
        text, name = _text(row), _turns.first_of(row, _TEXT_VALUES)
        if text and name and isinstance(row[name], list):
            return f"{text} text and a list in {name}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _rated_steps.require_alone(row)
        name = _ratings.rated(row, _TEXT_VALUES, options.columns)
        column = _text(row) or "input"
        count = _count(row, name)
        pieces = _rated_steps.cut(_turns.text(row, column), options, count)
        broken = bool(options.step_tag and options.step_tag.isspace())
        if broken and column == "input" and len(pieces) - 2 == count:  # one ends the problem
            pieces[:2] = ["\n".join(pieces[:2])]
        labels = _ratings.ratings(row.get(name), len(pieces) - 1, name)
        if column == "input":
            return [_rated_steps.chain(pieces, labels, options)]
        _rated_steps.require_tail(pieces)
        return [StepChain(_rated_steps.problem(row, options), pieces[:-1], labels)]


_TEXT_LABELS = ("labels", "label", "values", "value", "ratings", "step_labels")


class _TaggedMessages(Asking):
    """A question and an answer with a step token after each step, and a list of ``labels``."""

    name = "tagged_messages"
    kinds = (STEPS,)
    columns: Columns = {**_rated_steps.TURNS, "ratings": _TEXT_LABELS}

    def matches(self, row: Row) -> str | None:
        column, labels = _rated_steps.turn_column(row), _turns.first_of(row, _TEXT_LABELS)
        if column is None or labels is None or not isinstance(row[labels], list):
            return None
        role, content = _rated_steps.spoken(row[column])[-1]
        known = role == "assistant" and isinstance(content, str)
        return f"{column} with steps in the answer, and {labels}" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column = _ratings.rated(row, _TEXT_LABELS, options.columns)
        turns = _rated_steps.conversation(row)
        if [message.role for message in turns] != ["user", "assistant"]:
            raise RowError("bad_column", "the turns are not one question and one answer")
        pieces = _rated_steps.cut(turns[1].content or "", options, _count(row, column))
        _rated_steps.require_tail(pieces)
        labels = _ratings.ratings(row.get(column), len(pieces) - 1, column)
        return [StepChain(turns[0].content or "", pieces[:-1], labels)]


class _StepConversations(Format):
    """A conversation whose user turns are steps and whose assistant turns rate them, ``+`` or
    ``-``.

    The problem stands in the first user turn, before the first step.
    """

    name = "step_conversations"
    kinds = (STEPS,)
    columns: Columns = _rated_steps.TURNS

    def matches(self, row: Row) -> str | None:
        column = _rated_steps.turn_column(row)
        turns = _rated_steps.spoken(row[column]) if column else []
        answers = [content for role, content in turns if role == "assistant"]
        if answers and all(isinstance(a, str) and a.strip() in ("+", "-") for a in answers):
            return f"{column} with one step per user turn, then + or -"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        turns = _rated_steps.conversation(row)
        roles = [message.role for message in turns]
        if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
            raise RowError("bad_column", "the turns do not alternate between a step and its rating")
        labels = [
            _ratings.rating(message.content, f"the rating of step {i + 1}")
            for i, message in enumerate(turns[1::2])
        ]
        pieces = [message.content or "" for message in turns[::2]]
        return [_rated_steps.chain([*pieces, ""], labels, options, own_text=False)]


TABLE = (
    _Stepwise(),
    _SoftPrefix(),
    _MathShepherd(),
    _OpenRLHF(),
    _TaggedMessages(),
    _StepConversations(),
)
