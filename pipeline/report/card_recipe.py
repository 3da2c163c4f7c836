"""The recipe of a build as TOML, from what its manifest says: ``pipeline build`` takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields

from pipeline.manifest.manifest import Manifest
from pipeline.options.phases import PHASES
from pipeline.report.publisher import recorded_sources

_FIRST = ("task", "model", "data")
_FILES = (
    "chat_template",
    "decontaminate",
    "expectations",
)  # a recipe has their paths, a manifest their content


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


def _options(options: Mapping[str, object], known: Mapping[str, object]) -> Iterator[str]:
    """Those that differ from what is known."""
    for name, value in options.items():
        default = known.get(name)
        plain = list(default) if isinstance(default, tuple) else default
        if name in _FIRST or value is None or value == plain:
            continue
        key = "for" if name == "trainer" else name.replace("_", "-")
        if name in _FILES:
            yield f"# {key}: a file of yours, which the card does not have"
        else:
            yield f"{key} = {spelled(value)}"


def _top(manifest: Manifest, tests: Mapping[str, object]) -> Iterator[str]:
    """Above the tables; ``tests``: the options of named test files, which are those of the top."""
    model = manifest.model.name
    if manifest.model.revision and "/" in model:
        model = f"{model.partition('@')[0]}@{manifest.model.revision}"
    yield f"task = {spelled(manifest.task)}"
    yield f"model = {spelled(model)}"
    if not recorded_sources(manifest):
        yield f"data = {spelled(_paths(manifest, None))}"
    if tests:
        yield f"test = {spelled(_paths(manifest, tests['name']))}"
    own = {name: value for name, value in manifest.options.items() if name != "sources"}
    # What a source says of itself, the top says of the build.
    yield from _options(_without_names(tests) | own, _defaults())


def _table(
    manifest: Manifest, one: Mapping[str, object], top: Mapping[str, object]
) -> Iterator[str]:
    """A named source, with what differs from the top."""
    yield ""
    yield "[[source]]"
    yield f"name = {spelled(one['name'])}"
    yield f"data = {spelled(_paths(manifest, one['name']))}"
    yield from _options(_without_names(one), _defaults() | _without_names(top))
    if one.get("max_reject") is not None:  # a limit of its own, even where it is that of the top
        yield f"max-reject = {spelled(one['max_reject'])}"


def _without_names(source: Mapping[str, object]) -> dict[str, object]:
    return {k: x for k, x in source.items() if k not in ("name", "test", "max_reject")}


def _paths(manifest: Manifest, source: object) -> list[str]:
    return [one.path for one in manifest.inputs if one.source == source]


def recipe(manifest: Manifest) -> str:
    """The options that are not the default, and the inputs by the names that row ids have."""
    sources = recorded_sources(manifest)
    tests = next((one for one in sources if one.get("test")), {})
    lines = [*_top(manifest, tests)]
    for one in sources:
        if not one.get("test"):
            lines += _table(manifest, one, tests)
    return "\n".join(lines) + "\n"
