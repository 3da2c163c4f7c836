"""What several test files use that is no fixture."""

import codecs
import fcntl
import importlib.util
import json
import os
import pty
import re
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import termios
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.builds.build import Build
from pipeline.manifest.records import ModelRecord
from pipeline.shards.doubles import DIGEST
from pipeline.shards.examples import PlannedExamples
from pipeline.tasks import kind_of
from stages import formats, readers
from stages.contract import Example, FormatOptions, Record, Row, Split
from stages.format import Format
from stages.normalize import evidence
from stages.rows.column_names import Watched

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_data"
SAMPLE_OF = {
    "sft": SAMPLES / "sft" / "word_problems.jsonl",
    "rm": SAMPLES / "rm" / "pairs.jsonl",
    "prm": SAMPLES / "prm" / "math_shepherd.jsonl",
}
WIDE = bool(os.environ.get("WIDE"))  # sweeps try all that they know, not a part of it


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """The object that it printed, as commands do for ``--json``."""
        return json.loads(self.out)

    def refused(self, status: int, *said: str) -> "Ran":
        """It ended with this status, and stderr has each of these texts."""
        assert self.status == status, self.out + self.err
        for text in said:
            assert text in self.err
        return self

    def ended(self, status: int = 0) -> "Ran":
        """The same, of a command that must have ended so; else what it said is shown."""
        assert self.status == status, f"{self.out}{self.err}"
        return self


Run = Callable[..., Ran]  # a command line: see the fixture ``pipeline``
Make = Callable[..., Path]


def printed(text: str) -> list[str]:
    """The commands that an error prints to be run."""
    return re.findall(r"^(?:Run|Or):\n  (pipeline .*)$", text.replace(" \\\n", " "), re.M)


def _as_plan(words: Sequence[str]) -> list[str]:
    """The plan of what a printed command would build; empty where it builds no file as it lies."""
    command, *rest = words
    if command == "run":
        task, *rest = rest
        rest += ["--task", task]
    elif command not in ("plan", "build") or "-" in rest:
        return []
    return ["plan", *(word for word in rest if word not in ("--json", "--quiet"))]


def follow(run: Run, refused: Ran) -> None:
    """Run the plan of every command that a refusal prints: none asks anything more. What a build's
    own limit refuses may be refused by it."""
    for one in printed(refused.err):
        words = _as_plan(shlex.split(one)[1:])
        if not words:
            continue
        ran = run(*words)
        own = ran.status == 3 and re.search(r"refused|nothing would be left", ran.out + ran.err)
        asks = printed(ran.err) or "questions must be answered" in ran.err
        assert ran.status == 0 or (own and not asks), f"{refused.err}\n{one}\n{ran.out}{ran.err}"


def tool(name: str) -> str:
    """The path of a program, here or in ``SCHEDULERS``; without it the test is skipped."""
    places = (os.environ.get("SCHEDULERS", ""), Path(sys.executable).parent, os.environ["PATH"])
    found = shutil.which(name, path=os.pathsep.join(map(str, places)))
    return found or pytest.skip(f"{name} is not installed")


