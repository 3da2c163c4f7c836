"""What --help says: grouped, wrapped at words, ranges, and examples that run."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from preloaded import outputs
from stub_server import Stub, serve
from support import SAMPLES, Run, in_shell, sweep, table
from test_overlay import model_dir
from tokenizers import Tokenizer

from pipeline import lines, tasks
from pipeline.options import build_options, help_page
from posttrain_pipeline.commands import cli
from posttrain_pipeline.list_commands import columns
from stages import catalog, formats


def every(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its names, groups too."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from every(found, (*path, name))


COMMANDS = dict(sorted(every(), key=lambda one: one[0]))


def page(path: tuple[str, ...], width: int, flag: str = "--help") -> str:
    """What a command's help prints on a terminal so wide."""
    ran = CliRunner().invoke(cli, [*path, flag], prog_name="pipeline", terminal_width=width)
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_a_page(path):
    """No line is longer than the terminal is wide, and the words are the same at every width: none
    is broken. ``-h`` is ``--help``; ``--debug`` is taken by all, and each has three examples."""
    pages = {width: page(path, width) for width in (60, 80, 120)}
    words = [text.replace(" \\\n", " ").split() for text in pages.values()]
    assert words[0] == words[1] == words[2]
    for width, text in pages.items():
        assert max(map(len, text.splitlines())) <= width
    text = page(path, 100, "-h")
    assert page(path, 100) == text
    assert "  --debug " in text
    if path:
        examples = text.rpartition("\nExamples:\n")[2]
        assert len(re.findall(r"^  # \w", examples, re.M)) == 3, path


@pytest.mark.parametrize("name", tasks.names())
def test_options_stand_under_their_headings(name):
    """In one order, each once."""
    text = page(("run", name), 100)
    found = [h for h in re.findall(r"^(\w[\w ]+):$", text, re.M) if h != "Examples"]
    of_builds = [one for one in help_page.ORDER if one not in (help_page.ROWS, help_page.DRAWN)]
    assert found == of_builds
    parts = re.split(r"^(\w[\w ]+):$", text, flags=re.M)
    under = dict(zip(parts[1::2], parts[2::2], strict=True))
    for option in build_options.OPTIONS.values():
        if option.flags and f"  {option.flags[-1]} " in text:
            assert f"{option.flags[-1]} " in under[option.heading], option.name


@pytest.mark.parametrize(("option", "says"), table("refusals.toml")["values"])
def test_values_that_would_not_be_followed(pipeline, option, says):
    """Before anything is read: nothing is rounded, and of two values none is taken."""
    ran = pipeline("run", "sft", "no.jsonl", *_MODEL, *option.split())
    assert ran.refused(2, says, option.split()[0]).out == ""


# The examples that it shows: each is run, in a folder with the files that it names.

_MODEL = ("--model", "qwen2-1.5b")
_FOLDER = table("help_examples.toml")
_RANKS = tuple(
    ("parts", *what, "--shard-id", str(rank), "--num-shards", "2", "--quiet")
    for what in (("recipe.toml",), ("data.jsonl", "--task", "sft", *_MODEL))
    for rank in (0, 1)
)
_BEFORE = {("shards",): _RANKS, ("commit",): _RANKS}  # what runs before some examples
_SHELL = ("$", "|", ">", "&&", "'")  # what only a shell reads


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, commands, cache_home) -> Path:
    """A folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    for name, source in _FOLDER["data"].items():
        shutil.copy(SAMPLES / source, folder / name)
    for name, text in _FOLDER["files"].items():
        (folder / name).write_text(text)
    (folder / "cache").mkdir()
    model_dir(folder / "model", "BF16")
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
    for line in _FOLDER["made"]:
        words = line.replace("MODEL", " ".join(_MODEL)).split()
        assert commands(words, folder, variables) == 0, outputs(folder)[1].read_text("utf-8")
    return folder


@pytest.fixture
def here(prepared, tmp_path) -> Path:
    """A copy of it, where commands run."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True, symlinks=True)
    return tmp_path


@pytest.fixture
def url(prepared) -> Iterator[str]:
    """A sound server of a model that was trained on the build."""
    files = prepared / "build" / "tokenizer"
    config = json.loads((files / "tokenizer_config.json").read_bytes())
    tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))
    with serve(Stub(tokenizer, config["chat_template"])) as address:
        yield address


