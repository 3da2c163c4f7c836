"""Draws docs/pictures/progress-*.svg and screen-*.svg: what commands show when they are run.

    python docs/terminal_pictures.py

It writes 60,000 generated rows, of which some are refused, to a temporary folder, builds them on a
terminal of 80 columns, and draws two moments of what was shown there: in the midst of the rows, and
the end. The screens are those of commands on the sample data.
"""

import fcntl
import io
import json
import os
import pty
import re
import shlex
import shutil
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
_STEPS = ("sample_data/prm/math_shepherd.jsonl", "--model", "qwen2-1.5b")
SCREENS = {
    "screen-start": ("pipeline",),
    "screen-help": ("pipeline", "show", "--help"),
    "screen-plan": ("pipeline", "plan", "--task", "prm", *_STEPS),
    "screen-doctor": ("pipeline", "doctor", "--model", "qwen2-1.5b", "--stop", "<search>"),
    "screen-run": ("pipeline", "run", "prm", *_STEPS, "-o", "prm"),
    "screen-show": ("pipeline", "show", "prm", "--row", "math_shepherd.jsonl:1"),
}
# Each frame begins by going back over the one before.
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


def shown(folder: Path, command: tuple[str, ...] = COMMAND) -> str:
    """All that a command writes to its terminal."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "XDG_CACHE_HOME": str(folder / "cache")}
    program = str(Path(sys.executable).parent / command[0])
    with subprocess.Popen(
        [program, *command[1:]], cwd=folder, env=variables, stdout=theirs, stderr=theirs
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


def draw(frame: str, name: str, command: tuple[str, ...] = COMMAND) -> None:
    """One frame as a picture, below the command."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {shlex.join(command)}\n{frame.strip()}"))
    PICTURES.mkdir(exist_ok=True)
    svg = console.export_svg(title=" ".join(command[:2]), unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # nothing from the network
    (PICTURES / f"{name}.svg").write_text(svg, "utf-8")


def main() -> None:
    """Build, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "chat.jsonl")
        every = frames(shown(Path(folder)))
        shutil.copytree(ROOT / "sample_data", Path(folder) / "sample_data")
        for name, command in SCREENS.items():
            draw(frames(shown(Path(folder), command))[-1], name, command)
    encoding = [one for one in every if "rows/s" in one and "plan" not in one]
    draw(encoding[len(encoding) // 2], "progress-encoding")
    draw(every[-1], "progress-end")


if __name__ == "__main__":
    main()
