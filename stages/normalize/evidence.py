"""Which record format a file has, and the evidence for it.

Every format that gives the wanted kind is tried on every sampled row. One format must fit most of
them, and no other may: where two do, or where the meaning of a column stays open, an error asks for
an option instead of a guess.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stages import contract, formats, kinds
from stages.errors import DataError, RowError, UndecidedError, UnknownFormatError, counted
from stages.format import Format
from stages.formats import _fields
from stages.normalize import inside, lacking, roles
from stages.rows import shapes, stop_text, unread
from stages.rows.column_names import EMPTY
from stages.rows.selection import in_raw_names, renamed

MIXED_SHARE = 0.01  # fewer rows of another format are refused one by one by normalize


@dataclass(frozen=True, slots=True)
class Detection:
    """The reading of one file, and why.

    Attributes:
        reading: what ``formats.load`` takes: a format's name, or ``name/variant``.
        evidence: a sentence without a full stop.
        sampled: rows that were looked at.
        counts: how many of them each format fits, the best first.
        change: the two formats of a file that mixes both; None when there is one.
        left: columns that nothing reads and that are left out because ``--leave-rest`` says so.
    """

    reading: str
    evidence: str
    sampled: int
    counts: dict[str, int]
    change: tuple[str, str] | None = None
    left: tuple[str, ...] = ()

    @property
    def format(self) -> Format:
        """The format object."""
        return formats.load(self.reading)


def _none_fits(rows: Sequence[contract.Row], kind: kinds.Kind, where: str) -> DataError:
    """The error for rows that have no format, and no columns that play the roles of one. Pieces of
    what is rated are no rows of another task."""
    said = lacking.columns_named(rows[:10]) or "(none)"
    none = f"{where}: no format of {kind.words} fits rows with the columns {said}."
    unrated = lacking.without_ratings(shapes.spread(rows)) if kind.marks else None
    pieces = lacking.in_pieces(rows, kind)
    if why := pieces or unrated:
        error = DataError if pieces and kind.marks else UnknownFormatError
        return error(f"{none[:-1]}: {why[0]}.", f"{why[1]}.")
    if likely := lacking.offer(rows, kind):
        return UnknownFormatError(none, likely)
    offered = ", ".join(f.name for f in formats.usable_for(kind))
    named = f"Name the columns with --map, or the format with --format ({offered})."
    return UnknownFormatError(none, named)


class UnsettledError(DataError):
    """The rows of a format do not show which variant of it they are."""


@dataclass(frozen=True)
class _Roles:
    """What the columns of some rows could be where no format fits them as they are.

    Attributes:
        rows: after ``--map`` was applied to them; ``where``: what a message calls them.
    """

    rows: Sequence[contract.Row]
    kind: kinds.Kind
    where: str
    options: contract.FormatOptions

    def found(self) -> list[roles.Candidate]:
        """Every way to read them."""
        return roles.find(self.rows, self.kind, self.options.columns)

    def only(self, found: Sequence[roles.Candidate]) -> Detection:
        """The one way to read them.

        Raises:
            DataError: there is none, or there are several that differ.
        """
        if not found:
            raise _none_fits(self.rows, self.kind, self.where)
        pieces = lacking.in_pieces(self.rows, self.kind) if found[0].guessed else None
        if len(found) > 1 and not pieces:
            raise lacking.which(found, self.rows, self.where)
        if open_ := pieces or found[0].open:
            error = UnknownFormatError if found[0].guessed else DataError
            raise error(f"{self.where}: {open_[0]}.", f"{open_[1]}.")
        return self.reading(found[0])

    def reading(self, one: roles.Candidate) -> Detection:
        """The reading of one way, and what its format still asks.

        Raises:
            DataError: a column's meaning stays open.
        """
        detected = formats.load(one.reading)
        options = detected.told(self.options)
        given = [renamed(row, one.renamed) for row in self.rows]
        fitting = [row for row in given if detected.matches(row)]
        if doubt := detected.doubt(fitting, options.columns):
            raise DataError(f"{self.where}: {doubt[0]}.", f"{doubt[1]}.")
        reading, more = settle(detected, fitting, self.where, options)
        counts = {detected.name: len(fitting)}
        return Detection(reading, f"{one.evidence}{more}", sampled=len(given), counts=counts)


def _lacks_prompt(detected: Format, row: contract.Row) -> bool:
    """Whether a row is refused since no column has a name that the format knows for a prompt."""
    said = _fields.tried(detected, row, contract.FormatOptions(already_templated=True))
    return isinstance(said, RowError) and said.code in ("no_prompt", "tie")


def _read_as(
    detected: Format, fitting: Sequence[contract.Row], by_roles: _Roles, found: Detection
) -> Detection:
    """The reading of rows that a format fits, unless it does not read what they say.

    Args:
        fitting: the rows that it fits; ``found``: what is known of them.

    Raises:
        DataError: a column's meaning stays open.
    """
    kind, where = by_roles.kind, by_roles.where
    columns = by_roles.options.columns
    doubt = lacking.unasked(detected, fitting, columns) or detected.doubt(fitting, columns)
    # A doubt about answers may be about one and what it is checked against, which texts show; turns
    # without an answer may have it in another column.
    said = "" if doubt is None else doubt[0]
    about_answers = said.endswith("could each be the answer") or " a third answer " in said
    misses = about_answers if said else roles.misses(detected, fitting, kind, columns)
    unasked = said and all(_lacks_prompt(detected, row) for row in fitting)
    open_ = " without an answer: " in said or said.startswith("nothing says")
    elsewhere = unasked or open_ or not detected.usable
    if misses or elsewhere:
        ways = by_roles.found()
        if len(ways) == 1 or (ways and (doubt is None or elsewhere)):
            return by_roles.only(ways)
    alone = "text" in detected.columns or (doubt is not None and elsewhere)
    pieces = lacking.in_pieces(fitting, kind) if alone else None
    if doubt := pieces or doubt:
        raise DataError(f"{where}: {doubt[0]}.", f"{doubt[1]}.")
    try:
        reading, more = settle(detected, fitting, where, by_roles.options)
    except UnsettledError:
        each = detected.variants.values()
        unasked = any(all(_lacks_prompt(one, row) for row in fitting) for one in each)
        if unasked and (ways := by_roles.found()):
            return by_roles.only(ways)
        raise
    return replace(found, reading=reading, evidence=f"{found.evidence}{more}")


def _refuse_templated(
    detected: Format, rows: Sequence[contract.Row], where: str, already_templated: bool
) -> str:
    """What to add to the evidence about chat templates inside prompts.

    Raises:
        DataError: there are some, and ``--already-templated`` was not given.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for column in detected.prompts:
            found = stop_text.read(row.get(column))
            if found and (column == "text" or stop_text.is_asked(found)):  # a text is whole
                seen[column, found[0].name] += 1
                break
    if not seen:
        return ""
    (column, dialect), _ = seen.most_common(1)[0]
    count = f"{seen.total():,} of {counted(len(rows), 'sampled row')}"
    if not already_templated and seen.total() > MIXED_SHARE * len(rows):
        what = f"column {column!r} already carries a chat template ({dialect}) in {count}"
        how = "Add --already-templated to have its turns read and rendered once."
        raise DataError(f"{where}: {what}; rendering it would template it twice.", how)
    return f"; already templated ({dialect}) in {count}"


