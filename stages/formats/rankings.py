"""Several answers to one prompt, in one list or two, and which of them make pairs.

Answers are ordered by a score or a rank of each, or as they are listed.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.contract import Example, FormatOptions, Refused, Row
from stages.errors import RowError, UndecidedError
from stages.formats import _pairs, _turns, verdicts
from stages.formats._fields import Field, columns_of, is_list, meant, open_question, telling
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


@dataclass(frozen=True)
class _Answer:
    """One answer of a row.

    Attributes:
        where: its place, ``answers[2]``.
        said: the answer as the row has it.
        level: higher is better; ``word``: what says so, empty where only the list does.
        score: the number that margins are made of, found under ``path``.
    """

    where: str
    said: Any
    level: float
    word: str
    score: float | None
    path: str

    def ties_with(self, other: "_Answer") -> str:
        """The number that both have, in words; empty where one is better."""
        if self.word and self.level == other.level:
            return f"{self.word} {-self.level if self.word == 'rank' else self.level:g}"
        same = self.score is not None and self.score == other.score
        return f"score {self.score:g}" if same else ""

    def margin_over(self, worse: "_Answer") -> tuple[str, float] | None:
        """By how much its score is higher, and where that stands; None without two scores."""
        if self.score is None or worse.score is None:
            return None
        return f"the difference in {self.path}", self.score - worse.score


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
        scored, path = key not in _RANKS, f"{name}[].{key}"
        inside = objects and any(peek(one, key) is not None for one in answers)
        values = peek(row, key)
        if isinstance(values, list) and len(values) == len(answers):
            numbers.append(_Numbers(key, [_level(v, key, scored) for v in row[key]], scored))
        elif values is not None:
            detail = f"column {key!r} does not hold one number per answer"
            if inside:
                raise open_question(detail, f"Leave it out with --ignore {key}", "bad_margin")
            raise RowError("bad_margin", detail)
        if inside:
            levels = [_level(one.get(key), path, scored) for one in answers]
            numbers.append(_Numbers(path, levels, scored))
    numbers += _beside(row, name, answers, columns) if objects and not numbers else []
    return [one for one in numbers if any(level is not None for level in one.levels)]


def _shared_key(answers: Sequence[Row], others: Sequence[Row]) -> str:
    """The key whose values name each answer, and each of the other objects: whose judgement it
    is; empty where there is none."""
    for key in answers[0]:
        mine = [str(dict.get(one, key)) for one in answers]
        theirs = [str(dict.get(one, key)) for one in others]
        if len({*mine}) == len(mine) and sorted(mine) == sorted(theirs):
            return key
    return ""


def _as_many(row: Row, name: str, answers: list[Any]) -> Iterator[tuple[str, list[Row]]]:
    """The columns with as many objects as there are answers in a column."""
    for other, value in row.items():
        several = other != name and isinstance(value, list) and len(value) == len(answers)
        if several and all(isinstance(one, dict) for one in value):
            yield other, value


def _beside(row: Row, name: str, answers: list[Row], columns: Mapping[str, str]) -> list[_Numbers]:
    """The numbers in a list of other objects that have a key of the answers, such as the name of
    the model, which says whose they are."""
    found = []
    for other, value in _as_many(row, name, answers):
        by = _shared_key(answers, value)
        for key in meant(_NUMBERS, columns) if by else ():
            if all(key in one for one in value):
                scored, path = key not in _RANKS, f"{other}[].{key}"
                each = {one[by]: _level(one[key], path, scored) for one in row[other]}
                found.append(_Numbers(path, [each[one[by]] for one in answers], scored))
    return found


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


def _level(value: Any, where: str, scored: bool) -> float | None:
    """How good an answer with a score or a rank is; None where it has none."""
    number = _pairs.number_of_one(value, where)
    return number if scored or number is None else -number


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
            yield _Numbers(path, [_level(value, path, True) for value in values], scored=False)


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
) -> tuple[list[_Answer], list[Refused]]:
    """The answers from best to worst, and those that nothing orders, or that say nothing.

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
    none: list[float | None] = [None] * len(answers)
    scores = next((one for one in numbers if one.scored), _Numbers("", none, scored=True))
    best = best or _Numbers("", [-float(place) for place in range(len(answers))], scored=False)
    word = ("score" if best.scored else "rank") if best.path else ""
    rated: list[_Answer] = []
    unrated: list[Refused] = []
    silent: list[Refused] = []
    each = zip(answers, best.levels, scores.levels, strict=True)
    for place, (said, level, score) in enumerate(each):
        where = f"{name}[{place}]"
        if level is None:
            unrated.append(Refused("unrated_answer", f"{where} has no number, but others have one"))
        elif _pairs.is_silent(said):
            silent.append(Refused("empty_answer", f"{where} says nothing"))
        else:
            rated.append(_Answer(where, said, level, word, score, scores.path))
    if len(rated) + len(silent) < 2:
        raise RowError("unrated_answer", f"fewer than two answers in column {name!r} have a number")
    if len(rated) < 2:
        raise RowError("empty_answer", " and ".join(one.detail for one in silent))
    return sorted(rated, key=lambda one: -one.level), [*unrated, *silent]


_ORDERED = _COLUMNS["answers"][:5]


def _are_several(value: Any) -> bool:
    """Whether a value is a list of answers."""
    return isinstance(value, list) and len(value) > 1 and not _turns.is_turns(value, "role")


_LIST = Field("list of answers", _COLUMNS["answers"], _are_several)


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

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        if "winner" in options.columns:
            return "", "a pair of the best one and each other"
        if rows and not any(self._is_ordered(row) for row in rows):
            if beside := next(filter(None, map(self._rated_beside, rows)), None):
                raise UndecidedError(f"nothing says which answer each {beside} is of", ())
            if key := telling([peek(row, name) for row in rows if (name := _LIST.first(row))]):
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
        return told or (len(objects) == len(given) and bool(_beside(row, name, given, {})))

    def _rated_beside(self, row: Row) -> str | None:
        """A number for each answer that stands in a list of other objects."""
        name = _LIST.first(row)
        lists = _as_many(row, name, peek(row, name)) if name else ()
        each = itertools.product(lists, _NUMBERS)
        found = (f"{other}[].{k}" for (other, some), k in each if all(k in one for one in some))
        return next(found, None)

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

    def _couples(self, ordered: list[_Answer]) -> list[tuple[_Answer, _Answer]]:
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
        ordered, left = _in_order(name, given, numbers, listed, surest)
        if won and not ordered[0].level:
            raise RowError("empty_answer", "the answer that is the best one says nothing")
        couples = [(ordered[0], o) for o in ordered[1:]] if won else self._couples(ordered)
        _pairs.require_one_margin(row, len(couples), columns)
        texts = {one.where: _pairs.text_of(one.said, one.where) for one in ordered}
        examples: list[Example] = []
        for better, worse in couples:
            if tie := better.ties_with(worse):
                examples.append(Refused("tie", f"two answers have the same {tie}"))
                continue
            sides = texts[better.where], texts[worse.where]
            examples.append(_pairs.pair(row, *sides, options, own=better.margin_over(worse)))
        if all(isinstance(one, Refused) for one in examples):
            raise _pairs.all_equal(selection.raw(numbers[0].path, columns) if numbers else "")
        for one in ordered[1:-1] if self._way.endswith("extremes") and not won else ():
            left.append(Refused("not_an_extreme", f"{one.where} is neither the best nor the worst"))
        return [*examples, *left]


TABLE = (_Ranked(),)
