"""Runs a build for the command line: progress and summary on stderr, the result on stdout."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pipeline import exports
from pipeline.build_dir import drift
from pipeline.build_dir.built import Built
from pipeline.manifest import in_words
from pipeline.manifest.counts import ExampleCounts, RowCounts
from pipeline.manifest.json_records import as_json, one_line
from pipeline.manifest.manifest import MANIFEST, InputRecord, Manifest
from pipeline.manifest.records import VALIDATION
from pipeline.options.config import Config
from pipeline.recipe import equal_build
from pipeline.sources import local

if TYPE_CHECKING:
    from pipeline.build import Report
    from pipeline.recipe.equal_build import Look

MAX_INPUTS = 8  # that the summary names


class _Bar:
    """A progress line that is rewritten in place, at most ten times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last > 0.1 or done == total:
            self._last = now
            end = "\n" if done == total else ""
            click.echo(f"\r{what:<8} {done}/{total}", err=True, nl=False)
            click.echo(end, err=True, nl=False)


def _silent(what: str, done: int, total: int) -> None:
    return


def _reporter(quiet: bool) -> Report:
    return _Bar() if sys.stderr.isatty() and not quiet else _silent


def _ledger(rows: RowCounts, examples: ExampleCounts) -> list[str]:
    left_out = f" + {rows.filtered} left out by --where" if rows.filtered else ""
    lost = f"{rows.rejected} rejected + {rows.duplicates} duplicates{left_out}"
    refused = f"{examples.rejected} rejected + {examples.duplicates} duplicates"
    return [
        f"rows      {rows.in_} in = {rows.used} used + {lost}",
        f"examples  {examples.made} made = {examples.kept} kept + {refused}",
    ]


def _lines(manifest: Manifest) -> list[str]:
    rows, examples, tokens = manifest.rows, manifest.examples, manifest.tokens
    lines = [
        *_ledger(rows, examples),
        f"tokens    {tokens.total}, {tokens.trained} trained, {tokens.padding} padding",
    ]
    if tokens.turn_split:
        from stages.chat_template import turn_split

        lines.append(f"turns     {turn_split.sentence(as_json(tokens.turn_split))}")
    lines += [f"          {n} {code}" for code, n in rows.rejected_by_code.items()]
    for note, count in rows.notes.items():
        from stages.rows import notes

        label = "warning" if note in notes.WARNINGS else ""
        lines.append(f"{label:<9} {count} rows: {note} ({notes.of(note)})")
    # What is left are refused examples of rows that are not refused: others of theirs are kept.
    beside = Counter(examples.rejected_by_code) - Counter(rows.rejected_by_code)
    lines += [
        f"          {n} examples refused from rows that kept others: {code}"
        for code, n in beside.items()
    ]
    if rows.duplicates_found and not rows.duplicates:
        lines.append(f"          {rows.duplicates_found} equal examples kept (see --dedup)")
    rated = in_words.margins(manifest.margins)
    lines += [rated] if rated else []
    if rated and manifest.for_:
        no_margin = exports.load(manifest.for_).no_margin
        lines += [f"          {manifest.for_}: {no_margin}"] if no_margin else []
    packing, padding = manifest.packing, manifest.padding
    if packing:
        lines.append(
            f"packs     {packing.packs} (no fewer than {packing.lower_bound}), "
            f"{packing.efficiency:.2%} full"
        )
    if manifest.options.get("test_size") and "test" not in manifest.splits:
        lines.append("test      none: --test-size gives less than one row")
    failed = manifest.validation.failed
    for severity in ("warning", "info"):
        lines += [f"{severity:<9} {name} (see {VALIDATION})" for name in failed.get(severity, ())]
    if padding:
        lines.append(f"padding   width {padding.width}, {padding.waste:.1%} of it wasted")
    return lines


def unread(source: InputRecord) -> str:
    """The columns of one input that nothing read, with the share of rows that have them."""
    return ", ".join(f"{one.column} ({one.share:.0%} of rows)" for one in source.unread)


def _formats(inputs: Sequence[InputRecord]) -> list[str]:
    """The format of each input and the evidence for it; of many inputs the first few."""
    several = len(inputs) > 1
    lines = [
        f"format    {one.path + ': ' if several else ''}{one.format} ({one.evidence})"
        for one in inputs[:MAX_INPUTS]
    ]
    lines += [
        f"not read  {one.path + ': ' if several else ''}{unread(one)}"
        for one in inputs[:MAX_INPUTS]
        if one.unread
    ]
    left = len(inputs) - MAX_INPUTS
    return [*lines, f"          and {left} more, see the manifest"] if left > 0 else lines


def summary(built: Built) -> str:
    """The summary of a build, for the terminal."""
    manifest = built.build.manifest
    head = "built" if built.fresh else "already up to date"
    lines = [f"{head}: {manifest.task} for {manifest.model.name}, {manifest.layout}"]
    lines += [*_formats(manifest.inputs), *_lines(manifest), *in_words.inference(manifest)]
    if built.left_out:
        lines.append(f"not read  {local.in_words(built.left_out)}")
    for name, audit in manifest.audits.items():
        if audit.status == "warn":
            lines.append(f"audit     {name}, {audit.detail}")
    return "\n".join(lines + drift.lines(built.drift))


def _make(config: Config, found: Look, report: Report) -> Built:
    from pipeline.build import make  # which imports all that a build needs

    return make(config, found, report)


def build_and_report(config: Config, in_json: bool, quiet: bool) -> None:
    """Build; print the manifest's path (or the manifest) on stdout."""
    found = equal_build.look(config)
    built = found.built or _make(config, found, _reporter(quiet))
    if not quiet:
        click.echo(summary(built), err=True)
    folder, manifest = built.build.folder, built.build.manifest
    if manifest.for_:
        from pipeline.trainers import launch

        started = launch.command(folder, manifest.for_)
        click.echo(f"train     {started}", err=True)
    click.echo(one_line(manifest) if in_json else str(folder / MANIFEST))
