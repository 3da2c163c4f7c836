"""Steps in a list beside their ratings, or in one text or in turns with a tag after each."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from stages.contract import Example, FormatOptions, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _fields, _rated_steps, _ratings, _turns
from stages.formats._fields import Field, Question, columns_of, fields_of, is_list
from stages.rows.column_names import Overlaid, peek
from stages.rows.shapes import NEARLY_ALL, is_text
from stages.rows.unread import differs_from, mapped

_LABELS = columns_of("stepwise")["ratings"]


def _fits(value: Any, steps: int) -> bool:
    """Whether a value can be a rating per step; bare integers could also be step numbers."""
    rates = is_list(value) and (all(map(_ratings.is_rating, value)) or _ratings.are_ratings(value))
    several = rates and -1 not in value and any(type(one) is not int for one in value)
    return several or (rates and len(value) == steps)


class _Rated(_rated_steps.Steps, abstract=True):
    """A format whose rows have steps, and a list of ratings for them."""

    @abstractmethod
    def _chain(self, row: Row, options: FormatOptions, count: int) -> StepChain:
        """The problem and its steps, without ratings; ``count``: of the ratings."""

    def _label(self, options: FormatOptions) -> _ratings.Label:
        return _ratings.rating

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column, values = _ratings.listed(row, self.columns["ratings"], options.columns)
        chain = self._chain(row, options, len(values))
        labels = _ratings.ratings(values, len(chain.steps), column, self._label(options))
        return [replace(chain, labels=labels)]


class _Stepwise(_ratings.Signed, _Rated):
    """``prompt``, ``completions`` (the steps) and ``labels`` (one per step, hard or soft).

    ``stepwise/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).
    """

    name = "stepwise"
    passes_on = (*_rated_steps.PROBLEMS, *_rated_steps.LISTS, *_LABELS)

    def matches(self, row: Row) -> str | None:
        steps = _rated_steps.LISTED.first(row)
        count = len(peek(row, steps)) if steps else 0
        labels = Field("", _LABELS, lambda value: _fits(value, count)).first(row)
        return f"{steps} and a rating each in {labels}" if steps and labels else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        names = [_rated_steps.LISTED.first(row, columns) for row in rows]
        lists = [peek(row, name) for row, name in zip(rows, names, strict=True) if name]
        if several := [some for some in lists if len(some) > 1]:
            whole = sum(map(_rated_steps.are_attempts, several))
            if whole >= NEARLY_ALL * len(several):
                what = f"each text in {names[0]} is a whole attempt, and no step of one solution"
                return what, "Give rows with the steps of one solution, and a rating of each"
        return super().doubt(rows, columns)

    def _chain(self, row: Row, options: FormatOptions, count: int) -> StepChain:
        steps = _rated_steps.texts(row, _rated_steps.LISTED.needed(row, options.columns))
        return StepChain(_rated_steps.problem(row, options), steps, [])


_NEXT = columns_of("next_step")
_STEP = Field("next step", _NEXT["next step"], is_text)
_ONE = Field("rating of the step", _NEXT["rating"], _ratings.is_given)


class _NextStep(_ratings.Signed):
    """The steps so far, the next one, and the rating of that one alone.

    Rows whose step is neither good nor bad say nothing: they are asked about.
    ``next_step/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).
    """

    name = "next_step"
    columns = _NEXT
    _needs = (_STEP, _ONE)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        step, rating = (field.needed(row, options.columns) for field in self._needs)
        earlier = _turns.first_of(row, _NEXT["earlier steps"])
        steps = _rated_steps.texts(row, earlier) if earlier else []
        label = self._label(options)(row[rating], rating)
        if label is None:
            way = differs_from(options.columns.get(rating, rating), row[rating])
            what = f"{rating} is {row[rating]!r}: the step is neither good nor bad"
            raise AskError("nothing_labelled", what, f"Leave such rows out with {way}")
        labels = [*[None] * len(steps), label]
        return [StepChain(_rated_steps.problem(row, options), [*steps, row[step]], labels)]


class _SoftPrefix(_Rated):
    """``prefixes`` of a solution, each a step longer than the one before, and a value for each.

    The values are shares of continuations that reached the right answer, from 0 to 1.
    """

    name = "soft_prefix"
    _needs = fields_of("soft_prefix", prefixes=is_list, ratings=is_list)

    def _chain(self, row: Row, options: FormatOptions, count: int) -> StepChain:
        column = self._needs[0].needed(row, options.columns)
        each = [*pairwise(["", *_rated_steps.texts(row, column)])]
        for number, (before, prefix) in enumerate(each, 1):
            if not prefix.startswith(before):
                what = f"prefix {number} does not begin with the one before"
                raise RowError("not_cumulative", what)
        steps = [prefix.removeprefix(before) for before, prefix in each]
        return StepChain(_rated_steps.problem(row, options), steps, [])


# Steps in one text or in turns, with a tag after each or a turn that rates it.


class _MathShepherd(_rated_steps.Steps):
    """Two aligned texts: a step tag in ``input``, the rating at the same place in ``label``.

    Only the characters of ``label`` that stand where ``input`` has the tag are ratings; every other
    ``+`` and ``-`` is arithmetic.
    """

    name = "math_shepherd"
    _needs = fields_of("math_shepherd", text=is_text, ratings=is_text)
    _words = "{} and {} texts"
    prompts = ("input",)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _rated_steps.require_alone(row)
        pieces = _rated_steps.cut(_turns.text(row, "input"), options)
        labels = _ratings.aligned(pieces, _turns.text(row, "label"))
        return [_rated_steps.chain(pieces, labels, options)]


_TEXTS = columns_of("openrlhf_prm")["text"]


def _text(row: Row) -> str | None:
    """The column with the steps in one text: beside their problem, or with it in one."""
    asked = any(is_text(peek(row, name)) for name in _rated_steps.PROBLEMS)
    names = (*_rated_steps.LISTS * asked, "input")
    return next((name for name in names if is_text(peek(row, name))), None)


class _OpenRLHF(_rated_steps.Cut, _Rated):
    """``input`` text with a step tag, or ``question`` and the steps in one text (``process``), and
    a list of ratings: ``+``/``-`` or numbers."""

    name = "openrlhf_prm"
    _needs = fields_of("openrlhf_prm", ratings=is_list)
    prompts = ("input",)

    def matches(self, row: Row) -> str | None:
        text, name = _text(row), super().matches(row)
        return f"{text} text and a list in {name}" if text and name else None

    def _chain(self, row: Row, options: FormatOptions, count: int) -> StepChain:
        _rated_steps.require_alone(row)
        options = self._cutting(options)
        column = _text(row) or _turns.first_of(row, _TEXTS) or "input"
        pieces = _rated_steps.cut(_turns.text(row, column), options, listed=True)
        broken = bool(options.step_tag and options.step_tag.isspace())
        if broken and column == "input" and len(pieces) - 2 == count:  # one ends the problem
            pieces[:2] = ["\n".join(pieces[:2])]
        if column == "input":
            return _rated_steps.chain(pieces, [], options)
        _rated_steps.require_tail(pieces)
        problem = _rated_steps.problem(row, options)
        begun = pieces[0].lstrip().removeprefix(problem.strip())
        if begun != pieces[0].lstrip() and begun.lstrip().startswith(options.prompt_separator):
            whole = mapped("input", options.columns.get(column, column))
            how = f"Read it alone with {whole}"
            raise _fields.open_question(f"{column} begins with the problem", how)
        return StepChain(problem, pieces[:-1], [])


def _end_with_text(value: Any) -> bool:
    """Whether a value is turns of which the last is a text of the assistant."""
    role, content = _rated_steps.spoken(value)[-1] if _turns.are_turns(value) else (None, None)
    return role == "assistant" and is_text(content)


class _TaggedMessages(_rated_steps.Cut, _Rated):
    """A question and an answer with a step token after each step, and a list of ``labels``."""

    name = "tagged_messages"
    _needs = (
        _rated_steps.SPOKEN.that(_end_with_text),
        *fields_of("tagged_messages", ratings=is_list),
    )
    _words = "{} with steps in the answer, and {}"
    prompts = ()

    def _chain(self, row: Row, options: FormatOptions, count: int) -> StepChain:
        turns = _rated_steps.conversation(row)
        if [message.role for message in turns] != ["user", "assistant"]:
            raise RowError("bad_column", "the turns are not one question and one answer")
        pieces = _rated_steps.cut(turns[1].content or "", self._cutting(options), listed=True)
        _rated_steps.require_tail(pieces)
        return StepChain(turns[0].content or "", pieces[:-1], [])


def _worded(row: Row) -> Row:
    """A row with a word in the place of each rating that is null."""
    column = _rated_steps.SPOKEN.first(row)
    if column is None:
        return row
    both = zip(row[column], _rated_steps.spoken(row[column]), strict=True)
    word = {"content": "neutral"}
    turns = [{**turn, **word} if one == ("assistant", None) else turn for turn, one in both]
    return Overlaid(row, {column: turns})


def _are_signed(value: Any) -> bool:
    """Whether a value is turns of which the assistant's are signs, or null."""
    turns = _rated_steps.spoken(value) if _turns.are_turns(value) else []
    given = [said for role, said in turns if role == "assistant" and said is not None]
    return bool(given) and all(is_text(one) and one.strip() in ("+", "-") for one in given)


class _StepConversations(_rated_steps.Steps):
    """A conversation whose user turns are steps and whose assistant turns rate them, ``+`` or
    ``-``.

    The problem stands in the first user turn, before the first step.
    """

    name = "step_conversations"
    columns = columns_of("spoken")
    prompts = ()
    _needs = (_rated_steps.SPOKEN.that(_are_signed),)
    _words = "{} with one step per user turn, then + or -"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        turns = _rated_steps.conversation(_worded(row))
        roles = [message.role for message in turns]
        if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
            raise RowError("bad_column", "the turns do not alternate between a step and its rating")
        rated = enumerate((message.content for message in turns[1::2]), 1)
        labels = [_ratings.rating(said, f"the rating of step {at}") for at, said in rated]
        pieces = [message.content or "" for message in turns[::2]]
        return [_rated_steps.chain([*pieces, ""], labels, options, own_text=False)]


TABLE = (
    _Stepwise(),
    _NextStep(),
    _SoftPrefix(),
    _MathShepherd(),
    _OpenRLHF(),
    _TaggedMessages(),
    _StepConversations(),
)
