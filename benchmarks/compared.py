"""Rows that are compared with Hugging Face: ids and labels for each built-in vocabulary."""

import ast
import os
import re
import subprocess
import sys

from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.workplace import ROOT, Workplace

_TEST = "tests/test_adversarial.py::test_ids_and_labels_are_those_of_huggingface"
_COUNTED = re.compile(r"^\.?(\S+): (\{.*\})$", re.MULTILINE)  # what the test says of a vocabulary


def compared(count: int) -> Cell:
    """So many generated rows for each built-in vocabulary.

    Raises:
        subprocess.CalledProcessError: a row differs.
    """

    def make(place: Workplace) -> Content:
        words = [sys.executable, "-m", "pytest", "-m", "slow", "-s", "--timeout", "0", _TEST]
        wide = {**os.environ, "WIDE": "1", "PARITY_ROWS": str(count)}
        done = subprocess.run(
            words, cwd=ROOT, env=wide, stdout=subprocess.PIPE, text=True, check=True
        )
        return {name: ast.literal_eval(said) for name, said in _COUNTED.findall(done.stdout)}

    return Cell("compared", {"rows": count}, make)
