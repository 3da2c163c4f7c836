"""Errors about inputs that the user has to settle before a build begins.

Columns that the build would not read although they may matter; cells of tables of texts that may
be JSON; rows that are for another task. Each error names the column and its values in the sampled
rows, and options to choose from; the build works with any of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from pipeline import tasks
from pipeline.options.config import Config
from stages import catalog, formats, readers
from stages.contract import Row
from stages.errors import DataError, PipelineError, UnknownFormatError, UsageError, counted
from stages.format import Format
from stages.normalize import evidence
from stages.normalize.survey import Column, Survey
from stages.readers._delimited import Delimited
from stages.rows import column_names
from stages.rows.unread import ignore, mapped

_GOOD = ("good", "correct", "yes", "true", "pass", "passed", "right", "+", "desirable", "accept")
_LISTED = 3  # values that a message shows


def _spelled(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def _contents(column: Column, rows: int) -> str:
    """The values of a column, in words: ``true in 31, false in 9 of 40 sampled rows``."""
    counts = Counter(map(_spelled, column.values))
    if len(counts) > _LISTED or any(len(text) > 24 for text in counts):
        return f"in {column.rows:,} of {counted(rows, 'sampled row')}"
    shown = ", ".join(f"{text} in {count}" for text, count in counts.most_common())
    return f"{shown} of {counted(rows, 'sampled row')}"


def _quoted(text: str) -> str:
    return text if text.replace("=", "").replace("_", "").isalnum() else f"'{text}'"


def condition_for(path: str, values: Sequence[Any]) -> str | None:
    """A ``--where`` that keeps the better rows; None if it is unknown which are better."""
    kinds = {type(value) for value in values}
    word = column_names.plain(path)
    if word in column_names.PLACES:
        return f"{path}=-1" if -1 in values else None
    low = word in column_names.REVERSED
    if kinds == {bool}:
        return f"{path}={_spelled(not low)}" if (not low) in values else None
    if kinds <= {int, float} and values:
        if word in column_names.CLASSES and not set(values) <= {-1, 0, 1}:
            return None
        if len(set(values)) == 1 and values[0] != 1:
            return None  # one value for all rows: nothing shows whether it is a good one
        best, sign = (min(values), "<=") if low else (max(values), ">=")
        few = len(set(values)) <= 2
        return f"{path}={_spelled(best)}" if few else f"{path}{sign}{_spelled(_median(values))}"
    if kinds == {str}:
        good = next((value for value in values if value.strip().casefold() in _GOOD), None)
        return None if good is None or good.strip() != good else f"{path}={good}"
    return None


def _median(values: Iterable[Any]) -> Any:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _rated(path: str, column: Column, rows: Sequence[Row], config: Config, where: str) -> DataError:
    what = (
        f"{where}: column {path!r} ({_contents(column, len(rows))}) rates the answers, and "
        f"{config.task} would train every answer."
    )
    ways = [f"train all of them with {ignore(path)}"]
    chosen = condition_for(path, column.values)
    if chosen is not None:
        ways.insert(0, f"train only the good ones with --where {_quoted(chosen)}")
    if all(isinstance(row.get("text"), str) for row in rows) and path in rows[0]:
        ways.append(f"train it as the answer with --map question=text --map answer={path}")
    other = _other_task(rows, where, config)
    if other is not None:
        what += f" The rows also read as {other[0]} data ({other[1]})."
        ways.append(f"use another task: pipeline run {other[0]}")
    return DataError(what, f"Say which: {', or '.join(ways)}.")


_OTHER = {"chosen": "rejected", "Chosen": "Rejected", "CHOSEN": "REJECTED"}


def _sides(path: str, columns: Iterable[str]) -> tuple[str, str] | None:
    """The columns of the chosen and of the rejected answer's score, where both are there."""
    for one, other in _OTHER.items():
        pair = (path.replace(other, one), path.replace(one, other))
        if pair[0] != pair[1] and set(pair) <= set(columns):
            return pair
    return None


def _scored(path: str, survey: Survey, rows: Sequence[Row], where: str) -> DataError:
    shown = _contents(survey.columns[path], len(rows))
    sides = _sides(path, survey.columns)
    if sides is not None:
        return DataError(
            f"{where}: columns {sides[0]!r} and {sides[1]!r} ({shown}) may be the scores of the "
            "answers, and no format reads them under these names.",
            f"Read them with {_maps(('chosen_score', 'rejected_score'), sides)}, or leave them "
            f"out with {' '.join(map(ignore, sides))}.",
        )
    return DataError(
        f"{where}: column {path!r} ({shown}) may be the score of one answer, or the margin between "
        "two, and no format reads it alone under this name.",
        f"Read it as the margin with --map margin={path}, or leave it out with {ignore(path)}.",
    )


def _readable(path: str, column: Column, reading: str, row: Row) -> list[str]:
    """Options that have a format read a column, where one has a place for it."""
    text = all(isinstance(value, str) for value in column.values)
    record_format, word = formats.load(reading), column_names.plain(path)
    name, read, found = record_format.name, record_format.columns, record_format.renamed
    if word in column_names.SYSTEM and "system text" in read:
        return [mapped("system", path)]
    if word in column_names.HISTORY and "history" in read:
        return [mapped("history", path)]
    if word in column_names.CORRECTED and text and "answer" in read and "." not in path:
        answered = next((column for column in read["answer"] if column in row), None)
        return [] if answered is None else [mapped(answered, path)]
    if name in ("query_response", "prompt_completion") and "." not in path:
        asked, answered = (
            next((found.get(one, one) for one in read[meaning] if one in (found or row)), "COLUMN")
            for meaning in ("question", "answer")
        )
        if word in column_names.REASONING and text:
            names = ("problem", "message_thinking", "message_content")
            # Every template has a place for a <think> block; not every one prints the field.
            return [_maps(names, (asked, path, answered)) + " --reasoning-in think"]
        if word in column_names.CONTEXT and text:
            return [_maps(("instruction", "input", "output"), (asked, path, answered))]
    if name == "alpaca" and word in column_names.CONTEXT and text:
        return [mapped("input", path)]
    return []


