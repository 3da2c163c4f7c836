"""What a build was made of and came to, and what it lost of its rows, in the lines that the
terminal shows.

Each line has a label of nine characters, or none, and what it says behind it. ``fitted`` breaks
them where the terminal is narrow.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline import executors, exports, sources
from pipeline.builds import limits, versions
from pipeline.lines import templates, wrapped
from pipeline.manifest import counts, dataset_files, json_records, records
from pipeline.manifest.manifest import Manifest
from stages.errors import PipelineError, counted

Fix = Callable[[str], str]  # what to do about a code; empty where nothing is known


def said(about: str, *values: Any) -> list[str]:
    """What ``words.jinja`` says about one thing: ``ledger``, ``tokens``, ``formats``, ``losses``,
    ``stored`` (which has ``margins``, ``choice``, ``sides``, ``sources`` and ``overlaps``) or
    ``inference``."""
    words: Any = templates(Path(__file__).parent).get_template("words.jinja").module
    text: str = getattr(words, about)(*values)
    return text.split("\n")[:-1]


def no_fix(code: str) -> str:
    """Nothing is known of any code."""
    return ""


MAX_INPUTS = 8  # that the summary names
_INDENT = 10  # of what stands behind a label


_SELDOM = [*counts.FATES.items()][3:]  # named only where there is some


def _time(built: limits.Built) -> list[str]:
    """How long it took, and how fast that was."""
    try:
        seconds = built.build.run.seconds
    except PipelineError:  # it is of no use, and no reason to fail
        return []
    manifest, each = built.build.manifest, max(seconds, 1e-3)
    rows, tokens = manifest.rows.in_ / each, manifest.tokens.total / each
    return [f"time      {executors.span(seconds)}, {rows:,.0f} rows/s, {tokens:,.0f} tokens/s"]


def _lines(manifest: Manifest, fix: Fix) -> list[str]:
    rows, tokens = manifest.rows, manifest.tokens
    lines = said("ledger", rows, manifest.examples, _SELDOM) + said("tokens", manifest)
    if tokens.turn_split:
        from stages.chat_template import loss_weights

        lines.append(f"turns     {loss_weights.sentence(json_records.as_json(tokens.turn_split))}")
    if tokens.history != "rendered":
        lines.append(f"history   {tokens.history}: earlier answers stay as they were sampled")
    lines += said("losses", manifest, fix)
    for note, count in rows.notes.items():
        from stages.rows import carried

        label = "warning" if note in carried.WARNINGS else "note"
        told = carried.told(note, rows.first_noted.get(note, ""))
        lines.append(f"{label:<9} {counted(count, 'row')}: {told}")
    no_margin = exports.load(manifest.for_).no_margin if manifest.for_ else ""
    return lines + said("stored", manifest, no_margin)


def _template(manifest: Manifest) -> list[str]:
    """What the probes found of the chat template."""
    from stages.tokenizers import probes

    found = probes.of_template({name: one.detail for name, one in manifest.probes.items()})
    return [f"template  {found}"] if found else []


def summary(built: limits.Built, fix: Fix = no_fix) -> list[str]:
    """The summary of a build, in lines; of one that was there already it is short.

    Args:
        fix: says what to do about a code of refused rows.
    """
    manifest = built.build.manifest
    head = "built" if built.fresh else "already up to date"
    lines = [f"{head}: {manifest.task} for {manifest.model.name}, {manifest.layout}"]
    if built.fresh:
        lines += [*_time(built), *said("formats", manifest.inputs), *_lines(manifest, fix)]
        lines += [*said("inference", manifest), *_template(manifest)]
    else:
        lines += said("ledger", manifest.rows, manifest.examples, _SELDOM)[:1]
        lines += said("tokens", manifest)
    lines += _noted(built)
    report = built.build.folder / records.REPORT
    return lines if built.build.address else [*lines, f"report    {report}"]


def fitted(lines: Sequence[str], columns: int) -> list[str]:
    """The lines, broken between words where they are longer, and indented behind their labels."""
    found = []
    for line in lines:
        label, said = line[:_INDENT], line[_INDENT:]
        labelled = len(line) > _INDENT and label.endswith(" ")
        if len(line) <= columns:
            found.append(line)
        elif labelled:
            found += wrapped(said, columns, label, " " * _INDENT)
        else:
            found += wrapped(line, columns, "", " " * _INDENT)
    return found


def _noted(built: limits.Built) -> list[str]:
    """What somebody has to know of the build, and of what it took the place of."""
    manifest, lines = built.build.manifest, []
    empty = [one.path for one in manifest.inputs if not one.rows]
    if empty:
        more = f" and {len(empty) - MAX_INPUTS} more" if len(empty) > MAX_INPUTS else ""
        lines.append(f"warning   empty: {', '.join(empty[:MAX_INPUTS])}{more} (--empty warn)")
    if built.left_out:
        lines.append(f"not read  {sources.in_words(built.left_out)}")
    if built.left_by_tools:
        names = dataset_files.in_words(built.left_by_tools)
        what = "removed with the build before" if built.fresh else "in it, and not part of it"
        lines.append(f"left      by other programs, {what}: {names}")
    if built.removed:
        lines.append(f"removed   {', '.join(one[: versions.SHORT] for one in built.removed)}")
    lines += [f"warning   {note}" for note in built.notes]
    for name, audit in manifest.audits.items():
        if audit.status == "warn":
            lines.append(f"audit     {name}, {audit.detail}")
    return lines + limits.lines(built.drift)
