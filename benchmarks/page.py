"""docs/performance.md, written from the files of results."""

from collections.abc import Iterable
from pathlib import Path

import jinja2

from benchmarks import results, tables, worked
from benchmarks.figures import Figures, Spread, over, shown
from benchmarks.programs import OURS, PROGRAMS
from benchmarks.workplace import ROOT

PAGE = ROOT / "docs" / "performance.md"
_TEMPLATE = Path(__file__).with_name("performance.md.jinja")


def forget(names: Iterable[str]) -> None:
    """Delete the results of these measurements."""
    for name in names:
        (results.FOLDER / f"{name}.json").unlink(missing_ok=True)


def per_token(figures: Figures, task: str) -> Spread | None:
    """What a token of a task costs beside a token of SFT: rows cost by their tokens."""
    tokens = figures.measured("tokens")
    ratio = over(figures.costs(OURS, task), figures.costs(OURS))
    return ratio / (tokens[task] / tokens["sft"]) if ratio and tokens else None


def summary(figures: Figures) -> str:
    """The figures that matter most."""
    ours = figures.costs(OURS)
    lines: list[tuple[str, str]] = []
    for name, what in (
        ("trl", "TRL"),
        ("trl-completion", "TRL, completions alone trained"),
        ("datasets", "`datasets.map`"),
    ):
        count = figures.largest_common(name)
        if count is not None:
            times = shown(figures.ratio(name, "sft", "english", count), unit=" times")
            lines.append((f"whole process at {count:,} rows, against {what}", times))
        each = over(figures.costs(name), ours)
        if each is not None:
            lines.append((f"one more row, against {what}", shown(each, unit=" times")))
    lines.append(("one more row", shown(ours, unit=" us")))
    share = over(figures.encoders(), ours)
    lines.append(("speed against the encoder alone on the rendered text", shown(share, ".2f")))
    lines += [
        (f"a token of {task} against one of sft", shown(per_token(figures, task), ".2f", " times"))
        for task in ("rm", "prm")
    ]
    runs = [run for sizes in figures.measured("memory").values() for run in sizes]
    most = max((run["largest_process"] / 1e6 for run in runs), default=None)
    lines.append(("most memory of a process, any size", shown(most, ",.0f", " MB")))
    for name in figures.measured("starts"):
        spent = figures.runs("starts", name, what="wall")
        lines.append((f"{name}, wall", shown(spent, ".2f", " s")))
    return tables.table(("what", "measured"), lines)


def front(figures: Figures) -> str:
    """The figures of README: what, how much, and the command that measures it again."""
    lines = []
    for count in (20_000, figures.largest_common("trl") or 0):
        measured = {name: figures.ratio(name, "sft", "english", count) for name in PROGRAMS}
        times = [
            f"{name} {shown(ratio.median)} times"
            for name, ratio in measured.items()
            if ratio is not None and name != OURS
        ]
        ours = figures.spread(OURS, "sft", "english", count)
        if ours is not None:
            said = "; ".join([f"{shown(ours.median)} s of one core", *times])
            what = f"{count:,} rows of SFT, whole processes, times our processor time"
            options = f"--peer-sizes {count} --only compare-sft-english-{count}"
            lines.append((what, said, f"`python -m benchmarks {options}`"))
    memory = figures.measured("memory")
    if memory:
        most = [max(run["largest_process"] for run in memory[n]) / (1 << 20) for n in memory]
        counts = [int(n) for n in memory]
        what = f"memory of the largest process, {min(counts):,} to {max(counts):,} rows"
        said = f"{min(most):,.0f} to {max(most):,.0f} MiB"
        lines.append((what, said, "`python -m benchmarks --only memory`"))
    compared = figures.measured("compared")
    if compared:
        sequences = sum(counted["sequences"] for counted in compared.values())
        what = f"sequences of {len(compared)} vocabularies, compared with Hugging Face"
        said = f"{sequences:,}; no id and no label differs"
        lines.append((what, said, "`python -m benchmarks --only compared`"))
    planned = worked.rates(figures)
    if planned is not None:
        reckoned = {what: much for what, much, _ in worked.lines(planned)}
        held = reckoned["memory of the planning process"]
        said = f"{held}; {reckoned['processor time']} of build"
        what = f"a plan of {worked.ROWS:,} rows, reckoned from rates"
        lines.append((what, said, "`python -m benchmarks.worked`"))
    return tables.table(("what", "measured", "again"), lines)


def machines(figures: Figures) -> str:
    """Where and when it was measured, in sentences."""
    lines = []
    for one in figures.surroundings():
        packages = ", ".join(f"{name} {number}" for name, number in one["packages"].items())
        lines.append(
            f"{one['processor']}, {one['memory']} GiB, Python {one['python']}, {packages}; "
            f"{one['day']}, code `{one['code'][:12]}`."
        )
    if len(lines) > 1:
        lines.insert(0, f"These figures come from {len(lines)} different machines or versions:")
    return "\n\n".join(lines) or tables.NOTHING


def text(folder: Path = results.FOLDER) -> str:
    """The whole page."""
    figures = Figures(folder)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,
    )
    page = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return page.render(
        figures=figures, tables=tables, summary=summary(figures), machines=machines(figures)
    )
