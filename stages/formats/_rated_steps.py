"""What formats of rated steps have in common: problems, lists of steps, texts with tags, turns."""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from stages.contract import Columns, FormatOptions, Message, Row, StepChain
from stages.errors import RowError, counted
from stages.format import Format
from stages.formats import _messages, _turns
from stages.formats._asked import Question, meant, require_same
from stages.kinds import STEPS
from stages.rows import stop_text
from stages.rows.column_names import peek

# Step tags in the wild: Math-Shepherd, Qwen2.5-Math-PRM, Llama PRMs.
TAGS = ("ки", "<extra_0>", "<|reserved_special_token_0|>", "<step>", "<|step|>")
PROBLEMS = ("problem", "prompt", "question", "query", "input")
LISTS = ("steps", "completions", "process", "solution_steps", "modified_process")
_TURNS = ("conversations", "messages", "conversation")
PROBLEM: Columns = {"problem": PROBLEMS, **_turns.BEFORE}
LISTED: Columns = {**PROBLEM, "steps": LISTS}
TURNS: Columns = {"turns": _TURNS, **_turns.BEFORE}


def cut(text: str, options: FormatOptions) -> list[str]:
    """A text without the step tag that it uses: what stands before each, and after the last.

    Raises:
        RowError: none of the known ones stands in it.
    """
    tags = (options.step_tag,) if options.step_tag else TAGS
    tag = next((tag for tag in tags if tag in text), None)
    if tag is None:
        raise RowError("no_steps", f"no step tag ({', '.join(tags)}) occurs in the text")
    return text.split(tag)


def require_tail(pieces: list[str]) -> None:
    """After the last tag only whitespace may stand.

    Raises:
        RowError: something else does.
    """
    if pieces[-1].strip():
        detail = f"text after the last step tag: {pieces[-1].strip()[:60]!r}"
        raise RowError("text_after_last_step", detail)


def chain(
    pieces: list[str], labels: list[float | None], options: FormatOptions, own_text: bool = True
) -> StepChain:
    """A chain from a joined text, cut at its tags.

    The problem ends where the first step begins: at ``Step 1:``, or at what ``--prompt-separator``
    says.

    Args:
        own_text: the pieces are one text of the row's own, which ``raw`` rendering repeats.

    Raises:
        RowError: text follows the last tag, or where the first step begins is not said.
    """
    require_tail(pieces)
    at = _first_step(pieces[0], options.prompt_separator)
    steps = [pieces[0][at:], *pieces[1:-1]]
    problem = asked(pieces[0][:at], options)
    return StepChain(problem, steps, labels, pieces=pieces if own_text else None)


def _first_step(text: str, separator: str) -> int:
    """Where the first step begins in what stands before the first tag.

    A question may speak of steps itself. Where it numbers more of them before the steps begin again
    at the first, those are the question's own. Otherwise nothing says which one begins the answer.

    Raises:
        RowError: none begins there, or one of several.
    """
    places = [match.start() for match in re.finditer(re.escape(separator), text)]
    if not places:
        detail = f"no {separator!r} before the first tag; see --prompt-separator"
        raise RowError("no_first_step", detail)
    second = re.sub(r"\b1\b", "2", separator, count=1)  # Step 1: -> Step 2:
    if second == separator:  # a separator that numbers nothing: the problem ends where it first is
        return places[0]
    numbered = [second in text[a:b] for a, b in pairwise(places)]
    if all(numbered) and second not in text[places[-1] :]:
        return places[-1]
    seen = f"{separator!r} occurs {counted(len(places), 'time')} before the first tag"
    if all(numbered):  # the step before a tag does not number the one behind it
        seen = f"{second!r} occurs after {separator!r} before the first tag"
    detail = "so where the problem ends is not clear; give --prompt-separator a longer text that "
    raise RowError("two_first_steps", f"{seen}, {detail}occurs once")


def asked(text: str, options: FormatOptions) -> str:
    """The problem that a text states, out of the chat template that it may carry already.

    Raises:
        RowError: it carries one and nobody allowed that, or more than the question stands in it.
    """
    parsed = stop_text.allowed(text, "the problem", options.already_templated)
    if parsed is None:
        return text
    turns = _without_system(stop_text.question(parsed[1]), options)
    if [turn.role for turn in turns] != ["user"]:
        raise RowError("bad_column", "the templated problem has more than one question")
    return turns[0].content or ""


def own_texts(one: Row, names: Iterable[str]) -> list[str]:
    """The keys of an object's texts; of empty ones where it has no others."""
    held = [name for name in names if isinstance(dict.get(one, name), str)]
    return [name for name in held if dict.get(one, name, "").strip()] or held


