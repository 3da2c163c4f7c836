"""The explanations of codes, as ``codes/*.toml`` and the invariants declare them."""

import functools
import tomllib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

from pipeline import lines
from stages.errors import UsageError, did_you_mean

NOTES, AUDITS = "notes", "audits"
INVARIANTS = "expectations"  # the group that the program's invariants belong to
# In the order in which a row, and then a build, comes to them.
GROUPS = (
    "lines", "columns", "turns", "pairs", "steps", "tokens",
    NOTES, AUDITS, INVARIANTS, "check", "stops",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A file that gives a code, or commands that do, and the same without what is wrong.

    Attributes:
        row: a line of the file, ``fixed``: that line without what is wrong.
        among: what the other lines are like; otherwise they are as ``fixed``.
        alone: there are no other lines.
        write, fixed_write: programs that write the file, where lines of text cannot show it.
        options, fixed_options: of the command, beside the task and the file.
        encoding: of the line, where that is what is wrong.
        asks: a build stops and asks where the lines that it looks at first have such a row.
        whole: only a whole build gives the code, no single stage.
        files: beside the data, by name.
        commands, fixed_commands: where there is no data file: run one after the other, in a folder
            with ``sample_data``; the last one gives the code, or does not any more.
    """

    task: str = "sft"
    file: str = "data.jsonl"
    row: str = ""
    fixed: str = ""
    among: str = ""
    alone: bool = False
    write: str = ""
    fixed_write: str = ""
    options: str = ""
    fixed_options: str = ""
    encoding: str = "utf-8"
    asks: bool = False
    whole: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    fixed_commands: tuple[str, ...] = ()

    def command(self, *, fixed: bool) -> str:
        """The command that gives the code, or the one that reads what was fixed."""
        options = (self.fixed_options or self.options) if fixed else self.options
        model = "" if "--model" in options else " --model qwen2-1.5b"
        return f"pipeline run {self.task} {self.file}{model}{f' {options}' if options else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a code means.

    Attributes:
        group: the file that it is in; ``title``: what that is called.
        means: sentences; ``fix``: what to do, in sentences.
        breaks: of an expectation: what would have to go wrong, in sentences.
        left_out: an example with it, among others of its row, is left out by the rules of the
            row's format: it is counted, and does not count towards ``--max-reject``.
        example: None where no input gives the code.
    """

    code: str
    group: str
    title: str
    means: str
    fix: str
    example: Example | None = None
    breaks: str = ""
    left_out: bool = False

    @property
    def page(self) -> str:
        """The name of its page; an audit and a code of rows may have one name."""
        return f"audit-{self.code}" if self.group == AUDITS else self.code


@dataclass(frozen=True, slots=True)
class Group:
    """A group of codes.

    Attributes:
        about: what its codes have in common, and where they are seen.
    """

    name: str
    title: str
    about: str
    codes: tuple[Explanation, ...]


def _example(given: Mapping[str, Any]) -> Example | None:
    lists = ("commands", "fixed_commands")
    content: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in given.items()}
    return Example(**content) if content else None


@functools.cache
def group(name: str) -> Group:
    """A group by its name, one of ``GROUPS``."""
    text = resources.files(__package__).joinpath("codes", f"{name}.toml").read_text("utf-8")
    table = tomllib.loads(text)
    title, codes = table["title"], _of_invariants(table) if name == INVARIANTS else []
    for code, given in {} if codes else table.get("codes", {}).items():
        said: dict[str, Any] = {key: given.pop(key).strip() for key in ("means", "fix")}
        said |= {"left_out": given.pop("left_out", False), "example": _example(given)}
        codes.append(Explanation(code=code, group=name, title=title, **said))
    codes += _reporting(table, {one.code for one in codes}) if name == AUDITS else []
    ordered = tuple(sorted(codes, key=lambda one: one.code))
    return Group(name, title, table["about"].strip(), ordered)


