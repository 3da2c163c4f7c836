"""An explanation as blocks, and these as Markdown for the site or as plain text for a terminal."""

from collections.abc import Iterator
from typing import NamedTuple

from pipeline import lines
from pipeline.messages.explanations import Example, Explanation, Group

WIDTH = 80
HEAD, TEXT = "head", "text"
_LANGUAGES = {"jinja": "jinja", "json": "json", "py": "python", "toml": "toml"}


class Block(NamedTuple):
    """A heading, a paragraph, or code; ``kind`` is ``HEAD``, ``TEXT`` or a language."""

    kind: str
    text: str


def _input(example: Example, *, fixed: bool) -> Iterator[Block]:
    """The data, where it differs, and the command."""
    commands = example.fixed_commands if fixed else example.commands
    if commands:
        yield from _files(example) if not fixed else ()
        yield Block("sh", "\n".join(commands))
        return
    row = example.fixed if fixed else example.row
    program = example.fixed_write if fixed else example.write
    if program:
        yield Block(TEXT, f"This program writes {example.file}:")
        yield Block("python", program.strip())
    elif row:
        yield Block(TEXT, f"A row of {example.file}:")
        yield Block("json", row.strip())
    if not fixed and example.encoding != "utf-8":
        yield Block(TEXT, f"The file is stored as {example.encoding}.")
    yield from _files(example) if not fixed else ()
    if not fixed or example.fixed_options:
        yield Block("sh", example.command(fixed=fixed))


def _files(example: Example) -> Iterator[Block]:
    """What lies beside the data."""
    for name, content in example.files.items():
        yield Block(TEXT, f"{name}:")
        yield Block(_LANGUAGES.get(name.rpartition(".")[2], "text"), content.strip())


_ASKS = (
    "The build looks at some rows of every file before it begins. Where one of these leaves this "
    "open, it stops with exit status 3 and asks. A row that is met later is refused with this code."
)


def blocks(one: Explanation) -> Iterator[Block]:
    """What the page of a code says, without its title."""
    yield Block(TEXT, one.means)
    if one.breaks:
        yield Block(HEAD, "When it breaks")
        yield Block(TEXT, one.breaks)
    if one.example is not None:
        yield Block(HEAD, "Example")
        yield from _input(one.example, fixed=False)
        if one.example.asks:
            yield Block(TEXT, _ASKS)
    yield Block(HEAD, "Fix")
    yield Block(TEXT, one.fix)
    if one.example is not None:
        yield from _input(one.example, fixed=True)


def markdown(one: Explanation) -> str:
    """The page of the site."""
    page = [
        f"# {one.code}",
        "",
        f"[{one.title}](index.md#{anchor(one.title)}), written by `make docs`.",
        "",
    ]
    for block in blocks(one):
        if block.kind == HEAD:
            page += [f"## {block.text}", ""]
        elif block.kind == TEXT:
            page += [*lines.wrapped(_escaped(block.text), 100), ""]
        else:
            page += [f"```{block.kind}", block.text, "```", ""]
    return "\n".join(page)


def _escaped(text: str) -> str:
    """Text whose ``<`` and ``_`` stay as they are in Markdown."""
    return text.replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")


def anchor(title: str) -> str:
    """What a heading is linked by."""
    return title.lower().replace(" ", "-")


def index(groups: list[Group]) -> str:
    """The page that lists every code."""
    page = [
        "# Codes",
        "",
        "Written by `make docs` from what `pipeline explain CODE` prints; the tests run every",
        "example. A refused row has its code in `rejects.jsonl`; the summary, the manifest and the",
        "report count the refused rows of a build by code. Few of them stop no build: see",
        "`--max-reject`.",
        "",
    ]
    for one in groups:
        page += [f"## {one.title}", "", *lines.wrapped(_escaped(one.about), 100), ""]
        page += ["| code | what it means |", "|---|---|"]
        for code in one.codes:
            means = _escaped(first_sentence(code.means)).replace("|", "\\|")
            page.append(f"| [`{code.code}`]({code.page}.md) | {means} |")
        page.append("")
    return "\n".join(page)


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    head, stop, _ = text.replace("\n", " ").partition(". ")
    return f"{head}." if stop else head


def plain(one: Explanation) -> str:
    """The same for a terminal, in lines of ``WIDTH``."""
    page = [f"{one.code}  ({one.title})", ""]
    for block in blocks(one):
        if block.kind == HEAD:
            page += [block.text.upper(), ""]
        elif block.kind == TEXT:
            page += [*lines.wrapped(block.text, WIDTH), ""]
        else:
            page += [*_code(block), ""]
    return "\n".join(page).rstrip()


def _code(block: Block) -> Iterator[str]:
    for line in block.text.splitlines():
        more = "      " if block.kind == "json" else f"    {' ' * (len(line) - len(line.lstrip()))}"
        yield from lines.wrapped(line, WIDTH, "    ", more)


def listing(groups: list[Group]) -> str:
    """Every code by group, for a terminal."""
    page = []
    for one in groups:
        page += [one.title.upper(), *lines.wrapped(one.about, WIDTH), ""]
        width = max(len(code.code) for code in one.codes) + 4
        for code in one.codes:
            first = f"  {code.code}".ljust(width)
            page += lines.wrapped(first_sentence(code.means), WIDTH, first, " " * width)
        page.append("")
    return "\n".join([*page, "What one means, an example and the fix: pipeline explain CODE"])