def settle(
    detected: Format, rows: Sequence[contract.Row], where: str, options: contract.FormatOptions
) -> tuple[str, str]:
    """The variant of a format that fits the rows, as a reading, and what to add to the evidence.

    Raises:
        DataError: the rows do not show which, or contain a chat template already.
    """
    columns, already_templated = options.columns, options.already_templated
    try:
        variant, why = detected.settle(rows, options)
    except UndecidedError as error:
        maps = "".join(f" {unread.mapped(*one)}" for one in detected.renamed.items())
        likeliest = roles.by_numbers(detected, error.choices, rows, columns)
        choices = " or ".join(f"--format {detected.name}/{one}{maps}" for one in likeliest)
        which = f"Say which with {choices}." if choices else "Write each number by its answer."
        raise UnsettledError(f"{where}: {error.what}.", which) from error
    reading = formats.reading_of(detected.name, variant, detected.renamed)
    why = f"; {why}" if why else ""
    templated = _refuse_templated(detected, rows, where, already_templated)
    changed = inside.require_settled(reading, rows, where, already_templated, columns)
    if already_templated and not templated:
        count = f"{changed:,} of {counted(len(rows), 'sampled row')}"
        templated = f"; already templated in {count}"
        if not changed:
            templated = f"; --already-templated changes nothing in {count.partition(' of ')[2]}"
    return reading, why + templated


def matching(
    rows: Sequence[contract.Row], kind: kinds.Kind, columns: Mapping[str, str]
) -> dict[str, list[str | None]]:
    """For each format its evidence in each row (None where it does not fit), in the names that
    columns of ``--map`` have in the file; formats that fit no row are left out.

    Formats that are only recognised to be refused do not count for rows that another one can read.
    """
    evidence = {f.name: [f.matches(row) for row in rows] for f in formats.for_kind(kind)}
    usable = [evidence[f.name] for f in formats.usable_for(kind)]
    readable = [any(reasons) for reasons in zip(*usable, strict=True)]
    for name in evidence.keys() - {f.name for f in formats.usable_for(kind)}:
        both = zip(readable, evidence[name], strict=True)
        evidence[name] = [None if other else reason for other, reason in both]
    fits = {name: reasons for name, reasons in evidence.items() if any(reasons)}
    return {n: [one and in_raw_names(one, columns) for one in some] for n, some in fits.items()}


