"""What --help says: grouped, wrapped at words, ranges, and examples that run."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner
from support import ROOT, Ran

from pipeline import tasks
from pipeline.cli import cli
from pipeline.options import headings
from pipeline.options.phases import OPTIONS
from stages.formats import usable_for

Run = Callable[..., Ran]


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of every command, of groups too."""
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands(found, (*path, name))


EVERY = sorted(commands())


def page(path: tuple[str, ...], width: int, flag: str = "--help") -> str:
    """What a command's help prints on a terminal so wide."""
    words = [*path, flag]
    ran = CliRunner().invoke(cli, words, prog_name="pipeline", terminal_width=width)
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_is_as_wide_as_the_terminal(path: tuple[str, ...]) -> None:
    """No line is longer, and the words are the same at every width: none is broken."""
    words = [page(path, width).replace(" \\\n", " ").split() for width in (60, 80, 120)]
    assert words[0] == words[1] == words[2]
    for width in (60, 80, 120):
        long = [line for line in page(path, width).splitlines() if len(line) > width]
        assert long == []


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_has_short_help_debug_and_three_examples(path: tuple[str, ...]) -> None:
    """``-h`` is ``--help``; ``--debug`` is taken by all."""
    text = page(path, 100)
    assert page(path, 100, "-h") == text
    assert "  --debug " in text
    if path:
        examples = text.rpartition("\nExamples:\n")[2]
        assert len(re.findall(r"^  # \w", examples, re.M)) == 3, path


@pytest.mark.parametrize("name", tasks.names())
def test_options_stand_under_their_headings(name: str) -> None:
    """In one order, each once."""
    text = page(("run", name), 100)
    found = [h for h in re.findall(r"^(\w[\w ]+):$", text, re.M) if h != "Examples"]
    of_builds = [one for one in headings.ORDER if one not in (headings.ROWS, headings.DRAWN)]
    assert found == of_builds
    parts = re.split(r"^(\w[\w ]+):$", text, flags=re.M)
    under = dict(zip(parts[1::2], parts[2::2], strict=True))
    for option in OPTIONS.values():
        if option.flags and f"  {option.flags[-1]} " in text:
            assert f"{option.flags[-1]} " in under[option.heading], option.name


def _uses(module: str, seen: set[str]) -> set[str]:
    """Which of a format's options the code of a module reads, with that of its neighbours."""
    seen.add(module)
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == "options" else set()
        if isinstance(node, ast.ImportFrom) and node.module == "stages.formats":
            near = {f"stages.formats.{one.name}" for one in node.names} - seen
            found |= {name for one in near for name in _uses(one, seen)}
    return found


@pytest.mark.parametrize("task", tasks.names())
def test_help_has_the_options_that_the_task_reads(task: str) -> None:
    """As the code of its formats, its layouts and its kind of example say; and no other."""
    text, kind = page(("run", task), 100), tasks.kind_of(task)
    read = {name for one in usable_for(kind) for name in _uses(type(one).__module__, set())}
    wanted = {name: name in read for name in ("neutral", "prompt_separator", "step_tag")}
    wanted |= dict.fromkeys(("pack_within", "index_only"), "packed" in tasks.load(task).layouts)
    wanted |= {"too_long": bool(kind.trims), "prm_template": kind.marks}
    wanted |= {"thinking": not kind.marks, "train_on": kind.trains_answers}
    shown = {name: f"  {OPTIONS[name].flags[-1]} " in text for name in wanted}
    shown["index_only"] = "  --index-only\n" in text or "  --index-only " in text
    assert shown == wanted


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--workers", "0"), "0 is not in the range x>=1"),
        (("--max-length", "-1"), "-1 is not in the range x>=8"),
        (("--test-size", "1"), "1.0 is not in the range 0<=x<1"),
        (("--max-reject", "2"), "2.0 is not in the range 0<=x<=1"),
        (("--near-dedup", "-0.5"), "-0.5 is not in the range 0<=x<=1"),
        (("--overlap-words", "2"), "2 is not in the range 3<=x<=50"),
        (("--keep", "-1"), "-1 is not in the range x>=0"),
    ],
)
def test_numbers_out_of_range_are_refused_with_the_range(
    pipeline: Run, arguments: tuple[str, str], says: str
) -> None:
    """Before anything is read."""
    ran = pipeline("run", "sft", "no.jsonl", "--model", "qwen2-1.5b", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert f"'{arguments[0]}': {says}" in ran.err
