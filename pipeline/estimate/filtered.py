"""What the filters of a build would leave out of its sampled examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipeline.choice import filters
from pipeline.options.config import Config
from stages.contract import Batch


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
