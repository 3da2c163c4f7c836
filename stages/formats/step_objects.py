"""Steps as objects with a rating each: in a list, in several solutions, in turns."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Example, FormatOptions, Refused, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _messages, _rated_steps, _ratings, _turns
from stages.formats._fields import Field, Question, columns_of, is_any, is_list, required
from stages.rows.column_names import Overlaid, peek, read_key
from stages.rows.shapes import is_number, is_passages, is_text

_STEP = columns_of("rated_step")
RATINGS = _STEP["rating"]
_RATING = Field("rating of a step", RATINGS, is_any, _ratings.said)
_TEXT = Field("text of a step", _STEP["text"], is_text, str.strip)


def _are_rated(value: Any) -> bool:
    """Whether a value is a list of objects that have a text, and some of them a rating."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return False
    known = all(map(_TEXT.first, value)) and any(map(_RATING.first, value))
    return known and not any("completions" in one for one in value)


_STEPS = Field("list of rated steps", columns_of("rated_steps")["steps"], _are_rated)


def _rated(
    row: Row, label: _ratings.Label, before: str = ""
) -> tuple[list[str], list[float | None]]:
    """Texts and labels of the row's steps.

    Args:
        before: the place of ``row`` in another one: ``solutions[].``.

    Raises:
        AskError: a step has two texts, or two ratings, that differ.
        RowError: there are no steps, or a rating is something else.
    """
    name = required(_STEPS.first(row), "there is no list of steps with a text and a rating each")
    place = f"{before}{name}[]."
    texts = [step[_TEXT.needed(step, before=place)] for step in row[name]]
    each = ((f"{name}[{number}]", step) for number, step in enumerate(row[name]))
    return texts, [_ratings.one_rating(one, at, _RATING, label, place) for at, one in each]


class _RatedSteps(_ratings.Signed):
    """``steps`` as objects with a text and a rating each, under any of their usual names.

    ``rated_steps/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good); otherwise they are
    signs, booleans, or numbers from 0 to 1.
    """

    name = "rated_steps"
    _needs = (_STEPS,)
    _words = "{} with a text and a rating in each"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [StepChain(_rated_steps.problem(row, options), *_rated(row, self._label(options)))]


_LISTS = columns_of("solution")["ratings"]
_BREAKS = _rated_steps.BREAKS
_OUTER = columns_of("nested_steps")["solutions"]


def _beside(inner: Row) -> tuple[str, str] | None:
    """The keys of a solution's texts and of the ratings beside them."""
    steps, labels = _rated_steps.LISTED.first(inner), Field("", _LISTS, is_list).first(inner)
    return (steps, labels) if steps and labels else None


def _is_solution(inner: Any) -> bool:
    return isinstance(inner, dict) and bool(_beside(inner) or _STEPS.first(inner))


_SOLUTIONS = Field("", _OUTER, lambda value: is_list(value) and any(map(_is_solution, value)))


