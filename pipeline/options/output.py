"""Where a build goes: a folder of this machine, or a place in a store, beside a folder here; and
how many versions the builds of a recipe keep there, where neither it nor a flag says.

A recipe is there to be built again, so its builds are versions; ``pipeline run`` and a call make
one build. An output that is one build already stays one: trainers read it by that path.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pipeline.manifest.manifest import MANIFEST
from pipeline.secrets import redacted
from pipeline.stores import address_of
from pipeline.stores.objects import default_cache

OUTPUTS = "outputs"  # in the cache: where builds for stores are made
SHARED = "shared"  # in the cache: a folder for each cache in a store


class Output:
    """The part of ``RunOptions`` that says where.

    ``output`` is what was given; pathlib has dropped a slash of an address, which ``address`` has.
    """

    __slots__ = ()
    output: Path
    cache_dir: Path
    single_writer: bool

    @property
    def address(self) -> str:
        """The address of an output in a store; empty for a folder."""
        return address_of(self.output)

    @property
    def shown(self) -> str:
        """The output, as the user knows it, without keys and signatures."""
        return redacted(self.address) if self.address else str(self.output)

    @property
    def place(self) -> Path:
        """The output on this machine: of one in a store, the folder that it is made beside."""
        if not self.address:
            return self.output
        name = hashlib.sha256(self.address.encode()).hexdigest()[:32]
        return self.cache / OUTPUTS / name

    @property
    def cache(self) -> Path:
        """The cache of this machine."""
        return local_cache(self.cache_dir)

    @property
    def shared(self) -> str:
        """The address of parts that machines share; empty where the cache is a folder."""
        address = address_of(self.cache_dir)
        return f"{address.rstrip('/')}/parts" if address else ""


def local_cache(cache_dir: Path) -> Path:
    """The folder of this machine for a cache: itself, or that of the copies from a store."""
    address = address_of(cache_dir)
    if not address:
        return cache_dir
    return default_cache() / SHARED / hashlib.sha256(address.encode()).hexdigest()[:32]


BY_RECIPE = 7


def versions_where_unsaid(output: Path) -> tuple[int, tuple[str, ...]]:
    """The number for an output, 0 where that is one build; and notes for the user about it."""
    # What cannot be looked at is no build here; to publish there fails with the reason.
    if not os.path.lexists(output / MANIFEST):
        return BY_RECIPE, ()
    note = (
        f"{output} is one build and stays one: each build of the recipe replaces it. To keep "
        f"versions, give a new output (-o); keep = 0 in the recipe says that one build is meant."
    )
    return 0, (note,)
