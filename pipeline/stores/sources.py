"""Finds input data (files, URLs, standard input, the hub) and says which versions there are.

Workers read ranges of a version, wherever it lies, and no bytes of another one. What gives no
ranges or no version is fetched whole into the cache first, and the build reads that copy.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from stages.files.file_version import FileVersion


@dataclass(frozen=True, slots=True)
class Located:
    """One file of the input.

    Attributes:
        path: on this machine, or as messages have it.
        parts: its full name in pieces. Row ids have the shortest end of it that no other input has.
        origin: where it came from, without passwords, keys or signatures.
        reader: the name of its reader, where its suffix does not say so.
        source: the number of the build's source that it belongs to, from 0.
        version: of a file that is not on this machine.
    """

    path: str
    parts: tuple[str, ...]
    origin: str
    reader: str | None = None
    source: int = 0
    version: FileVersion | None = None

    @property
    def identity(self) -> str:
        """Equal where two names are of one file."""
        if self.version is not None and self.version.stored is not None:
            return self.version.stored.key
        return os.path.realpath(self.path)


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """The files that an argument of the command line stands for, in a stable order.

    Raises:
        UsageError: there is nothing there.
        SurroundingsError: it cannot be fetched.
    """
    from pipeline.stores import hub, local

    if argument == "-":
        from pipeline.stores import remote

        return remote.standard_input(cache_dir)
    if "://" in argument:
        from pipeline.stores import remote

        return remote.locate(argument, cache_dir)
    if hub.is_dataset_id(argument) and not os.path.lexists(argument):
        return hub.locate(argument, cache_dir)
    return local.locate(argument)
