"""Every shard is, byte for byte, the file that was measured."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import SHARD, Invariant

INVARIANT = Invariant(
    name="hashes_match",
    why="a file that changed after it was judged was not judged",
    checks=(none("hash_differs"),),
    breaks={"hash_differs": 1},
    level=SHARD,
)
