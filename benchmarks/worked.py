"""A worked plan: a build of 10^9 rows on many machines, reckoned from what was measured on one.

    python -m benchmarks.worked

Every figure is a rate that was measured (``benchmarks/results``), a constant of the program, or the
product of some of them. docs/scale.md has the table.
"""

from dataclasses import dataclass
from pathlib import Path

import jinja2

from benchmarks import tables
from benchmarks.figures import Figures, shown
from benchmarks.programs import OURS
from benchmarks.workplace import ROOT
from pipeline.shards.plan import SHARD_TOKENS, WINDOW_EXAMPLES, WINDOW_PARTS
from stages.readers.jsonl import SPLIT_BYTES

PAGE = ROOT / "docs" / "scale.md"
_TEMPLATE = Path(__file__).with_name("scale.md.jinja")
ROWS, BYTES, CORES = 10**9, 1.5e12, 1_000
_STORED = 4 + 4 + 4  # bytes of a token: id and label in a shard, both in one number in a part
_SIDECAR = 8 + 4 + 4 + 16 + 8  # bytes of an example: line, tokens, trained, digest, group
_PUTS_OF_PART = 4  # examples, numbers, refused rows, report
_MINUTE, _HOUR, _GIB = 60, 3600, 1 << 30
_LARGEST = 2  # the sizes between which the cost of one more example is taken


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured on one core.

    Attributes:
        token: seconds of processor time of a whole build, each token of one more row.
        characters: of a token.
        plan: seconds of processor time for one more planned example; None before it was measured.
        memory: bytes that the planning process takes for one more example, and at rest.
    """

    token: float
    characters: float
    plan: float | None = None
    memory: tuple[float, float] | None = None


def rates(figures: Figures) -> Rates | None:
    """The measured rates; None where the builds of SFT were not measured."""
    each, text = figures.each(OURS), figures.measured("text-english")
    if each is None or not text:
        return None
    grown = sorted(figures.measured("plan-growth").values(), key=lambda one: one["examples"])
    found = Rates(each / 1e6 / text["tokens"], text["characters"])
    if len(grown) < _LARGEST:
        return found
    small, large = grown[-_LARGEST:]
    more = large["examples"] - small["examples"]
    plan = (large["processor"] - small["processor"]) / more
    byte = max(0.0, (large["planner"] - small["planner"]) / more)
    return Rates(found.token, found.characters, plan, (byte, large["planner"]))


def lines(one: Rates, rows: int = ROWS, size: float = BYTES) -> list[tuple[str, str, str]]:
    """What, how much, and how it is reckoned."""
    parts = -(-int(size) // SPLIT_BYTES)
    windows = max(-(-parts // WINDOW_PARTS), -(-rows // WINDOW_EXAMPLES))
    tokens = size / one.characters
    shards = max(windows, round(tokens / SHARD_TOKENS))
    work = tokens * one.token
    plan = None if one.plan is None else one.plan * rows
    made: list[tuple[str, str, str]] = [
        ("splits and parts", f"{parts:,}", f"{SPLIT_BYTES >> 20} MiB of input each"),
        ("windows", f"{windows:,}", f"{WINDOW_PARTS} parts or {WINDOW_EXAMPLES:,} examples each"),
        ("tokens", f"{tokens:.2e}", f"{one.characters:.2f} bytes a token, as measured"),
        ("shards", f"{shards:,}", f"{SHARD_TOKENS:,} tokens each"),
        ("read from the inputs", _terabytes(size), "each byte once"),
        ("parts and shards, written", _terabytes(tokens * _STORED), f"{_STORED} bytes a token"),
        ("numbers for the plan", _terabytes(rows * _SIDECAR), f"{_SIDECAR} bytes an example"),
        ("requests that put", f"{_PUTS_OF_PART * parts + shards:,}", "four a part, one a shard"),
        ("ranges read of inputs", f"{parts:,}", "one a split"),
        ("processor time", _time(work), f"{one.token * 1e6:.3f} us a token, as measured"),
        (f"of it on {CORES:,} cores", _time(work / CORES), "divided; see below"),
    ]
    planned = None if plan is None else _time(plan)
    alone = None if plan is None else _time(plan / min(CORES, windows))
    memory = None
    if one.memory is not None:
        each, rest = one.memory
        memory = f"{(rest + each * rows) / _GIB:.1f} GiB"
    made += [
        ("plans, processor time", planned or tables.NOTHING, "one more example, as measured"),
        (f"of it on {CORES:,} cores", alone or tables.NOTHING, "windows and buckets go to workers"),
        ("memory of the planning process", memory or tables.NOTHING, "as measured, carried on"),
    ]
    return made


def _terabytes(size: float) -> str:
    return f"{size / 1e12:.2f} TB"


def _time(seconds: float) -> str:
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.1f} minutes"
    return f"{seconds / _HOUR:,.1f} hours"


def text(figures: Figures | None = None) -> str:
    """The table of the plan."""
    one = rates(figures or Figures())
    if one is None:
        return tables.NOTHING
    return tables.table(("what", "how much", "how it is reckoned"), lines(one))


def growth(figures: Figures | None = None) -> str:
    """What planning took, by examples."""
    grown = (figures or Figures()).measured("plan-growth").values()
    rows = [
        (
            f"{one['examples']:,}",
            f"{one['windows']:,}",
            shown(one["seconds"], ".1f", " s"),
            shown(one["planner"] / (1 << 20), ",.0f", " MiB"),
            shown(one["worker"] / (1 << 20), ",.0f", " MiB"),
            shown(one["disk"] / (1 << 20), ",.0f", " MiB"),
        )
        for one in sorted(grown, key=lambda one: one["examples"])
    ]
    head = ("examples", "windows", "wall", "planning process", "largest worker", "disk")
    return tables.table(head, rows) if rows else tables.NOTHING


def memory(figures: Figures | None = None) -> str:
    """The most memory of a large build, with pages of files, which the kernel takes back where it
    wants them, and without them."""
    one = (figures or Figures()).measured("large-1")
    if not one:
        return tables.NOTHING
    row = (
        f"{one['rows']:,}",
        shown(one["cpu"], ",.0f", " s"),
        shown(one["wall"], ",.0f", " s"),
        shown(one["largest_process"] / (1 << 20), ",.0f", " MiB"),
        shown(one["own"] / (1 << 20), ",.0f", " MiB"),
    )
    return tables.table(("rows", "processor", "wall", "largest process", "all, their own"), [row])


def page() -> str:
    """docs/scale.md."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(plan=text(), growth=growth(), memory=memory())


def main() -> None:
    """Print the tables."""
    print(text(), growth(), memory(), sep="\n\n")


if __name__ == "__main__":
    main()
