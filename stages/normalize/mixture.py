"""Which record formats the rows of one file have, where they may have several.

Each format that some row fits alone is part of the mixture. A row that fits two of them is refused,
one by one where there are few, else with the file: which of the two is meant is not guessed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from stages import formats, kinds
from stages.contract import FormatOptions, Row
from stages.errors import DataError, counted
from stages.normalize.evidence import MIXED_SHARE, Detection, matching, require_one, settle


def in_words(counts: Mapping[str, int], sampled: int) -> str:
    """The formats of sampled rows, and how many rows each fits."""
    each = ", ".join(f"{name} in {count}" for name, count in counts.items())
    return f"{each} of {counted(sampled, 'sampled row')}"


def parts_of(rows: Sequence[Row], kind: kinds.Kind, where: str) -> dict[str, list[Row]]:
    """The rows that fit each format alone, by its name; the most frequent format first.

    Raises:
        DataError: rows fit two formats.
    """
    evidence = matching(rows, kind, {})
    readable = {f.name for f in formats.usable_for(kind) if not f.named_only}
    alone: dict[str, list[Row]] = {}
    twice: Counter[tuple[str, ...]] = Counter()
    for number, row in enumerate(rows):
        fits = [name for name, reasons in evidence.items() if reasons[number]]
        if len(fits) == 1 and fits[0] in readable:
            alone.setdefault(fits[0], []).append(row)
        elif len(fits) > 1:
            twice[tuple(sorted(fits))] += 1
    if twice.total() > MIXED_SHARE * len(rows):
        (names, count), *_ = twice.most_common(1)
        require_one(f"{where}: {count} of {len(rows)} sampled rows read", names, evidence)
    return dict(sorted(alone.items(), key=lambda pair: (-len(pair[1]), pair[0])))


def detect_mixture(
    rows: Sequence[Row], kind: kinds.Kind, where: str, options: FormatOptions | None = None
) -> Detection | None:
    """The reading of rows that have several formats; None where they have one or none.

    Args:
        rows: after ``--map`` was applied to them; ``options``: what was told about them.

    Raises:
        DataError: rows fit two formats, the formats cannot be mixed, or a column's meaning is open.
    """
    options = options or FormatOptions()
    alone = parts_of(rows, kind, where)
    if len(alone) < 2:
        return None
    if len({formats.load(name).first_error for name in alone}) > 1:
        both = "rows that rate steps up to the first error, and rows that rate all steps"
        what = f"{where} has {both} ({', '.join(alone)})."
        raise DataError(what, "Give them as files of their own.")
    readings: list[str] = []
    for name, some in alone.items():
        if doubt := formats.load(name).doubt(some, options.columns):
            raise DataError(f"{where}: {doubt[0]}.", f"{doubt[1]}.")
        readings += settle(formats.load(name), some, where, options)[:1]
    counts = {name: len(some) for name, some in alone.items()}
    # In the order of names: what a part depends on must not follow from counts.
    reading = formats.AND.join(sorted(readings))
    return Detection(reading, f"by row: {in_words(counts, len(rows))}", len(rows), counts)
