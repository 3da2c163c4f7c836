"""Errors about inputs that the user has to settle before a build begins.

Columns that the build would not read although they may matter; cells that may be JSON; rows that
would be refused. Each error names the column, its values, and options that all work.
"""

import itertools
import shlex
from collections.abc import Collection, Sequence

import orjson

from pipeline.inputs import ratings
from pipeline.inputs.opening import SampledRows, lists_of_texts
from pipeline.options.config import FEW_ROWS, Config
from pipeline.options.ways import leaving
from stages.contract import Row
from stages.errors import AskError, DataError, counted
from stages.normalize import places, role_names
from stages.normalize.survey import Column, Survey
from stages.rows import column_names, signals, words
from stages.rows.column_names import EMPTY
from stages.rows.selection import lookup
from stages.rows.unread import differs_from, ignore, mapped


def _of_steps(path: str, column: Column, read: SampledRows) -> str:
    """The remedy where a column rates steps too, or numbers some behind the first wrong one, which
    somebody looked at then; empty where the format leaves none of these open."""
    variant = f"{read.reading.partition('?')[0].partition('/')[2]}-whole"
    found = read.format
    if True in column.numbers and variant in found.variants:
        whole = f"--format {found.name}/{variant} {ignore(path)}"
        ways = f"rate all steps that are not listed as good with {whole}, or leave those after"
        return f"Say which: {ways} the first wrong one unrated with {ignore(path)}."
    able = "labels" in found.columns.get("ratings", ()) and not found.renamed
    if not (able and all(map(signals.are_shares, column.values))):
        return ""
    return f"Say which: read it with {mapped('labels', path)}, or leave it out with {ignore(path)}."


def _unseen(path: str, column: Column, read: SampledRows) -> DataError:
    found, rows, reading = read.format, read.rows, read.reading
    much = "much" if found.name == "text" else "most"
    why = f"holds {much} of the rows' text" if column.asked is None else column.asked.detail
    why = why.removeprefix(path).lstrip().removesuffix(", and nothing reads it")
    ways = [f"have it read with {way}" for way in places.options(path, column, reading, rows)]
    if column_names.is_a(path, "media") and (without := _without(path, rows)):
        ways.insert(0, f"use only the rows without one with {without}")
    names = [found.renamed.get(name, name) for name in found.columns.get("answer", ())]
    answers = [row[name] for row in rows for name in names if row.get(name) and name != path]
    short = not any(map(signals.is_prose, answers)) and all(map(signals.is_prose, column.values))
    if names and role_names.role_of(path) == "answer" and (short or column.asked is None):
        silent = dict.fromkeys(row.get(path) for row in rows if row.get(path) in ("", None))
        left_out = (differs_from(path, nothing) for nothing in silent)
        longer = " ".join([mapped(found.columns["answer"][0], path), *left_out])
        ways += [f"have it read with {longer}"] * (not role_names.are_worse(path))
    both = places.wholes(rows[0], reading)
    left = " ".join(map(ignore, both)) if path in both else ignore(path)
    beside = column_names.is_beside(path, column.values, answers) or role_names.explains(path)
    beside |= any(path.startswith(f"{name}_") for name in found.columns.get("input", ()))
    beside |= signals.are_few(column.values)
    if not (column_names.is_a(path, "context") and places.are_letters(reading, rows)):
        ways.insert(0 if beside else len(ways), f"leave it out with {left}")
    what = f"column {path!r} ({column.contents(len(rows))}) {why}, and format {found.name}"
    return read.which(f"{what} does not read it.", ways)


def _without(path: str, rows: Sequence[Row]) -> str:
    """The option that keeps the rows in which a column says nothing; empty where none does."""
    empty = [value for row in rows if (value := lookup(row, path)) in EMPTY]
    if not empty or any(value != empty[0] for value in empty):
        return ""
    said = empty[0] if isinstance(empty[0], str) else orjson.dumps(empty[0]).decode()
    return f"--where {shlex.quote(f'{path}={said}')}"


def _weighing(path: str, column: Column, read: SampledRows) -> DataError:
    """The question about a column that weighs or leaves out rows, or turns."""
    assert column.asked is not None
    ways = [f"leave it out with {ignore(path)}"]
    scale = any(type(value) is float and value not in (0, 1) for value in column.values)
    known = column.asked.code == "unread_weight" or column_names.is_rating(path)
    weights = read.format.columns.get("weights of turns", ())
    if weights and all(isinstance(value, list) for value in column.values):
        ways.insert(0, f"read it as the weights of the turns with {mapped(weights[0], path)}")
    elif known and not scale and (chosen := ratings.condition_for(path, column)):
        ways.insert(0, f"use only the rows that it keeps with {chosen}")
    return read.which(f"{column.asked.detail} ({column.contents(len(read.rows))}).", ways)


def ask(survey: Survey, read: SampledRows, settled: Collection[str]) -> None:
    """Stop at the first column that must not be left out without the user's decision, but for some
    that are settled."""
    where, config, of = read.where, read.config, len(read.rows)
    if listed := [n for n in survey.listed if config.source.cells.get(n) != "text"]:
        raise lists_of_texts(listed, read)
    late = survey.late
    for path, column in sorted(survey.columns.items(), key=lambda one: late.get(one[0], 0)):
        error = column.asked
        if error is None or path in settled:
            continue
        if error.code == "rated" and read.kind.trains_answers:
            raise ratings.rated(path, column, read, late.get(path, 0))
        if error.code == "rated" and read.kind.compares:
            raise ratings.scored(path, survey, read)
        if error.code in ("unread_weight", "unknown_flag"):
            raise _weighing(path, column, read)
        if error.code == "unread_column":
            raise _unseen(path, column, read)
        what = f"{where}: {error.detail} ({column.contents(of)})."
        own = words.words(path)
        alike = [p for p in survey.asked if words.words(p) == own]
        remedy = _of_steps(path, column, read) or error.remedy  # of all of a family at once
        raise DataError(what, remedy.replace(ignore(path), " ".join(map(ignore, sorted(alike)))))
    if survey.most is not None and survey.most not in settled:
        raise _unseen(survey.most, survey.columns[survey.most], read)
    refused = list(survey.refused.values())
    left = [errors for errors in refused if leaving([errors[0].remedy])]
    way = leaving([errors[0].remedy for errors in left])
    some = [*itertools.chain(*left)] if way else []
    if 0 < len(some) < of and too_many(sum(map(len, refused)), of, config):
        raise _refusing(some, of, where, f"Leave such rows out with {way}.")
    for errors in (one for one in refused if not way or one not in left):
        if too_many(len(errors), of, config):
            raise _refusing(errors, of, where, f"{errors[0].remedy}.")


def _refusing(errors: Sequence[AskError], of: int, where: str, remedy: str) -> DataError:
    codes = " or ".join(dict.fromkeys(error.code for error in errors))
    said = f"{len(errors):,} of {counted(of, 'sampled row')} would be refused as {codes}"
    return DataError(f"{where}: {said}: {errors[0].detail}.", remedy)


def too_many(refused: int, of: int, config: Config) -> bool:
    """Whether a build refuses more rows of its one source than it allows, by ``refused`` of ``of``
    sampled rows."""
    (source,) = config.sources
    share = config.judge.max_reject if source.max_reject is None else source.max_reject
    few = share and refused <= FEW_ROWS and refused < of / 5
    return not few and refused > share * of
