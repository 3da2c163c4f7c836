"""All that differs between two builds, as one object that JSON can hold.

An example that has the same row id and the same content in both is the *same*. Of the rest, equal
content under another row id has *moved* (rows were inserted before it, or its file was renamed), as
often as it stands in both. What then has the same row id has *changed*; all others were *removed*
or *added*.
"""

import functools
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from pipeline import lines
from pipeline.builds import folder_versions, limits, publish
from pipeline.builds.build import Build
from pipeline.manifest.json_records import as_json
from pipeline.manifest.manifest import Manifest
from pipeline.report import drawing, headline, numbers
from stages.columns import Ints
from stages.errors import PipelineError, UsageError

_FATES = ("same", "moved", "changed", "removed", "added")
SHOWN = 3  # examples of each kind
TOKENS = 160  # of an example that is shown
_QUANTILES = {"p50": 50, "p90": 90, "p99": 99}


def opened(name: Path) -> Build:
    """A build by its folder, or a version by the first characters of its id in a folder of them.

    Raises:
        UsageError: there is none.
    """
    if not name.exists() and name.parent.is_dir() and publish.is_releases(name.parent):
        return Build.open(folder_versions.FolderVersions(name.parent).find(name.name).folder)
    return Build.open(name)


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What two objects have different values of."""
    return {
        key: {"a": one.get(key), "b": other.get(key)}
        for key in (*one, *(key for key in other if key not in one))
        if one.get(key) != other.get(key)
    }


def _lengths(lengths: Any) -> dict[str, float] | None:
    if not len(lengths):
        return None
    values = np.percentile(lengths, list(_QUANTILES.values()))
    quantiles = {name: round(float(v), 1) for name, v in zip(_QUANTILES, values, strict=True)}
    return {"mean": round(float(lengths.mean()), 1), **quantiles, "max": int(lengths.max())}


def _groups(examples: numbers.Numbers, of: str) -> dict[str, dict[str, float]]:
    """Examples, tokens and trained tokens by split or by source, with their shares of the last."""
    names = examples.sides if of == "side" else examples.sources
    index = getattr(examples, of)
    each = [np.bincount(index, n, len(names)) for n in (None, examples.length, examples.trained)]
    total = max(float(each[2].sum()), 1.0)
    rows: dict[str, dict[str, float]] = {}
    for name, count, tokens, trained in zip(names, *(one.tolist() for one in each), strict=True):
        rows[name] = {"examples": int(count), "tokens": int(tokens), "trained": int(trained)}
        rows[name]["share"] = round(trained / total, 6)
    return rows


def _changed_sides(
    one: numbers.Numbers, other: numbers.Numbers, matched: numbers.Matched
) -> tuple[dict[str, int], numbers.Pairs]:
    """Examples with equal content that stand on another side, by both sides."""
    first = np.concatenate([matched.same.one, matched.moved.one])
    second = np.concatenate([matched.same.other, matched.moved.other])
    if not len(first):
        return {}, numbers.Pairs(first, second)
    before = np.array(one.sides)[one.side[first]]
    after = np.array(other.sides)[other.side[second]]
    moved = np.flatnonzero(before != after)
    kinds = Counter(zip(before[moved].tolist(), after[moved].tolist(), strict=True))
    named = {f"{a} -> {b}": count for (a, b), count in sorted(kinds.items())}
    return named, numbers.Pairs(first[moved], second[moved])


def _audits(build: Build) -> dict[str, float]:
    with suppress(PipelineError):  # exports have none
        return limits.figures(build)
    return {}


def examples_at(build: Build, places: Ints) -> list[dict[str, Any]]:
    """The examples at a few places, in the order of ``numbers.tables``: row id, split, and text."""
    found: dict[int, dict[str, Any]] = {place: {} for place in places.tolist()}
    shards, before = drawing.Shards(build), 0
    for split, table in numbers.tables(build):
        for place in found:
            if before <= place < before + len(table):
                (row,) = table.slice(place - before, 1).to_pylist()
                text = "\n".join(map(_text, shards.strips(row, tokens=TOKENS)))
                found[place] = {"row_id": row["row_id"], "split": split, "text": text}
        before += len(table)
        if all(found.values()):
            break
    return list(found.values())


def _text(strip: Any) -> str:
    """A sequence as text; where the middle was left out, it says how much."""
    last, gone = strip.left_out
    told = {last: f" [... {gone} tokens ...] "} if gone else {}
    pieces = enumerate(strip.pieces)
    return "".join(one.text + told.get(at, "") for at, one in pieces if one.kind != "padding")


def _shown(
    one: Build, other: Build, matched: numbers.Matched, sides: numbers.Pairs
) -> dict[str, Any]:
    def both(pairs: numbers.Pairs) -> list[dict[str, Any]]:
        texts = (examples_at(one, pairs.one[:SHOWN]), examples_at(other, pairs.other[:SHOWN]))
        return [{"a": a, "b": b} for a, b in zip(*texts, strict=True)]

    return {
        "added": examples_at(other, matched.added[:SHOWN]),
        "removed": examples_at(one, matched.removed[:SHOWN]),
        "changed": both(matched.changed),
        "changed_side": both(sides),
    }


def _in_part(manifest: Manifest) -> dict[str, int]:
    """Rows that lost some of their examples, and these examples by code."""
    return {"rows": manifest.rows.used_in_part, **manifest.examples.rejected_in_part}


def _named(build: Build) -> dict[str, Any]:
    manifest = build.manifest
    return {
        "path": build.shown(),
        "build_id": manifest.build_id,
        "version": manifest.version,
        "task": manifest.task,
        "model": manifest.model.name,
        "layout": manifest.layout,
        "rows": as_json(manifest.rows),
    }


def difference(one: Build, other: Build) -> dict[str, Any]:
    """What changed from one build to the other.

    Raises:
        UsageError: they are of different tasks, so no example of one can be in the other.
        DataError: a shard is missing or damaged.
    """
    if one.manifest.task != other.manifest.task:
        raise UsageError(
            f"{one.shown()} is a build of {one.manifest.task}, {other.shown()} one of "
            f"{other.manifest.task}.",
            "Compare builds of one task.",
        )
    first, second = numbers.read(one), numbers.read(other)
    matched = numbers.match(first, second)
    sides, turned = _changed_sides(first, second, matched)
    return {
        "a": _named(one),
        "b": _named(other),
        "examples": {
            "a": len(first),
            "b": len(second),
            **{name: len(getattr(matched, name)) for name in _FATES},
            "changed_side": sides,
        },
        "splits": {"a": _groups(first, "side"), "b": _groups(second, "side")},
        "sources": {"a": _groups(first, "source"), "b": _groups(second, "source")},
        "lengths": {
            "a": _lengths(first.length),
            "b": _lengths(second.length),
            "removed": _lengths(first.length[matched.removed]),
            "added": _lengths(second.length[matched.added]),
        },
        "options": _both(one.manifest.options, other.manifest.options),
        "model": _both(as_json(one.manifest.model), as_json(other.manifest.model)),
        "audits": _both(_audits(one), _audits(other)),
        "rejected": _both(one.manifest.rows.rejected_by_code, other.manifest.rows.rejected_by_code),
        "in_part": _both(_in_part(one.manifest), _in_part(other.manifest)),
        "shown": _shown(one, other, matched, turned),
    }


# The difference of two builds in lines for the terminal.


MOST = 12  # entries of each kind
_WIDE = 300  # characters of a value or a text


def _cut(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 4]} ..."


def relative(before: float | None, after: float | None) -> str:
    """A change in percent, or in words where there is nothing to divide by."""
    if before is None:
        return "new"
    if after is None:
        return "gone"
    return f"{after / before - 1:+.1%}" if before else "from 0"


def by_source(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that changed, those of sources apart: ``source.NAME.KEY``.

    A source that only one build has is one entry, and so is a change of their order.
    """
    changes = dict(options)
    both = changes.pop("sources", None)
    if both is None:
        return changes
    one, other = ({each["name"]: each for each in both[side] or ()} for side in ("a", "b"))
    for name in dict.fromkeys((*one, *other)):
        a, b = one.get(name), other.get(name)
        if a is None or b is None:
            changes[f"source.{name}"] = {"a": a, "b": b}
            continue
        for key in dict.fromkeys((*a, *b)):
            if a.get(key) != b.get(key):
                changes[f"source.{name}.{key}"] = {"a": a.get(key), "b": b.get(key)}
    if list(one) != list(other) and sorted(one) == sorted(other):
        changes["order of sources"] = {"a": list(one), "b": list(other)}
    return changes


def as_text(found: Mapping[str, Any]) -> str:
    """The page of the terminal."""
    made = lines.templates(Path(__file__).parent)
    made.filters["cut"] = _cut
    made.globals.update(relative=relative, by_source=by_source, fates=_FATES, most=MOST)
    return lines.fit(made.get_template("diff.jinja").render(d=found).removesuffix("\n"))


# The difference of two builds as a page: no script, nothing from the network.


def _value(value: object) -> str:
    return drawing.visible(json.dumps(value, ensure_ascii=False))


@functools.cache
def _template() -> jinja2.Template:
    environment = headline.environment()
    environment.filters.update(visible=drawing.visible, value=_value)
    environment.globals.update(relative=relative, by_source=by_source)
    return environment.from_string(Path(__file__).with_name("diff_page.jinja").read_text("utf-8"))


def render(found: Mapping[str, Any]) -> str:
    """The page of what ``difference`` gives."""
    return _template().render(d=found)