def differing(one: Row, names: Iterable[str]) -> bool:
    """Whether texts of an object say different things."""
    return len({dict.get(one, name, "").strip() for name in names}) > 1


def texts(value: Any, column: str) -> list[str]:
    """A column that must hold a list of texts."""
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise RowError("bad_column", f"column {column!r} is not a list of texts")
    return value


def listed(row: Row, usual: str = "steps") -> list[str]:
    """The row's list of steps.

    Raises:
        RowError: there is none, or it holds other things than texts.
    """
    name = step_column(row) or usual
    return texts(row.get(name), name)


def step_column(row: Row) -> str | None:
    """The column that holds a list of steps."""
    for name in LISTS:
        value = peek(row, name)
        if isinstance(value, list) and value and all(isinstance(step, str) for step in value):
            return name
    return None


def require_alone(row: Row, options: FormatOptions) -> None:
    """Beside its problem and its steps the row says nothing that the model should read.

    Raises:
        RowError: it has a history, or a system text and ``--system`` does not say what becomes
            of that.
    """
    ahead = _turns.before(row)
    if ahead and _without_system(ahead, options):
        raise RowError("bad_column", "column 'history' has no place before rated steps")


def problem(row: Row, options: FormatOptions) -> str:
    """The text of the problem, under any of its usual names."""
    require_alone(row, options)
    name = _turns.chosen_of(row, PROBLEMS, options.columns) or "problem"
    return asked(_turns.text(row, name), options)


def turn_column(row: Row) -> str | None:
    """The column that holds turns."""
    return next((name for name in _TURNS if _turns.are_turns(peek(row, name))), None)


def spoken(turns: list[Row]) -> list[tuple[str | None, Any]]:
    """Role and content of each turn, whatever the dialect."""
    contents = [(turn.get("content"), turn) for turn in turns]
    said = [turn.get("value") if content is None else content for content, turn in contents]
    return [*zip(map(_messages.role_of, turns), said, strict=True)]


def conversation(row: Row, options: FormatOptions) -> list[Message]:
    """The row's turns without a system text.

    Raises:
        RowError: there is a system text and ``--system`` does not say what becomes of it; or a
            turn has a weight of its own, which steps do not.
    """
    turns = _turns.whole(row, turn_column(row) or "messages")
    if any(turn.weight is not None for turn in turns):
        raise RowError("bad_weight", "a turn's weight: steps are trained by their ratings alone")
    return _without_system(turns, options)


def _without_system(turns: list[Message], options: FormatOptions) -> list[Message]:
    if turns[0].role != "system":
        return turns
    if options.system is None:
        detail = "PRM examples take their system text from --system, not from the row"
        raise RowError("system_text", detail)
    return turns[1:]


# Ratings of steps: one value, a list of them, the keys and columns that may hold them.


_SIGNS = {"+": 1.0, "-": 0.0}
Label = Callable[[Any, str], float | None]  # a value and its place as a rating


