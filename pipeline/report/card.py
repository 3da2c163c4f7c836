"""The card: how to load the data, what it holds, where it came from, how it was made. Its text is
``card.jinja``.

Texts of the data and of options are spelled so that none of them can be Markdown.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline import lines, tasks
from pipeline.builds.build import Build
from pipeline.builds.stored import arrow_of
from pipeline.manifest.manifest import Manifest
from pipeline.options.build_options import OPTIONS
from pipeline.options.many_values import Pairs
from stages.kinds import CONVERSATION, PAIR
from stages.tokens import layouts

# What is said of a dataset: its title, its licence and where its rows are from.


# The card's front matter: what ``datasets`` and the hub read of it.
#
# Texts are written as JSON, which YAML reads alike.


_SIZES = "1K 10K 100K 1M 10M 100M 1B 10B 100B 1T".split()  # the hub's own words
_CATEGORIES = {CONVERSATION: "text-generation", PAIR: "text-ranking"}


def title(manifest: Manifest, publisher: "Publisher") -> str:
    """The given title, or one of task and model."""
    return publisher.title or f"{manifest.task.upper()} data for {manifest.model.name}"


def size(rows: int) -> str:
    """How many rows, in the hub's words."""
    at = max(len(str(rows)) - 3, 0)
    if at < len(_SIZES):
        return f"{_SIZES[at - 1]}<n<{_SIZES[at]}" if at else f"n<{_SIZES[0]}"
    return f"n>{_SIZES[-1]}"


def category(manifest: Manifest) -> str:
    """What the data trains, in the hub's words."""
    return _CATEGORIES.get(tasks.kind_of(manifest.task).trains_as, "token-classification")


_FIRST = ("task", "model", "data")
# A recipe has their paths, a manifest their content.
_FILES = ("chat_template", "decontaminate", "expectations")
_DEFAULTS: dict[str, object] = {
    name: {} if isinstance(one.value, Pairs) else one.default for name, one in OPTIONS.items()
}


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
        if name in _FIRST or value in (None, plain):
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
    yield from _options(_without_names(tests) | own, _DEFAULTS)


def _table(
    manifest: Manifest, one: Mapping[str, object], top: Mapping[str, object]
) -> Iterator[str]:
    """A named source, with what differs from the top."""
    yield ""
    yield "[[source]]"
    yield f"name = {spelled(one['name'])}"
    yield f"data = {spelled(_paths(manifest, one['name']))}"
    yield from _options(_without_names(one), _DEFAULTS | _without_names(top))
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


@dataclass(frozen=True, slots=True)
class Publisher:
    """What whoever publishes a build says of it; what is empty is as the build's recipe has it.

    Attributes:
        title: empty for one made of task and model.
        license: an identifier of the hub or of SPDX (``apache-2.0``); empty for none.
        origins: where rows are from: one text or address each.
        recipe: the text of the recipe's file; empty for one made of the manifest.
        hub: name of the dataset on the hub; empty elsewhere.
        view: files of the Parquet view, as a pattern relative to the card; empty for none.
        left_out: why files of the build are missing or shorter here, a sentence each.
    """

    title: str = ""
    license: str = ""
    origins: tuple[str, ...] = ()
    recipe: str = ""
    hub: str = ""
    view: str = ""
    left_out: tuple[str, ...] = ()

    def about(self, manifest: Manifest) -> "Publisher":
        """With the title, licence and origin of the build's recipe where nothing else is said."""
        options: Mapping[str, Any] = manifest.options
        return replace(
            self,
            title=self.title or options.get("title") or "",
            license=self.license or options.get("license") or "",
            origins=self.origins or tuple(filter(None, [options.get("origin") or ""])),
        )


NOTHING = Publisher()


def recorded_sources(manifest: Manifest) -> Sequence[Mapping[str, Any]]:
    """The options of each named source; empty for a build of one without a name."""
    options: Mapping[str, Any] = manifest.options
    return tuple(options.get("sources", ()))


def licenses_of(manifest: Manifest, publisher: Publisher) -> list[str]:
    """Of the dataset: the one that was given for all of it, or those of its sources, each once, if
    each source has one."""
    if publisher.license:
        return [publisher.license]
    found = [one.get("license") or "" for one in recorded_sources(manifest)]
    return list(dict.fromkeys(found)) if all(found) else []


# As the hub spells those that it knows; it takes others as "other", with a name.
_HUB = frozenset(Path(__file__).with_name("hub_licences.txt").read_text("utf-8").split())


def for_hub(found: list[str]) -> Iterator[tuple[str, object]]:
    """The keys of a card's front matter that say these licences."""
    if not found:
        return
    known = [one.lower() for one in found if one.lower() in _HUB]
    others = [one for one in found if one.lower() not in _HUB]
    words = list(dict.fromkeys([*known, *(["other"] if others else [])]))
    yield "license", words[0] if len(words) == 1 else words
    if others:
        names = (re.sub(r"[^a-z0-9.]+", "-", one.lower()).strip("-") for one in others)
        yield "license_name", "-and-".join(filter(None, names)) or "other"


_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#|!~&])")


def plain(text: object) -> str:
    """A text on one line, without markup."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """A text in a code span, on one line; backticks in it end nothing."""
    inner = " ".join(str(text).split()).replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", inner)), default=0))
    space = " " if "`" in inner else ""
    return f"{fence}{space}{inner}{space}{fence}"


def block(text: str, language: str) -> str:
    """Lines of a program or a file."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_LOAD = """from datasets import load_dataset, load_from_disk

load_from_disk("DIR")  # memory-mapped; a folder on this machine
load_dataset("DIR")  # a folder, or the name of a dataset on the hub"""
_LOAD_FROM_HUB = """from datasets import load_dataset

load_dataset("{name}")"""


def _columns(build: Build) -> list[tuple[str, str]]:
    """Of the stored rows, with their types: an export has its trainer's. No row is read."""
    split = next(iter(build.splits.values()))
    path = build.path(arrow_of(split.shards[0].record.path))
    with pa.OSFile(str(path)) as file:
        return [(one.name, _kind(one)) for one in pa.ipc.open_stream(file).schema]


def _kind(field: pa.Field) -> str:
    """Its type, as pyarrow spells it without the names of inner fields."""
    kind = field.type
    return f"list<{_kind(kind.value_field)}>" if pa.types.is_list(kind) else str(kind)


CARD = "README.md"


def template() -> Any:
    """What a card is made from."""
    made = lines.templates(Path(__file__).parent)
    made.filters.update(plain=plain, code=code, block=block)
    return made.get_template("card.jinja")


def make(build: Build, publisher: Publisher = NOTHING) -> str:
    """The card.

    Args:
        build: its manifest need not have ``files`` yet; one shard of it is opened.
        publisher: what only its publisher knows.
    """
    manifest = build.manifest
    told = publisher.about(manifest)
    licenses = licenses_of(manifest, told)
    text: str = template().render(
        m=manifest,
        p=told,
        title=title(manifest, told),
        kind=tasks.kind_of(manifest.task),
        stored=layouts.load(manifest.layout),
        category=category(manifest),
        size=size(manifest.examples.kept),
        load=_LOAD_FROM_HUB.format(name=told.hub) if told.hub else _LOAD,
        columns=_columns(build),
        sources=recorded_sources(manifest),
        portions={one.name: one.splits.values() for one in manifest.sources},
        licenses=licenses,
        hub_licence=list(for_hub(licenses)),
        recipe=recipe(manifest),
    )
    return text.rstrip() + "\n"


def write(build: Build) -> None:
    """Write the card into the build's folder."""
    (build.folder / CARD).write_bytes(make(build).encode())
