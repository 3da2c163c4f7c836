"""What the sampled rows of a file leave open inside of their texts and turns, asked before a build.

The rows are read as a build reads them, so a question here is one that rows would be refused with.
"""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages import formats
from stages.contract import Example, FormatOptions, Row
from stages.errors import AskError, DataError, RowError, counted
from stages.format import Format
from stages.formats import _fields, _inside, _messages, _turns
from stages.normalize import places, role_names
from stages.normalize.survey import Column, Survey
from stages.rows import judgements, shapes, signals, speakers, unread, words
from stages.rows.column_names import EMPTY, Watched
from stages.rows.selection import renamed, told_raw
from stages.rows.speakers import ASSISTANT, SYSTEM

_ALLOW = "Add --already-templated to have its turns read and rendered once"
_OPTION = re.compile(r"--already-templated|--(?:ignore|map|role) (?:'[^']*'|[^\s,;]+)")
# Codes of rows that an option settles, whatever their format is.
_ASKED = ("unknown_role", "already_templated")


def _asks(row: Row, format_: Format, options: FormatOptions) -> RowError | None:
    """What a row asks about what is inside of it; None where it asks nothing of that kind."""
    watched = Watched(row)
    made = _fields.tried(format_, watched, options)
    if isinstance(made, Exception):
        return made if isinstance(made, RowError) and made.code in _ASKED else None
    try:
        said = _inside.settled(made, watched, options)
    except RowError as error:
        return error if isinstance(error, AskError) or error.code in _ASKED else None
    return _told_twice(said, watched, options)


def _told_twice(said: Sequence[Example], row: Watched, options: FormatOptions) -> AskError | None:
    """The question about a system text in a column that the first question has in it too; none
    where ``--map`` names that column."""
    system = [name for name in _turns.SYSTEM if name in row.read_columns]
    if not system or not options.columns.keys().isdisjoint(system):
        return None
    for one in said:
        turns = getattr(one, "messages", None) or getattr(one, "prompt", [])
        if not turns[1:]:
            continue
        ahead, asked = turns[0].content, turns[1].content
        if turns[0].role == SYSTEM and signals.is_prose(ahead) and str(ahead) in (asked or ""):
            what = f"the question has the text of {system[0]} in it, so that a model reads it twice"
            both = unread.mapped(system[0], system[0])
            how = f"Say which with {unread.ignore(system[0])} or, to have both, {both}"
            return _fields.open_question(what, how, "two_system_texts")
    return None


