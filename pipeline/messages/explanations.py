"""The explanations of codes, as ``codes/*.toml`` and the invariants declare them."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from stages.errors import UsageError, did_you_mean

AUDITS = "audits"
INVARIANTS = "expectations"  # the group that the program's invariants belong to
# In the order in which a row, and then a build, comes to them.
GROUPS = (
    "lines", "columns", "turns", "pairs", "steps", "tokens",
    AUDITS, INVARIANTS, "check", "stops",
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
        example: None where no input gives the code.
    """

    code: str
    group: str
    title: str
    means: str
    fix: str
    example: Example | None = None
    breaks: str = ""

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


def _read(name: str) -> Group:
    text = resources.files(__package__).joinpath("codes", f"{name}.toml").read_text("utf-8")
    table = tomllib.loads(text)
    codes = _of_invariants(table) if name == INVARIANTS else []
    for code, given in {} if codes else table.get("codes", {}).items():
        means, fix = (given.pop(key).strip() for key in ("means", "fix"))
        example = _example(given)
        codes.append(
            Explanation(
                code=code, group=name, title=table["title"], means=means, fix=fix, example=example
            )
        )
    about = table["about"].strip()
    return Group(name, table["title"], about, tuple(sorted(codes, key=lambda one: one.code)))


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
                example=_damaged(table["builds"], given),
                breaks=given.get("breaks", ""),
            )
        )
    return found


_DAMAGE = """
import pyarrow as pa

path = "{folder}/train/data-00000-of-00001.arrow"
with pa.ipc.open_stream(path) as file:
    table = file.read_all()
rows = table.to_pylist()
row = rows[0]
{change}
with pa.OSFile(path, "wb") as file:
    with pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(pa.Table.from_pylist(rows, table.schema))
"""


def _damaged(builds: Mapping[str, str], given: Mapping[str, str]) -> Example | None:
    """A build, a program that damages it, and the command that says so; None where a finished
    build does not show it."""
    if "damages" not in given:
        return None
    folder = given["damages"]
    build, check = builds[folder], f"pipeline check {folder}"
    program = _DAMAGE.format(folder=folder, change=given["change"].strip())
    return Example(
        files={"damage.py": program},
        commands=(build, "python damage.py", check),
        fixed_commands=(build, check),
    )


@functools.cache
def group(name: str) -> Group:
    """A group by its name, one of ``GROUPS``."""
    return _read(name)


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
