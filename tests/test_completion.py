"""The Tab key, in the shells that are there, and what is installed for it."""

import os
import pty
import select
import shutil
import sys
import time
from pathlib import Path

import pytest
from support import Run, few, modules_of, started, table

from pipeline.options import shells

BIN = Path(sys.executable).parent


def _asked(folder: Path, line: str, shell: str = "bash") -> list[str]:
    """What the program answers to a shell; the last word is being typed."""
    words = line.split(" ")
    asked = {
        "_PIPELINE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    return started(BIN / "pipeline", folder=folder, env={**os.environ, **asked}).out.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data, a recipe, two builds and a page."""
    for name in ("chats.jsonl", "chats.txt", "table.parquet", "daily.toml", "page.html"):
        (tmp_path / name).touch()
    for build in ("chats-sft", "more/pairs-rm"):
        (tmp_path / build).mkdir(parents=True)
        (tmp_path / build / "manifest.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "wanted"), few(map(tuple, table("completions.toml")["answers"]), 5)
)
def test_what_a_shell_is_answered(folder: Path, line: str, wanted: list[str]) -> None:
    """Names by what the place takes; files by what they are."""
    assert _asked(folder, f"pipeline {line}") == wanted


def test_each_shell_gets_one_word_a_line(folder: Path) -> None:
    """Nothing else, so that a script of a few lines is enough."""
    for shell in ("zsh", "fish"):
        assert _asked(folder, "pipeline export axo", shell) == ["axolotl"]


def test_completion_imports_nothing_heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs at every press of the key."""
    monkeypatch.setenv("_PIPELINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "pipeline run sft --model qwen2-1")
    monkeypatch.setenv("COMP_CWORD", "4")
    heavy = {"numpy", "pyarrow", "polars", "pydantic", "tokenizers", "jinja2", "datasets"}
    assert heavy & modules_of((), tmp_path) == set()


_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


@pytest.mark.parametrize("shell", _START)
def test_the_key_completes_in_the_shell_itself(folder: Path, shell: str) -> None:
    """On a terminal of its own: a model's name, and then a file's."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (folder / "completion").write_text(shells.shells()[shell].script)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(folder)}
        os.execvp(_START[shell][0], _START[shell])
    try:
        for typed, wanted in (
            (b"source ./completion; echo 'so'urced\n", "sourced"),
            (b"echo pipeline; pipeline export axolo\t", "axolotl"),
            (b"\x15pipeline run sft chats.j\t", "chats.jsonl"),
        ):
            os.write(terminal, typed)
            shown, end = "", time.monotonic() + 60
            while wanted not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 1)[0]:
                    shown += os.read(terminal, 4096).decode("utf-8", "replace").replace("\a", "")
            assert wanted in shown
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


@pytest.mark.parametrize("shell", _START)
def test_it_is_installed_once_and_removed(shell: str, pipeline: Run, tmp_path: Path) -> None:
    """The files are named, a second time nothing is written, and removal leaves what was there."""
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "ZDOTDIR": ""}
    start = tmp_path / f".{shell}rc"
    before = "alias ll='ls -l'"
    start.write_text(before)
    ran = pipeline("completion", "install", shell, **home)
    wrote = [Path(line.removeprefix("wrote ")) for line in ran.out.splitlines()[:-1]]
    assert f"pipeline completion remove {shell}" in ran.ended().out
    assert len(wrote) == (1 if shell == "fish" else 2)
    assert wrote[0].read_text() == pipeline("completion", "show", shell).out
    text = start.read_text()
    assert text.startswith(before)
    assert (str(wrote[0]) in text) is (shell != "fish")
    again = pipeline("completion", "install", **home, SHELL=f"/usr/bin/{shell}")
    assert "It was installed already." in again.out
    assert start.read_text() == text
    pipeline("completion", "remove", shell, **home).ended()
    assert start.read_text().rstrip("\n") == before
    assert not wrote[0].exists()
    assert "It was not installed." in pipeline("completion", "remove", shell, **home).out


def test_an_unknown_shell_is_asked_for(pipeline: Run, tmp_path: Path) -> None:
    """Nothing is guessed, and an unwritable home is an error in one sentence."""
    ran = pipeline("completion", "install", SHELL="/bin/tcsh", HOME=str(tmp_path))
    assert ran.refused(2, "Give one of bash, fish, zsh.").out == ""
    (tmp_path / "home").write_text("a file")
    ran = pipeline("completion", "install", "bash", HOME=str(tmp_path / "home"), XDG_DATA_HOME="")
    assert ran.refused(5, "Error: ").out == ""
