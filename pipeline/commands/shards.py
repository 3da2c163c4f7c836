"""``pipeline shards``: the shards of a build that one rank of a job array makes.

They are the second phase of a build in a job array, which may be left out, then pipeline commit.
"""

from __future__ import annotations

from pipeline.commands import _ranks

COMMAND = _ranks.of_share(
    "shards",
    "Make one share of a build's shards, after all runs of pipeline parts.",
    "The first of two runs, after all runs of pipeline parts",
)
