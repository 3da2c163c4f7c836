"""sha256 of files. What a build names and compares is the bytes of files, and it hashes them here.

What is hashed while it is read for another reason stays with its reader: see ``file_version``.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import IO

from stages.files import regular

_BLOCK = 1 << 20


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes, which are read in blocks.

    Raises:
        OSError: it cannot be read.
    """
    with regular.required(Path(path)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copied(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy a stream to its end, and give the hash of what was copied: it cannot be read again."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


@functools.lru_cache(maxsize=4)
def of_content(content: bytes) -> str:
    """Hash of a file that is in memory as a whole, a ``tokenizer.json`` for instance.

    It is asked for often, and computed once: Python keeps by itself which bytes it has seen.
    """
    return hashlib.sha256(content).hexdigest()
