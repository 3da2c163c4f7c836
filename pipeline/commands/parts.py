"""``pipeline parts``: the parts of a build that one rank of a job array makes.

They are the first phase of a build in a job array; pipeline shards or pipeline commit is the next.
"""

from __future__ import annotations

from pipeline.commands import _ranks

COMMAND = _ranks.of_share(
    "parts",
    "Make one share of a build's parts, in one of several runs on as many machines.",
    "The first of two runs, which may be on two machines",
)
