"""Which record format a file has, and the evidence for it.

Every format that gives the wanted kind is tried on every sampled row. One format must fit most of
them, and no other may: where two do, or where the meaning of a column stays open, an error asks for
an option instead of a guess.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from stages import contract, formats, kinds
from stages.errors import DataError, RowError, UndecidedError, UnknownFormatError, counted
from stages.format import Format
from stages.normalize import inside, survey
from stages.rows import stop_text, unread
from stages.rows.column_names import plain

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


_TAGS = ("label", "kto_tag")
_ONE_ANSWER = ("completion", "response", "answer", "output", "messages", "conversations")


def _refuse_unpaired(rows: Sequence[contract.Row], where: str) -> None:
    """Raise where every row has one answer and a label, and no second answer to compare with."""
    single = all(not row.keys().isdisjoint(_TAGS) for row in rows)
    single = single and all(not row.keys().isdisjoint(_ONE_ANSWER) for row in rows)
    if rows and single and not any("rejected" in row for row in rows):
        raise DataError(
            f"{where} holds unpaired data: one completion and one label per row. A reward model is "
            "trained on pairs, and there is no second answer to compare with.",
            "Give rows with chosen and rejected, or train with KTO, which reads unpaired data.",
        )


_BESIDE = ("system text", "history", "tools", "margin", "scores")


def _covers(candidate: Format, row: contract.Row) -> tuple[int, int]:
    """How many of a format's required meanings a row has columns for, and how unusual the names of
    these columns are in the format (0 for the usual ones, else negative)."""
    places = [
        next((place for place, name in enumerate(names) if row.get(name) is not None), None)
        for meaning, names in candidate.columns.items()
        if meaning not in _BESIDE
    ]
    there = [place for place in places if place is not None]
    return len(there), -sum(there)


def _nearest(rows: Sequence[contract.Row], kind: kinds.Kind) -> tuple[Format, str] | None:
    """The format whose columns the rows have, but not its values, and what is wrong with these."""
    row = next((row for row in rows if row), None)
    if row is None:
        return None
    offered = [f for f in formats.usable_for(kind) if not f.named_only]
    for candidate in sorted(offered, key=lambda f: _covers(f, row), reverse=True):
        covered, unusual = _covers(candidate, row)
        if covered < min(2, len(row)) or (covered < 2 and unusual < 0):
            return None
        try:
            candidate.read(row, contract.FormatOptions())
        except RowError as error:
            if not error.detail.endswith("is missing"):
                return candidate, error.detail
    return None


def _mapped(rows: Sequence[contract.Row], kind: kinds.Kind) -> str:
    """``--map`` options for columns whose names differ from a format's only in spelling."""
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows[:10] for key in row))
    if not keys:
        return ""
    for candidate in formats.usable_for(kind):
        pairs = [
            pair for names in candidate.columns.values() for pair in _spelled_alike(names, keys)
        ]
        row = {**rows[0], **{name: rows[0].get(key) for name, key in pairs}}
        if pairs and candidate.matches(row):
            return " ".join(unread.mapped(name, key) for name, key in pairs)
    return ""


def _spelled_alike(names: Sequence[str], keys: Sequence[str]) -> list[tuple[str, str]]:
    """Columns whose names differ from those of a format only in case and underscores."""
    near: dict[str, str] = {}
    for name, key in itertools.product(names, keys):
        if plain(name) == plain(key) and name != key:
            near.setdefault(key, name)
    return [(name, key) for key, name in near.items()]


def _none_fits(rows: Sequence[contract.Row], kind: kinds.Kind, where: str) -> UnknownFormatError:
    keys = ", ".join(sorted({key for row in rows[:10] for key in row})[:12]) or "(none)"
    none = f"{where}: no format of {kind.words} fits rows with the columns {keys}."
    if mapped := _mapped(rows, kind):
        return UnknownFormatError(none, f"Did you mean {mapped}?")
    if likely := survey.offer(rows, kind):
        return UnknownFormatError(none, likely)
    offered = ", ".join(f.name for f in formats.usable_for(kind))
    if near := _nearest(rows, kind):
        return UnknownFormatError(
            f"{where}: the rows have the columns of {near[0].name}, but not its values: {near[1]}.",
            "Fix the values, or name the columns with --map or another format with --format "
            f"({offered}).",
        )
    named = f"Name the columns with --map, or the format with --format ({offered})."
    return UnknownFormatError(none, named)


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
            found = stop_text.parsed(row.get(column))
            if found and (column == "text" or stop_text.is_asked(found)):  # a text is whole
                seen[column, found[0].name] += 1
                break
    if not seen:
        return ""
    (column, dialect), _ = seen.most_common(1)[0]
    count = f"{seen.total():,} of {counted(len(rows), 'sampled row')}"
    if not already_templated and seen.total() > MIXED_SHARE * len(rows):
        raise DataError(
            f"{where}: column {column!r} already carries a chat template ({dialect}) in {count}; "
            "rendering it would template it twice.",
            "Add --already-templated to have its turns read and rendered once.",
        )
    return f"; already templated ({dialect}) in {count}"


