"""Which columns of sampled rows nothing reads, before a build begins.

Columns that would refuse rows one by one are reported here once, with their counts, so that a build
that would ignore an important column stops before its first row.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from stages import contract, formats, kinds
from stages.errors import AskError, DataError, RowError, counted
from stages.format import Format
from stages.formats import _rated_steps, _ratings, _turns
from stages.formats._messages import as_role, role_of
from stages.normalize import finders, role_columns, role_names
from stages.rows import judgements, speakers
from stages.rows.carried import size_of
from stages.rows.column_names import Watched, are_set_aside, are_verdicts
from stages.rows.selection import Selection
from stages.rows.selection import inside as selection_inside
from stages.rows.signals import is_about, is_prose
from stages.rows.unread import Leaving, ReadRow, Unread, asked, ignore, mapped, rated

MOST_OF_THE_TEXT = 0.5  # share of the rows' text that is suspicious in unread columns
LEAST_SHARE = 0.1  # of each of these columns, where they are several
LEAST_TEXT = 100  # characters per row of such a column; shorter texts are names, dates, numbers
_LISTED, _WIDE = 3, 24  # values that a message shows, and their characters


@dataclass(slots=True)
class Column:
    """A column that nothing reads.

    Attributes:
        rows: sampled rows that have it, ``of_rows``: of those that the format could read;
            ``bytes``: of their values.
        values: some of the values.
        numbers: what each row's value says as a list of numbers of steps (``ReadRow``).
        of: the column of texts that nothing reads of which its lists say something; ``own``: one of
            these that is good is trained, where there is any.
        asked: why it must not be ignored without an option; None where it may be.
    """

    rows: int = 0
    of_rows: int = 0
    bytes: int = 0
    values: list[Any] = field(default_factory=list)
    numbers: list[bool | None] = field(default_factory=list)
    of: str = ""
    own: bool = True
    asked: AskError | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether every row has it; a row that is refused says nothing about that."""
        return self.rows == self.of_rows

    def contents(self, of: int) -> str:
        """The values in words, of so many rows: ``true in 31, false in 9 of 40 sampled rows``."""
        counts = Counter(orjson.dumps(value, default=str).decode() for value in self.values)
        if len(counts) > _LISTED or any(len(text) > _WIDE for text in counts):
            return f"in {self.rows:,} of {counted(of, 'sampled row')}"
        shown = ", ".join(f"{text} in {count}" for text, count in counts.most_common())
        return f"{shown} of {counted(of, 'sampled row')}"


@dataclass(slots=True)
class Survey:
    """The columns of sampled rows that nothing reads.

    Attributes:
        rows: rows that the format could read.
        columns: by path.
        refused: errors of rows that an option would leave out or settle, by the option.
        most: the unread column that has most of the rows' text; None where no column has alone.
    """

    rows: int = 0
    columns: dict[str, Column] = field(default_factory=dict)
    most: str | None = None
    refused: dict[str, list[AskError]] = field(default_factory=dict)

    @property
    def asked(self) -> frozenset[str]:
        """The columns that must not be left out without an option."""
        asked = {path for path, column in self.columns.items() if column.asked is not None}
        return frozenset(asked if self.most is None else asked | {self.most})

    def take(self, left: Unread) -> Column:
        """Count the values of one row."""
        column = self.columns.setdefault(left.path, Column())
        column.rows += 1
        column.bytes += sum(map(size_of, left.values))
        if len(column.values) < 1000:
            column.values += left.values
        return column


