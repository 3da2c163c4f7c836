"""No fault that is put into our own code is published: see ``mutants.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "mutants.py"


@pytest.mark.slow
@pytest.mark.skipif("MUTANTS" not in os.environ, reason="a hundred builds: set MUTANTS=1")
def test_every_mutant_is_caught_or_has_a_reason() -> None:
    """In a process of its own, which forks for each."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False
    )
    missed = [line for line in done.stdout.splitlines() if line.startswith(("MISSED", "BROKEN"))]
    assert not missed, missed
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("caught  ") >= 46
