"""No fault that is put into our own code is published: see ``mutants.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_fault_can_be_put_in() -> None:
    """What a mutant changes is still there; else it would be caught for that alone."""
    command = [sys.executable, str(PROGRAM), "--misfits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.slow
def test_each_check_of_written_shards_catches_its_fault() -> None:
    """By name: a fault that something else stops is not a proof of this check."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *READ_BACK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in READ_BACK:
        assert said in done.stdout, said


@pytest.mark.slow
def test_every_mutant_is_caught_or_has_a_reason() -> None:
    """In a process of its own, which forks for each."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False
    )
    missed = [line for line in done.stdout.splitlines() if line.startswith(("MISSED", "BROKEN"))]
    assert not missed, missed
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("caught  ") >= 140