def rating(value: Any, where: str) -> float | None:
    """A label as a rating from 0 (bad) to 1 (good); null is unlabelled.

    Raises:
        RowError: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, str) and value.strip() in _SIGNS:
        return _SIGNS[value.strip()]
    if isinstance(value, (bool, int, float)) and math.isfinite(value) and 0 <= value <= 1:
        return float(value)
    raise RowError("bad_label", f"{where} is {value!r}; a rating is +, -, a boolean or 0 to 1")


def is_rating(value: Any) -> bool:
    """Whether a value can be a rating."""
    try:
        rating(value, "")
    except RowError:
        return False
    return True


def differ(values: Iterable[Any]) -> bool:
    """Whether ratings of one step say different things."""
    read = [float(v) if isinstance(v, (bool, int, float)) else _sign(v) for v in values]
    return any(value != read[0] for value in read[1:])  # of none or one there is nothing to differ


def _sign(value: Any) -> Any:
    return _SIGNS.get(value.strip(), value) if isinstance(value, str) else value


def one_rating(one: Row, names: Iterable[str], where: str, label: Label) -> float | None:
    """The rating that a step gives under any of some keys; None where it is unlabelled.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: it is none, or two keys say different things.
    """
    given = [name for name in names if dict.get(one, name) is not None]
    labels = [label(one[name], f"{where}.{name}") for name in given]
    if differ(one[name] for name in given):
        said = " and ".join(f"{name} is {one[name]!r}" for name in given)
        raise RowError("bad_label", f"{where} has two ratings: {said}")
    return labels[0] if labels else None


def ratings(values: Any, steps: int, column: str, label: Label = rating) -> list[float | None]:
    """One rating per step.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: there are more or fewer than steps.
    """
    if not isinstance(values, list):
        raise RowError("bad_column", f"column {column!r} is not a list of labels")
    if len(values) != steps:
        detail = f"{counted(steps, 'step')} and {counted(len(values), 'label')}"
        raise RowError("label_count", detail)
    return [label(value, f"{column}[{i}]") for i, value in enumerate(values)]


def aligned(pieces: list[str], label: str) -> list[float | None]:
    """The ratings of a text that has a sign wherever another one, cut into pieces, has a tag.

    Raises:
        RowError: ``misaligned``: they differ elsewhere; ``bad_label``: a sign is something else.
    """
    signs: list[float | None] = []
    at = 0
    for number, piece in enumerate(pieces, 1):
        if not label.startswith(piece, at):
            detail = f"input and label differ before tag {number}, near character {at}"
            raise RowError("misaligned", detail)
        at += len(piece)
        if number < len(pieces):
            signs.append(rating(label[at : at + 1], f"the label of step {number}"))
            at += 1
    if at != len(label):
        raise RowError("misaligned", f"label goes on after character {at}, where input ends")
    return signs


def signed_ratings(options: FormatOptions) -> dict[Any, float | None]:
    """What ratings of -1, 0 and 1 say; 0 is what ``--neutral`` makes of it."""
    return {1: 1.0, -1: 0.0, 0: {"null": None, "good": 1.0, "bad": 0.0}[options.neutral]}


def is_signed(values: Iterable[Any]) -> bool:
    """Whether ratings count from -1, as some of them show."""
    return any(type(value) in (int, float) and value == -1 for value in values)


class Signed(Format, abstract=True):
    """A format whose variant ``signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).

    Otherwise they are signs, booleans, or numbers from 0 to 1.
    """

    kinds = (STEPS,)
    ways = ("signed", "unsigned")
    _word = "ratings"

    @abstractmethod
    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        """The ratings that rows show."""

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        if is_signed(self._shown(rows, columns)):
            return "signed", f"{self._word} are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def _open(self, row: Row) -> Question | None:
        """What a row leaves open, and the options that settle it."""
        return None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        return next((question for row in rows if (question := self._open(row))), None)

    def _label(self, options: FormatOptions) -> Label:
        """What makes a rating from 0 (bad) to 1 (good) of a value; None is unlabelled.

        It raises RowError where the value is something else.
        """
        if self._way != "signed":
            return rating

        def label(value: Any, where: str) -> float | None:
            if value is None:
                return None
            if type(value) not in (int, float) or value not in (-1, 0, 1):
                raise RowError("bad_label", f"{where} is {value!r}, not -1, 0 or 1")
            return signed_ratings(options)[value]

        return label


def _any_given(values: Sequence[Any]) -> bool:
    """Whether some rating is given, so not all are null."""
    return any(one is not None for one in values)


def _are_ratings(value: Any) -> bool:
    """Whether a value is a list of ratings, of which one is given."""
    if not isinstance(value, list) or not _any_given(value):
        return False
    return all(map(is_rating, value)) or all(one in (None, -1, 0, 1) for one in value)


def _ratings_said(values: Any) -> Any:
    """What a list of ratings says; the value itself where it is none.

    A list of -1 and 1 says bad and good, whatever the format reads elsewhere.
    """
    if not isinstance(values, list):
        return values
    if -1 in values and all(type(one) in (int, float) and one in (-1, 1) for one in values):
        return [max(0.0, float(one)) for one in values]
    return [rating(value, "") if is_rating(value) else value for value in values]


def rated(row: Row, names: Sequence[str], columns: Mapping[str, str]) -> str:
    """The column of ratings: the first that holds anything, and not only nulls where another one
    holds ratings. Other lists of as many ratings say what this one says.

    Raises:
        AskError: one says something else.
    """
    there = [name for name in meant(names, columns) if peek(row, name) is not None]
    silent = [n for n in there if isinstance(peek(row, n), list) and not _any_given(peek(row, n))]
    if any(_are_ratings(peek(row, name)) for name in there):
        there = [name for name in there if name not in silent]
    column = there[0] if there else names[0]
    require_same_ratings(row, column, names, columns)
    return column


def require_same_ratings(
    row: Row, column: str, names: Sequence[str], columns: Mapping[str, str], before: str = ""
) -> None:
    """Other lists of as many ratings say what the one that is read says.

    Raises:
        AskError: one says something else.
    """
    mine, what = peek(row, column), "the rating of each step"

    def fits(value: Any) -> bool:
        """Whether a value is a list of ratings, of as many steps as the one that is read."""
        return _are_ratings(value) and (not isinstance(mine, list) or len(value) == len(mine))

    require_same(row, column, names, columns, what, said=_ratings_said, fits=fits, before=before)
