"""Detects the format of an input from a sample of rows from its head, middle and tail.

An input that can only be read from its start, such as a compressed file, is sampled there.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pipeline import tasks
from pipeline.inputs import questions, scan
from pipeline.inputs.opening import format_options, require_known, said_of_source, selection_of
from pipeline.inputs.questions import ask, asked_about_cells
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from stages import contract, formats, readers
from stages.errors import AskError, DataError, UnknownFormatError, UsageError, counted
from stages.format import Format
from stages.normalize import roles
from stages.normalize.evidence import Detection, detect, settle
from stages.normalize.mixture import detect_mixture, in_words
from stages.normalize.survey import survey
from stages.rows import column_names, selection
from stages.rows.selection import Selection, lookup, names_something, renamed

SAMPLE_ROWS = 1000
LEAST_ROWS = 30  # of each input, where there are many
EMPTY = "the file is empty"  # the evidence for how it is read


def rows_each(inputs: int) -> int:
    """How many rows of each input are sampled, with so many inputs."""
    return max(LEAST_ROWS, SAMPLE_ROWS // max(inputs, 1))


def is_empty(glimpse: contract.Glimpse) -> bool:
    """There is no row in the file, not even one that cannot be read."""
    return glimpse.exact and glimpse.rows == 0 and not glimpse.records


def refuse_empty(empty: Sequence[str], files: int, choice: str) -> None:
    """Stop for files without rows, where all are, or where ``--empty`` does not allow some.

    Args:
        empty: their names; files: how many files there are; choice: of ``--empty``.

    Raises:
        DataError: naming the first.
    """
    if not empty or (len(empty) < files and choice == "warn"):
        return
    what, remedy = f"{empty[0]} is empty.", "Give a file with rows."
    if len(empty) < files:
        what = f"{empty[0]} is empty ({len(empty)} of {files} files are)."
        remedy = "Give a file with rows, or go on without empty files: --empty warn."
    raise DataError(what, remedy, {"files": files, "empty": list(empty)})


def way_on(error: str, path: str) -> str:
    """The remedy for a file without a single readable row."""
    if "UTF-8" in error:
        return f"Convert it, for example: iconv -f latin1 -t utf-8 {path} > utf8.jsonl"
    return "Give a file of JSON objects, one a line."


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
    rows = [record.data for record in glimpse.records if record.data is not None]
    if not rows:
        error = next(
            (f"line {r.line + 1}: {r.error[1]}" for r in glimpse.records if r.error),
            "there are no rows in it",
        )
        raise DataError(f"{where} has no row that can be read; {error}.", way_on(error, where))
    typed = any(record.typed for record in glimpse.records)
    with asked_about_cells(rows, where, config, reader):
        found = recognise_rows(rows, where, config, typed, other_tasks=other_tasks)
    how = readers.in_words(reader)
    return replace(found, evidence=f"{found.evidence}; {how}") if how else found


def _records(source: scan.Input) -> Iterator[tuple[int, contract.Record]]:
    """Every row of an input with its line in the file, from 1."""
    first = 1
    for split in source.splits:
        count = 0
        for lines in readers.load(split.reader).read(split):
            yield from ((first + record.line, record) for record in lines.records)
            count += lines.lines
        first += count


def _changed(source: scan.Input, kinds: tuple[str, str], config: Config, mixed: str) -> DataError:
    """The error for a file with rows of two formats; it names the line where the second begins.

    The sample shows that there are two, but not where they meet, so the file is read again.
    """
    pair = [formats.load(kind) for kind in kinds]
    usable = formats.usable_for(tasks.kind_of(config.task))
    selection, mapping = selection_of(config), config.source.map
    begun: tuple[Format, str] | None = None
    for line, record in _records(source):
        if record.data is None or not selection.takes(record.data):
            continue
        row = renamed(selection.read(record.data), mapping)
        fits = [(kind, reason) for kind in pair if (reason := kind.matches(row))]
        if begun is None and fits:
            begun = fits[0]
        elif begun is not None and fits and all(kind is not begun[0] for kind, _ in fits):
            named = next((kind for kind, _ in (begun, fits[0]) if kind in usable), begun[0])
            return DataError(
                f"{source.name}:{line} has a different shape from the rows before it: {fits[0][1]} "
                f"({fits[0][0].name}) after {begun[1]} ({begun[0].name}).",
                f"{mixed or 'Split the file there'}, or add --format {named.name} to have the "
                "other rows refused one by one.",
            )
    return DataError(f"{source.path} has rows of two shapes.", "Name one with --format.")


def _columns_of(rows: list[contract.Row]) -> str:
    return ", ".join(dict.fromkeys(itertools.chain(*rows[:10])))


def _require_named(where: str, rows: list[contract.Row], config: Config) -> None:
    """Require that some row has each column that ``--map``, ``--ignore`` or ``--where`` names.

    Raises:
        UsageError: no row has one of them.
    """
    missing = [
        (f"--map {name}={column}", column)
        for name, column in config.source.map.items()
        if all(lookup(row, column) is None for row in rows)
    ]
    missing += [
        (f"--ignore {path}", path)
        for path in config.source.ignore
        if not any(names_something(row, path) for row in rows)
    ]
    missing += [
        (f"--where {text}", asked.column)
        for text, asked in zip(config.source.where, selection_of(config).where, strict=True)
        if all(lookup(row, asked.column) is None for row in rows)
    ]
    if config.source.filter or Keep.of(config.plan.dedup_keep).column:
        require_known(config, rows, where)
    for option, column in missing:
        near = column_names.nearest(column, _columns_of(rows).split(", "))
        meant = " or ".join(option.replace(column, one) for one in near)
        raise UsageError(
            f"{option}: no sampled row of {where} has {column}.",
            f"{f'Did you mean {meant}? ' if near else ''}Its columns: {_columns_of(rows)}.",
        )


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
            raise UsageError(
                f"--map {name}=...: {whose} reads no column named {name}.",
                f"{hint}It reads {', '.join(known)}.",
            )


def _taken(rows: list[contract.Row], where: str, config: Config) -> list[contract.Row]:
    """The sampled rows that ``--where`` keeps, without ignored columns, as formats get them.

    Raises:
        DataError: ``--where`` keeps none of them.
    """
    selection = selection_of(config)
    taken = [renamed(selection.read(r), config.source.map) for r in rows if selection.takes(r)]
    if not taken:
        raise DataError(
            f"{where}: none of {counted(len(rows), 'sampled row')} meets --where "
            f"{' and '.join(config.source.where)}.",
            f"Check the values; the first row has {_shown(rows[0], selection)}.",
        )
    return taken


def _with_nulls_settled(rows: list[contract.Row], where: str, config: Config) -> list[contract.Row]:
    try:
        return [selection.settled(row, config.source.null_fields) for row in rows]
    except AskError as error:
        raise DataError(f"{where}: {error.detail}.", error.remedy) from error


def _shown(row: contract.Row, selection: Selection) -> str:
    return ", ".join(f"{c.column} {lookup(row, c.column)!r}"[:60] for c in selection.where)


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
    kind = tasks.kind_of(config.task)
    named = None if config.source.format == "auto" else questions.format_chosen(config)
    _require_named(where, raw, config)
    # A name of --map may belong to any format that could be chosen; once one is, only to that one.
    offered = formats.usable_for(kind) if named is None else [named]
    whose = f"format {named.name}" if named else f"no format of {kind.words}"
    _require_read(config.source.map, (n for f in offered for n in formats.names_of(f)), whose)
    rows = _taken(raw, where, config)
    if typed:
        rows = _with_nulls_settled(rows, where, config)
    if named is None:
        detection = _detected(rows, where, config, other_tasks)
    else:
        detection = _as_named(named, rows, where, config)
    if detection.change is None:
        _require_read(
            config.source.map, formats.names_of(detection.format), f"format {detection.format.name}"
        )
        given = [renamed(row, detection.format.renamed) for row in rows]
        seen = survey(given, detection.format, kind, format_options(config), selection_of(config))
        ask(seen, rows, detection.reading, where, config)
    return detection


def _detected(rows: list[contract.Row], where: str, config: Config, other_tasks: bool) -> Detection:
    """The reading that rows show: of one format, or with ``--mixed-formats`` of several."""
    kind, source = tasks.kind_of(config.task), config.source
    if source.mixed_formats:
        found = detect_mixture(rows, kind, where, source.already_templated, source.map)
        if found is not None:
            return found
    try:
        return detect(rows, kind, where, source.already_templated, source.map)
    except UnknownFormatError as error:
        if not other_tasks:
            raise
        raise questions.naming_the_task(error, rows, where, config) from error


def mixed_formats(found: Detection, config: Config) -> str:
    """A remedy for rows of two formats; empty where the task can read only one of them."""
    usable = {one.name for one in formats.usable_for(tasks.kind_of(config.task))}
    if found.change is None or not usable.issuperset(found.change):
        return ""
    counts = in_words({name: found.counts[name] for name in found.change}, found.sampled)
    return f"Have each row read by its own format with --mixed-formats ({counts})"


def two_shapes(found: Detection, where: str, config: Config) -> DataError:
    """The error for rows of two formats, which nobody has allowed."""
    one, other = found.change or ("one format", "another")
    return DataError(
        f"{where} changes shape: its rows read as {one} and as {other}.",
        f"{mixed_formats(found, config) or 'Split it'}, or name one with --format.",
    )


def _as_named(named: Format, rows: list[contract.Row], where: str, config: Config) -> Detection:
    """The reading that ``--format`` names."""
    source, reading, more = config.source, config.source.format, ""
    given = [renamed(row, named.renamed) for row in rows]
    fitting = [row for row in given if named.matches(row)]
    if not fitting and not named.renamed:
        kind = tasks.kind_of(config.task)
        if len(found := roles.find(rows, kind, source.map, named.name)) == 1:
            variant = reading.partition("/")[2]
            reading = formats.reading_of(named.name, variant, found[0].renamed)
            named, more = formats.load(reading), f": {found[0].words}"
            given = [renamed(row, named.renamed) for row in rows]
            fitting = [row for row in given if named.matches(row)]
    if "/" not in reading:
        columns = {**named.renamed, **source.map}
        reading, why = settle(named, fitting, where, source.already_templated, columns)
        more += why
    counts = {named.name: len(fitting)}
    evidence = (
        f"named by --format, fits {len(fitting):,} of {counted(len(rows), 'sampled row')}{more}"
    )
    return Detection(reading=reading, evidence=evidence, sampled=len(rows), counts=counts)


def recognise_all(sources: Sequence[scan.Input], config: Config) -> list[Detection]:
    """The reading of each input; one without rows is read as the first that has some.

    Raises:
        UsageError, DataError: see ``recognise_rows``; also where rows change shape, and where an
            input is empty that must not be.
    """
    each = rows_each(len(sources))
    found: dict[int, Detection] = {}
    for number, source in enumerate(sources):
        own = config.only(source.source)
        with said_of_source(*own.sources):
            reader, salvage = readers.load(source.reader), own.source.salvage
            glimpse = reader.glimpse(source.version or source.path, each, salvage)
            if not is_empty(glimpse):
                found[number] = _of_glimpse(source, glimpse, own)
    empty = [source.origin for number, source in enumerate(sources) if number not in found]
    refuse_empty(empty, len(sources), config.judge.empty)
    return [
        found.get(number) or replace(found[_like(number, sources, found)], evidence=EMPTY)
        for number in range(len(sources))
    ]


def _like(number: int, sources: Sequence[scan.Input], found: Collection[int]) -> int:
    """The first input with rows, of the same source if one has some."""
    mine = [other for other in found if sources[other].source == sources[number].source]
    return next(iter(mine or found))


def _of_glimpse(source: scan.Input, glimpse: contract.Glimpse, config: Config) -> Detection:
    detection = recognise_glimpse(glimpse, source.origin or source.path, config, source.reader)
    if detection.change is not None:
        raise _changed(source, detection.change, config, mixed_formats(detection, config))
    return detection
