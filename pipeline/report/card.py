"""The card's text: how to load the data, what it holds, where it came from, how it was made.

Texts of the data and of options are spelled so that none of them can be Markdown.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.builds.stored import arrow_of
from pipeline.manifest.manifest import InputRecord, Manifest
from pipeline.report import card_details
from stages.errors import counted
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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: int) -> str:
    """``1,234,567``."""
    return f"{value:,}"


_LOAD = """from datasets import load_dataset, load_from_disk

load_from_disk("DIR")  # memory-mapped; a folder on this machine
load_dataset("DIR")  # a folder, or the name of a dataset on the hub"""
_LOAD_FROM_HUB = """from datasets import load_dataset

load_dataset("{name}")"""

_MEANS = {
    "row_id": "the row of the input: its file, its line, and its number where a row gives several",
    "row_ids": "the rows of the input that the pack holds, in order",
    "source": "the source that the row is of",
    "sources": "the source of each example of the pack",
    "input_ids": "token ids",
    "labels": "the id where a token is trained, else -100",
    "seq_lengths": "tokens of each example of the pack",
    "attention_mask": "1 for tokens, 0 for padding",
    "loss_weights": "weight of each token's loss",
    "chosen_ids": "token ids of the prompt and the better answer",
    "rejected_ids": "token ids of the prompt and the worse answer",
    "prompt_length": "tokens that both sides share, up to where training starts",
    "margin": "by how much the better answer is better",
    "step_positions": "where the step tokens are",
    "step_labels": "the rating of each step, null where it has none",
}


def _schema(build: Build) -> pa.Schema:
    """Of the stored rows: an export has its trainer's columns. No row is read."""
    split = next(iter(build.splits.values()))
    path = build.path(arrow_of(split.shards[0].record.path))
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).schema


def _kind(field: pa.Field) -> str:
    """Its type, as pyarrow spells it without the names of inner fields."""
    kind = field.type
    return f"list<{_kind(kind.value_field)}>" if pa.types.is_list(kind) else str(kind)


def _summary(manifest: Manifest) -> str:
    kind = tasks.kind_of(manifest.task)
    stored = layouts.load(manifest.layout)
    rows = "a row is a pack of several examples" if stored.packs else "a row is an example"
    padded = ", padded to one width" if stored.pads else ""
    text = (
        f"{counted(manifest.examples.kept, 'example')} ({kind.words}) as token ids of "
        f"{code(manifest.model.name)}, ready to train ({manifest.task}); {rows}{padded}. "
        f"Made by posttrain-pipeline {manifest.version}."
    )
    if manifest.export:
        text += f" The columns are those of {plain(manifest.export.trainer)}."
    return text


def _splits(manifest: Manifest) -> str:
    rows = [
        [code(n), *map(number, (s.rows, s.examples, s.tokens, len(s.shards)))]
        for n, s in manifest.splits.items()
    ]
    return table(["split", "rows", "examples", "tokens", "files"], rows)


def _columns(build: Build) -> str:
    rows = [[code(f.name), code(_kind(f)), _MEANS.get(f.name, "")] for f in _schema(build)]
    return table(["column", "type", "meaning"], rows)


def _tokens(manifest: Manifest) -> str:
    model, counts = manifest.model, manifest.tokens
    rows = [
        *([["tokens in packs", number(manifest.tokens_in_rows)]] if manifest.packs else []),
        ["tokens stored" if manifest.packs else "tokens", number(counts.total)],
        ["trained tokens", number(counts.trained)],
        ["padding", number(counts.padding)],
        ["longest example allowed", number(manifest.max_length)],
        ["end of turn", f"{code(model.end_of_turn)} ({model.end_of_turn_id})"],
        ["eos token", f"{code(model.eos_token)} ({model.eos_token_id})"],
        ["pad token", f"{code(model.pad_token)} ({model.pad_token_id})"],
        ["sha256 of tokenizer.json", code(model.tokenizer_sha256)],
        ["sha256 of the chat template", code(model.chat_template_sha256)],
    ]
    if manifest.packing:
        rows.insert(3, ["packs", f"{manifest.packing.efficiency:.2%} full"])
    return table(["", ""], rows)


def _ledger(manifest: Manifest) -> str:
    rows = manifest.rows
    counts = [
        ["rows read", number(rows.in_)],
        ["used", number(rows.used)],
        ["rejected", number(rows.rejected)],
        ["duplicates removed", number(rows.duplicates)],
        ["left out by a filter", number(rows.filtered)],
    ]
    others = {
        "like a row of an evaluation file": rows.contaminated,
        "nearly equal to another row": rows.near_duplicates,
        "left out by the budget of their source": rows.left_out,
    }
    counts += [[what, number(count)] for what, count in others.items() if count]
    counts += [
        [f"rejected: {code(word)}", number(count)] for word, count in rows.rejected_by_code.items()
    ]
    return table(["rows of the inputs", "count"], counts)


