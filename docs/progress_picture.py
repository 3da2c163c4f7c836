"""Draws docs/pictures/progress-*.svg: what a build shows on a terminal, from a build that is run.

    python docs/progress_picture.py

It writes 60,000 generated rows, of which some are refused, to a temporary folder, builds them on a
terminal of 80 columns, and draws two moments of what was shown there: in the midst of the rows, and
the end.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80
ROWS, BAD = 60_000, 400
COMMAND = ("pipeline", "run", "sft", "chat.jsonl", "--model", "qwen2-1.5b", "-o", "out")
# Rich begins each frame by going back over the one before.
_BACK = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")


def write_rows(path: Path) -> None:
    """The rows; every so many have an answer without text."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.rows import rows

    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows("english", "messages", ROWS)):
            if number % (ROWS // BAD) == 0:
                row["messages"][-1]["content"] = ""
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def shown(folder: Path) -> str:
    """All that the build writes to its terminal."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "XDG_CACHE_HOME": str(folder / "cache")}
    program = str(Path(sys.executable).parent / COMMAND[0])
    with subprocess.Popen(
        [program, *COMMAND[1:]], cwd=folder, env=variables, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        found = bytearray()
        try:
            while more := os.read(mine, 65536):
                found += more
        except OSError:  # the other end is closed
            pass
    os.close(mine)
    return found.decode()


def frames(text: str) -> list[str]:
    """The frames, one by one; the last one has the summary below it."""
    lines = re.sub(r"\x1b\[\?25[hl]", "", text.replace("\r\n", "\n"))
    return _BACK.split(lines)


def draw(frame: str, name: str) -> None:
    """One frame as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {' '.join(COMMAND)}\n{frame.strip()}"))
    PICTURES.mkdir(exist_ok=True)
    svg = console.export_svg(title="pipeline run", unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # nothing from the network
    (PICTURES / f"{name}.svg").write_text(svg, "utf-8")


def main() -> None:
    """Build, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "chat.jsonl")
        every = frames(shown(Path(folder)))
    encoding = [one for one in every if "rows/s" in one and "plan" not in one]
    draw(encoding[len(encoding) // 2], "progress-encoding")
    draw(every[-1], "progress-end")


if __name__ == "__main__":
    main()
