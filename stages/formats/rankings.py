"""Several answers to one prompt, in one list or two, and which of them make pairs.

Answers are ordered by a score or a rank of each, or as they are listed.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stages.contract import Example, FormatOptions, Refused, Row
from stages.errors import RowError, UndecidedError
from stages.formats import _pairs, _turns, verdicts
from stages.formats._fields import (
    NOTHING,
    Field,
    columns_of,
    is_list,
    meant,
    open_question,
    telling,
)
from stages.rows import judgements, selection, signals
from stages.rows.column_names import EMPTY, peek
from stages.rows.unread import ignore

_COLUMNS = columns_of("ranked")
_NUMBERS, _RANKS = _COLUMNS["numbers"], ("ranks", "rank")


@dataclass(frozen=True)
class _Numbers:
    """One number per answer.

    Attributes:
        path: where they stand, as ``--ignore`` takes it: ``scores``, ``answers[].rank``.
        levels: how good each answer is, higher is better; None where an answer has no number.
        scored: they are scores, whose difference is a margin; ranks otherwise, the best lowest.
    """

    path: str
    levels: list[float | None]
    scored: bool

    def tie(self, one: int, other: int) -> str:
        """The number that two answers have, in words; empty where one of them is better."""
        level = self.levels[one]
        if level is None or level != self.levels[other]:
            return ""
        return f"score {level:g}" if self.scored else f"rank {-level:g}"

    def margin(self, better: int, worse: int) -> _pairs.Own:
        """By how much a score is higher, and where that stands; None without two scores."""
        high, low = self.levels[better], self.levels[worse]
        if not self.scored or high is None or low is None:
            return None
        return f"the difference in {self.path}", high - low


def _numbers_of(
    row: Row, name: str, answers: list[Any], columns: Mapping[str, str]
) -> list[_Numbers]:
    """Every number that a row has for each of its answers: beside them, or within each.

    Raises:
        RowError: ``bad_margin``: a value is not a number, or there is not one for each answer.
    """
    numbers: list[_Numbers] = []
    objects = all(isinstance(one, dict) for one in answers)
    for key in meant(_NUMBERS, columns):
        inside = objects and any(peek(one, key) is not None for one in answers)
        values = peek(row, key)
        if isinstance(values, list) and len(values) == len(answers):
            numbers.append(_under(key, key, row[key]))
        elif values is not None:
            detail = f"column {key!r} does not hold one number per answer"
            if inside:
                raise open_question(detail, f"Leave it out with --ignore {key}", "bad_margin")
            raise RowError("bad_margin", detail)
        if inside:
            numbers.append(_under(key, f"{name}[].{key}", [one.get(key) for one in answers]))
    for other, key, by in _beside(row, name, answers, columns) if not numbers else ():
        if by:
            each = {one[by]: one[key] for one in row[other]}
            numbers.append(_under(key, f"{other}[].{key}", [each[one[by]] for one in answers]))
    return [one for one in numbers if any(level is not None for level in one.levels)]


def _under(key: str, path: str, values: Iterable[Any]) -> _Numbers:
    """The scores or ranks that stand under a key."""
    each = [_pairs.number_of_one(value, path) for value in values]
    if key in _RANKS:
        each = [None if number is None else -number for number in each]
    return _Numbers(path, each, key not in _RANKS)


def _shared_key(answers: list[Row], others: Sequence[Row]) -> str:
    """The key whose values name each answer, and each of the other objects: whose judgement it
    is; empty where there is none."""
    for key in answers[0] if all(isinstance(one, dict) for one in answers) else ():
        mine = [str(dict.get(one, key)) for one in answers]
        theirs = [str(dict.get(one, key)) for one in others]
        if len({*mine}) == len(mine) and sorted(mine) == sorted(theirs):
            return key
    return ""


def _beside(
    row: Row, name: str, answers: list[Any], columns: Mapping[str, str] = NOTHING
) -> Iterator[tuple[str, str, str]]:
    """Columns with as many other objects, a key of the number of each, and the key that they have
    with the answers, such as the name of the model, which says whose they are; empty for none."""
    for other, value in row.items():
        several = other != name and isinstance(value, list) and len(value) == len(answers)
        if several and all(isinstance(one, dict) for one in value):
            keys = [k for k in meant(_NUMBERS, columns) if all(k in one for one in value)]
            yield from ((other, key, _shared_key(answers, value)) for key in keys)


def _of_winner(row: Row, answers: list[Any], columns: Mapping[str, str]) -> _Numbers:
    """1 for the answer whose column the winner names, 0 for each other one.

    Raises:
        RowError: ``tie``, ``unrated_answer``, ``bad_label``: it names none of them.
    """
    path = columns["winner"]
    if (value := row["winner"]) in EMPTY:
        raise verdicts.silent(row, "winner", columns)
    if judgements.is_tie(value):
        raise verdicts.tie(f"the answers are equally good ({value!r})", path, value)
    place = judgements.named_among(value, columns.get("responses", "").split(","))
    if place is None or place >= len(answers):
        raise RowError("bad_label", f"{value!r} names none of the answers")
    return _Numbers(path, [float(at == place) for at in range(len(answers))], scored=False)


def _disagree(one: _Numbers, other: _Numbers) -> bool:
    """Whether two columns order some answers differently, or two scores differ."""
    levels = zip(one.levels, other.levels, strict=True)
    both = [(a, b) for a, b in levels if a is not None and b is not None]
    if one.scored == other.scored:
        return any(a != b for a, b in both)
    couples = itertools.combinations(both, 2)
    return any(((a > c) - (a < c)) != ((b > d) - (b < d)) for (a, b), (c, d) in couples)


def _others(name: str, answers: list[Any], numbers: Sequence[_Numbers]) -> Iterator[_Numbers]:
    """Scores within the answers under other names (``fine_grained_score``), of which the order
    counts and not the scale."""
    known = {one.path for one in numbers}
    for key in answers[0] if isinstance(answers[0], dict) else ():
        values = [peek(one, key) if isinstance(one, dict) else None for one in answers]
        path, rates = f"{name}[].{key}", all(type(v) in (int, float) for v in values)
        if path not in known and signals.is_score(key) and rates:
            yield replace(_under(key, path, values), scored=False)


def _require_one_order(
    name: str, numbers: Sequence[_Numbers], listed: str, others: Iterable[_Numbers], surest: str
) -> None:
    """Everything that orders the answers of a row says the same.

    Args:
        surest: the option that makes pairs of which orders are the most likely to agree, or empty.

    Raises:
        AskError: two columns do not, or the list itself.
    """
    alike = itertools.combinations(numbers, 2)
    for one, other in (*alike, *itertools.product(numbers[:1], others)):
        if _disagree(one, other):
            what = f"{one.path} and {other.path} disagree about the same answers"
            ways = f"{ignore(other.path)} or {ignore(one.path)}"
            if surest:
                ways = f"{surest} {ignore(other.path)} for the best and the worst alone, or {ways}"
            raise open_question(what, f"Say which with {ways}", "two_orders")
    for one in numbers if listed else ():
        levels = [level for level in one.levels if level is not None]
        if levels != sorted(levels, reverse=True):
            what = f"{name} is sorted from best to worst, but {one.path} says otherwise"
            ways = f"{listed} or {ignore(one.path)}"
            raise open_question(what, f"Say which with {ways}", "two_orders")


def _in_order(
    name: str, answers: list[Any], numbers: Sequence[_Numbers], listed: str, surest: str
) -> tuple[list[int], _Numbers, list[Refused]]:
    """The places of answers from best to worst, and by what; answers that nothing orders, or that
    say nothing.

    Args:
        listed: the option that takes this back, where they stand from best to worst; else empty.
        surest: see ``_require_one_order``.

    Raises:
        RowError: ``two_orders``; ``unrated_answer``, ``empty_answer``: fewer than two are left.
    """
    _require_one_order(name, numbers, listed, _others(name, answers, numbers), surest)
    # The column with the most numbers orders; of two with as many, the scores do.
    best = max(numbers, key=lambda one: sum(v is not None for v in one.levels), default=None)
    if listed and (best is None or None in best.levels):
        best = None  # the list orders all of them, numbers only some
    elif best is None:
        detail = f"no answer in column {name!r} has a number, and nothing orders them"
        raise RowError("unrated_answer", detail)
    best = best or _Numbers("", [-float(place) for place in range(len(answers))], scored=False)
    levels: dict[int, float] = {}
    left: list[Refused] = []
    for place, (said, level) in enumerate(zip(answers, best.levels, strict=True)):
        where = f"{name}[{place}]"
        if level is None:
            left.append(Refused("unrated_answer", f"{where} has no number, but others have one"))
        elif _pairs.is_silent(said):
            left.append(Refused("empty_answer", f"{where} says nothing"))
        else:
            levels[place] = level
    if len(levels) < 2:
        silent = [one.detail for one in left if one.code == "empty_answer"]
        if len(levels) + len(silent) > 1:
            raise RowError("empty_answer", " and ".join(silent))
        raise RowError("unrated_answer", f"fewer than two answers in column {name!r} have a number")
    left.sort(key=lambda one: one.code == "empty_answer")  # those that nothing orders first
    return sorted(levels, key=lambda place: -levels[place]), best, left


_ORDERED = _COLUMNS["answers"][:5]


_LIST = Field(
    "list of answers",
    _COLUMNS["answers"],
    lambda one: isinstance(one, list) and len(one) > 1 and not _turns.is_turns(one, "role"),
)


class _Ranked(_pairs.PairFormat):
    """Several answers to one prompt, from best to worst or with a score or a rank each.

    A row gives a pair for each two neighbours, with ``ranked/all`` for each two answers, with
    ``ranked/extremes`` for the best and the worst; with ``--map winner``, which names the column of
    the best one, for it and each other. Two that are equally good are refused as a tie, an answer
    without a number or a text by name. ``ranked/in-order`` reads answers that nothing else orders.
    """

    name = "ranked"
    columns = _COLUMNS
    fans_out = True
    ways = ("adjacent", "all", "extremes", "in-order", "in-order-all", "in-order-extremes")
    _counted = ("tie",)

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        if "winner" in options.columns:
            return "", "a pair of the best one and each other"
        if rows and not any(self._is_ordered(row) for row in rows):
            held = [(row, name, peek(row, name)) for row in rows if (name := _LIST.first(row))]
            for other, number, _ in itertools.chain(*(_beside(*one) for one in held)):
                what = f"nothing says which answer each {other}[].{number} is of"
                raise UndecidedError(what, ())
            if key := telling([given for _, _, given in held]):
                raise UndecidedError(f"{key} may say in other words which answers are better", ())
            what = "nothing says that the answers are in order, from best to worst; if they are, "
            raise UndecidedError(f"{what}ranked/in-order reads them so", ("in-order",))
        others = "ranked/all makes them of all, ranked/extremes of the best and the worst"
        return "", f"a pair for each two neighbours; {others}"

    def _is_ordered(self, row: Row) -> bool:
        """Whether the row says in which order its answers stand."""
        name = _LIST.first(row)
        if name is None or name in _ORDERED:
            return name is not None
        given = peek(row, name)
        objects = [one for one in given if isinstance(one, dict)]
        told = any(peek(one, name) is not None for one in [row, *objects] for name in _NUMBERS)
        return told or any(by for _, _, by in _beside(row, name, given))

    def matches(self, row: Row) -> str | None:
        if not {"chosen", "labels"}.isdisjoint(row) or verdicts.INDEXED.matches(row) is not None:
            return None
        name = _LIST.first(row)
        value = peek(row, name) if name else None
        if not value or not all(isinstance(one, (str, dict, list)) for one in value):
            return None
        inner = [one for one in value if isinstance(one, dict)]
        how = next((n for n in _NUMBERS if n in row or any(n in one for one in inner)), None)
        return f"answers in {name}" + (f" with {how}" if how else "")

    def _couples(self, ordered: list[int]) -> list[tuple[int, int]]:
        if self._way.endswith("extremes"):
            return [(ordered[0], ordered[-1])]
        every = self._way.endswith("all")
        return [*(itertools.combinations(ordered, 2) if every else itertools.pairwise(ordered))]

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        columns = options.columns
        name = _LIST.of(row, columns)
        if name is None:
            told = [selection.raw(one, columns) for one in _NUMBERS if is_list(peek(row, one))]
            raise _pairs.all_equal(next(iter(told), ""), "there is no list of two answers or more")
        given = row[name]
        won = [_of_winner(row, given, columns)] if "winner" in columns else []
        numbers = won or _numbers_of(row, name, given, columns)
        listed = f"--map responses={name}" if name in _ORDERED else ""
        listed = listed or ("--format ranked" if self._way.startswith("in-order") else "")
        surest = "" if self._way or len(given) == 2 else f"--format {self.name}/extremes"
        ordered, best, left = _in_order(name, given, numbers, listed, surest)
        if won and not best.levels[ordered[0]]:
            raise RowError("empty_answer", "the answer that is the best one says nothing")
        couples = [(ordered[0], o) for o in ordered[1:]] if won else self._couples(ordered)
        _pairs.require_one_margin(row, len(couples), columns)
        texts = {at: _pairs.text_of(given[at], f"{name}[{at}]") for at in ordered}
        scores = next((one for one in numbers if one.scored), best)
        examples: list[Example] = []
        for better, worse in couples:
            if tie := best.tie(better, worse) or scores.tie(better, worse):
                examples.append(Refused("tie", f"two answers have the same {tie}"))
                continue
            own = scores.margin(better, worse)
            examples.append(_pairs.pair(row, texts[better], texts[worse], options, own))
        if all(isinstance(one, Refused) for one in examples):
            raise _pairs.all_equal(selection.raw(numbers[0].path, columns) if numbers else "")
        for at in ordered[1:-1] if self._way.endswith("extremes") and not won else ():
            what = f"{name}[{at}] is neither the best nor the worst"
            left.append(Refused("not_an_extreme", what))
        return [*examples, *left]


TABLE = (_Ranked(),)
