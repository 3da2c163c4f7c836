"""The corpus of shapes: small inputs as people have them, and what must become of each.

A shape stands in a file of ``tests/corpus``, one file a subject:

    [[shape]]
    name = "verdict_beside_turns"     unique in its file
    task = "sft"
    rows = '''...'''                  lines of JSON, as they stand in the file
    file = "rows.jsonl"               its ending says what the rows are written as
    options = ""                      given from the start
    files = {"notes.txt" = "..."}     other files; with ``data = "."`` all are the input
    says = "rates the answers"        in the message of a shape that is stopped
    built = [["user: q", "assistant! a"]]
    unread = ["meta"]                 columns that nothing reads
    refused = {tie = 1}               rows by code; the build is told to allow none
    lost = {tie = 1}                  examples by code, of rows that have others
    status = 2                        where that is not 3 for what is stopped

    [[shape.answers]]                 what becomes of it with an option that the message prints
    add = "--where label=true"
    built = [...]

Turns of ``built`` are ``role: text`` for context and ``role! text`` for what is trained; pairs are
``user``, ``chosen``, ``rejected`` and ``margin``; solutions are ``problem`` and steps, each under
its rating (``1``, ``0``, ``0.5``, ``-`` for none). ``~`` stands where only a part of the trained
text (``trained~``) or of the context (``context~``) is given.
"""

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

CORPUS = Path(__file__).parent / "corpus"
_SHAPE = {"name", "task", "rows", "file", "options", "files", "data", "encoding", "models"}


@dataclass(frozen=True)
class Outcome:
    """What must become of an input.

    Attributes:
        says: what the message of a stopped build holds; None where it is built.
        built: its examples; ``unread``: columns that nothing reads; ``refused``: rows by code.
        answers: what becomes of it with each option that the message prints.
        status: of ``plan`` and ``run``.
        lost: examples by code, of rows that have others.
    """

    says: str | None = None
    built: list[list[str]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    answers: "dict[str, Outcome]" = field(default_factory=dict)
    status: int = 0
    lost: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """One input and what must become of it."""

    subject: str
    name: str
    task: str
    rows: str
    outcome: Outcome
    file: str = "rows.jsonl"
    options: str = ""
    files: dict[str, str] = field(default_factory=dict)
    data: str = ""
    encoding: str = "utf-8"
    models: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write the input; the path that a command is given."""
        for name, text in self.files.items():
            (folder / name).write_text(text, "utf-8")
        path = folder / self.file
        if path.suffix in (".parquet", ".arrow"):
            table = pa.Table.from_pylist([json.loads(line) for line in self.rows.splitlines()])
            if path.suffix == ".parquet":
                parquet.write_table(table, path)
            else:
                with pa.ipc.new_file(path, table.schema) as out:
                    out.write_table(table)
        elif path.suffix == ".json":
            path.write_text(f"[{','.join(self.rows.splitlines())}]", self.encoding)
        else:
            path.write_text(self.rows, self.encoding)
        return folder / self.data if self.data else path


def _outcome(said: dict[str, Any]) -> Outcome:
    answers = {one.pop("add"): _outcome(one) for one in said.pop("answers", [])}
    status = 3 if "says" in said or "refused" in said else 0
    return Outcome(**{"status": status, **said}, answers=answers)


def _shape(subject: str, said: dict[str, Any]) -> Shape:
    what = _outcome({key: value for key, value in said.items() if key not in _SHAPE})
    given = {key: value for key, value in said.items() if key in _SHAPE}
    given["models"] = tuple(given.get("models", ()))
    return Shape(subject, outcome=what, **given)


def corpus() -> dict[str, Shape]:
    """Every shape, by ``subject/name``."""
    found: dict[str, Shape] = {}
    for path in sorted(CORPUS.glob("*.toml")):
        for said in tomllib.loads(path.read_text("utf-8"))["shape"]:
            key = f"{path.stem}/{said['name']}"
            assert key not in found, f"{key} stands there twice"
            found[key] = _shape(path.stem, said)
    return found