class _NestedSteps(_rated_steps.Cut, _ratings.Signed):
    """Several solutions of one problem, each with its own ``steps``: ``chain_of_thoughts[].steps``.

    The steps of a solution are objects with a text and a rating each, or texts beside a list of
    ratings. A solution that has neither is refused by name, beside the others of its row. Where
    ``--map`` names the steps and the labels of all solutions, a solution may be one text too, with
    a tag or a line break after each step.
    """

    name = "nested_steps"
    _needs = (_SOLUTIONS,)
    _words = "{}, each with rated steps"
    fans_out = True
    ways = (*_ratings.Signed.ways, *_BREAKS, *(f"signed-{one}" for one in _BREAKS))
    _tagged = "unsigned"
    _asks = False  # of what one solution leaves open, instead of refusing it alone

    def matches(self, row: Row) -> str | None:
        taken = "the steps of several solutions, and the labels of each"
        return super().matches(row) or (taken if _are_taken(row) else None)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        asking = copy.copy(self)
        asking._asks = True
        return _ratings.Signed.doubt(asking, rows, columns)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name, problem = _SOLUTIONS.first(row), _rated_steps.problem(row, options)
        taken = name is None and _are_taken(row)
        name = "steps" if taken else name
        name = required(name, "there is no list of solutions with rated steps")
        examples: list[Example] = []
        each = zip(row["steps"], row["labels"], strict=True) if taken else row[name]
        for number, inner in enumerate(each):
            try:
                examples.append(StepChain(problem, *self._chain(inner, name, options)))
            except RowError as error:
                if self._asks and isinstance(error, AskError):
                    raise
                examples.append(Refused(error.code, f"{name}[{number}]: {error.detail}"))
        return examples

    def _chain(
        self, inner: Any, outer: str, options: FormatOptions
    ) -> tuple[list[str], list[float | None]]:
        label = self._label(options)
        if isinstance(inner, tuple):
            texts, rated, name = *inner, "labels"
        elif not isinstance(inner, dict):
            raise RowError("bad_column", f"it is a {type(inner).__name__}, not an object")
        elif beside := _beside(inner):
            name, rated = _ratings.listed(inner, _LISTS, before=f"{outer}[].")
            texts = inner[beside[0]]
        else:
            return _rated(inner, label, f"{outer}[].")
        if isinstance(texts, str) and self._seen is None:
            pieces = _rated_steps.cut(texts, self._cutting(options), listed=True)
            texts = [piece for piece in pieces if piece.strip()]
        return texts, _ratings.ratings(rated, len(texts), name, label)


def _are_taken(row: Row) -> bool:
    """Whether a row has the steps of several solutions, and a list of labels for each."""
    steps, labels = peek(row, "steps"), peek(row, "labels")
    if not is_list(steps) or not is_list(labels) or not len(steps) == len(labels) > 0:
        return False
    return all(map(is_list, labels)) and all(map(is_passages, steps))


def _speaks(turn: Row) -> bool:
    return _messages.role_of(turn) == "assistant"


def _is_rated(turn: Row) -> bool:
    """Whether a turn is an assistant's and has a rating."""
    return _speaks(turn) and _NUMBER.first(turn) is not None


_NUMBER = _RATING.that(is_number)
_TURNS = columns_of("rated_messages")["turns"]
_SPOKEN = Field("", _TURNS, lambda value: _turns.are_turns(value) and any(map(_is_rated, value)))


class _RatedMessages(_ratings.Signed):
    """Turns where each assistant turn has a rating: a question, then one rated step per turn.

    ``rated_messages/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good). A turn of
    somebody else between two steps has no place in a chain of steps: such rows are refused by name.
    """

    name = "rated_messages"
    _needs = (_SPOKEN,)
    _words = "{} with a rating of each step"
    prompts = ()

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = required(_SPOKEN.first(row), "no assistant turn has a rating")
        turns = row[name]
        plain = [{k: v for k, v in turn.items() if k not in RATINGS} for turn in turns]
        said = _rated_steps.conversation(Overlaid(row, {name: plain}), name)
        roles = [message.role for message in said]
        if roles[0] != "user" or set(roles[1:]) != {"assistant"}:
            role = next((role for role in roles[1:] if role != "assistant"), roles[0])
            detail = f"a turn ({role}) that is not a step is among the steps"
            raise RowError("turns_between_steps", detail)
        label, labels = self._label(options), list[float | None]()
        for number, turn in enumerate(turns):
            where = f"{name}[{number}]"
            if _speaks(turn):
                labels.append(_ratings.one_rating(turn, where, _RATING, label, f"{name}[]."))
            elif key := next((k for k in RATINGS if turn.get(k) is not None), None):
                raise RowError(
                    "bad_label", f"{where} has a {key}, but only assistant turns are steps"
                )
        for key in RATINGS:
            read_key(row, name, key)  # the turns were read without it
        texts = [message.content or "" for message in said[1:]]
        return [StepChain(said[0].content or "", texts, labels)]


TABLE = (_RatedSteps(), _NestedSteps(), _RatedMessages())
