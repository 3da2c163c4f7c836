"""The reading of every input of a build, and all that they ask at once.

An input is sampled at its head, middle and tail; one that can only be read from its start, such as
a compressed file, is sampled there.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pipeline.inputs import answers, questions, scan, sheet
from pipeline.inputs.detection import is_believable, recognise_glimpse, rows_of
from pipeline.inputs.opening import parsed, reader_of, selection_of
from pipeline.messages import explanations
from pipeline.options.build_options import SourceOptions
from pipeline.options.config import Config
from pipeline.options.ways import leaving, ways, written
from pipeline.sources import Located
from stages import contract, formats, readers
from stages.errors import DataError, PipelineError, UsageError, counted
from stages.format import Format
from stages.normalize.evidence import Detection
from stages.normalize.mixture import in_words
from stages.rows.selection import names_something, renamed

# Why a build with these options would refuse each of some rows, by their places, read as some
# format; None of rows that it would use.
Refusals: TypeAlias = Callable[
    [Config, str, list[contract.Record]], Mapping[int, contract.Refused | None]
]
# Name, file, reader and sample of each input.
Look: TypeAlias = tuple[str, "Located | scan.Input", str, contract.Glimpse]
Looks: TypeAlias = Sequence[Look]

SAMPLE_ROWS = 1000
LEAST_ROWS = 30  # of each input, where there are many
TRIED_ROWS = 100  # of all inputs, which go on to the chat template
MOST_FILES = 48  # of which rows are looked at
_SOURCES = "Files that need other answers stand in a recipe, each under a [[source]] of its own."
_IN_RECIPE = "In the recipe, options of these rows are keys of the [[source]]"
EMPTY = "the file is empty"  # the evidence for how it is read


def _refuse_empty(empty: Sequence[str], files: int, choice: str) -> None:
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


def _two_shapes(file: Located | scan.Input, found: Detection, config: Config) -> DataError:
    """The error for rows of two formats, which nobody has allowed; of a file that a build reads,
    it names the line where the second begins."""
    one, other = found.change or ("one format", "another")
    way = ""
    if {one, other} <= {known.name for known in formats.usable_for(config.parts.kind)}:
        counts = in_words({name: found.counts[name] for name in (one, other)}, found.sampled)
        way = f"Say which: read each row by its own format with --mixed-formats ({counts})"
    met = _meeting(file, (one, other), config) if isinstance(file, scan.Input) else None
    if met is not None:
        split = f"{way or 'Split the file there'}, or have the other rows refused one by one"
        return DataError(met[0], f"{split} with --format {met[1]}.")
    what = f"{file.origin} changes shape: its rows read as {one} and as {other}."
    return DataError(what, f"{way or 'Split it'}, or name one with --format.")


def _meeting(source: scan.Input, change: tuple[str, str], config: Config) -> tuple[str, str] | None:
    """Where rows of one format end and those of another begin, as a sentence, and which of the two
    the task reads. A sample does not show where they meet, so the file is read again."""
    pair = [*map(formats.load, change)]
    usable = formats.usable_for(config.parts.kind)
    selection, mapping = selection_of(config), config.source.map
    begun: tuple[Format, str] | None = None
    for line, record in readers.numbered(source.splits):
        if record.data is None or not selection.takes(record.data):
            continue
        row = renamed(selection.read(record.data), mapping)
        fits = [(kind, reason) for kind in pair if (reason := kind.matches(row))]
        begun = begun or next(iter(fits), None)
        if begun is not None and fits and all(kind is not begun[0] for kind, _ in fits):
            named = next((kind for kind, _ in (begun, fits[0]) if kind in usable), begun[0])
            said = f"{source.name}:{line} has a different shape from the rows before it:"
            both = f"{fits[0][1]} ({fits[0][0].name}) after {begun[1]} ({begun[0].name})."
            return f"{said} {both}", named.name
    return None


def glimpses(
    files: Sequence[Located | scan.Input],
    openings: Sequence[SourceOptions] = (SourceOptions(()),),
    empty: str = "refuse",
    most: int = MOST_FILES,
) -> Looks:
    """Name, file, reader and sample of every input with rows, or of some where there are many.

    Args:
        openings: of each source, how its files are opened.
        empty: whether some may be empty: the choice of ``--empty``.
        most: so many are looked at.

    Raises:
        DataError: a file is damaged, or empty where it must not be.
    """
    each = max(LEAST_ROWS, SAMPLE_ROWS // max(len(files), 1))
    named = list(zip(scan.short_names(files), files, strict=True))
    if len(named) > most:
        named = [named[place] for place in np.linspace(0, len(named) - 1, most).astype(int)]
    seen, without = [], []
    for name, file in named:
        opening = openings[file.source]
        reader = reader_of(file, opening)
        glimpse = reader.glimpse(file.version or file.path, each, opening.salvage)
        if glimpse.exact and not glimpse.rows and not glimpse.records:
            without.append(file.origin)
        else:
            seen.append((name, file, reader.name, glimpse))
    _refuse_empty(without, len(named), empty)
    return seen


def opened(config: Config) -> tuple[int, Looks]:
    """How many files there are, and samples of them or of some."""
    files = scan.located(config)
    openings = [one.options for one in config.sources]
    return len(files), glimpses(files, openings, config.judge.empty)


class _Reading:
    """Reads the samples of the inputs of one source.

    Args:
        refusals: of rows that are read; None where no model is known.
        other_tasks: see ``recognise_glimpse``.
    """

    def __init__(self, looks: Looks, refusals: Refusals | None, other_tasks: bool) -> None:
        self._looks, self._refusals, self._other_tasks = looks, refusals, other_tasks
        self._asking: int | None = None  # the input of the first question
        self._given: Config | None = None  # the options that nobody has to be offered

    def __call__(self, config: Config) -> list[Detection]:
        found: list[Detection] = []
        self._given = self._given or config
        for number, (_, file, reader, glimpse) in enumerate(self._looks):
            try:
                where = file.origin or file.path
                own = self._own(number, config)
                one = recognise_glimpse(glimpse, where, own, reader, other_tasks=self._other_tasks)
                if one.change is not None:
                    raise _two_shapes(file, one, config)
                new = config is not self._given
                if new and not is_believable(rows_of(glimpse), one, self._given, own):
                    raise UsageError(f"{where} cannot be read so.")
            except PipelineError:
                self._asked_by(number)
                raise
            found.append(one)
        if self._refusals is not None:
            self._require_kept(found, config, self._refusals)
        return found

    @property
    def of_shapes(self) -> bool:
        """Whether the files differ in their columns."""
        columns = ({*itertools.chain(*rows_of(look))} for *_, look in self._looks)
        return len({*map(frozenset, columns)}) > 1

    def _own(self, number: int, config: Config) -> Config:
        """The options of one input: files of a source may be of several kinds, so that a column to
        ignore need not be in each."""
        if len(self._looks) == 1 or not config.source.ignore:
            return config
        samples = [rows_of(look) for *_, look in self._looks]
        there = {
            path: [any(names_something(row, path) for row in rows) for rows in samples]
            for path in config.source.ignore
        }
        kept = (path for path, has in there.items() if has[number] or not any(has))
        return config.but(ignore=tuple(kept))

    def _asked_by(self, number: int) -> None:
        """The error that people read is the first; those of the answers that are tried follow."""
        if self._asking is None:
            self._asking = number

    def _require_kept(self, found: list[Detection], config: Config, refusals: Refusals) -> None:
        """Require that no more of the rows are refused than a build allows.

        Raises:
            RefusedError: more are; it has the options that may help, as what it means says them.
        """
        seen: list[tuple[int, int, contract.Refused | None]] = []  # input, line from 1, why
        for number, ((*_, reader, glimpse), one) in enumerate(zip(self._looks, found, strict=True)):
            step = -(-len(glimpse.records) * len(self._looks) // TRIED_ROWS)
            some = parsed(glimpse.records[:: max(step, 1)], config, reader)
            told = refusals(config.leaving([(0, one.left)]), one.reading, some)
            seen += [(number, some[at].line + 1, why) for at, why in told.items()]
        refused = [(number, line, why) for number, line, why in seen if why is not None]
        if not questions.too_many(len(refused), len(seen), config):
            return
        ((code, count),) = Counter(why.code for *_, why in refused).most_common(1)
        mine = [one for one in refused if one[2].code == code]
        number, line, _ = mine[0]
        self._asked_by(number)
        details = [*dict.fromkeys(why.detail for *_, why in mine)]
        where, one = self._looks[number][1].origin, found[number]
        what = f"{count:,} of {counted(len(seen), 'sampled row')} would be refused as {code}"
        what = f"{where}: {what}" if len(found) == 1 else f"the inputs: {what}, first in {where}"
        left = len(seen) - len(refused)
        how = f" ({one.evidence})" if one.format.renamed else ""
        who = f"{left:,}" if left else "They"
        others = f" {who} read as {one.format.name}{how}." if left or how else ""
        raise answers.RefusedError.of(
            f"{what}: {details[0]} (row {line}).{others}",
            _way_on(code, details),
            code,
            found,
            len(refused) / len(seen),
        )

    def page(self, config: Config, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """The columns of the input that asks, as ``sheet`` has them; of several, also its name."""
        _, file, reader, glimpse = self._looks[self._asking or 0]
        try:
            reading = recognise_glimpse(glimpse, file.origin, config, reader).reading
        except PipelineError:
            reading = ""
        shown = sheet.lines(rows_of(glimpse), reading, config, asked)
        named = {"sheet_of": file.origin} if len(self._looks) > 1 else {}
        return {"sheet": shown, **named} if shown else {}


def _way_on(code: str, details: Sequence[str]) -> str:
    """What to do about rows with a code, with the options that their details name."""
    fix = explanations.fix_of(code)
    if all_of_them := leaving(details):
        return f"{fix} Say which with {all_of_them}.".lstrip()
    more = [written(way) for way in ways(details[0]) if way not in ways(fix)]
    return f"{fix} Say which with {', or with '.join(more)}.".lstrip() if more else fix


def recognise_looks(
    looks: Looks, config: Config, refusals: Refusals | None = None, *, other_tasks: bool = True
) -> list[Detection]:
    """The reading of inputs of one source that were looked at; all that they ask, at once. Errors
    say which source they are about.

    Raises:
        UsageError, DataError: see ``recognise_glimpse``; also where rows change shape.
    """
    reading = _Reading(looks, refusals, other_tasks)
    try:
        return answers.settled(reading, config, reading.page)
    except PipelineError as error:
        (source,) = config.sources
        if isinstance(error, DataError) and reading.of_shapes and error.remedy:
            error.remedy += f" {_SOURCES}"
        if source.name and "--" in error.remedy:  # of the command, it would be for all of them
            error.remedy += f" {_IN_RECIPE} {source.name}."
        raise


def recognise_sources(
    looks: Looks, config: Config, refusals: Refusals | None = None
) -> list[tuple[Look, Detection]]:
    """Inputs of several sources, each with its reading; those of one source are read together."""
    found: list[tuple[Look, Detection]] = []
    for number in dict.fromkeys(file.source for _, file, _, _ in looks):
        mine = [look for look in looks if look[1].source == number]
        found += zip(mine, recognise_looks(mine, config.only(number), refusals), strict=True)
    return found


def recognise_all(
    sources: Sequence[scan.Input], config: Config, refusals: Refusals | None = None
) -> list[Detection]:
    """The reading of each input; one without rows is read as the first that has some, of the same
    source if one has.

    Raises:
        UsageError, DataError: see ``recognise_rows``; also where rows change shape, and where an
            input is empty that must not be.
    """
    openings = [one.options for one in config.sources]
    looks = glimpses(sources, openings, config.judge.empty, len(sources))
    read = [(look[1], one) for look, one in recognise_sources(looks, config, refusals)]
    found = {file.path: one for file, one in read}

    def like(source: scan.Input) -> Detection:
        mine = (one for file, one in read if file.source == source.source)
        return replace(next(mine, read[0][1]), evidence=EMPTY)

    return [found.get(source.path) or like(source) for source in sources]
