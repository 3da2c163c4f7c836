"""The order of a run: shuffled by seed and epoch, shared among ranks, resumable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pipeline.torch_data.rows import Rows
from stages.errors import UsageError


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
        mine = order[self._done : count][self._rank :: self._world].tolist()
        for index in mine:
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
