"""Text in lines that are no longer than the terminal is wide; no word is ever cut.

Where nobody looks (a pipe, a file) nothing is wrapped: one entry stays one line, as programs that
read it expect. ``COLUMNS`` says that lines are to be wrapped there too.
"""

import functools
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from stages.errors import counted

if TYPE_CHECKING:
    import jinja2

NARROW, WIDE = 40, 100  # columns: lines are not made shorter, nor longer, for any terminal
_ENDLESS = 1 << 30
_LABEL = re.compile(r"\s*(?:\S+(?: \S+)*?\s{2,})?")  # what stands before the text of a line
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\\.|[^\s'"])+""")  # of a command line


def width(stream: TextIO | None = None) -> int:
    """Columns of a line on this stream (stdout); endless where nobody looks at it."""
    stream = stream or sys.stdout
    if os.environ.get("COLUMNS", "").isdecimal() or stream.isatty():
        return min(max(shutil.get_terminal_size().columns, NARROW), WIDE)
    return _ENDLESS


def wrapped(text: str, columns: int, first: str = "", rest: str | None = None) -> list[str]:
    """A text in lines, broken between words only.

    Args:
        first: what the first line begins with; ``rest``: every other one, spaces if not given.
    """
    rest = " " * len(first) if rest is None else rest
    lines: list[str] = []
    for paragraph in text.split("\n"):
        start = rest if lines else first
        lines += textwrap.wrap(
            paragraph,
            columns,
            initial_indent=start,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [start.rstrip()]
    return lines


def fit(text: str, columns: int | None = None) -> str:
    """Finished lines, each continued below its own text where it is too long.

    Args:
        columns: those of stdout if not given.
    """
    columns = width() if columns is None else columns
    found: list[str] = []
    for line in text.split("\n"):
        if len(line) <= columns:
            found.append(line)
            continue
        label = _LABEL.match(line)
        indent = len(label[0]) if label and len(label[0]) <= columns // 3 else 2
        found += wrapped(line, columns, rest=" " * indent)
    return "\n".join(found)


def entries(rows: Iterable[tuple[str, str]], wide: int, left: int = 0, most: int = 30) -> list[str]:
    """Names with what they are beside them, in two columns.

    Args:
        most: columns that a name may take; beside a longer one stands nothing.
    """
    rows = list(rows)
    if not rows:
        return []
    most = min(most, max(wide - 52, 16)) if wide < _ENDLESS else _ENDLESS
    column = max((len(name) for name, _ in rows if len(name) <= most), default=8) + 2 + left
    lines: list[str] = []
    for name, text in rows:
        head = f"{' ' * left}{name}"
        if not text:
            lines.append(head)
        elif len(head) + 2 <= column:
            lines += wrapped(text, wide, head.ljust(column), " " * column)
        else:
            lines += [head, *wrapped(text, wide, " " * column)]
    return lines


def _with_values(words: Sequence[str]) -> list[str]:
    """The same words, options and their values as one."""
    found: list[str] = []
    for word in words:
        after = bool(found) and found[-1].startswith("-") and " " not in found[-1]
        if after and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def words(command: str) -> list[str]:
    """The words of a command line, each still quoted."""
    return _WORD.findall(command)


def command(words: Sequence[str], columns: int, indent: str = "") -> list[str]:
    """A command that can be pasted, over several lines where it is long.

    Args:
        words: quoted for a shell.
    """
    lines, line = [], indent
    for word in _with_values(words):
        if line.strip() and len(line) + len(word) + 2 > columns:
            lines.append(f"{line} \\")
            line = f"{indent}    "
        line = f"{line} {word}" if line.strip() else f"{line}{word}"
    return [*lines, line]


MOST = 60  # columns that a table lists


def share(column: Mapping[str, Any]) -> str:
    """How many rows have a column (``inputs.sheet``): ``all``, ``31/40``."""
    rows, of = column["rows"], column["of"]
    return "all" if rows == of else f"{rows:,}/{of:,}"


def of_columns(page: Sequence[Mapping[str, Any]], indent: str = "  ") -> Iterator[str]:
    """The columns of a file (``inputs.sheet``) as lines of a table."""
    cells = [("column", "rows", "values", "becomes")]
    for one in page[:MOST]:
        becomes = f"{one['becomes'] or '?'}{' (?)' if one['why'] else ''}"
        cells.append((one["column"], share(one), one["values"], becomes))
    wide = [max(len(row[at]) for row in cells) for at in range(3)]
    for row in cells:
        start = "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=False))
        yield f"{indent}{start}  {row[3]}"
    if len(page) > MOST:
        yield f"{indent}and {len(page) - MOST:,} more"


@functools.cache
def templates(folder: Path, pages: bool = False) -> "jinja2.Environment":
    """The templates of a folder, read once per process. In those of texts nothing is escaped: a
    filter quotes a value for its language, ``sh``, ``json`` (YAML too) or ``py``.

    Args:
        pages: of HTML, where every value is escaped.
    """
    import jinja2  # most commands print a line or two

    made = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not pages,
        autoescape=pages,
        optimized=False,  # folding constants takes longer than it saves
        loader=jinja2.FileSystemLoader(folder),
    )
    spelled = functools.partial(json.dumps, ensure_ascii=False)
    made.filters.update(sh=shlex.quote, json=spelled, py=repr, counted=counted, n="{:,}".format)
    return made
