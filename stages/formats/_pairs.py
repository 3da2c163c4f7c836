"""What formats of answers, and of what orders them, have in common: prompts, sides, margins."""

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from stages.contract import FormatOptions, Message, Pair, Row
from stages.errors import AskError, RowError, counted
from stages.formats import _fields, _messages, _turns, texts
from stages.kinds import PAIR
from stages.rows import judgements, selection, stop_text
from stages.rows.column_names import EMPTY, peek
from stages.rows.dialects import DIALOGUE
from stages.rows.unread import differs_from, ignore, mapped
from stages.rows.words import exact

T = TypeVar("T")

_UNRATED = exact("value", "unrated")
_SIDES = ("chosen", "rejected")
_PROMPTS = _fields.columns_of("pair")["prompt"]
PROMPTS, TURNS = _PROMPTS[:5], _PROMPTS[5:7]
_WHOLE = PROMPTS[:3]  # which belong to no instruction: where --map names one, that is meant
_LISTED = ("contents", "context")  # turns where they hold a list; a context may be a text too
SCORES = _fields.couples(_fields.columns_of("margin")["scores"])
_TEXT = _fields.Field("answer", ("text", "content", "response", "answer", "output", "completion"))


class PairFormat(_fields.Asking, abstract=True):
    """A format whose rows have answers to one prompt, and say what orders them."""

    kinds = (PAIR,)
    prompts: tuple[str, ...] = PROMPTS
    _counted: tuple[str, ...] = ("tie", "two_orders", "unrated_answer")


def prompt(row: Row, options: FormatOptions) -> list[Message]:
    """The turns that both sides answer; empty when there are none."""
    listed = (name for name in _LISTED if _turns.are_turns(peek(row, name)))
    turns = _turns.first_of(row, TURNS, options.columns) or next(listed, None)
    if turns is not None:
        return _turns.dialogue(row, turns)
    named = "instruction" in options.columns or options.columns.keys().isdisjoint(_WHOLE)
    if named and peek(row, "instruction") is not None:
        return [*_turns.before(row), Message("user", texts.asked(row, options))]
    name = _turns.first_of(row, PROMPTS, options.columns)
    return _turns.asked(row, name) if name else []


def text_of(answer: Any, where: str) -> Any:
    """The answer itself; a turn or turns stay as they are.

    Args:
        where: its place in the row, ``answers[2]``.

    Raises:
        AskError: an object has two texts that differ.
    """
    if not isinstance(answer, dict) or not {"role", "from"}.isdisjoint(answer):
        return answer
    place = f"{where.partition('[')[0]}{'[]' if '[' in where else ''}."
    name = _TEXT.of(answer, before=place)
    if name is None:
        return None if is_silent(answer) else answer
    return answer[name]


def is_silent(answer: Any) -> bool:
    """Whether an answer says nothing: null, a blank text, or an object with such a text alone."""
    if isinstance(answer, dict) and {"role", "from"}.isdisjoint(answer):
        told = [answer[name] for name in _TEXT.names if name in answer]
        return not answer or (bool(told) and all(map(is_silent, told)))
    return answer in EMPTY or (isinstance(answer, str) and answer.isspace())


def side(value: Any, where: str) -> list[Message]:
    """One answer: a text, one turn, or turns."""
    if isinstance(value, str):
        if _turns.turns_in(value) is not None:
            raise RowError("bad_column", f"{where} is the JSON text of turns; store them as a list")
        return [Message("assistant", value)]
    if isinstance(value, dict):
        return [_messages.message({**value}, where)]  # all of it is read: keys are the turn's
    return _turns.conversation(value, where, one=True)


def is_whole(turns: list[Message]) -> bool:
    """Whether a side brings its own prompt: somebody other than the assistant begins it."""
    return turns[0].role != "assistant"


def split(chosen: list[Message], rejected: list[Message]) -> list[Message]:
    """Take the turns that both sides begin with off both; they are the prompt.

    What is left of each side may still begin with the same answer, where the next questions differ;
    ``examples.pair`` refuses that, as it does for sides that came with a prompt of their own.
    """
    count = shared(chosen, rejected, lambda turn: turn.role == "assistant")
    prompt_turns = chosen[:count]
    del chosen[:count], rejected[:count]
    return prompt_turns


def shared(chosen: Sequence[T], rejected: Sequence[T], is_answer: Callable[[T], bool]) -> int:
    """How many turns of two conversations are their prompt, which ends with whoever asks."""
    count = 0
    limit = min(len(chosen), len(rejected)) - 1  # an answer is left on each side
    while count < limit and chosen[count] == rejected[count]:
        count += 1
    while count and is_answer(chosen[count - 1]) and not is_answer(chosen[count]):
        count -= 1
    return count


