"""One container format per file: each provides READER.

A reader is named by its container, or by ``container/settings`` where the options of a source say
how its files are read (``csv/{"delimiter": ";"}``).
"""

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from stages import catalog
from stages.contract import Reader, Record, Split

if TYPE_CHECKING:
    from stages.readers._delimited import Delimited

MEMBERS = {
    "csv": "stages.readers._delimited:CSV",
    "hf": "stages.readers.arrow:HF",
    "json": "stages.readers.jsonl:JSON",
    "tsv": "stages.readers._delimited:TSV",
}


def load(name: str) -> Reader:
    """The reader of this name."""
    container, slash, settings = name.partition("/")
    reader: Reader = catalog.load(__name__, container, "READER")
    return cast("Delimited", reader).told(settings) if slash else reader


def in_words(name: str) -> str:
    """How a reader reads files, where options or suffixes decide it; empty for the others."""
    words: str = getattr(load(name), "words", "")
    return words


@functools.cache
def suffixes() -> dict[str, str]:
    """Reader name by file suffix."""
    return {suffix: name for name in catalog.names(__name__) for suffix in load(name).suffixes}


def of_path(path: str) -> str | None:
    """The name of the reader that a file's suffix asks for; None when there is none."""
    known = suffixes()
    fitting = [suffix for suffix in known if path.lower().endswith(suffix)]
    return known[max(fitting, key=len)] if fitting else None


def numbered(splits: Iterable[Split]) -> Iterator[tuple[int, Record]]:
    """Every row of a file with its line there, from 1."""
    first = 1
    for split in splits:
        count = 0
        for lines in load(split.reader).read(split):
            yield from ((first + record.line, record) for record in lines.records)
            count += lines.lines
        first += count
