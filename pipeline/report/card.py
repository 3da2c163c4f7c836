"""The card: how to load the data, what it holds, where it came from, how it was made. Its text is
``card.jinja``.

Texts of the data and of options are spelled so that none of them can be Markdown.
"""

import re
from pathlib import Path

import pyarrow as pa

from pipeline import lines, tasks
from pipeline.builds.build import Build
from pipeline.builds.stored import arrow_of
from pipeline.report import card_details
from stages.tokens import layouts

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


def make(build: Build, publisher: card_details.Publisher = card_details.NOTHING) -> str:
    """The card.

    Args:
        build: its manifest need not have ``files`` yet; one shard of it is opened.
        publisher: what only its publisher knows.
    """
    manifest = build.manifest
    told = publisher.about(manifest)
    licenses = card_details.licenses(manifest, told)
    made = lines.templates(Path(__file__).parent)
    made.filters.update(plain=plain, code=code, block=block)
    text = made.get_template("card.jinja").render(
        m=manifest,
        p=told,
        title=card_details.title(manifest, told),
        kind=tasks.kind_of(manifest.task),
        stored=layouts.load(manifest.layout),
        category=card_details.category(manifest),
        size=card_details.size(manifest.examples.kept),
        load=_LOAD_FROM_HUB.format(name=told.hub) if told.hub else _LOAD,
        columns=_columns(build),
        sources=card_details.recorded_sources(manifest),
        portions={one.name: one.splits.values() for one in manifest.sources},
        licenses=licenses,
        hub_licence=list(card_details.for_hub(licenses)),
        recipe=card_details.recipe(manifest),
    )
    return text.rstrip() + "\n"


def write(build: Build) -> None:
    """Write the card into the build's folder."""
    (build.folder / CARD).write_bytes(make(build).encode())
