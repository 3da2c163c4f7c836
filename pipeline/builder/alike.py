"""What a build would leave out of the sample: by its filters, or for being like something else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.options.config import Config
from pipeline.shards import doubles, filters
from pipeline.shards.examples import most_shared
from stages.contract import Batch
from stages.errors import counted
from stages.overlap import search, signatures


@dataclass(slots=True)
class FilterTally:
    """One filter of one source.

    Attributes:
        of: sampled examples of the source; ``examples``: of these, left out by this filter, and
            ``null``: those of them for which it is null.
    """

    expression: str
    source: str
    of: int = 0
    examples: int = 0
    null: int = 0


@dataclass(slots=True)
class FilteredSample:
    """The filters of all sources, each with what it leaves out of the sample."""

    tallies: dict[tuple[int, int], FilterTally] = field(default_factory=dict)

    def left(self, config: Config, number: int, batch: Batch, names: Sequence[str]) -> Batch:
        """The examples that the filters leave.

        Args:
            config: of the one source; ``number``: its number in the build.
            names: of the lines of the sample, in messages.
        """
        by, null = filters.of_rows(config, batch, names.__getitem__)
        for place, text in enumerate(config.source.filter, 1):
            name = config.sources[0].name
            tally = self.tallies.setdefault((number, place), FilterTally(text, name))
            tally.of += batch.num_rows
            tally.examples += int(np.count_nonzero(by == place))
            tally.null += int(np.count_nonzero(null & (by == place)))
        return batch.filter(pa.array(by == 0)) if by.any() else batch


_FIRST = 3  # that are named


@dataclass
class Alike:
    """Examples of the sample that ask what an evaluation asks, and what the others are like.

    Attributes:
        contaminated: their names.
        names, parts: of the others, where rows are compared with each other: each example's, and
            the signatures of some examples.
    """

    contaminated: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    parts: list[signatures.Signatures] = field(default_factory=list)

    def taken(self, batch: Batch, config: Config, name_of: Callable[[int], str]) -> Batch:
        """The examples of a batch that no evaluation asks for.

        Args:
            name_of: a line.
        """
        if config.plan.decontaminate:
            shared = most_shared(pa.chunked_array([batch.column(search.NAME)]))
            gone = pa.array(shared > config.plan.overlap_share)
            self.contaminated += map(name_of, batch.filter(gone).column("line").to_pylist())
            batch = batch.filter(pa.compute.invert(gone))
        if config.plan.near_dedup:
            self.parts.append(signatures.numbers(batch.column(signatures.ROW)))
            self.names += map(name_of, batch.column("line").to_pylist())
        return batch

    def as_json(self, config: Config) -> dict[str, Any]:
        """What ``plan --json`` has of it: only what was asked for."""
        found: dict[str, Any] = {}
        if config.plan.decontaminate:
            first = self.contaminated[:_FIRST]
            found["contaminated"] = {"examples": len(self.contaminated), "first": first}
        if config.plan.near_dedup:
            every = np.ones(len(self.names), bool)
            alike = doubles.alike(self.parts, every, config.plan.near_dedup)
            first = [self.names[at] for at in alike.dropped[:_FIRST].tolist()]
            found["near_duplicates"] = {"examples": len(alike.dropped), "first": first}
        return found


_WORDS = {
    "contaminated": "evals     {} with a question of an evaluation{}",
    "near_duplicates": "alike     {}, near-duplicates of others{}",
}


def lines(plan: dict[str, Any]) -> list[str]:
    """The same on the page."""
    total = plan["rejects"]["sampled"]
    found = []
    for name, words in _WORDS.items():
        if name in plan:
            count, first = plan[name]["examples"], plan[name]["first"]
            where = f": {', '.join(first)}{' ...' if count > _FIRST else ''}" if first else ""
            found.append(
                words.format(
                    f"{counted(count, 'example')} of {counted(total, 'sampled row')}", where
                )
            )
    return found
