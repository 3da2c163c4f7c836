"""No fault that is put into our own code is published: see ``mutants.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import started

PROGRAM = Path(__file__).parent / "mutants.py"


# What each check of written shards says of the faults that it alone catches, or catches first.
READ_BACK = (
    "as_encoded",  # tokens that are not those of the part, or of the digest
    "as_planned",  # names
    "examples_whole",
    "labels_equal_ids",
    "duplicates_as_declared",
    "counts_match",
    "row_ids_unique",
    "packs_as_planned",
    "hashes_match",  # files that change after they were read
    "shards_open",
    "shards_complete",
    "disagree",  # one of the two that judge is blind
)


@pytest.mark.slow
def test_every_mutant_is_caught_or_has_a_reason() -> None:
    """In a process of its own, which forks for each. Each check of written shards catches its fault
    by name: one that something else stops is not a proof of this check."""
    done = started(sys.executable, PROGRAM)
    missed = [line for line in done.out.splitlines() if line.startswith(("MISSED", "BROKEN"))]
    assert not missed, missed
    assert done.ended().out.count("caught  ") >= 140
    for said in READ_BACK:
        assert said in done.out, said
