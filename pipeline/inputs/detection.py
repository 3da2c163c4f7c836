"""Detects the format of an input from a sample of its rows."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipeline import tasks
from pipeline.builds import limits
from pipeline.builds.place import place_of
from pipeline.inputs import ratings
from pipeline.inputs.opening import (
    SampledRows,
    asked_about_cells,
    format_options,
    require_known,
    selection_of,
)
from pipeline.inputs.questions import ask
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.options.ways import ways, written
from stages import catalog, contract, errors, formats, readers
from stages.errors import DataError, UnknownFormatError, UsageError, counted
from stages.format import Format
from stages.normalize import roles, verdict_columns
from stages.normalize.evidence import Detection, detect, settle
from stages.normalize.inside import ask_of_checks
from stages.normalize.mixture import detect_mixture
from stages.normalize.role_columns import ENOUGH
from stages.normalize.survey import Survey, is_talk, survey
from stages.rows import column_names, selection, signals, speakers
from stages.rows.selection import lookup, names_something, renamed

_LISTED = 24  # names that a message lists


def rows_of(glimpse: contract.Glimpse) -> list[contract.Row]:
    """The sampled rows that could be parsed."""
    return [record.data for record in glimpse.records if record.data is not None]


def recognise_glimpse(
    glimpse: contract.Glimpse, where: str, config: Config, reader: str, *, other_tasks: bool = True
) -> Detection:
    """The reading of an input, from sampled rows.

    Args:
        reader: its name.
        other_tasks: say which other task the rows are for, where they have no format of this one.

    Raises:
        DataError: no row of it can be read; see also ``recognise_rows`` and ``questions``.
    """
    rows = rows_of(glimpse)
    if not rows:
        wrong = (f"line {r.line + 1}: {r.error[1]}" for r in glimpse.records if r.error)
        error = next(wrong, "there are no rows in it")
        convert = f"Convert it, for example: iconv -f latin1 -t utf-8 {where} > utf8.jsonl"
        remedy = convert if "UTF-8" in error else "Give a file of JSON objects, one a line."
        raise DataError(f"{where} has no row that can be read; {error}.", remedy)
    typed = any(record.typed for record in glimpse.records)
    with asked_about_cells(rows, where, config, reader) as cells:
        found = recognise_rows([*cells], where, config, typed, other_tasks=other_tasks)
    listed = f"the rows are the list under {glimpse.key!r}"
    how = listed if glimpse.key else readers.in_words(reader)
    return replace(found, evidence=f"{found.evidence}; {how}") if how else found


def _format_chosen(config: Config) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it is one of another task, which the error names.
    """
    try:
        return formats.choose(config.source.format, config.parts.kind)
    except UsageError as error:
        if re.split("[/?]", config.source.format)[0] not in catalog.names(formats.__name__):
            raise
        given = formats.load(config.source.format).kinds
        for task in tasks.names():
            if tasks.kind_of(task).formats in given:
                remedy = f"Use the task that it is for: pipeline run {task}. {error.remedy}"
                raise UsageError(error.what, remedy) from error
        raise


def _require_named(where: str, rows: list[contract.Row], config: Config) -> None:
    """Require that some row has each column that ``--map``, ``--ignore`` or ``--where`` names, and
    each role of ``--role``.

    Raises:
        UsageError: no row has one of them.
    """
    conditions = zip(config.source.where, selection_of(config).where, strict=True)
    named = [(f"--map {name}={column}", column) for name, column in config.source.map.items()]
    named += [(f"--where {text}", asked.column) for text, asked in conditions]
    missing = [one for one in named if all(lookup(row, one[1]) is None for row in rows)]
    unknown = (o for o in config.source.ignore if not any(names_something(row, o) for row in rows))
    missing += [(f"--ignore {path}", path) for path in unknown]
    speakers.require_said(config.source.role, rows, where)
    if config.source.filter or Keep.of(config.plan.dedup_keep).column:
        require_known(config, rows, where)
    columns = [*dict.fromkeys(itertools.chain(*rows[:10]))]
    for option, column in missing:
        near = column_names.nearest(column, columns)
        meant = " or ".join(option.replace(column, one) for one in near)
        what = f"{option}: no sampled row of {where} has {column}."
        hint = f"Did you mean {meant}? " if near else ""
        raise UsageError(what, f"{hint}Its columns: {', '.join(columns)}.")