def number(value: Any, where: str) -> float:
    """A finite number that float32 can hold.

    Raises:
        RowError: it is something else.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= _messages.MAX_FLOAT32:
        raise RowError("bad_margin", f"{where} {value!r} is not a finite number")
    return float(value)


def is_unrated(value: Any) -> bool:
    """Whether a value stands where nobody gave a number: null, an empty text, NaN, ``N/A``."""
    if isinstance(value, str):
        return not value.strip() or value.strip().casefold() in _UNRATED
    return value is None or (isinstance(value, float) and math.isnan(value))


def number_of_one(value: Any, where: str) -> float | None:
    """The number that rates one answer, spelled or not; None where it has none."""
    if is_unrated(value):
        return None
    spelled = float(value) if isinstance(value, bool) else judgements.spelled(value)
    return number(value if spelled is None else spelled, where)


_Margin = tuple[str, float, tuple[str, ...]]  # how it is found, the number, its columns
Own = tuple[str, float] | None  # a margin that a format itself found: where, and the number


def _margins(row: Row) -> list[_Margin]:
    """Every margin that a row's columns give."""
    margins: list[_Margin] = []
    if not is_unrated(row.get("margin")):
        margins.append(("margin", number(row["margin"], "margin"), ("margin",)))
    for names in SCORES:
        if all(name in row for name in names):
            better, worse = (None if is_unrated(row[n]) else number(row[n], n) for n in names)
            if better is not None and worse is not None:
                how = " - ".join(names)
                margins.append((how, number(better - worse, how), names))
    return margins


def _which_margin(margins: list[_Margin]) -> str:
    """The options that leave one margin of several; without columns it cannot be left out."""
    ways = []
    for one in margins:
        others = [other for other in margins if other is not one]
        flags = [ignore(name) for _, _, names in others for name in names]
        if not all(names for _, _, names in others):
            flags = ["--map margin=margin", *flags] if one[2] == ("margin",) else []
        ways.append(" ".join(flags))
    return f"Say which with {' or '.join(filter(None, ways))}"


def margin(row: Row, columns: Mapping[str, str] = _fields.NOTHING, own: Own = None) -> float | None:
    """How much better the chosen side is: the margin column, or the difference of two scores.

    A ``margin`` of 0 is kept: it is what the loss shall ask for. Two equal scores say that neither
    side is better, and a chosen score below the other that the rejected one is: such rows are
    refused. One score alone says nothing of the other side, and is not read.

    Args:
        columns: those that ``--map`` named; a margin among them wins.
        own: the margin that the format itself found, and where.

    Raises:
        RowError: ``bad_margin``, it is not a number; ``tie``, the scores are equal;
            ``two_orders``, they say that the rejected side is better; ``two_margins``, the row
            gives two that differ.
    """
    if "margin" in columns and not is_unrated(peek(row, "margin")):
        return number(row["margin"], "margin")
    margins = [*_margins(row), *([(*own, ())] if own else [])]
    if not margins:
        return None
    value = margins[0][1]
    if any(not math.isclose(value, one, rel_tol=1e-6, abs_tol=1e-9) for _, one, _ in margins):
        both = " and ".join(f"{how} is {number:g}" for how, number, _ in margins)
        what = f"{both}: each could be the margin"
        raise _fields.open_question(what, _which_margin(margins), "two_margins")
    for _, difference, names in margins:
        if len(names) == 2 and difference <= 0:
            raise _not_better(row, names, columns)
    # All agree by now; the format's own goes before rounded ones of columns.
    return own[1] if own else value


def require_no_sided_scores(columns: Mapping[str, str]) -> None:
    """Scores of the better and of the worse answer stand in no columns of the first and the second.

    Raises:
        RowError: ``--map`` reads them from such.
    """
    for names in SCORES:
        one, other = (columns.get(name, "") for name in names)
        if judgements.are_sides(one, other) or judgements.are_sides(other, one):
            what = f"{one} and {other} are of the two answers, not of the better and the worse one"
            way = mapped("scores", ",".join(sorted((one, other))))
            raise RowError("bad_column", f"{what}; read them with {way} alone")


