"""What was aimed at, beside what was measured."""

from benchmarks.figures import Figures, Spread, over, shown
from benchmarks.programs import OURS
from benchmarks.starts import FEW, LAYOUTS

_WHOLE, _COMPARED = 1_000_000, 100_000  # rows
Line = tuple[str, str, str]


def per_token(figures: Figures, task: str) -> Spread | None:
    """What a token of a task costs beside a token of SFT: rows cost by their tokens."""
    tokens = figures.measured("tokens")
    ratio = over(figures.costs(OURS, task), figures.costs(OURS))
    return ratio / (tokens[task] / tokens["sft"]) if ratio and tokens else None


def _ratios(figures: Figures) -> list[str]:
    """What ``_RATIOS`` names."""
    costs, whole = figures.costs(OURS), figures.whole(OURS, _WHOLE)
    return [
        shown(over(figures.costs("trl"), costs), unit=" times"),
        shown(over(figures.whole("trl", _WHOLE), whole), unit=" times"),
        shown(over(figures.encoders(), costs), ".2f"),
        shown(per_token(figures, "rm"), ".2f", " times"),
        shown(per_token(figures, "prm"), ".2f", " times"),
        shown(
            over(figures.whole("datasets", _COMPARED), figures.whole(OURS, _COMPARED)),
            unit=" times",
        ),
    ]


_RATIOS = (
    ("one more row, against TRL", "55"),
    (f"whole process at {_WHOLE:,} rows, against TRL", "45"),
    ("one more row, speed against the encoder alone", "0.2"),
    ("a token of rm, against one of sft", "at most 1.5"),
    ("a token of prm, against one of sft", "at most 1.5"),
    (f"whole process at {_COMPARED:,} rows, against `datasets.map`", "15"),
)
_WALL = (
    ("pipeline --help", "0.2 s"),
    (f"plan, {FEW} rows", "1 s"),
    (f"build, {FEW} rows", "1.5 s"),
    (f"build again, nothing changed, {FEW} rows", "0.5 s"),
)


def _memory(figures: Figures) -> list[Line]:
    lines, known = list[Line](), list[float]()
    for count in figures.measured("memory"):
        peaks = figures.runs("memory", count, what="largest_process", unit=1e6)
        known += peaks.values if peaks else ()
        what = f"memory at {int(count):,} rows, largest process"
        lines.append((what, "at most 700 MB", shown(peaks, ",.0f", " MB")))
    share = max(known) / min(known) - 1 if known else None
    lines.append(("the most of these above the least", "at most 10 %", shown(share, ".0%")))
    return lines


def _appended(figures: Figures) -> list[Line]:
    rows = figures.settings("appended").get("rows", _WHOLE)
    lines = []
    for layout in LAYOUTS:
        full, again = (
            figures.runs("appended", layout, which, what="cpu") for which in ("full", "again")
        )
        what = f"one per cent appended to {rows:,} rows, {layout}, of a full build"
        lines.append((what, "at most 10 %", shown(over(again, full), ".0%")))
    return lines


def _gathered(figures: Figures) -> list[Line]:
    lines = []
    for layout in ("ragged", "padded", "packed"):
        rates = list(figures.rates(f"gather-{layout}").get("shuffled", {}).values())
        share = rates[-1] / rates[0] if rates else None
        what = f"shuffled gather, {layout}, speed in the largest build against the smallest"
        lines.append((what, "flat: 1", shown(share, ".2f")))
    return lines


def lines(figures: Figures) -> list[Line]:
    """A line for each target: what it is, what was aimed at, what was measured."""
    measured = zip(_RATIOS, _ratios(figures), strict=True)
    made: list[Line] = [(*aim, found) for aim, found in measured]
    alone = shown(figures.profiled("driver"), ".2f", " us")
    made.append(("of a row, what the driver does alone", "at most 0.5 us", alone))
    one, two = (figures.runs("workers", number, what="wall") for number in "12")
    made.append(
        ("two workers, wall, against one", "1.8 times", shown(over(one, two), ".2f", " times"))
    )
    made += _memory(figures)
    for name, aim in _WALL:
        spent = figures.runs("starts", name, what="wall")
        made.append((f"{name}, wall", f"at most {aim}", shown(spent, ".2f", " s")))
    return made + _appended(figures) + _gathered(figures)