def in_shell(line: str, folder: Path, **variables: str) -> Ran:
    """What a shell makes of a line in which ``pipeline`` is ours; it stops at what fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **variables, "PATH": path}
    return started("bash", "-euo", "pipefail", "-c", line, folder=folder, env=env)


def rows_to(path: Path, *rows: Row) -> Path:
    """A file of lines of JSON."""
    return write_rows(path, rows)


def detected_as(
    rows: Sequence[Row], task: str, reading: str, evidence_of: str = ""
) -> tuple[Format, str]:
    """The format and the reading that rows show; where they leave it open, one that is offered."""
    try:
        found = evidence.detect(rows, kind_of(task), "x.jsonl")
    except evidence.UnsettledError as asked:
        offered = asked.remedy
    else:
        assert evidence_of in found.evidence
        return found.format, found.reading
    assert f"--format {reading}" in offered
    return formats.load(reading), reading


def check_reading(reading: str, task: str, row: Row, wanted: list[Example]) -> None:
    """A row is detected among all formats of its task and read as these examples, unchanged.

    It is read as it is and as a build reads it, which watches what is asked of it.
    """
    before = json.dumps(row)
    found, shown = detected_as([row] * 3, task, reading)
    assert shown == reading
    assert found.read(row, FormatOptions()) == wanted
    assert found.read(Watched(row), FormatOptions()) == wanted
    assert json.dumps(row) == before


def sweep(count: int, name: str = "") -> Callable[[Any], Any]:
    """Marks of a slow test, of whose cases so many run each day; ``name``: of all that share it."""
    return lambda test: pytest.mark.slow(pytest.mark.sweep(count, name)(test))


def few(values: Iterable[Any], keep: int) -> list[Any]:
    """The parameters of a test whose cases cost seconds each.

    Args:
        values: all cases; a tuple is one case of several arguments.
        keep: so many run by default, spread over all; the others run in the slow tier.
    """
    cases = list(values)
    chosen = {n * len(cases) // keep for n in range(keep)}
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            marks=[] if n in chosen else [pytest.mark.slow],
        )
        for n, one in enumerate(cases)
    ]


def table(name: str) -> Any:
    """What a file of ``tests/tables`` holds: a TOML table, or a list of lines of JSON."""
    text = (ROOT / "tests" / "tables" / name).read_text("utf-8")
    return tomllib.loads(text) if name.endswith(".toml") else [*map(json.loads, text.splitlines())]


def repeated(text: str) -> str:
    """A text in which ``{word *9}`` stands for the word so many times."""
    return re.sub(r"\{([^{}*]+)\*(\d+)\}", lambda m: m[1] * int(m[2]), text)


def expanded(some: Mapping[str, Any]) -> list[Row]:
    """``count`` times ``row`` with its number (from ``first`` on) for ``{n}`` and a word so many
    times for ``{word *9}``; columns of ``each`` have their values in turn."""
    rows, first = [], some.get("first", 0)
    for at in range(some.get("count", 1)):
        own = {name: values[at % len(values)] for name, values in some.get("each", {}).items()}
        line = json.dumps({**some["row"], **own}).replace("{n}", str(first + at))
        rows.append(json.loads(repeated(line)))
    return rows


def say(text: str) -> None:
    """A figure for whoever runs the tests with ``-s``."""
    sys.stdout.write(f"{text}\n")


def table_bytes(table: pa.Table, kind: str, rows: int) -> bytes:
    """A table as ``parquet``, or as an Arrow IPC ``file`` or ``stream``, so many rows a piece."""
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=rows)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue().to_pybytes())


def read_manifest(folder: Path) -> dict[str, Any]:
    """A build's manifest."""
    return json.loads((folder / "manifest.json").read_text("utf-8"))


def stored_rows(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    """A build's rows of a split in our columns, in stored order."""
    return [row for table in Build.open(folder).splits[split].tables() for row in table.to_pylist()]


def records_of(*splits: Split) -> list[Record]:
    """The records of splits, in order."""
    return [
        record
        for split in splits
        for lines in readers.load(split.reader).read(split)
        for record in lines.records
    ]


def silent(*_: object) -> None:
    """Progress that nobody reads."""


def files_of(folder: Path, *, with_run: bool = False) -> dict[str, bytes]:
    """A folder's bytes, by file; without the record of the run, in which equal builds differ."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (with_run or path.name != "run.json")
    }


def write_rows(path: Path, rows: Iterable[Any]) -> Path:
    """Lines of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read_rows(path: Path) -> list[Any]:
    """The values of lines of JSON."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def flip(path: Path) -> None:
    """Change a byte in the middle of a file, and of no other that it is linked to."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def writable(folder: Path) -> Path:
    """A folder whose files may be changed, whatever they were copied from."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return folder


def own_cache(folder: Path, cache_dir: Path) -> Path:
    """A cache without parts: it has nothing but the tokenizers of ``cache_dir``."""
    (cache_dir / "tokenizers").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizers").exists():
        (folder / "tokenizers").symlink_to(cache_dir / "tokenizers")
    return folder


def model_record(**given: Any) -> ModelRecord:
    """A manifest's ``model``; what is not given is empty, 0 or null."""
    empty = {"str": "", "int": 0, "bool": False}
    made = {f.name: empty.get(str(f.type)) for f in fields(ModelRecord) if f.default is MISSING}
    made = {k: v for k, v in made.items() if k not in ("unknown", "added_tokens")}
    return ModelRecord(**{**made, **given})


def planned_examples(count: int, **given: Any) -> PlannedExamples:
    """So many examples of one part, all of one token and different, but for what is given."""
    at, ones = np.arange(count), np.ones(count, np.int32)
    digest = np.zeros(count, DIGEST)
    digest["a"] = at
    usual: dict[str, Any] = {"starts": np.array([0, count]), "row": at, "digest": digest}
    usual |= {"length": ones, "trained": ones, "source": np.zeros(count, np.int16)}
    return PlannedExamples(**(usual | given))


def example(name: str) -> ModuleType:
    """A program of ``examples/``, imported from its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def started(
    *words: object,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
) -> Ran:
    """Run a program to its end.

    Args:
        env: all of its variables; those of this process, where it is not given.
        given: on its stdin.
    """
    done = subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def noted(
    patch: pytest.MonkeyPatch, owner: Any, name: str, of: Callable[..., Any] = lambda *given: given
) -> list[Any]:
    """What ``of`` makes of the arguments that a function is called with from now on; it does what
    it did."""
    calls: list[Any] = []
    function = getattr(owner, name)

    def noting(*given: Any, **named: Any) -> Any:
        calls.append(of(*given))
        return function(*given, **named)

    patch.setattr(owner, name, noting)
    return calls


def raised(kind: Any, call: Any, *given: Any, says: str | None = None, **named: Any) -> Any:
    """The error of this kind that a call raises; its text has what it ``says``, a pattern."""
    with pytest.raises(kind, match=says) as caught:
        call(*given, **named)
    return caught.value


def program(path: Path, body: str, shell: object = "/bin/sh") -> Path:
    """A program of a few lines."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{shell}\n{body}\n")
    path.chmod(0o755)
    return path