def _reporting(table: Mapping[str, Any], known: Container[str]) -> list[Explanation]:
    """Audits without limits: what is declared of them says what they mean."""
    text = resources.files("expectations").joinpath("audits", "audits.toml").read_text("utf-8")
    return [
        Explanation(
            code=name,
            group=AUDITS,
            title=table["title"],
            means=f"{said['about']} It only reports: {said['why']}.",
            fix=table["otherwise"],
        )
        for name, said in tomllib.loads(text).items()
        if name not in known
    ]


def _of_invariants(table: Mapping[str, Any]) -> list[Explanation]:
    """Why each must hold is declared with it; what breaks it, and what to do, stands in the file.
    Those of other packages have only the first."""
    from expectations.invariants import invariants

    found = []
    for law in invariants():
        given = table["codes"].get(law.name, {})
        fix = f"{given.get('fix', '')} {table['otherwise']}"
        found.append(
            Explanation(
                code=law.name,
                group=INVARIANTS,
                title=table["title"],
                means=given.get("means", f"{law.why[:1].upper()}{law.why[1:]}.").strip(),
                fix=fix.strip(),
                example=_damaged(table, given),
                breaks=given.get("breaks", ""),
            )
        )
    return found


def _damaged(table: Mapping[str, Any], given: Mapping[str, str]) -> Example | None:
    """A build, a program that damages it, and the command that says so; None where a finished
    build does not show it."""
    if "damages" not in given:
        return None
    folder = given["damages"]
    build, check = table["builds"][folder], f"pipeline check {folder}"
    program = table["program"].format(folder=folder, change=given["change"].strip())
    return Example(
        files={"damage.py": program},
        commands=(build, "python damage.py", check),
        fixed_commands=(build, check),
    )


@functools.cache
def left_out() -> frozenset[str]:
    """Codes of examples that the rules of a format leave out of a row that has others."""
    groups = (group(name) for name in GROUPS if name != INVARIANTS)
    return frozenset(one.code for each in groups for one in each.codes if one.left_out)


def find(code: str) -> list[Explanation]:
    """The explanations of a code: one, or two where an audit has the same name.

    Raises:
        UsageError: there is no such code; the nearest are named.
    """
    known = [one for name in GROUPS if name != INVARIANTS for one in group(name).codes]
    found = [one for one in known if one.code == code]
    if not found:  # only then, since these import what a build imports
        known += group(INVARIANTS).codes
        found = [one for one in known if one.code == code]
    if found:
        return found
    codes = dict.fromkeys(one.code for one in known)
    remedy = did_you_mean(code.lower(), codes, "List all codes with: pipeline explain")
    raise UsageError(f"There is no code {code!r}.", remedy)


def fix_of(code: str) -> str:
    """What to do about rows with a code; empty for one that another package gives."""
    try:
        return find(code)[0].fix
    except UsageError:
        return ""


# An explanation as blocks, and these as Markdown for the site or as plain text for a terminal.


WIDTH = 80
HEAD, TEXT = "head", "text"
_LANGUAGES = {"jinja": "jinja", "json": "json", "py": "python", "toml": "toml"}


class Block(NamedTuple):
    """A heading, a paragraph, or code; ``kind`` is ``HEAD``, ``TEXT`` or a language."""

    kind: str
    text: str


def _input(example: Example, *, fixed: bool) -> Iterator[Block]:
    """The data, where it differs, and the command."""
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
    if commands := example.fixed_commands if fixed else example.commands:
        yield Block("sh", "\n".join(commands))
    elif not fixed or example.fixed_options:
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


_BY_RULE = (
    "An example with this code, among others of its row that are used, is left out by the rules of "
    "the row's format: it does not count towards --max-reject."
)


def blocks(one: Explanation) -> Iterator[Block]:
    """What the page of a code says, without its title."""
    yield Block(TEXT, one.means)
    if one.left_out:
        yield Block(TEXT, _BY_RULE)
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