def _require_read(names: Iterable[str], known: Iterable[str], whose: str) -> None:
    """Require that a format reads each NAME of ``--map NAME=COLUMN``.

    Raises:
        UsageError: none reads one of them; the message has similar names.
    """
    known = sorted(set(known))
    for name in names:
        if name not in known:
            near = column_names.nearest(name, known)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            every = "What each format reads: pipeline list formats --columns."
            listed = f"It reads {', '.join(known)}." if len(known) <= _LISTED else every
            what = f"--map {name}=...: {whose} a column named {name}."
            raise UsageError(what, f"{hint}{listed}")


def _require_together(
    rows: list[contract.Row], maps: Mapping[str, str], offered: Sequence[Format], words: str
) -> None:
    """Require that one format reads both of each two NAMEs of ``--map`` that a row has.

    Raises:
        DataError: none does.
    """
    by = {name: [f.name for f in offered if name in formats.names_of(f)] for name in maps}
    for one, other in itertools.combinations(maps, 2):
        there = any(None not in (row[one], row[other]) for row in rows)
        if there and {*by[one]}.isdisjoint(by[other]):
            both = f"{one} ({maps[one]}) and {other} ({maps[other]})"
            each = f"{one} is read by {', '.join(by[one])}; {other} by {', '.join(by[other])}"
            what = f"no one format of {words} reads both {both}: {each}."
            raise DataError(what, "Give one of the two alone, and leave the other column out.")


def _taken(rows: list[contract.Row], where: str, config: Config, typed: bool) -> list[contract.Row]:
    """The sampled rows that ``--where`` keeps, without ignored columns, as formats get them.

    Raises:
        DataError: ``--where`` keeps none of them, or nobody said what their nulls are.
    """
    chosen = selection_of(config)
    taken = [renamed(chosen.read(r), config.source.map) for r in rows if chosen.takes(r)]
    if not taken:
        said = " and ".join(config.source.where)
        what = f"{where}: none of {counted(len(rows), 'sampled row')} meets --where {said}."
        first = (f"{c.column} {lookup(rows[0], c.column)!r}"[:60] for c in chosen.where)
        raise DataError(what, f"Check the values; the first row has {', '.join(first)}.")
    if not typed:
        return taken
    try:
        return [selection.settled(row, config.source.null_fields) for row in taken]
    except errors.AskError as error:
        raise DataError(f"{where}: {error.detail}.", error.remedy) from error


def recognise_rows(
    raw: list[contract.Row], where: str, config: Config, typed: bool, *, other_tasks: bool
) -> Detection:
    """The reading of some rows of a file; ``change`` is left to the caller.

    Args:
        typed: the rows come from a table with one type for all of them.
        other_tasks: see ``recognise_glimpse``.

    Raises:
        UsageError: ``--format``, ``--map``, ``--ignore`` or ``--where`` names what is not there.
        DataError: the rows fit no format, or more than one, or a column that nothing would read
            must not be left out without a question.
    """
    kind = config.parts.kind
    named = None if config.source.format == "auto" else _format_chosen(config)
    _require_named(where, raw, config)
    for name, path in config.source.map.items():
        if both := verdict_columns.of_both(name, path, raw, kind):
            what = f"--map {name}={path} reads numbers of one answer; those of both are {both}."
            instead = f" {name}=" in both  # where the name may stay, the command is printed
            raise UsageError(what, f"Read both with {both}." if instead else "Use that instead.")
    # A name of --map may belong to any format that could be chosen; once one is, only to that one.
    offered = formats.usable_for(kind) if named is None else [named]
    whose = f"format {named.name} does not read" if named else f"no format of {kind.words} reads"
    _require_read(config.source.map, (n for f in offered for n in formats.names_of(f)), whose)
    rows = _taken(raw, where, config, typed)
    if not config.source.mixed_formats:
        _require_together(rows, config.source.map, offered, kind.words)
    read = SampledRows(rows, raw, where, config)
    detection = _as_named(named, read) if named else _detected(read, other_tasks)
    if detection.change is None:
        whose = f"format {detection.format.name} does not read"
        _require_read(config.source.map, formats.names_of(detection.format), whose)
        given = [renamed(row, detection.format.renamed) for row in rows]
        seen = survey(given, detection.format, kind, format_options(config), selection_of(config))
        read = replace(read, reading=detection.reading)
        _require_some(seen, read)
        if kind.trains_answers:
            ask_of_checks(seen, rows, detection.reading, format_options(config))
        settled = _left_out(seen.asked, config)
        ask(seen, read, settled)
        detection = replace(detection, left=tuple(sorted(settled)))
    return detection