def settle(
    detected: Format,
    rows: Sequence[contract.Row],
    where: str,
    already_templated: bool = False,
    columns: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """The variant of a format that fits the rows, as a reading, and what to add to the evidence.

    Raises:
        DataError: the rows do not show which, or contain a chat template already.
    """
    try:
        variant, why = detected.settle(rows, columns or {})
    except UndecidedError as error:
        choices = " or ".join(f"--format {detected.name}/{choice}" for choice in error.choices)
        raise DataError(f"{where}: {error.what}.", f"Say which with {choices}.") from error
    reading = f"{detected.name}/{variant}" if variant else detected.name
    why = f"; {why}" if why else ""
    templated = _refuse_templated(detected, rows, where, already_templated)
    changed = inside.require_settled(reading, rows, where, already_templated, columns or {})
    if already_templated and not templated:
        count = f"{changed:,} of {counted(len(rows), 'sampled row')}"
        templated = f"; already templated in {count}"
        if not changed:
            templated = f"; --already-templated changes nothing in {count.partition(' of ')[2]}"
    return reading, why + templated


def matching(rows: Sequence[contract.Row], kind: kinds.Kind) -> dict[str, list[str | None]]:
    """For each format its evidence in each row (None where it does not fit); formats that fit no
    row are left out.

    Formats that are only recognised to be refused do not count for rows that another one can read.
    """
    evidence = {f.name: [f.matches(row) for row in rows] for f in formats.for_kind(kind)}
    usable = [evidence[f.name] for f in formats.usable_for(kind)]
    readable = [any(reasons) for reasons in zip(*usable, strict=True)]
    for name in evidence.keys() - {f.name for f in formats.usable_for(kind)}:
        evidence[name] = [
            None if r else reason for r, reason in zip(readable, evidence[name], strict=True)
        ]
    return {name: reason for name, reason in evidence.items() if any(reason)}


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


def _strays(evidence: dict[str, list[str | None]], best: str) -> tuple[str, int]:
    """The format that fits most of the rows that the best one does not fit, and how many."""
    unexplained = [i for i, reason in enumerate(evidence[best]) if not reason]
    counts = {
        n: sum(bool(reasons[i]) for i in unexplained)
        for n, reasons in evidence.items()
        if n != best
    }
    name = max(counts, key=lambda n: counts[n], default="")
    return name, counts.get(name, 0)


def detect(
    rows: Sequence[contract.Row],
    kind: kinds.Kind,
    where: str,
    already_templated: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Detection:
    """The one reading that fits the sampled rows.

    Args:
        rows: after ``columns`` (``--map``) was applied to them.

    Raises:
        DataError: none fits, more than one does, or a column's meaning stays open.
    """
    evidence = matching(rows, kind)
    counts = {name: sum(map(bool, reasons)) for name, reasons in evidence.items()}
    counts = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
    if not counts:
        if kind.compares:
            _refuse_unpaired(rows, where)
        raise _none_fits(rows, kind, where)
    best = next(iter(counts))
    frequent = [name for name, count in counts.items() if count * 2 > len(rows)]
    require_one(f"{where} reads", frequent, evidence)
    other, strays = _strays(evidence, best)
    if (counts[best] + strays) * 2 <= len(rows):
        raise _none_fits(rows, kind, where)
    if strays and ((strays > MIXED_SHARE * len(rows) and strays > 1) or counts[best] == strays):
        return Detection(best, evidence="", sampled=len(rows), counts=counts, change=(best, other))
    if counts[best] * 2 <= len(rows):
        raise _none_fits(rows, kind, where)
    detected = formats.load(best)
    if detected.named_only:
        raise DataError(
            f"{where}: {common(evidence[best])} in {counts[best]:,} of "
            f"{counted(len(rows), 'sampled row')}; {detected.named_only}.",
            f"Add --format {best} to have them checked and passed through.",
        )
    fitting = [row for row, reason in zip(rows, evidence[best], strict=True) if reason]
    if not detected.usable and survey.answered(fitting) and kind.trains_answers:
        raise _none_fits(fitting, kind, where)
    doubt = detected.doubt(fitting, columns or {})
    if doubt is not None:
        raise DataError(f"{where}: {doubt[0]}.", f"{doubt[1]}.")
    reading, more = settle(detected, fitting, where, already_templated, columns)
    sentence = (
        f"{common(evidence[best])} in {counts[best]:,} of {counted(len(rows), 'sampled row')}{more}"
    )
    return Detection(reading, evidence=sentence, sampled=len(rows), counts=counts)
