"""The reading of every input of a build, and all that they ask at once.

An input is sampled at its head, middle and tail; one that can only be read from its start, such as
a compressed file, is sampled there.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from pipeline import tasks
from pipeline.inputs import answers, questions, scan, sheet
from pipeline.inputs.detection import recognise_glimpse, require_believable, rows_of
from pipeline.inputs.opening import parsed, reader_of, said_of_source, selection_of
from pipeline.messages import explanations
from pipeline.options.build_options import SourceOptions
from pipeline.options.config import Config
from pipeline.options.ways import leaving, ways, written
from pipeline.sources import Located
from stages import contract, formats, readers
from stages.errors import DataError, PipelineError, counted
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


def _changed(source: scan.Input, kinds: tuple[str, str], config: Config, mixed: str) -> DataError:
    """The error for a file with rows of two formats; it names the line where the second begins.

    The sample shows that there are two, but not where they meet, so the file is read again.
    """
    pair = [formats.load(kind) for kind in kinds]
    usable = formats.usable_for(tasks.kind_of(config.task))
    selection, mapping = selection_of(config), config.source.map
    begun: tuple[Format, str] | None = None
    for line, record in readers.numbered(source.splits):
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
                f"{mixed or 'Split the file there'}, or have the other rows refused one by one "
                f"with --format {named.name}.",
            )
    return DataError(f"{source.path} has rows of two shapes.", "Name one with --format.")


def mixed_formats(found: Detection, config: Config) -> str:
    """A remedy for rows of two formats; empty where the task can read only one of them."""
    usable = {one.name for one in formats.usable_for(tasks.kind_of(config.task))}
    if found.change is None or not usable.issuperset(found.change):
        return ""
    counts = in_words({name: found.counts[name] for name in found.change}, found.sampled)
    return f"Say which: read each row by its own format with --mixed-formats ({counts})"


def two_shapes(found: Detection, where: str, config: Config) -> DataError:
    """The error for rows of two formats, which nobody has allowed."""
    one, other = found.change or ("one format", "another")
    return DataError(
        f"{where} changes shape: its rows read as {one} and as {other}.",
        f"{mixed_formats(found, config) or 'Split it'}, or name one with --format.",
    )


def glimpses(
    files: Sequence[Located],
    openings: Sequence[SourceOptions] = (SourceOptions(()),),
    empty: str = "refuse",
) -> Looks:
    """Name, file, reader and sample of every input with rows, or of some where there are many.

    Args:
        openings: of each source, how its files are opened.
        empty: whether some may be empty: the choice of ``--empty``.

    Raises:
        DataError: a file is damaged, or empty where it must not be.
    """
    each = rows_each(len(files))
    named = list(zip(scan.short_names(files), files, strict=True))
    if len(named) > MOST_FILES:
        places = np.linspace(0, len(named) - 1, MOST_FILES).astype(int)
        named = [named[place] for place in places]
    seen = []
    for name, file in named:
        opening = openings[file.source]
        reader = reader_of(file, opening)
        glimpse = reader.glimpse(file.version or file.path, each, opening.salvage)
        seen.append((name, file, reader.name, glimpse))
    refuse_empty([file.origin for _, file, _, look in seen if is_empty(look)], len(seen), empty)
    return [one for one in seen if not is_empty(one[-1])]


def opened(config: Config) -> tuple[int, Looks]:
    """How many files there are, and samples of them or of some."""
    files = scan.located(config)
    openings = [one.options for one in config.sources]
    return len(files), glimpses(files, openings, config.judge.empty)


class _Reading:
    """Reads the samples of the inputs of one source.

    Args:
        changed: the error for an input whose rows have two shapes.
        refusals: of rows that are read; None where no model is known.
    """

    def __init__(
        self,
        looks: Looks,
        changed: Callable[[int, Detection, Config], DataError],
        refusals: Refusals | None,
        **said: bool,
    ) -> None:
        self._looks, self._changed, self._said = looks, changed, said
        self._refusals = refusals
        self._asking: int | None = None  # the input of the first question
        self._given: Config | None = None  # the options that nobody has to be offered

    def __call__(self, config: Config) -> list[Detection]:
        found: list[Detection] = []
        self._given = self._given or config
        for number, (_, file, reader, glimpse) in enumerate(self._looks):
            try:
                where = file.origin or file.path
                own = self._own(number, config)
                one = recognise_glimpse(glimpse, where, own, reader, **self._said)
                if one.change is not None:
                    raise self._changed(number, one, config)
                if config is not self._given:
                    require_believable(rows_of(glimpse), one, where, self._given, own)
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
        seen: list[contract.Refused | None] = []
        of: list[int] = []  # the input of each
        lines: list[int] = []  # of each, from 1
        for number, ((_, _, reader, glimpse), one) in enumerate(
            zip(self._looks, found, strict=True)
        ):
            step = -(-len(glimpse.records) * len(self._looks) // TRIED_ROWS)
            own = config.leaving([(0, one.left)])
            some = parsed(glimpse.records[:: max(step, 1)], config, reader)
            told = refusals(own, one.reading, some)
            lines += [some[at].line + 1 for at in told]
            seen += told.values()
            of += [number] * (len(seen) - len(of))
        refused = [one for one in seen if one is not None]
        if not questions.too_many(len(refused), len(seen), config):
            return
        codes = Counter(one.code for one in refused)
        code = codes.most_common(1)[0][0]
        details = [*dict.fromkeys(one.detail for one in refused if one.code == code)]
        place = next(at for at, one in enumerate(seen) if one and one.code == code)
        self._asked_by(first := of[place])
        where, many = self._looks[first][1].origin, len(self._looks) > 1
        what = f"{codes[code]:,} of {counted(len(seen), 'sampled row')} would be refused as {code}"
        left = len(seen) - len(refused)
        one = found[first]
        how = f" ({one.evidence})" if one.format.renamed else ""
        who = f"{left:,}" if left else "They"
        others = f" {who} read as {one.format.name}{how}." if left or how else ""
        raise answers.RefusedError.of(
            f"{f'the inputs: {what}, first in {where}' if many else f'{where}: {what}'}: "
            f"{details[0]} (row {lines[place]}).{others}",
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
    """The reading of inputs of one source that were looked at; all that they ask, at once.

    Raises:
        UsageError, DataError: see ``recognise_glimpse``; also where rows change shape.
    """

    def changed(number: int, found: Detection, own: Config) -> DataError:
        return two_shapes(found, looks[number][1].origin, own)

    return _settled(_Reading(looks, changed, refusals, other_tasks=other_tasks), config)


def _settled(reading: _Reading, config: Config) -> list[Detection]:
    """What reading the rows of one source gives; errors say which source they are about."""
    with said_of_source(*config.sources):
        try:
            return answers.settled(reading, config, reading.page)
        except DataError as error:
            if reading.of_shapes and error.remedy:
                error.remedy = f"{error.remedy} {_SOURCES}"
                error.args = (error.what, error.remedy, error.figures)
            raise


def recognise_all(
    sources: Sequence[scan.Input], config: Config, refusals: Refusals | None = None
) -> list[Detection]:
    """The reading of each input; one without rows is read as the first that has some.

    Raises:
        UsageError, DataError: see ``recognise_rows``; also where rows change shape, and where an
            input is empty that must not be.
    """
    each = rows_each(len(sources))
    looks: dict[int, Look] = {}
    for number, source in enumerate(sources):
        salvage = config.only(source.source).source.salvage
        glimpse = readers.load(source.reader).glimpse(source.version or source.path, each, salvage)
        if not is_empty(glimpse):
            looks[number] = (source.name, source, source.reader, glimpse)
    empty = [source.origin for number, source in enumerate(sources) if number not in looks]
    refuse_empty(empty, len(sources), config.judge.empty)
    found: dict[int, Detection] = {}
    for mine in dict.fromkeys(sources[number].source for number in looks):
        numbers = [number for number in looks if sources[number].source == mine]

        def changed(at: int, one: Detection, own: Config, mine: list[int] = numbers) -> DataError:
            kinds = one.change or ("", "")
            return _changed(sources[mine[at]], kinds, own, mixed_formats(one, own))

        reading = _Reading([looks[number] for number in numbers], changed, refusals)
        found |= zip(numbers, _settled(reading, config.only(mine)), strict=True)
    return [
        found.get(number) or replace(found[_like(number, sources, found)], evidence=EMPTY)
        for number in range(len(sources))
    ]


def _like(number: int, sources: Sequence[scan.Input], found: Collection[int]) -> int:
    """The first input with rows, of the same source if one has some."""
    mine = [other for other in found if sources[other].source == sources[number].source]
    return next(iter(mine or found))