def _require_some(seen: Survey, read: SampledRows) -> None:
    """Some row is not refused, unless no other task reads them.

    Raises:
        UnknownFormatError: all are, and the error names the task.
    """
    failed = None if seen.rows or seen.refused or len(read.rows) < ENOUGH else seen.failed
    if not isinstance(failed, errors.RowError):
        return
    sampled = counted(len(read.rows), "sampled row")
    what = f"{read.where}: {read.config.task} can use none of {sampled}"
    option = next(map(written, ways(failed.detail)), "")
    remedy = f"Add {option}." if option else f"What they lack: pipeline explain {failed.code}."
    none = UnknownFormatError(f"{what}: {failed.detail}.", remedy)
    if (told := ratings.naming_the_task(none, read)) is not none:
        raise told


_ASKED = ("question", "prompt", "problem", "text")  # meanings of texts that differ from row to row


def is_believable(
    rows: list[contract.Row], found: Detection, given: Config, config: Config
) -> bool:
    """Whether options that a message would offer take no few texts that come again and again for
    what each row asks, leave out no turns where none are read, and are believable to the format.

    Args:
        given: the options without them.
    """
    meant, maps = found.format.columns, config.source.map
    few = min(signals.FEW, len({*map(repr, rows)}) // 5)
    for names in (meant.get(meaning, ()) for meaning in _ASKED):
        paths = [maps.get(name, name) for name in names]
        new = {path for name, path in maps.items() if name in names} - {*given.source.map.values()}
        if new and len({repr([lookup(row, path) for path in paths]) for row in rows}) <= few:
            return False
    if config.parts.kind.trains_answers and "turns" not in meant:
        left = {*config.source.ignore, *found.left}.difference(given.source.ignore)
        said = (sum(is_talk(lookup(row, path)) for row in rows) for path in left)
        if any(2 * talks > len(rows) for talks in said):
            return False
    if config.source.neutral == given.source.neutral:
        return True
    read = [renamed(renamed(row, maps), found.format.renamed) for row in rows]
    return found.format.is_believable(read, found.format.told(format_options(config)))


def _left_out(asked: frozenset[str], config: Config) -> frozenset[str]:
    """Those of some columns that ``--leave-rest`` leaves out.

    Where a build is there that left columns out in the same way, only these: what is new since
    then is asked about.
    """
    if not config.source.leave_rest:
        return frozenset()
    try:
        before = limits.opened(place_of(config.run).before)
    except errors.PipelineError:
        return asked
    if before is None or "leave_rest" not in str(before.manifest.options):
        return asked
    inputs = before.manifest.inputs
    return asked & {column.column for one in inputs for column in one.unread}


def _detected(read: SampledRows, other_tasks: bool) -> Detection:
    """The reading that rows show: of one format, or with ``--mixed-formats`` of several."""
    told = read.rows, read.kind, read.where, format_options(read.config)
    if read.config.source.mixed_formats and (found := detect_mixture(*told)) is not None:
        return found
    try:
        return detect(*told)
    except UnknownFormatError as error:
        if not other_tasks:
            raise
        raise ratings.naming_the_task(error, read) from error


def _as_named(named: Format, read: SampledRows) -> Detection:
    """The reading that ``--format`` names."""
    rows, source, more = read.rows, read.config.source, ""
    reading = source.format
    fitting = _fitting(named, rows)
    found = [] if fitting or named.renamed else roles.find(rows, read.kind, source.map, named.name)
    if len(found) == 1:
        variant = reading.partition("/")[2]
        reading = formats.reading_of(named.name, variant, found[0].renamed)
        named, more = formats.load(reading), f": {found[0].words}"
        fitting = _fitting(named, rows)
    if "/" not in reading:
        told = named.told(format_options(read.config))
        reading, why = settle(named, fitting, read.where, told)
        more += why
    counts = {named.name: len(fitting)}
    of = counted(len(rows), "sampled row")
    evidence = f"named by --format, fits {len(fitting):,} of {of}{more}"
    return Detection(reading=reading, evidence=evidence, sampled=len(rows), counts=counts)


def _fitting(named: Format, rows: list[contract.Row]) -> list[contract.Row]:
    """The rows that a format reads, with columns as it names them."""
    return [row for row in (renamed(one, named.renamed) for one in rows) if named.matches(row)]
