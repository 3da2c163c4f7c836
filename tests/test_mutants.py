"""No fault that is put into our own code is published: see ``mutants.py``."""

import sys
import tomllib
from pathlib import Path

import pytest
from support import started

PROGRAM = Path(__file__).parent / "mutants.py"


READ_BACK: list[str] = tomllib.loads(PROGRAM.with_suffix(".toml").read_text("utf-8"))["read_back"]


@pytest.mark.slow
@pytest.mark.sweep(1)  # the longest test: it comes first
def test_every_mutant_is_caught_or_has_a_reason():
    """In a process of its own, which forks for each. Each check of written shards catches its fault
    by name: one that something else stops is not a proof of this check."""
    done = started(sys.executable, PROGRAM)
    missed = [line for line in done.out.splitlines() if line.startswith(("MISSED", "BROKEN"))]
    assert not missed, missed
    assert done.ended().out.count("caught  ") >= 140
    for said in READ_BACK:
        assert said in done.out, said
