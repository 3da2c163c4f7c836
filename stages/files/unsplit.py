"""The rows of a file that is read in one piece, up to where it is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from stages.contract import Lines, Split
from stages.errors import ContainerError
from stages.files import bounds, content


def rows(split: Split, read: Callable[[IO[bytes], str], Iterator[Lines]]) -> Iterator[Lines]:
    """What ``read`` finds in the open file, which it calls by a name for messages.

    Of a damaged file that is to be salvaged, the rows before the damage, and then what it is.

    Raises:
        ContainerError: the file is damaged or not what its name says, and is not to be salvaged.
    """
    version = content.version_of(split)
    with content.opened(version, split.salvage) as file:
        try:
            batches = read(file, content.name_in_messages(split))
            yield from bounds.counted(batches, split.path, version.size)
        except ContainerError as error:
            if not split.salvage:
                raise
            yield Lines([], 0, content.damage_of(file) or error.what)
            return
        if damage := content.damage_of(file):
            yield Lines([], 0, damage)