def by_scores(row: Row, better: int, columns: Mapping[str, str]) -> Own:
    """By how much the score of the better answer is higher, where ``--map scores`` names both;
    ranks of ``--map ranks`` only agree.

    Raises:
        RowError: ``tie``, they are equal; ``two_orders``, the other one is higher.
    """
    name = "scores" if "scores" in columns else "ranks"
    given, path = peek(row, name), selection.raw(name, columns)
    if name not in columns or given is None:
        return None
    if not isinstance(given, list) or len(given) != 2:
        raise RowError("bad_margin", f"{path} does not hold one number per answer")
    first, second = (number_of_one(one, path) for one in row[name])
    if first is None or second is None:
        return None
    difference = second - first if better == (name == "scores") else first - second
    if difference == 0:
        raise all_equal(path)
    if difference < 0:
        what = f"the verdict prefers answer {better + 1}, but {path} prefer answer {2 - better}"
        raise RowError("two_orders", what)
    return (f"the difference in {path}", difference) if name == "scores" else None


def all_equal(path: str, only: str = "") -> RowError:
    """The error of a row whose answers are equally good by the numbers at a path of the file, or
    that has ``only`` one, and the option that leaves such rows out."""
    code, what = ("bad_column", only) if only else ("tie", "all answers are equally good")
    if not path:
        return RowError(code, what)
    way = differs_from(f"{path}[best]", judgements.TIE)
    return AskError(code, what, f"Leave such rows out with {way}")


def _not_better(row: Row, names: Sequence[str], columns: Mapping[str, str]) -> AskError:
    """The error of a row whose scores do not say that the chosen side is better."""
    chosen, rejected = (peek(row, name) for name in names)
    one, other = scores = [columns.get(name, name) for name in names]
    code, what = "tie", f"{one} and {other} are both {chosen:g}"
    better = shlex.quote(f"{one},{other}[best]=0")
    ways = [f"use the rows whose scores agree with --where {better}"]
    if chosen != rejected:
        below = f"{one} ({chosen:g}) is below {other} ({rejected:g})"
        code, what = "two_orders", f"{below}, so that the scores prefer the rejected answer"
        if all(_fields.says(row, name) for name in _SIDES):
            sides = [columns.get(name, name) for name in _SIDES]
            changed = zip((*_SIDES, *names), (*sides[::-1], *scores[::-1]), strict=True)
            ways.append(f"exchange the sides with {' '.join(mapped(*two) for two in changed)}")
    ways.append(f"read no scores with {' '.join(map(ignore, scores))}")
    return AskError(code, what, f"Say which: {', or '.join(ways)}")


def require_one_margin(row: Row, pairs: int, columns: Mapping[str, str]) -> None:
    """One margin of a row is no margin of each of its pairs.

    Raises:
        AskError: the row has a margin and makes several pairs.
    """
    if pairs < 2 or "margin" in columns:
        return
    for how, _, names in _margins(row):
        ways = " ".join(map(ignore, names))
        ways += " or --map margin=margin" if how == "margin" else ""
        what = f"the row has one margin ({how}) and gives {counted(pairs, 'pair')}"
        raise _fields.open_question(what, f"Say which with {ways}", "two_margins")


def require_answers(sides: Iterable[list[Message]]) -> None:
    """Sides behind a prompt of the row's own begin with the answer.

    Raises:
        RowError: one brings turns of somebody else, which the other side would not answer.
    """
    for turns in filter(is_whole, sides):
        detail = f"a side begins with a {turns[0].role} turn, but the row has a prompt too"
        raise RowError("prompt_differs", detail)


def compared(
    row: Row,
    prompt: list[Message],
    sides: Sequence[list[Message]],
    options: FormatOptions,
    beside: Row | None = None,
) -> Pair:
    """A pair of turns; ``beside``: where its tools are, if not in the row."""
    extent = margin(row, options.columns)
    return Pair(prompt, sides[0], sides[1], margin=extent, tools=_turns.tools(beside or row))


def pair(row: Row, chosen: Any, rejected: Any, options: FormatOptions, own: Own = None) -> Pair:
    """A pair from the row's prompt and two answers; ``own``: as ``margin`` takes it."""
    extent = margin(row, options.columns, own)  # a row without an order is refused for that first
    names = [name if name in row else f"the {name} answer" for name in _SIDES]
    sides = [side(chosen, names[0]), side(rejected, names[1])]
    if all(map(is_whole, sides)):
        sides = [_turns.behind(row, turns) for turns in sides]
        asked = split(*sides)
        _turns.require_prompt(row, asked)
    elif asked := prompt(row, options):
        require_answers(sides)
    elif isinstance(chosen, str) and stop_text.dialect_of(chosen) in (None, DIALOGUE):
        read = (*PROMPTS, *TURNS, "instruction", *_LISTED)
        empty = next((one for one in read if one in row and not _fields.says(row, one)), "")
        why = f"column {empty!r} says nothing" if empty else "see --map prompt=COLUMN"
        raise RowError("no_prompt", f"two texts without a prompt; {why}")
    return Pair(asked, sides[0], sides[1], margin=extent, tools=_turns.tools(row))
