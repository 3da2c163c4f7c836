"""No fault that is put into our own code is published: see ``mutants.py``."""

import sys
import tomllib
from pathlib import Path

import pytest
from support import started, sweep

PROGRAM = Path(__file__).parent / "mutants.py"


TOLD = tomllib.loads(PROGRAM.with_suffix(".toml").read_text("utf-8"))


@pytest.mark.parametrize("check", TOLD["read_back"])
def test_each_check_of_written_shards_has_a_fault_that_it_alone_catches(check):
    """What something else stops first is not a proof of this check."""
    assert any(check in mutant.get("by", "") for mutant in TOLD["mutant"])


@sweep(1)  # the longest test: it comes first
@pytest.mark.parametrize("share", ["1/5", "2/5", "3/5", "4/5", "5/5"])
def test_every_mutant_is_caught_or_has_a_reason(share):
    """In a process of its own, which forks for each."""
    done = started(sys.executable, PROGRAM, share)
    missed = [line for line in done.out.splitlines() if line.startswith(("MISSED", "BROKEN"))]
    assert not missed, missed
    assert done.ended().out.count("caught  ") >= 28
