"""Which columns of sampled rows nothing reads; where one is important, no build begins."""

import itertools
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import orjson

from stages import contract, formats, kinds
from stages.errors import AskError, counted
from stages.format import Format
from stages.formats._fields import often_listed, tried
from stages.formats._messages import role_of
from stages.rows import judgements, shapes, signals, speakers, stop_text, unread, words
from stages.rows.column_names import EMPTY, Watched, are_set_aside, are_verdicts, is_a, is_rating
from stages.rows.examples import answers_of
from stages.rows.loss_mask import told_of_nothing
from stages.rows.selection import Selection, inside, raw
from stages.rows.unread import Leaving, ReadRow, Unread, ignore

MOST_OF_THE_TEXT = 0.5  # share of the rows' text that is suspicious in unread columns
LEAST_SHARE = 0.1  # of each of these columns, where they are several
LEAST_TEXT = 100  # characters per row of such a column; shorter texts are names, dates, numbers
_SEVERAL = 8  # rows that may ask alike
_LISTED, _WIDE = 3, 24  # values that a message shows, and their characters
_SPOKEN, _FIGURE = words.exact("spoken", "role"), words.exact("figure", "sign")
_HEAD, _WORSE = words.exact("head", "sign"), words.exact("worse", "both")


def counts_of(values: Sequence[Any]) -> str:
    """How often each value is there, where they are few: ``true in 31, false in 9``; else empty."""
    counts = Counter(orjson.dumps(value, default=str).decode() for value in values)
    few = len(counts) <= _LISTED and all(len(text) <= _WIDE for text in counts)
    return ", ".join(f"{text} in {count}" for text, count in counts.most_common() if few)