def run_python(code: str, folder: Path, **variables: str) -> Ran:
    """Run a program of a few lines in a process of its own, in a folder."""
    return started(sys.executable, "-c", code, folder=folder, env={**os.environ, **variables})


def modules_of(arguments: Sequence[str], folder: Path, status: int = 0) -> set[str]:
    """The modules that the process of a command has imported when it ends.

    Args:
        arguments: of the command; ``status``: what it ends with.
        folder: where it runs.
    """
    told = folder / "imported.json"
    code = table("scripts.toml")["modules_of_a_command"].replace("TOLD", repr(str(told)))
    run_python(code.replace("ARGUMENTS", repr(tuple(arguments))), folder).ended(status)
    return set(json.loads(told.read_text()))


def packages_of(modules: set[str]) -> set[str]:
    """The packages at the top that modules belong to."""
    return {name.partition(".")[0] for name in modules}


class Terminal:
    """A command of which a stream is a terminal, and what it shows there, with a terminal's line
    ends.

    Args:
        variables: all of its environment.
        width: of the terminal, in columns; as it is made where none is given.
    """

    def __init__(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        stream: str = "stdout",
        width: int | None = None,
    ) -> None:
        self._from, theirs = pty.openpty()
        if width is not None:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        program = str(Path(sys.executable).parent / "pipeline")
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, stream: theirs}
        self.process = subprocess.Popen([program, *words], env=variables, **streams)
        os.close(theirs)
        self._text = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def reads(self) -> Iterator[str]:
        """All that is shown so far, each time that there is more."""
        with suppress(OSError):  # Linux says so when the other end is closed
            while more := os.read(self._from, 65536):
                self.shown += self._text.decode(more)
                yield self.shown

    def end(self) -> int:
        """The exit status, when all is shown."""
        for _ in self.reads():
            pass
        os.close(self._from)
        return self.process.wait(120)


_EXAMPLE = r"```python\n((?:(?!```).)*)```\n\n```toml\n(.*?)```"


def _examples() -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """The Python files of CONTRIBUTING.md, each with the entry points declared below it."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for code, declared in re.findall(_EXAMPLE, text, re.DOTALL):
        yield code, tomllib.loads(declared)["project"]["entry-points"]


def _module(groups: dict[str, dict[str, str]]) -> str:
    """The module that the entry points of one example name."""
    (module,) = {value.split(":")[0] for names in groups.values() for value in names.values()}
    return module


def install_examples(folder: Path, *modules: str) -> Path:
    """Write examples of CONTRIBUTING.md (all, where none is named) as an installed package.

    Returns:
        The folder, for Python's path.
    """
    information = folder / "somebodys-1.0.dist-info"
    information.mkdir(parents=True)
    declared: dict[str, list[str]] = {}
    for code, groups in _examples():
        module = _module(groups)
        if modules and module not in modules:
            continue
        (folder / f"{module}.py").write_text(code)
        for group, names in groups.items():
            declared.setdefault(group, []).extend(f"{k} = {v}" for k, v in names.items())
    entries = "".join(f"[{g}]\n" + "\n".join(names) + "\n" for g, names in declared.items())
    (information / "entry_points.txt").write_text(entries)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    return folder


def example_groups() -> set[str]:
    """The folders that CONTRIBUTING.md has an example for."""
    return {group.rpartition(".")[2] for _, groups in _examples() for group in groups}


def read_row(path: Path, name: str, row: int) -> Any:
    """One row of a two-dimensional tensor in a safetensors file, widened to float32."""
    from pipeline.serving import checkpoint as stored

    entries, start = stored.header(path)
    dtype, (_, width) = entries[name]["dtype"], entries[name]["shape"]
    kind = stored._STORED[dtype]
    at = start + entries[name]["data_offsets"][0] + row * width * kind.itemsize
    return stored.widen(np.fromfile(path, kind, width, offset=at), dtype)
