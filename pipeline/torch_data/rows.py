"""A split of a build as a map-style dataset: memory-mapped, one row at a time."""

import bisect
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.builds.build import Build, StoredShard
from pipeline.builds.packs import Packs, value_of
from stages.errors import UsageError

Row = dict[str, Any]


def documents(row: Row) -> list[Row]:
    """The examples of a training row, each with its own step positions; a row that is no pack is
    returned as it is."""
    if "seq_lengths" not in row:
        return [row]
    docs, start = [], 0
    for index, length in enumerate(row["seq_lengths"]):
        span = slice(start, start + int(length))
        doc: Row = {n: row[n][span] for n in ("input_ids", "labels", "loss_weights") if n in row}
        if "row_ids" in row:
            doc["row_id"] = row["row_ids"][index]
        if "sources" in row:
            doc["source"] = row["sources"][index]
        if "step_positions" in row:
            at = np.asarray(row["step_positions"])
            inside = (at >= start) & (at < span.stop)
            doc["step_positions"] = at[inside] - start
            labels = row["step_labels"]
            doc["step_labels"] = [labels[i] for i in np.flatnonzero(inside)]
        docs.append(doc)
        start = span.stop
    return docs


def _side(build: Build, split: str) -> tuple[StoredShard, ...]:
    side = build.splits.get(split)
    if side is None:
        where = build.folder / split
        raise UsageError(f"{where} is not a split of a build.", "Give a build's folder.")
    return side.shards


class Rows:
    """Training rows of one split; works with any sampler, distributed ones included.

    Items are dictionaries of numpy arrays (int32 ids and labels), strings and numbers. Only paths
    are pickled: each worker process opens the files itself.

    Args:
        build: its folder, in our columns (no ``--for``, or one that keeps them).
        split: ``train`` or ``test``.
        explode: one item per document of a pack, instead of one per pack.

    Attributes:
        order_hash: changes with any row and with their order; a resumed run compares it.

    Raises:
        UsageError: the folder is not a build, or has no such split.
        DataError: its manifest is damaged.
    """

    def __init__(self, build: str | Path, split: str = "train", *, explode: bool = False) -> None:
        opened = Build.open(build)
        shards = _side(opened, split)
        self._paths = [shard.path for shard in shards]
        self._packs = Packs(opened, split) if opened.manifest.packs else None
        self._tables: list[pa.Table] | None = None
        self.explode = explode
        hashed = [*(shard.record.sha256 for shard in shards), str(explode)]
        hashed += [self._packs.sha256] if self._packs is not None else []
        self.order_hash = hashlib.sha256("\0".join(hashed).encode()).hexdigest()
        self._rows = self._ends()
        self._items = self._documents() if explode else None

    def _ends(self) -> list[int]:
        """Rows up to the end of each shard."""
        if self._packs is not None:
            return [len(self._packs)]
        found: list[int] = np.cumsum([len(table) for table in self._open()]).tolist()
        return found

    def _open(self) -> list[pa.Table]:
        if self._tables is None:
            files = (pa.memory_map(str(path)) for path in self._paths)
            self._tables = [pa.ipc.open_stream(file).read_all() for file in files]
        return self._tables

    def _documents(self) -> list[tuple[int, int]]:
        """Row and place in it of each document."""
        places, row = [], 0
        if self._packs is not None:
            _, sizes = self._packs.members(0, len(self._packs))
            return [(row, place) for row, size in enumerate(sizes) for place in range(size)]
        for table in self._open():
            for lengths in table.column("seq_lengths").to_pylist():
                places += [(row, place) for place in range(len(lengths))]
                row += 1
        return places

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": None}

    def __len__(self) -> int:
        if self._items is not None:
            return len(self._items)
        return self._rows[-1] if self._rows else 0

    def _row(self, index: int) -> Row:
        if self._packs is not None:
            return self._packs[index]
        shard = bisect.bisect_right(self._rows, index)  # _rows: rows up to the end of each shard
        table = self._open()[shard]
        place = index - (self._rows[shard - 1] if shard else 0)
        row = table.slice(place, 1)
        return {name: value_of(row.column(name)[0]) for name in table.schema.names}

    def __getitem__(self, index: int) -> Row:
        """One training row (or, exploded, one document).

        Raises:
            IndexError: there are fewer.
        """
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"row {index} of {count}")
        index %= count
        if self._items is None:
            return self._row(index)
        row, place = self._items[index]
        return documents(self._row(row))[place]

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))


# The order of a run: shuffled by seed and epoch, shared among ranks, resumable.


class Order:
    """A sampler for one rank. All ranks get equally many rows; rows left over are dropped.

    ``state_dict`` has the progress of an epoch and a hash of the rows. ``load_state_dict`` refuses
    a build with other rows or another order, so that no run resumes on other data.

    Args:
        seed: of the shuffle; ``shuffle=False`` keeps the stored order.
        rank, world: this process, and how many there are.
    """

    def __init__(
        self, rows: Rows, *, seed: int = 0, shuffle: bool = True, rank: int = 0, world: int = 1
    ) -> None:
        self._rows, self._seed, self._shuffle = rows, seed, shuffle
        self._rank, self._world = rank, world
        self._epoch = 0
        self._done = 0  # rows of this epoch that all ranks together have taken

    def set_epoch(self, epoch: int) -> None:
        """Start another epoch, from its beginning."""
        self._epoch, self._done = epoch, 0

    def __len__(self) -> int:
        return len(self._rows) // self._world - self._done // self._world

    def __iter__(self) -> Iterator[int]:
        count = len(self._rows) // self._world * self._world
        order = torch.arange(len(self._rows))
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(len(self._rows), generator=generator)
        # Ranks take turns in one order, so another number of ranks can go on from the same place.
        for index in order[self._done : count][self._rank :: self._world].tolist():
            self._done += self._world
            yield index
        self.set_epoch(self._epoch + 1)

    def state_dict(self, done: int | None = None) -> dict[str, Any]:
        """How far the epoch has come.

        Args:
            done: rows of this epoch that all ranks have trained on; without it, those that this
                sampler has given out, which loaders with workers fetch in advance.
        """
        return {
            "order_hash": self._rows.order_hash,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "epoch": self._epoch,
            "done": self._done if done is None else done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken, with any number of ranks.

        Raises:
            UsageError: the rows, their order or the seed are others.
        """
        own = self.state_dict()
        for name in ("order_hash", "seed", "shuffle"):
            if state[name] != own[name]:
                raise UsageError(
                    f"The checkpoint is of another build or order: {name} differs.",
                    "Resume on the build it began with, or start again.",
                )
        self._epoch, self._done = int(state["epoch"]), int(state["done"])
