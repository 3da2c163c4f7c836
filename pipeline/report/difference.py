"""All that differs between two builds, as one object that JSON can hold.

An example that has the same row id and the same content in both is the *same*. Of the rest, equal
content under another row id has *moved* (rows were inserted before it, or its file was renamed), as
often as it stands in both. What then has the same row id has *changed*; all others were *removed*
or *added*.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt

from pipeline.builds.build import Build
from pipeline.builds.folder_versions import FolderVersions
from pipeline.builds.publish import is_releases
from pipeline.manifest.json_records import as_json
from pipeline.report import drawing, headline, numbers
from pipeline.report.numbers import Numbers
from stages.columns import Ints
from stages.errors import PipelineError, UsageError, counted


@dataclass(frozen=True)
class Pairs:
    """Places of examples of two builds, ascending; those of a pair stand at the same index."""

    one: Ints
    other: Ints

    def __len__(self) -> int:
        return len(self.one)


@dataclass(frozen=True)
class Matched:
    """Every example of the first build is in one of same, moved, changed and removed; every one of
    the second in one of same, moved, changed and added."""

    same: Pairs
    moved: Pairs
    changed: Pairs
    removed: Ints
    added: Ints


def _by_key(
    one: npt.NDArray[Any], other: npt.NDArray[Any], left: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Places whose keys are equal; keys are unique on each side.

    Args:
        left: the places that the keys belong to.
    """
    _, first, second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    order = np.argsort(left[0][first], kind="stable")
    return left[0][first][order], left[1][second][order]


def _rest(count: int, *taken: Ints) -> Ints:
    mask = np.ones(count, bool)
    for places in taken:
        mask[places] = False
    return np.flatnonzero(mask)


