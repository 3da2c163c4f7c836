"""The difference of two builds in lines for the terminal."""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

from pipeline.report import drawing, headline
from stages.errors import counted

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


def _lengths(found: Mapping[str, Any]) -> Iterator[str]:
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


def _shown(found: Mapping[str, Any]) -> Iterator[str]:
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
        yield f"warning   {counted(number, 'example')} with equal content changed sides: {kind}"
    yield from _figures(found)
    yield from _lengths(found)
    yield from _values("option", by_source(found["options"]))
    yield from _values("model", found["model"])
    yield from _values("audit", found["audits"])
    yield from _values("rejected", found["rejected"])
    yield from _shown(found)


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
