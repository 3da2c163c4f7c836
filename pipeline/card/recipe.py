"""The recipe of a build as TOML, from what its manifest says: ``pipeline build`` takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields

from pipeline.card.publisher import recorded_sources
from pipeline.manifest.manifest import Manifest
from pipeline.options.config import PHASES

_FIRST = ("task", "model", "data")
_FILES = ("chat_template", "expectations")  # a recipe has their paths, a manifest their content


def _defaults() -> dict[str, object]:
    values: dict[str, object] = {}
    for phase in PHASES.values():
        for one in fields(phase):
            if one.default_factory is not MISSING:
                values[one.name] = one.default_factory()
            elif one.default is not MISSING:
                values[one.name] = one.default
    return values


def spelled(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{spelled(str(k))} = {spelled(v)}" for k, v in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(spelled(one) for one in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", r"\u007f")


def _options(options: Mapping[str, object]) -> Iterator[str]:
    """Those that are not the default."""
    defaults = _defaults()
    for name, value in options.items():
        default = defaults.get(name)
        plain = list(default) if isinstance(default, tuple) else default
        if name in _FIRST or value is None or value == plain:
            continue
        key = "for" if name == "trainer" else name.replace("_", "-")
        if name in _FILES:
            yield f"# {key}: a file of yours, which the card does not have"
        else:
            yield f"{key} = {spelled(value)}"


def _sources(manifest: Manifest) -> Iterator[str]:
    """The tables of named sources."""
    for one in recorded_sources(manifest):
        # A limit of its own counts also where it is as large as the limit of all.
        limit = one.get("max_reject")
        yield ""
        yield "[[source]]"
        yield f"name = {spelled(one['name'])}"
        yield f"data = {spelled(_paths(manifest, one['name']))}"
        rest = {name: x for name, x in one.items() if name not in ("name", "max_reject")}
        yield from _options(rest)
        if limit is not None:
            yield f"max-reject = {spelled(limit)}"


def _paths(manifest: Manifest, source: str | None) -> list[str]:
    return [one.path for one in manifest.inputs if one.source == source]


def recipe(manifest: Manifest) -> str:
    """The options that are not the default, and the inputs by the names that row ids have."""
    model = manifest.model.name
    if manifest.model.revision and "/" in model:
        model = f"{model.partition('@')[0]}@{manifest.model.revision}"
    options = {name: value for name, value in manifest.options.items() if name != "sources"}
    lines = [f"task = {spelled(manifest.task)}", f"model = {spelled(model)}"]
    if "sources" not in manifest.options:
        lines.append(f"data = {spelled(_paths(manifest, None))}")
    lines += [*_options(options), *_sources(manifest)]
    return "\n".join(lines) + "\n"