EXAMPLES = [
    (path, tuple(words for words, _ in getattr(command, "examples", ())))
    for path, command in COMMANDS.items()
    if not isinstance(command, click.Group)
]


@pytest.mark.great_expectations
@sweep(6)
@pytest.mark.parametrize(("path", "examples"), EXAMPLES, ids=lambda one: " ".join(one)[:40])
def test_the_examples_of_help_run(path, examples, here, pipeline, cache_home, url):
    """Each ends with status 0, in the order of the page."""
    if path[:2] in (("run", "rm"), ("run", "prm")):
        shutil.copy(
            here / {"rm": "pairs.jsonl", "prm": "steps.jsonl"}[path[1]], here / "data.jsonl"
        )
    variables = {"XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1", "URL": url}
    variables |= {"HOME": str(here), "SHELL": "/bin/bash"}
    if path == ("stops",):
        shutil.rmtree(here / "model")
        (here / "trained").rename(here / "model")
    for before in _BEFORE.get(path, ()):
        pipeline(*before).ended()
    assert len(examples) >= 1
    for words in examples:
        first = words.split()[0]
        if first != "pipeline" or any(mark in words for mark in _SHELL) or path[0] == "completion":
            ran = in_shell(words, here, **variables)
        else:
            ran = pipeline(*shlex.split(words)[1:])
        assert ran.status == 0, f"{words}\n{ran.out}{ran.err}"


# What commands print on a terminal: as wide as it is, and broken between words only.


def _screen(pipeline: Run, columns: int, *words: object) -> str:
    """What a command prints, both streams, on a terminal so wide; 0 is no terminal."""
    ran = pipeline(*words, **({"COLUMNS": str(columns)} if columns else {})).ended()
    return ran.out + ran.err


_KINDS = "models formats containers tasks stages trainers audits expectations".split()
_WORDS = SAMPLES / "sft" / "word_problems.jsonl"
SCREENS: list[tuple[object, ...]] = [
    (),
    ("plan", SAMPLES / "rm" / "pairs.jsonl", *_MODEL),
    *(("list", kind) for kind in _KINDS),
    ("doctor", *_MODEL),
    ("check", "ONE"),
    ("plan", _WORDS, *_MODEL),
    ("plan", SAMPLES / "prm" / "math_shepherd.jsonl", *_MODEL),
    ("diff", "ONE", "OTHER"),
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    "words", [*SCREENS[:2], *(pytest.param(one, marks=pytest.mark.slow) for one in SCREENS[2:])]
)
def test_screens_fit_the_terminal(words, pipeline, built):
    """The words are the same at every width; a line is longer only for a path, an id or a list
    without spaces, which stands alone on it."""
    for name, more in (("ONE", ()), ("OTHER", ("--layout", "ragged"))):
        if name in words:
            words = tuple(built("sft", _WORDS, *more) if one == name else one for one in words)
    plain = _screen(pipeline, 0, *words)
    for wide in (60, 80, 120):
        text = _screen(pipeline, wide, *words)
        assert text.replace(" \\\n", " ").split() == plain.replace(" \\\n", " ").split()
        for line in text.splitlines():
            own = re.sub(r"^\s*(\S+(?: \S+)*\s{2,})?", "", line)
            assert len(line) <= wide or " " not in own.strip(), line


def test_names_of_map_are_listed_by_format(pipeline):
    """Every NAME that a format takes, and no other; narrow terminals show the same."""
    listed: dict[str, set[str]] = {}
    for name, _, names in columns():
        listed.setdefault(name, set()).update(names.split())
    for name, names in listed.items():
        assert set(formats.names_of(formats.load(name))) <= names, name
    assert set(listed) <= set(catalog.names("stages.formats"))
    wide, narrow = (_screen(pipeline, n, "list", "formats", "--columns") for n in (0, 60))
    assert {*wide.split()} == {*narrow.split()}
    assert max(map(len, narrow.splitlines())) <= 60


def test_lines_keep_their_words():
    """A long word stands alone; what follows a label stands below its text."""
    for text in ("a b c " * 40, "x" * 90, "key       value " + "word " * 40):
        found = lines.fit(text, 60)
        assert found.split() == text.split()
        assert all(len(line) <= 60 or len(line.split()) == 1 for line in found.splitlines())
        if text.startswith("key"):
            assert all(line.startswith(" " * 10) for line in found.splitlines()[1:])
