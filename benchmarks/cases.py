"""What becomes of real input files: a table of every one, built as it is or with the flag it needs.

POSTTRAIN_CASES=folder python benchmarks/cases.py [-o table.md]

Each folder ``<task>/<set>`` is built for its task as a whole, or file by file where the set holds
files of several kinds, first without a flag. Where that is refused and the message names a flag,
the build is tried once more with it. The table holds counts and codes, and nothing of the data.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "qwen2.5-1.5b"  # its template prints tools
SUFFIXES = (".json", ".jsonl", ".parquet", ".arrow")
BESIDE = ("dataset_info.json", "state.json", "dataset_dict.json")
_FLAG = re.compile(
    r"(--already-templated"
    r"|--(?:format|reasoning-in|map|ignore|where|prompt-separator) (?!\S*COLUMN)[^\s.;,)]+)"
)
Command = Callable[..., tuple[int, str, str]]
HEAD = ("input", "flag", "exit", "detected", "rows", "used", "refused", "examples", "reasons")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        status: exit status of the last try.
        flag: what the first message named and the second try used; "" where none was needed.
        manifest: of the build; empty where it was refused.
        said: the first line of the refusal.
    """

    name: str
    flag: str
    status: int
    manifest: dict[str, Any]
    said: str

    def cells(self) -> list[str]:
        """The line as text."""
        start = [self.name, f"`{self.flag}`" if self.flag else "", str(self.status)]
        if not self.manifest:
            return [*start, "", "", "", "", "", self.said]
        rows, made = self.manifest["rows"], self.manifest["examples"]
        reasons = [f"{n} {code}" for code, n in rows["rejected_by_code"].items()]
        reasons += [f"({n} {note})" for note, n in rows["notes"].items()]
        counts = (rows["in"], rows["used"], rows["rejected"], made["kept"])
        return [*start, self.manifest["format"], *map(str, counts), ", ".join(reasons)]


def inputs(root: Path) -> list[tuple[str, Path]]:
    """(task, file or folder) of every case: files, but a saved dataset as one folder."""
    found = []
    for task in ("sft", "rm", "prm"):
        for folder in sorted(p for p in (root / task).iterdir() if p.is_dir()):
            saved = sorted(folder.rglob("dataset_dict.json"))
            files = [p for p in sorted(folder.rglob("*")) if p.suffix in SUFFIXES]
            paths = [p.parent for p in saved] or [p for p in files if p.name not in BESIDE]
            found += [(task, path) for path in paths]
    return found


def process(*words: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of the command with these arguments."""
    command = [str(Path(sys.executable).parent / "pipeline"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def _run(
    start: Command, task: str, path: Path, flags: list[str], folder: Path
) -> tuple[int, str, dict[str, Any]]:
    words = ["run", task, str(path), "--model", MODEL, "--max-length", "65536"]
    words += ["-o", str(folder / "out"), "--layout", "ragged", "--quiet", "--json", *flags]
    status, out, error = start(*words)
    said = json.loads(out)  # one object, however the build ends
    return status, error, said["manifest"] if status == 0 else {}


def _summary(error: str, root: Path) -> str:
    """The message's first line, without the path; of a refusal row by row, the codes."""
    codes = re.findall(r"^ +(\d+ \w+):", error, re.MULTILINE)
    first = error.splitlines()[0] if error else ""
    first = re.sub(rf"{re.escape(str(root))}/\S*?([^/\s]+?)(?=[: ])", r"\1", first)
    return first.removeprefix("error: ") + (f" {', '.join(codes)}" if codes else "")


def build(task: str, path: Path, root: Path, start: Command = process) -> Row:
    """Build one case, with the flag that its refusal names where there is one.

    Args:
        start: runs a command as ``process`` does.
    """
    name = path.relative_to(root).as_posix()
    with tempfile.TemporaryDirectory() as folder:
        status, error, manifest = _run(start, task, path, [], Path(folder))
        flag = _FLAG.search(error) if status == 3 else None
        if flag is None:
            return Row(name, "", status, manifest, _summary(error, root))
        status, error, manifest = _run(start, task, path, flag[0].split(), Path(folder))
        return Row(name, flag[0], status, manifest, _summary(error, root))


def table(rows: list[Row]) -> str:
    """The page."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)]) + "\n"


def main() -> None:
    """Build every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    root = Path(os.environ["POSTTRAIN_CASES"])
    page = table([build(task, path, root) for task, path in inputs(root)])
    if given.output:
        given.output.write_text(page, "utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main()