def _counted(one: Any, other: Any) -> tuple[Ints, Ints]:
    """Keys of contents that are unique on each side: the content, and its how manieth it is."""
    both = np.concatenate([one, other])
    order = np.lexsort((both["b"], both["a"]))
    ordered = both[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (ordered["a"][1:] != ordered["a"][:-1]) | (ordered["b"][1:] != ordered["b"][:-1])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    return _with_rank(group[: len(one)], len(both)), _with_rank(group[len(one) :], len(both))


def _with_rank(group: Ints, most: int) -> Ints:
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.searchsorted(ordered, ordered)  # of the group in the sorted order
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - begins
    return group * (most + 1) + rank


def match(one: Numbers, other: Numbers) -> Matched:
    """Match the examples of two builds by their row ids and contents."""
    every = (np.arange(len(one)), np.arange(len(other)))
    first, second = _by_key(one.who, other.who, every)
    equal = one.what[first] == other.what[second]
    same = Pairs(first[equal], second[equal])
    left = (_rest(len(one), same.one), _rest(len(other), same.other))
    keys = _counted(one.what[left[0]], other.what[left[1]])
    moved = Pairs(*_by_key(*keys, left))
    left = (_rest(len(one), same.one, moved.one), _rest(len(other), same.other, moved.other))
    changed = Pairs(*_by_key(one.who[left[0]], other.who[left[1]], left))
    return Matched(
        same=same,
        moved=moved,
        changed=changed,
        removed=_rest(len(one), same.one, moved.one, changed.one),
        added=_rest(len(other), same.other, moved.other, changed.other),
    )


SHOWN = 3  # examples of each kind
TOKENS = 160  # of an example that is shown
_QUANTILES = {"p50": 50, "p90": 90, "p99": 99}


def opened(name: Path) -> Build:
    """A build by its folder, or a version by the first characters of its id in a folder of them.

    Raises:
        UsageError: there is none.
    """
    if not name.exists() and name.parent.is_dir() and is_releases(name.parent):
        return Build.open(FolderVersions(name.parent).find(name.name).folder)
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


def _groups(examples: Numbers, of: str) -> dict[str, dict[str, float]]:
    """Examples, tokens and trained tokens by split or by source, with their shares of the last."""
    names = examples.sides if of == "side" else examples.sources
    index = getattr(examples, of)
    counts = np.bincount(index, minlength=len(names))
    tokens = np.bincount(index, examples.length, minlength=len(names))
    trained = np.bincount(index, examples.trained, minlength=len(names))
    total = max(float(trained.sum()), 1.0)
    return {
        name: {
            "examples": int(counts[at]),
            "tokens": int(tokens[at]),
            "trained": int(trained[at]),
            "share": round(float(trained[at]) / total, 6),
        }
        for at, name in enumerate(names)
    }


def _changed_sides(one: Numbers, other: Numbers, matched: Matched) -> tuple[dict[str, int], Pairs]:
    """Examples with equal content that stand on another side, by both sides."""
    first = np.concatenate([matched.same.one, matched.moved.one])
    second = np.concatenate([matched.same.other, matched.moved.other])
    if not len(first):
        return {}, Pairs(first, second)
    before = np.array(one.sides)[one.side[first]]
    after = np.array(other.sides)[other.side[second]]
    moved = np.flatnonzero(before != after)
    kinds = Counter(zip(before[moved].tolist(), after[moved].tolist(), strict=True))
    named = {f"{a} -> {b}": count for (a, b), count in sorted(kinds.items())}
    return named, Pairs(first[moved], second[moved])


def _audits(build: Build) -> dict[str, float]:
    try:
        audits = build.audits.audits
    except PipelineError:  # exports have none
        return {}
    named = [(audit.name, figure) for audit in audits for figure in audit.figures]
    return {f"{name}.{f.name}": f.value for name, f in named if name != "sources"}


class _Texts:
    """Decodes a few examples of one build."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._shards = drawing.Shards(build)

    def of(self, places: Ints) -> list[dict[str, Any]]:
        """The examples at a few places: row id, split, and text."""
        names = numbers.names(self._build, [int(place) for place in places])
        return [self._shown(name) for name in names]

    def _shown(self, name: str) -> dict[str, Any]:
        split, row, index = self._shards.find(name)
        stored = self._shards.row(split, row)
        strips = self._shards.strips(stored, index + 1, TOKENS)
        chosen = strips[index:] if "seq_lengths" in stored else strips
        return {"row_id": name, "split": split, "text": "\n".join(map(_text, chosen))}


def _text(strip: Any) -> str:
    """A sequence as text; where the middle was left out, it says how much."""
    last, gone = strip.left_out
    parts = [
        piece.text + (f" [... {gone} tokens ...] " if gone and at == last else "")
        for at, piece in enumerate(strip.pieces)
        if piece.kind != "padding"
    ]
    return "".join(parts)


def _shown(one: Build, other: Build, matched: Matched, sides: Pairs) -> dict[str, Any]:
    first, second = _Texts(one), _Texts(other)

    def both(pairs: Pairs) -> list[dict[str, Any]]:
        couples = zip(first.of(pairs.one[:SHOWN]), second.of(pairs.other[:SHOWN]), strict=True)
        return [{"a": a, "b": b} for a, b in couples]

    return {
        "added": second.of(matched.added[:SHOWN]),
        "removed": first.of(matched.removed[:SHOWN]),
        "changed": both(matched.changed),
        "changed_side": both(sides),
    }


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
    matched = match(first, second)
    sides, turned = _changed_sides(first, second, matched)
    fates = ("same", "moved", "changed", "removed", "added")
    return {
        "a": _named(one),
        "b": _named(other),
        "examples": {
            "a": len(first),
            "b": len(second),
            **{name: len(getattr(matched, name)) for name in fates},
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


def _figures(found: Mapping[str, Any]) -> Iterator[str]:
    for name in ("splits", "sources"):
        one, other = found[name]["a"], found[name]["b"]
        label = name[:-1]
        for key in [*one, *(key for key in other if key not in one)][:MOST]:
            a, b = one.get(key), other.get(key)
            for what in ("examples", "trained"):
                before, after = (side[what] if side else None for side in (a, b))
                if before != after:
                    shown = f"{before or 0} -> {after or 0} ({relative(before, after)})"
                    yield f"{label:<9} {key}: {what} {shown}"
            shares = [side["share"] if side else 0.0 for side in (a, b)]
            if abs(shares[0] - shares[1]) >= 0.0005:
                yield f"{'':<9} {key}: share of trained tokens {shares[0]:.1%} -> {shares[1]:.1%}"
        more = len({*one, *other}) - MOST
        if more > 0:
            yield f"{'':<9} and {more} more {name}"


def _lengths_told(found: Mapping[str, Any]) -> Iterator[str]:
    for name in ("a", "b", "removed", "added"):
        length = found["lengths"][name]
        if length:
            listed = ", ".join(f"{key} {value:g}" for key, value in length.items())
            yield f"{'tokens' if name == 'a' else '':<9} {name}: {listed}"


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


def _values(label: str, changes: Mapping[str, Any]) -> Iterator[str]:
    for key, change in list(changes.items())[:MOST]:
        before, after = (_cut(json.dumps(change[s], ensure_ascii=False)) for s in ("a", "b"))
        yield f"{label:<9} {key}: {before} -> {after}"
    if len(changes) > MOST:
        yield f"{'':<9} and {len(changes) - MOST} more"


def _shown_as(found: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("removed", "added"):
        for one in found["shown"][kind]:
            yield f"{kind:<9} {one['row_id']} ({one['split']}): {_cut(repr(one['text']))}"
    for pair in found["shown"]["changed"]:
        yield f"changed   {pair['a']['row_id']}"
        yield f"{'':<8}- {_cut(repr(pair['a']['text']))}"
        yield f"{'':<8}+ {_cut(repr(pair['b']['text']))}"
    for pair in found["shown"]["changed_side"]:
        a, b = pair["a"], pair["b"]
        yield f"side      {b['row_id']}: {a['split']} -> {b['split']}: {_cut(repr(b['text']))}"


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The page of the terminal."""
    for name in ("a", "b"):
        one = found[name]
        yield f"{name:<9} {one['path']}: {one['task']} for {one['model']}, {one['build_id'][:12]}"
    count = found["examples"]
    yield f"examples  {count['a']} -> {count['b']} ({relative(count['a'], count['b'])})"
    fates = ("same", "moved", "changed", "removed", "added")
    yield f"{'':<9} {', '.join(f'{count[fate]} {fate}' for fate in fates)}"
    for kind, number in count["changed_side"].items():
        yield f"warning   {counted(number, 'example')} with equal content changed splits: {kind}"
    yield from _figures(found)
    yield from _lengths_told(found)
    yield from _values("option", by_source(found["options"]))
    yield from _values("model", found["model"])
    yield from _values("audit", found["audits"])
    yield from _values("rejected", found["rejected"])
    yield from _shown_as(found)


# The difference of two builds as a page: no script, nothing from the network.


def _value(value: object) -> str:
    return drawing.visible(json.dumps(value, ensure_ascii=False))


@functools.cache
def _template() -> jinja2.Template:
    environment = headline.environment()
    environment.filters.update(visible=drawing.visible, value=_value)
    environment.globals.update(relative=relative, by_source=by_source)
    text = Path(__file__).with_name("diff_page.jinja").read_text("utf-8")
    return environment.from_string(text)


def render(found: Mapping[str, Any]) -> str:
    """The page of what ``difference`` gives."""
    return _template().render(d=found)