def _changes(row: Row, format_: Format, options: FormatOptions) -> bool:
    """Whether a row becomes something else where texts are read that carry a template."""
    try:
        read = _inside.settled(format_.read(row, options), row, options)
        plain = format_.read(row, options)
    except (RowError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return read != plain


def require_settled(
    reading: str, rows: Sequence[Row], where: str, allowed: bool, columns: Mapping[str, str]
) -> int:
    """Stop at what most of the rows that ask anything ask; the rows that ``--already-templated``
    changes, where it is given.

    Args:
        allowed: whether it is.

    Raises:
        DataError: more than a few rows ask something.
    """
    format_ = formats.load(reading)
    options = format_.told(FormatOptions(columns=columns, already_templated=allowed))
    first = _most(rows, format_, options)
    if first is None:
        return sum(_changes(row, format_, options) for row in rows) if allowed else 0
    asked = [first]
    if first[0].code == "already_templated" and not allowed:
        then = _most(rows, format_, replace(options, already_templated=True))
        asked += [then] if then else []
    told = [(told_raw(one, options.columns).partition("; ")[0], rows_of) for one, rows_of in asked]
    how, *more = (_how(one, rows) for one, _ in asked)
    if allowed and how.startswith(_ALLOW):
        how = "Give such rows as messages, each turn by itself, or leave them out with --where"
    for way in map(_OPTION.findall, more):  # both together
        how = f"Add {', or '.join(f'{_OPTION.findall(how)[0]} {one}' for one in way)}"
    what = ", and ".join(f"{detail} ({rows_of})" for detail, rows_of in told)
    raise DataError(f"{where}: {what}.", f"{how}.")


def _most(
    rows: Sequence[Row], format_: Format, options: FormatOptions
) -> tuple[RowError, str] | None:
    """What the first of the rows that ask anything asks, and how many they are, in words; None
    where they are few."""
    found = (_asks(row, format_, options) for row in rows)
    asked = [error for error in found if error is not None]
    few = len(asked) <= max(1, _fields.FEW * len(rows))
    if not asked or (few and len(asked) < len(rows)):
        return None
    return asked[0], f"in {len(asked):,} of {counted(len(rows), 'sampled row')}"


def _how(error: RowError, rows: Sequence[Row]) -> str:
    """The options that settle what a row asks."""
    if error.code == "unknown_role":
        who = speakers.guessed([*rows])
        ways = " ".join(_messages.as_role(name, role) for name, role in who.items())
        return f"Say who that is, for instance {ways}; roles are {', '.join(speakers.ROLES)}"
    return getattr(error, "remedy", "") or _ALLOW


# Short answers that say whether a row is right.


_ALIKE, _OTHER = 0.3, 0.1  # shares of rows: that agree at least; of solutions that say another one
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_STATED = re.compile(
    r"boxed\{(?:\\\w+\{)?[^{}]*|####.*|answer(?: is|:)\W*(?!boxed\{)\w+", re.IGNORECASE
)
# The letter of an option in that, alone or before its text.
_LETTER = re.compile(r"\D*?(?:\{|#|is|:)\W*(?:option )?([A-Z])(?:\W*|[.):]+\s.*)")
_AROUND = re.compile(r"[^\w./+-]|_|[dt](?=frac)")  # marks around an answer


def ask_of_checks(seen: Survey, rows: Sequence[Row], reading: str, options: FormatOptions) -> None:
    """Ask about columns of short answers that others are checked against, where some of what would
    be trained, or of what a program took out of it, says something else; and about the texts that
    letters name, where nothing else is trained."""
    found = formats.load(reading)
    names = [path for path in seen.columns if path.isidentifier()]
    short = {path: [_short(row.get(path)) for row in rows] for path in names}
    short = {path: told for path, told in short.items() if len({*told}) > 2}
    checks = [p for p in short if role_names.says(p, "reference checked")]
    checks = [p for p in checks if not role_names.says(p, "draft")]
    chosen = words.families(
        path for path in names if any(isinstance(row.get(path), str) for row in rows)
    )
    given = (renamed(row, found.renamed) for row in (rows if checks or chosen else ()))
    made = (_fields.tried(found, row, found.told(options)) for row in given)
    answers = [_trained(one) if isinstance(one, list) else "" for one in made]
    letters = bool(answers) and all(map(_fields.is_letter, answers))
    for path in chosen * letters:
        for name in path.split(","):
            _ask_of_letters(seen.columns[name], path, reading, rows)
    for check in checks:
        owns = {path: short[path] for path in short if _is_own(path) and path != check}
        for own, told in {**owns, "": answers}.items():
            both = [one for one in zip(told, short[check], strict=True) if all(one)]
            said = [agrees for one in both if (agrees := _agree(*one)) is not None]
            long = not own and not all(len(one) <= signals.SHORT for one in answers)
            odd, column = said.count(False), seen.columns[check]
            rates = column.asked is not None and column.asked.code == "rated"
            rates = rates and len({*short[check]}) > signals.FEW
            if said.count(True) < _ALIKE * len(said) or (column.asked and not rates):
                continue
            if odd <= max(1, (_OTHER if long else _fields.FEW) * len(said)):
                column.asked = None  # what all answers say rates none of them
                continue
            column.odd = odd
            what = f"{check} is another answer than {own or 'what would be trained'}"
            ways = [f"leave it out with {unread.ignore(check)}"]
            name = own or _column_of(rows, answers)
            raw = options.columns.get(name, name)
            if kept := _kept([(row.get(name), row.get(check)) for row in rows], raw, check):
                ways.insert(0, f"train only where both agree with --filter {shlex.quote(kept)}")
            column.asked = AskError("two_orders", what, f"Say which: {', or '.join(ways)}.")


def _ask_of_letters(column: Column, path: str, reading: str, rows: Sequence[Row]) -> None:
    """Ask about one of the columns that answers may choose from, together with the others."""
    names = path.split(",")
    values = [[row[name] for name in names if isinstance(row.get(name), str)] for row in rows]
    ways = places.options(f"{path}[options]", Column(values=values), reading, rows)
    ways = [*(f"read them with {way}" for way in ways), f"leave them out with {_ignored(names)}"]
    what = (
        f"{', '.join(names[:-1])} and {names[-1]} are texts, and the answers name one by a letter"
    )
    column.asked = AskError("two_orders", what, f"Say which: {', or '.join(ways)}.")


def _ignored(names: Sequence[str]) -> str:
    return " ".join(map(unread.ignore, names))


def _is_own(path: str) -> bool:
    """Whether a name is that of an answer, or of what was taken out of one."""
    own = role_names.role_of(path) == "answer" or role_names.says(path, "predicted")
    return own and not role_names.says(path, "reference")


def _short(value: Any) -> str:
    """A number or a short text; empty for all else."""
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    return "" if isinstance(value, bool) or len(text) > signals.SHORT else text


def _trained(said: Sequence[Example]) -> str:
    """The last answer of a row's last example; empty where it is none."""
    turns = getattr(said[-1], "messages", []) if said else []
    return (turns[-1].content or "").strip() if turns and turns[-1].role == ASSISTANT else ""


def _agree(answer: str, check: str) -> bool | None:
    """Whether an answer is, or has in it, what it is checked against; None where neither it nor its
    last number is another one."""
    own, other = (_AROUND.sub("", one).casefold() for one in (answer, check))
    number = judgements.spelled(check)
    if own == other or (number is not None and judgements.spelled(answer) == number):
        return True
    stated = [one[1] for said in _STATED.findall(answer) if (one := _LETTER.fullmatch(said))]
    if stated and _fields.is_letter(check):
        return stated[-1] == check.strip(" .()").upper()
    word = re.search(rf"(?<![\w./-]){re.escape(check)}(?![\w/]|\.\d)", answer, re.IGNORECASE)
    if word or (len(other) > 3 and other in own):
        return True
    if len(answer) <= signals.SHORT:
        return False
    last = _STATED.findall(answer) or (_NUMBER.findall(answer) if number is not None else [])
    return False if last else None


def _column_of(rows: Sequence[Row], texts: Sequence[str]) -> str:
    """The column that has some texts, one for each row; empty where none has."""
    both = [*zip(rows, texts, strict=True)]
    able = (name for name, value in rows[0].items() if isinstance(value, str))
    fits = (n for n in able if all(str(row.get(n)).strip() == text for row, text in both if text))
    return next(fits, "")


def _kept(both: Sequence[tuple[Any, Any]], own: str, check: str) -> str:
    """The expression that keeps rows in which two columns agree; empty where none can say it."""
    texts = [(a, b) for a, b in both if isinstance(a, str) and isinstance(b, str) and a and b]
    agree = [_agree(*one) for one in texts]
    ways = {"{} = {}": [a == b for a, b in texts], "contains({}, {})": [b in a for a, b in texts]}
    for way, keeps in ways.items() if own.isidentifier() else ():
        kept = [*itertools.compress(agree, keeps)]
        if kept and False not in kept and len(kept) >= shapes.NEARLY_ALL * agree.count(True):
            return way.format(own, check)
    return ""


# Columns of JSON texts.


def said_in(name: str, values: Sequence[Any]) -> list[Any]:
    """What the texts of a column say where all are JSON of lists or objects; of one that asks or
    answers only where it has the objects of several answers. Else nothing."""
    told = [one for one in values if one not in EMPTY]
    inside = {one: signals.nested_in(one) for one in told if isinstance(one, str)}
    known = bool(inside) and len(told) == sum(isinstance(one, str) for one in told)
    known = known and None not in inside.values()
    if known and role_names.may_be_listed(name):
        several = all(map(_turns.are_answers, inside.values()))
        known = several and dict in map(type, judgements.flat([*inside.values()]))
    return [inside.get(str(one)) for one in values] if known else []


def are_lists(name: str, values: Sequence[Any]) -> bool:
    """Whether all values that say anything are texts of lists of texts that are more than names, or
    of calls; or of turns, but not of such as formats read under a name for turns."""
    told = [judgements.listed_in(one) for one in values if one not in EMPTY]
    calls = all(map(signals.are_calls, told))
    turns = role_names.is_talk(name) and any(map(_turns.turns_in, values))
    listed = bool(told) and all(told) and not turns
    return listed and (calls or shapes.mostly(map(signals.is_prose, told)))