def _maps(names: Sequence[str], columns: Sequence[str]) -> str:
    pairs = zip(names, columns, strict=True)
    return " ".join(mapped(name, column) for name, column in pairs)


def _unseen(path: str, column: Column, rows: Sequence[Row], reading: str, where: str) -> DataError:
    why = "" if column.asked is None else f" {column.asked.detail.removeprefix(path).lstrip()};"
    if column.asked is None:
        why = " holds most of the rows' text;"
    ways = [f"have it read with {way}" for way in _readable(path, column, reading, rows[0])]
    ways.append(f"leave it out with {ignore(path)}")
    name = formats.load(reading).name
    return DataError(
        f"{where}: column {path!r} ({_contents(column, len(rows))}){why} format {name} does not "
        "read it.",
        f"Say which: {', or '.join(ways)}.",
    )


def ask(survey: Survey, rows: Sequence[Row], reading: str, where: str, config: Config) -> None:
    """Stop at the first column that must not be left out without the user's decision.

    Raises:
        DataError: there is such a column.
    """
    asked = {path: column for path, column in survey.columns.items() if column.asked is not None}
    for path, column in asked.items():
        error = column.asked
        if error is None:
            continue
        if error.code == "rated" and tasks.kind_of(config.task).trains_answers:
            raise _rated(path, column, rows, config, where)
        if error.code == "rated":
            raise _scored(path, survey, rows, where)
        if error.code == "unread_column":
            raise _unseen(path, column, rows, reading, where)
        shown = _contents(column, len(rows))
        raise DataError(f"{where}: {error.detail} ({shown}).", error.remedy)
    if survey.most is not None:
        raise _unseen(survey.most, survey.columns[survey.most], rows, reading, where)


def format_chosen(config: Config) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it is one of another task, which the error names.
    """
    try:
        return formats.choose(config.source.format, tasks.kind_of(config.task))
    except UsageError as error:
        if config.source.format.partition("/")[0] not in catalog.names(formats.__name__):
            raise
        given = formats.load(config.source.format).kinds
        for task in tasks.names():
            if tasks.kind_of(task).formats in given:
                remedy = f"Use the task that it is for: pipeline run {task}. {error.remedy}"
                raise UsageError(error.what, remedy) from error
        raise


def _other_task(rows: Sequence[Row], where: str, config: Config) -> tuple[str, str] | None:
    """The first other task that has a format for these rows, and the evidence."""
    for task in tasks.names():
        if task == config.task:
            continue
        try:
            found = evidence.detect(rows, tasks.kind_of(task), where, columns=config.source.map)
        except PipelineError:
            continue
        if found.change is None and found.format.usable:
            return task, found.evidence
    return None


def naming_the_task(
    error: UnknownFormatError, rows: Sequence[Row], where: str, config: Config
) -> UnknownFormatError:
    """The same error; where the rows are for another task, it says for which."""
    other = _other_task(rows, where, config)
    if other is None:
        return error
    task, why = other
    return UnknownFormatError(
        f"{error.what} They read as {task} data ({why}).",
        f"Use the task that reads them: pipeline run {task}.",
        error.figures,
    )


@contextmanager
def asked_about_cells(
    rows: Sequence[Row], where: str, config: Config, reader: str
) -> Iterator[None]:
    """Let rows be recognised, unless cells must be asked about first; a refusal of them says what
    the cells could be.

    Args:
        reader: the name of the file's reader.

    Raises:
        DataError: all cells of a column are JSON lists or objects, and nobody said what they are.
    """
    known = readers.load(reader)
    if not isinstance(known, Delimited):
        yield
        return
    open_to_doubt = [c for c in rows[0] if c not in known.cells and c not in config.source.ignore]
    kinds = {column: _kind([row[column] for row in rows]) for column in open_to_doubt}
    _require_said({c: kind for c, kind in kinds.items() if kind in ("lists", "objects")}, where)
    try:
        yield
    except DataError as error:
        plain = [f"--cells {column}=json" for column, kind in kinds.items() if kind == "scalars"]
        if plain:
            said = f"To read numbers, true and false as values, add {' '.join(plain)}."
            error.remedy = f"{error.remedy} {said}".lstrip()
            error.args = (error.what, error.remedy)
        raise


def _require_said(nested: Mapping[str, str], where: str) -> None:
    """Raises DataError if there are such columns."""
    if not nested:
        return
    first, *more = nested
    others = f" (and of {', '.join(more)})" if more else ""
    ways = [" ".join(f"--cells {column}={kind}" for column in nested) for kind in ("json", "text")]
    raise DataError(
        f"{where}: the cells of column {first!r}{others} are JSON {nested[first]}, but cells are "
        "read as text unless --cells says that they are JSON.",
        f"Say which: {ways[0]} or {ways[1]}.",
    )


def _kind(cells: Sequence[str]) -> str:
    """What all cells of a column are that have something in them; empty where they differ."""
    kinds = {_kind_of(cell) for cell in cells if cell.strip()}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of(cell: str) -> str:
    try:
        value: Any = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(value, list):
        return "lists"
    if isinstance(value, dict):
        return "objects"
    return "" if isinstance(value, str) else "scalars"
