"""``steps`` as objects with a text and a rating each, under any of their usual names.

``rated_steps/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good); otherwise they are
signs, booleans, or numbers from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _rivals, _steps
from stages.formats._asked import Question, open_question
from stages.kinds import STEPS

_COLUMNS = ("steps", "process", "solution_steps", "reasoning_steps", "rated_steps")
_TEXTS = ("text", "step", "content", "step_text", "thought")
RATINGS = (
    "rating",
    "label",
    "score",
    "reward",
    "correct",
    "is_correct",
    "correctness",
    "step_rating",
    "step_reward",
)
_SIGNED = {1: 1.0, -1: 0.0}
_NEUTRAL = {"null": None, "good": 1.0, "bad": 0.0}


def rating_of(one: Row) -> str | None:
    """The key of an object's rating: one that rates, before one that holds null."""
    given = (name for name in RATINGS if dict.get(one, name) is not None)
    return next(given, next((name for name in RATINGS if name in one), None))


def rivals(steps: Iterable[Any]) -> list[str]:
    """Keys under which one of the steps is rated twice, and differently."""
    for step in steps:
        keys = [name for name in RATINGS if isinstance(step, dict) and step.get(name) is not None]
        if _steps.differ(dict.get(step, key) for key in keys):
            return keys
    return []


def which(keys: Sequence[str], column: str) -> tuple[str, str]:
    """The doubt that ratings under several keys leave, and the options that settle it."""
    flags = " or ".join(f"--ignore '{column}[].{key}'" for key in keys)
    what = f"{' and '.join(keys)} could each be the rating of a step in {column}, and they differ"
    return what, f"Say which to leave out with {flags}"


def two_texts(steps: Iterable[Any], column: str) -> Question | None:
    """What a step with two texts that differ leaves open, and the options that settle it."""
    for step in steps:
        names = _texts_of(step) if isinstance(step, dict) else []
        if len({dict.get(step, name, "").strip() for name in names}) > 1:
            return _rivals.which(names, f"the text of a step in {column}", f"{column}[].")
    return None


def left_open(steps: Sequence[Any], column: str) -> Question | None:
    """What the ratings and the texts of some steps leave open, and the options that settle it."""
    keys = rivals(steps)
    return which(keys, column) if keys else two_texts(steps, column)


def _texts_of(one: Row) -> list[str]:
    """The keys of an object's texts; of empty ones where it has no others."""
    names = [name for name in _TEXTS if isinstance(dict.get(one, name), str)]
    return [name for name in names if dict.get(one, name, "").strip()] or names


def column(row: Row) -> str | None:
    """The column with a list of objects that have a text, and some of them a rating."""
    for name in _COLUMNS:
        value = dict.get(row, name)
        if not isinstance(value, list) or not value:
            continue
        if not all(isinstance(one, dict) and _texts_of(one) for one in value):
            continue
        if any(rating_of(one) for one in value) and not any("completions" in one for one in value):
            return name
    return None


def is_signed(values: Sequence[Any]) -> bool:
    """Whether ratings count from -1, as some of them show."""
    return any(type(value) in (int, float) and value == -1 for value in values)


def label(value: Any, where: str, signed: bool, options: FormatOptions) -> float | None:
    """A rating from 0 (bad) to 1 (good); None is unlabelled.

    Raises:
        RowError: it is something else.
    """
    if not signed or value is None:
        return _steps.rating(value, where)
    if type(value) not in (int, float) or value not in (-1, 0, 1):
        raise RowError("bad_label", f"{where} is {value!r}, not -1, 0 or 1")
    return {**_SIGNED, 0: _NEUTRAL[options.neutral]}[value]


def rating_in(step: Row, where: str, signed: bool, options: FormatOptions) -> float | None:
    """The rating of one step, from 0 (bad) to 1 (good); None where it is unlabelled.

    Raises:
        RowError: it is something else, or there are two that differ.
    """

    def one(value: Any, place: str) -> float | None:
        return label(value, place, signed=signed, options=options)

    return _steps.one_rating(step, RATINGS, where, one)


def rated(
    row: Row, signed: bool, options: FormatOptions, before: str = ""
) -> tuple[list[str], list[float | None]]:
    """Texts and labels of the row's steps.

    Args:
        before: the place of ``row`` in another one: ``solutions[].``.

    Raises:
        AskError: a step has two texts that differ.
        RowError: there are no steps, or a rating is something else.
    """
    name = column(row)
    if name is None:
        raise RowError("bad_column", "there is no list of steps with a text and a rating each")
    texts: list[str] = []
    labels: list[float | None] = []
    for number, step in enumerate(row[name]):
        if question := two_texts([step], f"{before}{name}"):
            raise open_question(*question)
        said = [step[key] for key in _texts_of(step)]  # all of them are read: they say the same
        texts.append(said[0])
        labels.append(rating_in(step, f"{name}[{number}]", signed=signed, options=options))
    return texts, labels


def _shown(rows: Sequence[Row]) -> list[Any]:
    """The ratings that rows show."""
    steps = (step for row in rows for step in row[column(row) or ""])
    return [step.get(rating_of(step) or "") for step in steps]


class _RatedSteps(Format):
    """The format; ``signed`` ratings are -1, 0 and 1."""

    name = "rated_steps"
    kinds = (STEPS,)
    columns: Columns = {"steps": _COLUMNS, **_steps.PROBLEM}
    prompts = _steps.PROBLEMS

    def __init__(self, signed: bool = False) -> None:
        self._signed = signed

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"signed": _RatedSteps(signed=True), "unsigned": _RatedSteps()}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        if is_signed(_shown(rows)):
            return "signed", "ratings are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def matches(self, row: Row) -> str | None:
        name = column(row)
        return f"{name} with a text and a rating in each" if name else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        for row in rows:
            name = column(row) or ""
            if question := left_open(dict.get(row, name) or [], name):
                return question
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [StepChain(_steps.problem(row, options), *rated(row, self._signed, options))]


FORMAT = _RatedSteps()