def require_one(
    said: str, names: Collection[str], evidence: Mapping[str, Sequence[str | None]]
) -> None:
    """Raise if there is more than one format that rows read as."""
    if len(names) > 1:
        ways = [f"{name} ({common(evidence[name])})" for name in names]
        flags = " or ".join(f"--format {name}" for name in names)
        raise DataError(f"{said} as {' and as '.join(ways)}.", f"Say which with {flags}.")


def common(reasons: Sequence[str | None]) -> str:
    """The reason that fits most rows."""
    return Counter(reason for reason in reasons if reason).most_common(1)[0][0]


def _different(names: Sequence[str], rows: Sequence[contract.Row]) -> list[str]:
    """The formats without those that read the same of every row as another; dialogues in turns come
    first, then what reads most; last what would ask the same in every row, and texts alone."""
    options = contract.FormatOptions(already_templated=True)
    some = shapes.spread(rows)
    each = {n: [roles.read_of(formats.load(n), row, options) for row in some] for n in names}
    read: dict[str, str] = {}
    turns = {n for n in names if "turns" in formats.load(n).columns}
    size = {name: (name not in turns, -sum(map(len, each[name]))) for name in names}
    for name in sorted(names, key=lambda name: (_asks_the_same(name, some), *size[name])):
        said = "\n".join(each[name]) if all(each[name]) else name
        if read.setdefault(said, name) not in turns and name in turns:
            read[said] = name  # rows that were not sampled may have more turns
    return [*read.values()]


def _asks_the_same(name: str, rows: Sequence[contract.Row]) -> bool:
    """Whether what a format takes for the question, if anything, is one text in all of several
    rows."""
    meant = formats.load(name).columns
    if "text" in meant:
        return True
    names = (*meant.get("question", ()), *meant.get("prompt", ()))
    asked = [row.get(one) for row in rows for one in names]
    return len(rows) > 1 and len({repr(one) for one in asked if one not in EMPTY}) == 1


def _strays(evidence: dict[str, list[str | None]], best: str) -> tuple[str, int]:
    """The format that fits most of the rows that the best one does not fit, and how many."""
    each = {name: zip(evidence[best], reasons, strict=True) for name, reasons in evidence.items()}
    counts = {
        name: sum(not own and bool(other) for own, other in both) for name, both in each.items()
    }
    return max(counts.items(), key=lambda one: one[1])


def detect(
    rows: Sequence[contract.Row],
    kind: kinds.Kind,
    where: str,
    options: contract.FormatOptions | None = None,
) -> Detection:
    """The one reading that fits the sampled rows.

    Args:
        rows: after ``--map`` was applied to them; ``options``: what was told about them.

    Raises:
        DataError: none fits, more than one does, or a column's meaning stays open.
    """
    options = options or contract.FormatOptions()
    by_roles = _Roles(rows, kind, where, options)
    evidence = matching(rows, kind, options.columns)
    every = {name: sum(map(bool, reasons)) for name, reasons in evidence.items()}
    counts = dict(sorted(every.items(), key=lambda pair: -pair[1]))
    if not counts:
        if kind.compares:
            lacking.refuse_unpaired(rows, where)
        return by_roles.only(by_roles.found())
    best = next(iter(counts))
    frequent = [name for name, count in counts.items() if count * 2 > len(rows)]
    if len(frequent) > 1:
        frequent = _different(frequent, rows)
        best = frequent[0]
    require_one(f"{where} reads", frequent, evidence)
    other, strays = _strays(evidence, best)
    both = strays and (counts[best] + strays) * 2 > len(rows)
    if both and ((strays > MIXED_SHARE * len(rows) and strays > 1) or counts[best] == strays):
        return Detection(best, evidence="", sampled=len(rows), counts=counts, change=(best, other))
    if counts[best] * 2 <= len(rows):
        return by_roles.only(by_roles.found())
    found = f"{common(evidence[best])} in {counts[best]:,} of {counted(len(rows), 'sampled row')}"
    detected = formats.load(best)
    if detected.named_only:
        remedy = f"Add --format {best} to have them checked and passed through."
        raise DataError(f"{where}: {found}; {detected.named_only}.", remedy)
    fitting = [row for row, reason in zip(rows, evidence[best], strict=True) if reason]
    return _read_as(detected, fitting, by_roles, Detection(best, found, len(rows), counts))
