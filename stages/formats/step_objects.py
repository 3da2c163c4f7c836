"""Steps as objects with a rating each: in a list, in several solutions, in turns."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Example, FormatOptions, Refused, Row, StepChain
from stages.errors import AskError, RowError
from stages.formats import _messages, _rated_steps, _ratings, _turns
from stages.formats._fields import Field, Question, columns_of, is_any, is_list, required
from stages.rows import judgements
from stages.rows.column_names import peek, read_key
from stages.rows.shapes import is_passages, is_text

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
    return texts, [_ratings.one_rating(one, _RATING, at, label, place) for at, one in each]


def _given(one: Row) -> Any:
    """The rating of a step, or of a turn; None where it has none."""
    return one.get(_RATING.first(one) or "")


def _shown_by(solution: Row) -> Iterable[Any]:
    """The ratings that the steps of a solution show."""
    if name := _STEPS.first(solution):
        return map(_given, solution[name])
    steps_and_labels = _beside(solution)
    return solution[steps_and_labels[1]] if steps_and_labels else ()


class _RatedSteps(_ratings.Signed):
    """``steps`` as objects with a text and a rating each, under any of their usual names.

    ``rated_steps/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good); otherwise they are
    signs, booleans, or numbers from 0 to 1.
    """

    name = "rated_steps"
    _needs = (_STEPS,)
    _words = "{} with a text and a rating in each"

    def _shown(self, row: Row, columns: Mapping[str, str]) -> Iterable[Any]:
        return _shown_by(row)

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

    def _shown(self, row: Row, columns: Mapping[str, str]) -> Iterable[Any]:
        name = _SOLUTIONS.first(row)
        if name is None:
            return judgements.flat(row["labels"])
        return (value for inner in filter(_is_solution, row[name]) for value in _shown_by(inner))

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
        for number, inner in enumerate(_taken(row, self._cutting(options)) if taken else row[name]):
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
        if not isinstance(inner, dict):
            raise RowError("bad_column", f"it is a {type(inner).__name__}, not an object")
        beside = _beside(inner)
        if beside is None:
            return _rated(inner, self._label(options), f"{outer}[].")
        steps, labels = beside[0], _ratings.rated(inner, _LISTS, before=f"{outer}[].")
        texts = inner[steps]
        rated = _ratings.listed(inner, labels)
        return texts, _ratings.ratings(rated, len(texts), labels, self._label(options))


def _are_taken(row: Row) -> bool:
    """Whether a row has the steps of several solutions, and a list of labels for each."""
    steps, labels = peek(row, "steps"), peek(row, "labels")
    if not is_list(steps) or not is_list(labels) or not len(steps) == len(labels) > 0:
        return False
    return all(map(is_list, labels)) and all(map(is_passages, steps))


def _taken(row: Row, options: FormatOptions) -> list[Row]:
    """These solutions as objects, each cut into its steps."""
    solutions = []
    for steps, labels in zip(row["steps"], row["labels"], strict=True):
        if isinstance(steps, str):
            steps = [one for one in _rated_steps.cut(steps, options, listed=True) if one.strip()]
        solutions.append({"steps": steps, "labels": labels})
    return solutions


def _speaks(turn: Row) -> bool:
    return _messages.role_of(turn) == "assistant"


def _are_rated_turns(value: Any) -> bool:
    """Whether a value is a list of turns of which an assistant's has a rating."""
    spoken = filter(_speaks, value) if _turns.are_turns(value) else ()
    return any(isinstance(_given(turn), (bool, int, float)) for turn in spoken)


_SPOKEN = Field("", columns_of("rated_messages")["turns"], _are_rated_turns)


class _RatedMessages(_ratings.Signed):
    """Turns where each assistant turn has a rating: a question, then one rated step per turn.

    ``rated_messages/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good). A turn of
    somebody else between two steps has no place in a chain of steps: such rows are refused by name.
    """

    name = "rated_messages"
    _needs = (_SPOKEN,)
    _words = "{} with a rating of each step"
    prompts = ()

    def _shown(self, row: Row, columns: Mapping[str, str]) -> Iterable[Any]:
        return map(_given, filter(_speaks, row[_SPOKEN.first(row) or ""]))

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = required(_SPOKEN.first(row), "no assistant turn has a rating")
        turns = row[name]
        plain = [{k: v for k, v in turn.items() if k not in RATINGS} for turn in turns]
        before = {key: row[key] for key in (*_turns.SYSTEM, "history") if key in row}
        said = _rated_steps.conversation({**before, name: plain})
        roles = [message.role for message in said]
        if roles[0] != "user" or set(roles[1:]) != {"assistant"}:
            role = next((role for role in roles[1:] if role != "assistant"), roles[0])
            detail = f"a turn ({role}) that is not a step is among the steps"
            raise RowError("turns_between_steps", detail)
        label = self._label(options)
        labels: list[float | None] = []
        for number, turn in enumerate(turns):
            if _speaks(turn):
                where, place = f"{name}[{number}]", f"{name}[]."
                labels.append(_ratings.one_rating(turn, _RATING, where, label, place))
            elif key := next((k for k in RATINGS if turn.get(k) is not None), None):
                what = f"{name}[{number}] has a {key}, but only assistant turns are steps"
                raise RowError("bad_label", what)
            for key in RATINGS:
                if key in turn:
                    read_key(row, name, key)  # the turns were read without it
        texts = [message.content or "" for message in said[1:]]
        return [StepChain(said[0].content or "", texts, labels)]


TABLE = (_RatedSteps(), _NestedSteps(), _RatedMessages())
