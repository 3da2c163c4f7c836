"""What commands print on a terminal: as wide as it is, and broken between words only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from preloaded import Server, outputs
from support import SAMPLES, few

from pipeline import lines
from pipeline.commands.list import columns
from stages import catalog, formats

Screen = Callable[..., str]
_MODEL = ("--model", "qwen2-1.5b")
_KINDS = ("models", "formats", "containers", "tasks", "stages", "trainers", "audits")


@pytest.fixture(scope="module")
def screen(commands: Server, cache_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Screen:
    """What a command prints, both streams, on a terminal so wide; 0 is no terminal."""
    folder = tmp_path_factory.mktemp("screens")

    def shown(columns: int, *words: object, status: int = 0) -> str:
        variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
        variables.pop("COLUMNS", None)
        variables |= {"COLUMNS": str(columns)} if columns else {}
        ended = commands([*map(str, words)], folder, variables)
        text = "".join(path.read_text("utf-8") for path in outputs(folder))
        assert ended == status, text
        return text

    data = SAMPLES / "sft" / "word_problems.jsonl"
    for more in ((), ("--max-length", "512", "--dedup")):
        shown(0, "run", "sft", data, *_MODEL, "--quiet", "-o", "releases", "--keep", "3", *more)
    for name, more in (("one", ()), ("other", ("--layout", "ragged"))):
        shown(0, "run", "sft", data, *_MODEL, "--quiet", "-o", name, *more)
    shown(0, "run", "sft", data, *_MODEL, "--quiet", "-o", "broken")
    shard = next((folder / "broken" / "train").glob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1])
    return shown


SCREENS: tuple[tuple[int, tuple[object, ...]], ...] = (
    (0, ()),
    *((0, ("list", kind)) for kind in _KINDS),
    (0, ("list", "expectations")),
    (0, ("plan", SAMPLES / "sft" / "word_problems.jsonl", *_MODEL)),
    (0, ("plan", SAMPLES / "rm" / "pairs.jsonl", *_MODEL)),
    (0, ("plan", SAMPLES / "prm" / "math_shepherd.jsonl", *_MODEL)),
    (0, ("doctor", *_MODEL)),
    (0, ("check", "one")),
    (3, ("check", "broken")),
    (0, ("diff", "one", "other")),
    (0, ("versions", "releases")),
)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("status", "words"), few(SCREENS, 4), ids=str)
def test_screens_are_as_wide_as_the_terminal(
    status: int, words: tuple[object, ...], screen: Screen
) -> None:
    """The words are the same at every width; a line is longer only for a path, an id or a list
    without spaces, which stands alone on it."""
    plain = screen(0, *words, status=status)
    for wide in (60, 80, 120):
        text = screen(wide, *words, status=status)
        assert text.replace(" \\\n", " ").split() == plain.replace(" \\\n", " ").split()
        for line in text.splitlines():
            own = re.sub(r"^\s*(\S+(?: \S+)*\s{2,})?", "", line)
            assert len(line) <= wide or " " not in own.strip(), line


def test_names_of_map_are_listed_by_format(screen: Screen) -> None:
    """Every NAME that a format takes, and no other; narrow terminals show the same."""
    listed: dict[str, set[str]] = {}
    for name, _, names in columns():
        listed.setdefault(name, set()).update(names.split())
    known = {name: set(formats.names_of(formats.load(name))) for name in listed}
    assert {name: names - listed[name] for name, names in known.items()} == {
        name: set() for name in known
    }
    assert set(listed) <= set(catalog.names("stages.formats"))
    wide, narrow = (screen(width, "list", "formats", "--columns") for width in (0, 60))
    assert {word for word in wide.split() if word} == {word for word in narrow.split() if word}
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.mark.parametrize("text", ["a b c " * 40, "x" * 90, "key       value " + "word " * 40])
def test_lines_keep_their_words(text: str) -> None:
    """A long word stands alone; what follows a label stands below its text."""
    found = lines.fit(text, 60)
    assert found.split() == text.split()
    assert all(len(line) <= 60 or len(line.split()) == 1 for line in found.splitlines())
    if text.startswith("key"):
        assert all(line.startswith(" " * 10) for line in found.splitlines()[1:])


def test_where_nobody_looks_nothing_is_wrapped(screen: Screen) -> None:
    """One entry a line, for grep and friends."""
    text = screen(0, "list", "formats")
    assert len(text.splitlines()) == len(catalog.names("stages.formats"))