@dataclass(slots=True)
class Column:
    """A column that nothing reads.

    Attributes:
        rows: sampled rows that have it, ``of_rows`` that the format could read; some ``values``.
        numbers: whether each row's value says otherwise than what was read: as a list of numbers of
            steps (``ReadRow``), or as the name of an answer; None where it is neither.
        counts: from 0, from 1: how it can count the answers if it numbers the best one of each row.
        exchanges: numbers that rows have, and how many answers their better dialogues have.
        better: the numbers of rows, by the column of the better answer.
        of: the column of texts that nothing reads of which its lists say something; ``own``: one of
            these that is good is trained, where there is any.
        apart: none of its texts is in a pair, whose answers they may come before.
        odd: rows that it contradicts.
        asked: why it must not be ignored without an option; None where it may be.
    """

    rows: int = 0
    of_rows: int = 0
    values: list[Any] = field(default_factory=list)
    numbers: list[bool | None] = field(default_factory=list)
    counts: set[int] = field(default_factory=lambda: {0, 1})
    exchanges: set[tuple[float, int]] = field(default_factory=set)
    better: dict[str, set[float]] = field(default_factory=dict)
    of: str = ""
    own: bool = True
    apart: bool = True
    odd: int = 0
    asked: AskError | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether every row has it; a row that is refused says nothing about that."""
        return self.rows == self.of_rows

    @property
    def is_order(self) -> bool:
        """Whether its numbers go from one answer's being better to the other's, as the order does
        that is read."""
        both = sorted(self.better.values(), key=min)
        return len(both) == 2 and max(both[0]) < min(both[1]) and len(both[0] | both[1]) > 2

    def contents(self, of: int) -> str:
        """The values in words, of so many rows: ``true in 31, false in 9 of 40 sampled rows``."""
        told = "" if self.odd else counts_of(self.values)
        return f"{told or f'in {self.odd or self.rows:,}'} of {counted(of, 'sampled row')}"


@dataclass(slots=True)
class Survey:
    """The columns of sampled rows that nothing reads.

    Attributes:
        rows: those that the format could read, with ``questions``; ``failed``: the error of one
            that it could not.
        refused: errors of rows that an option would settle, by it.
        most: the unread column that alone has most of the rows' text.
        listed: the columns that are read and are the JSON of a list of texts in most rows.
    """

    rows: int = 0
    questions: set[str] = field(default_factory=set)
    failed: Exception | None = None
    listed: list[str] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    most: str | None = None
    refused: dict[str, list[AskError]] = field(default_factory=dict)

    @property
    def asked(self) -> frozenset[str]:
        """The columns that must not be left out without an option."""
        asked = {path for path, column in self.columns.items() if column.asked is not None}
        return frozenset(asked if self.most is None else asked | {self.most})

    @property
    def late(self) -> Mapping[str, int]:
        """The columns that may rate without saying what is good, or rate the question: those that
        decide are asked about before. 1, or 2 where names say that several measure one thing."""
        asked = words.of_questions(filter(is_rating, self.columns))
        vague = [p for p, column in self.columns.items() if p in asked or _is_vague(p, column)]
        return {p: 1 + ([*map(signals.meant, vague)].count(signals.meant(p)) > 1) for p in vague}


def _is_vague(path: str, column: Column) -> bool:
    """Whether a column that rates has more than two numbers, or texts of which some say neither."""
    told = [*judgements.flat([*column.values])]
    rated = column.asked is not None and column.asked.code == "rated"
    said = (one for one in told if isinstance(one, str) and judgements.spelled(one) is None)
    open_ = any(shapes.says_good(path, one) is None for one in said)
    numbers = {*map(judgements.spelled, told)} - {None}
    return rated and (open_ or not (len(numbers) <= 2 and numbers <= {-1, 0, 1}))


def _text(value: Any) -> int:
    """Characters of text in a value, at any depth."""
    if isinstance(value, str):
        return len(value)
    inside = value.values() if isinstance(value, dict) else value
    return sum(map(_text, inside)) if isinstance(value, list | dict) else 0


def _name_answers(path: str, values: Sequence[Any], names: Collection[str]) -> bool:
    """Whether texts name the better of two answers, as left and right or by their columns."""
    texts = [one for one in values if isinstance(one, str)]
    columns = 1 < len({*texts} & {*names}) == len({*texts})
    named = is_rating(path) and judgements.name_sides(judgements.decided(texts))
    return len(texts) == len(values) > 0 and (columns or named)


def _sides(
    row: Watched, examples: Sequence[contract.Example], columns: Mapping[str, str]
) -> tuple[str, ...]:
    """The columns of the two answers of a row, the worse first, where a side tells them apart."""
    texts: dict[str, str] = {}
    for name in row.read_columns:
        paths, value = raw(name, columns).split(","), row[name]
        several = isinstance(value, list) and len(paths) == len(value) > 1
        texts |= dict(zip(paths, map(repr, value if several else [value]), strict=False))
    for pair in (one for one in examples if isinstance(one, contract.Pair)):
        said = [repr(turns[-1].content)[1:-1] for turns in (pair.rejected, pair.chosen)]
        for both in itertools.permutations(texts, 2):
            sided = judgements.are_sides(*both) or judgements.are_sides(*both[::-1])
            if sided and said[0] in texts[both[0]] and said[1] in texts[both[1]]:
                return both
    return ()


def _names_the_worse(left: Unread, sides: tuple[str, ...]) -> bool | None:
    """Whether a value names the worse answer by what tells its column apart; None where it names
    neither. 0 and 1 are names under that of an answer alone."""
    if not sides or signals.is_about(left.path):
        return None
    flags = judgements.named_among(0, sides) is not None and not is_a(left.path, "answer")
    place = None if flags else judgements.named_among(left.values[0], sides)
    return None if place is None and not judgements.is_tie(left.values[0]) else place == 0


def _ask_of_exchanges(path: str, column: Column) -> AskError | None:
    """The question about a column that numbers the exchanges of dialogues, so that a verdict may be
    about the first of them alone; None for any other column."""
    numbers = {number for number, _ in column.exchanges}
    aside = signals.is_about(path) and _SPOKEN.isdisjoint(words.parts(path))
    counts = all(number in range(1, of + 1) for number, of in column.exchanges) and len(numbers) > 1
    if aside or not counts or all(number == of for number, of in column.exchanges):
        return None
    last = max(numbers)
    ways = [f"take it for all of each with {ignore(path)}"]
    if all(of == last for number, of in column.exchanges if number == last):
        whole = shlex.quote(f"{path}={last:g}")
        ways.insert(0, f"use only those on whole dialogues with --where {whole}")
    what = f"{path} numbers exchanges, and what is better may be said of the first ones alone"
    return AskError("two_orders", what, f"Say which: {', or '.join(ways)}.")


def _ask_of_all(found: Survey, kind: kinds.Kind, settled: Set[str], names: Collection[str]) -> None:
    """Ask about columns of which all values together show that they rate answers or steps."""
    for path, column in found.columns.items():
        column.of_rows = found.rows
        if path in settled:
            continue
        cut = stop_text.cut_at(path, column.values) if not kind.marks else []
        if not settled >= {where for where, _ in cut}:
            column.asked = unread.cut_off(path, column.values)
        if column.asked is None and not column.counts:
            column.asked = unread.two_orders(path)
        if column.asked is not None:
            continue
        contradicts = None not in column.numbers and any(column.numbers)
        if (contradicts and kind.marks) or are_verdicts(path, column.values, kind):
            column.asked = unread.rated(path, column.values[0], kind)
        elif kind.compares and (contradicts or _name_answers(path, column.values, names)):
            what = f"{path} names one of two answers, and nothing reads it"
            column.asked = AskError("unread_column", what, f"Add {ignore(path)}.")
        elif are_set_aside(path, column.values, found.rows * kind.trains_answers):
            what = f"{path} says of some rows that they are no good examples, and nothing reads it"
            column.asked = AskError("unread_weight", what, f"Add {ignore(path)}.")
        else:
            column.asked = _ask_of_exchanges(path, column)


def is_talk(value: Any) -> bool:
    """Whether a user and an assistant speak in the turns of a value, or of several."""
    talks = map(speakers.turned, (value, *(value if isinstance(value, list) else ())))
    return {role_of(turn) for turns in talks if turns for turn in turns} >= {"user", "assistant"}


def _ask_of_talk(path: str, values: Sequence[Any], kind: kinds.Kind) -> AskError | None:
    """The question about a conversation of which no turn was read; None for any other column."""
    asks = not kind.marks and is_talk([*values]) and _WORSE.isdisjoint(words.parts(path))
    how = f"with {unread.mapped('messages', f'{path}[turns]')}"
    return unread.not_read(path, "is a conversation", how) if asks else None


def _ask_of_long(found: Survey, sizes: Mapping[str, int], total: int, less: int) -> None:
    """Ask about columns of long texts that hold more than all that is read, by the characters
    (``sizes``, of ``total``) that no example repeats; ``less``: so many times fewer are enough."""
    least = {path: LEAST_TEXT / less * found.columns[path].rows for path in sizes}
    long = [path for path in sizes if sizes[path] >= max(least[path], LEAST_SHARE * total)]
    much = less * sum(sizes[path] for path in long) > MOST_OF_THE_TEXT * total
    found.most = long[0] if much and len(long) == 1 else None
    for path in long if much and found.most is None else ():
        what = f"and {len(long) - 1} more hold most of the rows' text"
        found.columns[path].asked = found.columns[path].asked or unread.not_read(path, what)


def _are_before(path: str, values: Sequence[Any]) -> bool:
    """Whether values are lists of texts by the name of answers, or of steps."""
    named = signals.classes(path).keys() & {"answer", "steps"}
    return bool(named) and all(map(shapes.is_list_of_texts, values)) and signals.is_prose(values)


def _ask_of_nameless(found: Survey, sizes: Mapping[str, int]) -> None:
    """Ask about texts that differ from row to row under a name that says nothing, or where all rows
    ask alike, about several that may come before an answer, and about who is to answer."""
    alike = "" not in found.questions and 5 * len(found.questions) <= found.rows >= _SEVERAL
    for path, column in found.columns.items():
        said = words.parts(path)
        about = signals.is_about(path) and not _HEAD.issuperset(said)
        named = about or signals.classes(path) or any(map(words.role, said))
        texts = [value for value in column.values if isinstance(value, str)]
        long = not named and sizes[path] >= LEAST_TEXT / 2 * column.rows
        varied = (long or alike) and "." not in path and 2 * len({*texts}) > len(texts)
        if varied and all(map(signals.is_prose, texts)):
            what = "is another text in each row"
        elif column.apart and _are_before(path, column.values):
            what = "is in no answer, and may come before each"
        elif _FIGURE.issuperset(said) and None in map(speakers.role_named, texts):
            what = "names who is to answer"
        else:
            continue
        column.asked = column.asked or unread.not_read(path, what)


def _ask_of_no_few(found: Survey, rows: Sequence[contract.Row]) -> None:
    """Ask about no column that nearly all rows have read, or agree with: others are refused."""
    for path, column in found.columns.items():
        there = sum(row.get(path) not in EMPTY for row in rows)
        if (column.odd or column.rows) <= (1 - shapes.NEARLY_ALL) * there:
            column.asked = None


def _note(
    column: Column, left: Unread, read: ReadRow, kind: kinds.Kind, sides: tuple[str, ...]
) -> None:
    """Note what a value of a row says of its answers; ``sides``: as of ``_sides``."""
    number = judgements.spelled(left.values[0])
    otherwise = read.numbers_steps(left) if kind.marks else _names_the_worse(left, sides)
    column.rows += 1
    column.numbers.append(otherwise)
    if len(column.values) < 1000:
        column.values += left.values
    if kind.compares and (counts := read.counts_from(left)) is not None:
        column.counts &= counts
    if sides and number is not None:
        column.better.setdefault(sides[1], set()).add(number)
    column.apart &= kind.compares and not read.repeats(left.values[0], one_will_do=True)
    if kind.trains_answers:
        name, good = read.judged(left.path, left.values[0])
        column.of, column.own = name or column.of, column.own and good is not False


def survey(
    rows: Sequence[contract.Row],
    format_: Format,
    kind: kinds.Kind,
    options: contract.FormatOptions,
    selection: Selection,
) -> Survey:
    """Read rows to which ``selection`` and ``--map`` were applied: the columns that nothing reads.
    A build that is not asked about a column refuses a row for what its own value shows alone."""
    result, options = Survey(), format_.told(options)
    own = options.columns
    settled = formats.settled_by(format_, own).union(own.values())
    leaving = Leaving(own, selection, settled, selection.decided, inside(own))
    sizes, total = Counter[str](), 0
    for row in rows:
        watched = Watched(row)
        made = tried(format_, watched, options)
        examples = told_of_nothing(made, row, format_.columns, own)
        if isinstance(examples, AskError):
            result.refused.setdefault(examples.remedy, []).append(examples)
            continue
        if isinstance(examples, Exception):
            result.failed = examples
            continue
        result.rows += 1
        asked = (one for one in stop_text.turns_of(examples[:1]) if one.role == "user")
        result.questions.add("\n".join(str(one.content) for one in asked))
        total += _text(row)
        read, sides = ReadRow(watched, examples), _sides(watched, examples, options.columns)
        for left in leaving.of(watched, examples):
            column = result.columns.setdefault(left.path, Column())
            column.exchanges.add((judgements.spelled(left.values[0]) or 0, answers_of(examples)))
            _note(column, left, read, kind, sides)
            if leaving.is_open(left.path):
                new = [value for value in left.values if not read.repeats(value)]
                sizes[left.path] += sum(map(_text, new))
                each = kind.marks or column.odd or not column.asked
                why = unread.asked(left, kind, read) if each else None
                column.odd += why is not None and (kind.marks or why.code == "bad_column")
                column.asked = column.asked or why or _ask_of_talk(left.path, new, kind)
    result.listed = often_listed(rows, format_, settled.union(result.columns))
    settled |= {*selection.decided, *filter(selection.settles, result.columns)}
    _ask_of_all(result, kind, settled, rows[0].keys() if rows else ())
    _ask_of_long(result, sizes, total, 2 if format_.name == "text" else 1)
    _ask_of_nameless(result, sizes)
    _ask_of_no_few(result, rows)
    return result
