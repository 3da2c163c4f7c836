"""docs/performance.md, written from the files of results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import jinja2

from benchmarks import results, tables, targets
from benchmarks.figures import Figures, least_of, over, shown
from benchmarks.programs import OURS
from benchmarks.workplace import ROOT

PAGE = ROOT / "docs" / "performance.md"
_TEMPLATE = Path(__file__).with_name("performance.md.jinja")
_MIB = 1 << 20


def forget(names: Iterable[str]) -> None:
    """Delete the results of these measurements."""
    for name in names:
        (results.FOLDER / f"{name}.json").unlink(missing_ok=True)


def summary(figures: Figures) -> str:
    """The figures that matter most."""
    ours = figures.each(OURS)
    lines: list[tuple[str, str]] = []
    for name, what in (
        ("trl", "TRL"),
        ("trl-completion", "TRL, completions alone trained"),
        ("datasets", "`datasets.map`"),
    ):
        count = figures.largest_common(name)
        if count is not None:
            times = shown(figures.ratio(name, "sft", "english", count))
            lines.append((f"whole process at {count:,} rows, against {what}", f"{times} times"))
        each = over(figures.each(name), ours)
        if each is not None:
            lines.append((f"one more row, against {what}", f"{each:.1f} times"))
    lines.append(("one more row", shown(ours, unit=" us")))
    share = over(figures.encoder(), ours)
    lines.append(("speed against the encoder alone on the rendered text", shown(share, ".2f")))
    driver = figures.measured("driver").get("functions", {})
    alone = sum(driver.values()) if driver else None
    lines.append(("of a row, what the driver does alone", shown(alone, unit=" us")))
    lines += [
        (
            f"a token of {task} against one of sft",
            shown(targets.per_token(figures, task), ".2f", " times"),
        )
        for task in ("rm", "prm")
    ]
    peaks = [made["largest_process"] for made in figures.measured("memory").values()]
    most = max(peaks) / _MIB if peaks else None
    lines.append(("most memory of a process, any size", shown(most, ",.0f", " MiB")))
    for name, runs in figures.measured("starts").items():
        lines.append((f"{name}, wall", shown(least_of(runs, "wall"), ".2f", " s")))
    return tables.table(("what", "measured"), lines)


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
    head = ("what", "target", "Python alone", "with the native module")
    return page.render(
        figures=figures,
        tables=tables,
        summary=summary(figures),
        targets=tables.table(head, targets.lines(figures)),
        machines=machines(figures),
    )
