"""The tables of docs/performance.md."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.earlier import EARLIER, NOW
from benchmarks.figures import Figures, over, shown
from benchmarks.nets import BUILD
from benchmarks.programs import OURS, PROGRAMS
from benchmarks.selection import OTHER, TEXTS

NOTHING = "Not measured yet."
_MIB = 1 << 20
_MEMORY = ("largest_process", "tree", "own")  # of ``process.Cost``


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a sentence where it would be empty."""
    found = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    if not found:
        return NOTHING
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *found])


def programs(figures: Figures) -> str:
    """What is compared, and why not where it could not run."""
    lines = []
    for name, program in PROGRAMS.items():
        counts = figures.sizes("sft", "english")
        cells = (figures.measured(f"compare-sft-english-{count}") for count in counts)
        missing = [cell[name]["missing"] for cell in cells if cell.get(name, {}).get("missing")]
        lines.append(
            (f"`{name}`", program.what + (f"; not measured: {missing[0]}" if missing else ""))
        )
    return table(("program", "what it makes"), lines)


def compared(figures: Figures, task: str, text: str) -> str:
    """Processor and wall seconds of every program, by rows."""
    lines = []
    for count in figures.sizes(task, text):
        for name in PROGRAMS:
            cpu = figures.spread(name, task, text, count)
            if cpu is not None:
                wall = figures.spread(name, task, text, count, what="wall")
                times = "" if name == OURS else shown(figures.ratio(name, task, text, count))
                runs = len(cpu.values)
                lines.append((f"{count:,}", f"`{name}`", runs, cpu, wall, times))
    head = ("rows", "program", "runs", "CPU s", "wall s", "times our CPU")
    return table(head, lines)


def marginal(figures: Figures) -> str:
    """What one more row costs each program."""
    lines = []
    ours = figures.costs(OURS)
    for name in PROGRAMS:
        costs = figures.costs(name)
        if costs is not None:
            small, large = figures.between(name)
            times = "" if name == OURS else shown(over(costs, ours))
            lines.append((f"`{name}`", f"{small:,} to {large:,}", costs, times))
    return table(("program", "between", "CPU us a row", "times ours"), lines)


def others(figures: Figures) -> str:
    """Other tasks and texts: ratios, and what a row costs us."""
    lines = []
    for task, text in OTHER:
        count = min(figures.sizes(task, text), default=0)
        for name in PROGRAMS:
            cpu = figures.spread(name, task, text, count)
            if cpu is not None:
                times = "" if name == OURS else shown(figures.ratio(name, task, text, count))
                cost = figures.costs(name, task, text) or ""
                lines.append((task, text, f"{count:,}", f"`{name}`", cpu, times, cost))
    head = ("task", "text", "rows", "program", "CPU s", "times our CPU", "CPU us a row")
    return table(head, lines)


def warm(figures: Figures) -> str:
    """Runs of programs that find what their first run has cached."""
    lines = []
    for count in figures.sizes("sft", "english"):
        for name in PROGRAMS:
            again = figures.spread(name, "sft", "english", count, state="warm")
            first = figures.spread(name, "sft", "english", count)
            if again is not None:
                lines.append((f"{count:,}", f"`{name}`", first, again))
    return table(("rows", "program", "nothing cached, CPU s", "second run, CPU s"), lines)


def encoders(figures: Figures) -> str:
    """The encoder alone beside the whole build."""
    lines = []
    for text in TEXTS:
        alone, build = figures.encoders(text), figures.costs(OURS, "sft", text)
        if alone is not None:
            reference = figures.encoders(text, "tokenizers")
            share = shown(over(alone, build), ".2f")
            lines.append((text, alone, reference, build or "not measured", share))
    head = (
        "text",
        "fastokens, us a row",
        "tokenizers, us a row",
        "build, us a row",
        "fastokens / build",
    )
    return table(head, lines)


def texts(figures: Figures) -> str:
    """What the generated texts are like."""
    lines = []
    for name in TEXTS:
        made = figures.measured(f"text-{name}")
        if made:
            counts = (f"{made['words']:,}", f"{made['ids']:,}")
            lines.append((name, made["tokens"], made["characters"], *counts))
    head = ("text", "tokens a row", "characters a token", "different words", "different ids")
    return table(head, lines)


def starts(figures: Figures) -> str:
    """Commands whose time hardly depends on the rows."""
    lines = []
    for name in figures.measured("starts"):
        wall, cpu = (figures.runs("starts", name, what=what) for what in ("wall", "cpu"))
        command = f"`{name}`" if name.startswith("pipeline") else name
        lines.append((command, shown(wall, ".2f"), shown(cpu, ".2f")))
    return table(("command", "wall s", "CPU s"), lines)


def earlier(figures: Figures) -> str:
    """This version beside an earlier one."""
    lines = []
    for name in figures.measured("earlier"):
        before, after = (figures.runs("earlier", name, one, what="cpu") for one in (EARLIER, NOW))
        lines.append((name, before, after, shown(over(after, before), ".2f")))
    return table(("build, nothing cached", "earlier, CPU s", "now, CPU s", "ratio"), lines)


def appended(figures: Figures) -> str:
    """Builds again after one per cent of rows was added."""
    lines = []
    for layout in figures.measured("appended"):
        full, again = (
            figures.runs("appended", layout, which, what="cpu") for which in ("full", "again")
        )
        lines.append((layout, full, again, shown(over(again, full), ".0%")))
    return table(("layout", "build, CPU s", "build again, CPU s", "share"), lines)


def memory(figures: Figures) -> str:
    """The most memory by rows."""
    lines = []
    for count in figures.measured("memory"):
        peaks = (figures.runs("memory", count, what=what, unit=_MIB) for what in _MEMORY)
        lines.append((f"{int(count):,}", *(shown(peak, ",.0f") for peak in peaks)))
    heads = ("largest process, MiB", "all processes, MiB", "without pages of files, MiB")
    return table(("rows", *heads), lines)


def workers(figures: Figures) -> str:
    """One worker and two."""
    lines = []
    for number in figures.measured("workers"):
        wall, cpu = (figures.runs("workers", number, what=what) for what in ("wall", "cpu"))
        lines.append((number, wall, cpu))
    return table(("workers", "wall s", "CPU s"), lines)


def net(figures: Figures, name: str) -> str:
    """What a net costs of a small build, and of each further row."""
    cell, sizes = figures.measured("nets"), figures.settings("nets").get("sizes")
    if not cell or not sizes:
        return NOTHING
    small, large = ({what: _median(cell[n], what) for what in (name, BUILD)} for n in cell)
    each = {what: (large[what] - small[what]) / (sizes[1] - sizes[0]) * 1e6 for what in small}
    return (
        f"{small[name]:.2f} of {small[BUILD]:.2f} s with {sizes[0]} rows; "
        f"{each[name]:.1f} of {each[BUILD]:.1f} us for each further row"
    )


def witness(figures: Figures) -> str:
    """First builds with the witness and without it."""
    lines = []
    for count in figures.measured("witness"):
        spent = (
            figures.runs("witness", count, how, what=what)
            for what in ("wall", "cpu")
            for how in ("with", "without")
        )
        lines.append((f"{int(count):,}", *(shown(one, ".2f") for one in spent)))
    heads = ("wall s", "without it, wall s", "CPU s", "without it, CPU s")
    return table(("rows of a first build", *heads), lines)


def _median(runs: Sequence[Mapping[str, float]], what: str) -> float:
    return statistics.median(run[what] for run in runs)