def _sources(manifest: Manifest) -> str:
    """What the recipe says of each source, and what it gave."""
    gave = {one.name: one.splits.values() for one in manifest.sources}
    rows = []
    for one in card_details.said_of_sources(manifest):
        own = [file for file in manifest.inputs if file.source == one.name]
        counts = [len(own), sum(file.rows for file in own)]
        counts += [
            sum(portion.examples for portion in gave.get(one.name, ())),
            sum(portion.trained for portion in gave.get(one.name, ())),
        ]
        said = [code(one.name), plain(one.license), plain(one.origin)]
        rows.append([*said, *map(number, counts)])
    head = ["source", "licence", "from", "files", "rows", "examples used", "trained tokens"]
    return table(head, rows)


def _format(one: InputRecord) -> str:
    """The format; of a file with rows of several, the rows of each."""
    several = (one.formats or {}).items()
    return ", ".join(f"{code(name)} {number(rows)}" for name, rows in several) or code(one.format)


def _inputs(manifest: Manifest, publisher: card_details.Publisher) -> Iterator[str]:
    yield from (f"- {plain(origin)}" for origin in publisher.origins)
    if publisher.origins:
        yield ""
    named = bool(card_details.said_of_sources(manifest))
    if named:
        yield _sources(manifest)
        yield ""
    rows = [
        [code(one.path), _format(one), number(one.rows), number(one.bytes), code(one.sha256)]
        for one in manifest.inputs
    ]
    head = ["file", "format", "rows", "bytes", "sha256"]
    if named:
        head = [*head, "source"]
        rows = [
            [*row, code(one.source or "")] for row, one in zip(rows, manifest.inputs, strict=True)
        ]
    yield table(head, rows)


def _checks(manifest: Manifest) -> Iterator[str]:
    verdict = manifest.validation
    yield f"{verdict.judged} expectations were checked on the stored rows, and all critical ones"
    yield "hold; `validation.json` has each of them."
    yield ""
    warned = {name: a for name, a in manifest.audits.items() if a.status == "warn"}
    yield from (f"- {plain(name)}: {plain(audit.detail)}" for name, audit in warned.items())
    failed = (name for level in ("warning", "info") for name in verdict.failed.get(level, ()))
    yield from (f"- {plain(name)}" for name in failed)


def _made(manifest: Manifest, publisher: card_details.Publisher) -> Iterator[str]:
    if publisher.recipe:
        yield "With `pipeline build` and this recipe:"
        yield ""
        yield block(publisher.recipe, "toml")
    else:
        yield "With `pipeline build` and this recipe; inputs have the names that row ids have:"
        yield ""
        yield block(card_details.recipe(manifest), "toml")
    if manifest.export:
        yield ""
        yield f"and then `pipeline export {manifest.export.trainer} DIR -o OTHER`."
    yield ""
    yield f"Equal inputs, recipe and version give equal bytes: build {code(manifest.build_id)}."
    yield from (text for left in publisher.left_out for text in ("", left))


def page(build: Build, publisher: card_details.Publisher) -> str:
    """The text below the front matter, as Markdown."""
    manifest = build.manifest
    hub = publisher.hub
    load = block(_LOAD_FROM_HUB.format(name=hub) if hub else _LOAD, "python")
    lines = [
        f"# {plain(card_details.title(manifest, publisher))}",
        "",
        _summary(manifest),
        "",
        load,
        "",
    ]
    if publisher.view:
        place = f"hf://datasets/{hub}" if hub else "DIR"
        view = code(f"{place}/{publisher.view}")
        lines += [f"The same examples as text, in Parquet, for people and viewers: {view}.", ""]
    lines += ["## Splits", "", _splits(manifest), "", "## Columns", "", _columns(build), ""]
    lines += ["## Tokens", "", _tokens(manifest), ""]
    lines += ["## Sources", "", *_inputs(manifest, publisher), "", _ledger(manifest), ""]
    found = card_details.licenses(manifest, publisher)
    if found:
        lines += ["## Licence", "", ", ".join(map(plain, found)), ""]
    lines += ["## Checks", "", *_checks(manifest), ""]
    lines += ["## How it was made", "", *_made(manifest, publisher)]
    return "\n".join(lines).rstrip() + "\n"


# ``README.md``: the dataset card of a build or an export, made from its manifest.
#
# Its front matter names the files of each split, so that ``load_dataset(DIR)`` finds the shards and
# nothing else: without it, the loader takes every data file whose path has ``train`` in it, and so
# also those of a trainer's folder and ``rejects.jsonl``.


CARD = "README.md"


def make(build: Build, publisher: card_details.Publisher = card_details.NOTHING) -> str:
    """The card.

    Args:
        build: its manifest need not have ``files`` yet; one shard of it is opened.
        publisher: what only its publisher knows.
    """
    said = publisher.about(build.manifest)
    return f"{card_details.front_matter(build.manifest, said)}\n{page(build, said)}"


def write(build: Build) -> None:
    """Write the card into the build's folder."""
    (build.folder / CARD).write_bytes(make(build).encode())