def _text(value: Any) -> int:
    """Characters of text in a value, at any depth."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    return sum(map(_text, value)) if isinstance(value, (list, type({}.values()))) else 0


def _ask_of_all(found: Survey, kind: kinds.Kind, settled: Collection[str]) -> None:
    """Ask about the columns of which all values together show that they rate answers, or number
    steps."""
    for path, column in found.columns.items():
        open_to_doubt = column.asked is None and path not in settled
        numbers_steps = None not in column.numbers and any(column.numbers)
        if open_to_doubt and (numbers_steps or are_verdicts(path, column.values, kind)):
            column.asked = rated(path, column.values[0], kind)
        elif open_to_doubt and are_set_aside(path, column.values):
            what = f"{path} is set in some rows, and nothing reads whether these are trained"
            column.asked = AskError("unread_weight", what, f"Add {ignore(path)}.")


def _ask_of_talk(path: str, values: Sequence[Any], kind: kinds.Kind) -> AskError | None:
    """The question about a conversation of which no turn was read; None for any other column."""
    talks = (speakers.turned(value) for value in values)
    roles = {role_of(turn) for turns in talks if turns for turn in turns}
    if kind.marks or not roles >= {"user", "assistant"}:
        return None
    how = f"Read it with {mapped('messages', f'{path}[turns]')}, or add {ignore(path)}."
    return AskError("unread_column", f"{path} is a conversation, and nothing reads it", how)


def _ask_of_long(found: Survey, unread: Mapping[str, int], total: int) -> None:
    """Ask about columns of long texts, where they hold more than all that is read.

    Args:
        unread: characters in each column that no example repeats; total: of all columns.
    """
    long = {
        path: size
        for path, size in unread.items()
        if size >= max(LEAST_TEXT * found.columns[path].rows, LEAST_SHARE * total)
    }
    if sum(long.values()) <= MOST_OF_THE_TEXT * total:
        return
    if len(long) == 1:
        found.most = next(iter(long))
        return
    for path in long:
        found.columns[path].asked = found.columns[path].asked or AskError(
            "unread_column",
            f"{path} and {len(long) - 1} more hold most of the rows' text, and nothing reads it",
            f"Read it under another name with --map, or add {ignore(path)}.",
        )


def survey(
    rows: Sequence[contract.Row],
    format_: Format,
    kind: kinds.Kind,
    options: contract.FormatOptions,
    selection: Selection,
) -> Survey:
    """Read some rows, and collect the columns that nothing reads.

    Whether few texts come again and again is seen only here: a build that is not asked about a
    column refuses a row for it where its own value shows what the column means, and else never.

    Args:
        rows: after ``selection`` and ``--map`` were applied.
    """
    result = Survey()
    options = format_.told(options)
    settled = formats.settled_by(format_, options.columns).union(options.columns.values())
    inside = selection_inside(options.columns)
    leaving = Leaving(options.columns, selection, settled, selection.decided, inside)
    unread: Counter[str] = Counter()
    total = 0
    for row in rows:
        watched = Watched(row)
        try:
            examples = format_.read(watched, options)
        except AskError as error:
            result.refused.setdefault(error.remedy, []).append(error)
            continue
        except (RowError, AttributeError, LookupError, TypeError, ValueError):
            continue  # the build refuses such rows by name
        result.rows += 1
        total += _text(row)
        read = ReadRow(watched, examples)
        for left in leaving.of(watched, examples):
            column = result.take(left)
            column.numbers.append(read.numbers_steps(left))
            if leaving.is_open(left.path):
                own = [value for value in left.values if not read.repeats(value)]
                unread[left.path] += sum(map(_text, own))
                why = column.asked or asked(left, kind, read)
                column.asked = why or _ask_of_talk(left.path, own, kind)
                if kind.trains_answers:
                    name, good = read.judged(left.path, left.values[0])
                    column.of, column.own = name or column.of, column.own and good is not False
    for column in result.columns.values():
        column.of_rows = result.rows
    _ask_of_all(result, kind, settled)
    _ask_of_long(result, unread, total)
    return result


# A suggestion for rows that no format fits, and whose columns play no roles.


_TEXTS = ("content", "value")
_OFFERED = 4  # ways, and columns that are told apart by them


def offer(rows: Sequence[contract.Row], kind: kinds.Kind) -> str:
    """A suggestion, as a sentence; empty where there is none."""
    if not kind.trains_answers or not rows:
        return ""
    if who := _speakers(rows):
        return f"Say who speaks in the turns with {who}."
    if all(_is_turn(row) for row in rows):
        return 'Each row is one turn; write the turns of a conversation as {"messages": [...]}.'
    texts = [
        key
        for key in rows[0]
        if all(isinstance(row.get(key), str) and row[key].strip() for row in rows)
    ]
    texts = [key for key in texts if role_names.role_of(key) != "system"]
    if len(texts) > 2:
        texts = [key for key in texts if _is_said(key, [row[key] for row in rows])]
    held = sum(len(row[key]) for row in rows for key in texts)
    if not 2 <= len(texts) <= _OFFERED or held <= MOST_OF_THE_TEXT * sum(map(_text, rows)):
        return ""
    in_order = [*itertools.combinations(texts, 2)]
    ways = [
        f"{mapped('prompt', asked)} {mapped('completion', answer)}"
        for asked, answer in [*in_order, *((b, a) for a, b in in_order)][:_OFFERED]
    ]
    return f"Say which column is the question and which the answer: {', or '.join(ways)}."


def _speakers(rows: Sequence[contract.Row]) -> str:
    """The options after which rows have turns of both sides; empty where none do that."""
    who = speakers.guessed([*rows], own=True)
    told = [speakers.renamed(row, who) for row in rows] if len(who) <= _OFFERED else []
    if not who or not role_columns.conversation(role_columns.columns_of(told, True)):
        return ""
    return " ".join(as_role(name, role) for name, role in who.items())


def _is_said(name: str, texts: Sequence[str]) -> bool:
    """Whether a column has texts that differ from row to row and are more than names."""
    prose = sum(map(is_prose, texts))
    return not is_about(name) and 2 * prose > len(texts) and 2 * len({*texts}) > len(texts)


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and bool(role_of(value)) and any(t in value for t in _TEXTS)


_TAGS = ("label", "kto_tag")
_ONE_ANSWER = ("completion", "response", "answer", "output", "messages", "conversations")


def refuse_unpaired(rows: Sequence[contract.Row], where: str) -> None:
    """Raise where every row has one answer and a label, and no second answer to compare with."""
    single = all(not row.keys().isdisjoint(_TAGS) for row in rows)
    single = single and all(not row.keys().isdisjoint(_ONE_ANSWER) for row in rows)
    if rows and single and not any("rejected" in row for row in rows):
        raise DataError(
            f"{where} holds unpaired data: one completion and one label per row. A reward model is "
            "trained on pairs, and there is no second answer to compare with.",
            "Give rows with chosen and rejected, or train with KTO, which reads unpaired data.",
        )


# What rows lack that rate no steps.


_GIVEN = 'Give rows such as {"problem": "...", "steps": ["...", "..."], "labels": [1, 0]}'


def without_ratings(rows: Sequence[contract.Row]) -> tuple[str, str] | None:
    """Why rows with steps say nothing about each of them, and what would; None where they
    have no steps."""
    held = role_columns.columns_of(rows, answers_alone=False)
    steps = next(iter(finders.steps_of(held)), None)
    if steps is None:
        return _one_step_each(held) or _judged(held)
    lists = [p for p in held.where(lambda v: isinstance(v, list)) if p != steps]
    for path in (one for one in lists if held.as_long(one, [steps])):
        odd = [v for v in judgements.flat(held.told(path)) if not _ratings.is_rating(v)]
        if odd and not isinstance(odd[0], dict) and role_names.role_of(path):
            shown = " and ".join([*dict.fromkeys(map(repr, odd))][:2])
            what = f"{path} has a value for each of {steps}, but {shown} are no ratings"
            return what, "Write + or -, true or false, correct, incorrect or neutral, or 0 to 1"
    return f"{steps} has steps, and nothing rates each of them", _GIVEN


def _one_step_each(held: role_columns.Columns) -> tuple[str, str] | None:
    """Whether each row is one step of a problem that others repeat."""
    texts = [p for p in held.alone if role_names.mentions(p, "steps") and held.long(p)]
    asked = [p for p in held.called("question", held.alone) if p not in texts]
    repeated = [p for p in asked if len({*held.values[p]}) * 2 <= len(held.values[p])]
    if not texts or not repeated:
        return None
    what = f"each row is one step ({texts[0]}) of a problem ({repeated[0]}) that others repeat"
    return what, f"Join the rows of one problem. {_GIVEN}"


def _judged(held: role_columns.Columns) -> tuple[str, str] | None:
    """Whether answers in turns are the texts of a judge, which end with a verdict each."""
    for path in role_columns.conversation(held):
        each = (one if type(one) is list else _turns.turns_in(one) for one in held.values[path])
        turns = [*itertools.chain.from_iterable(filter(None, each))]
        answers = [said for who, said in _rated_steps.spoken(turns) if who == "assistant"]
        ends = [judgements.last_word(said) for said in answers if isinstance(said, str)]
        if ends and all(map(_ratings.is_rating, ends)):
            what = f"the answers in {path} end with a verdict each, as a judge's texts do"
            return what, f"Write the steps without the judge's texts. {_GIVEN}"
    return None
