"""The part of Great Expectations that judges shipped suites judges as the whole library does."""

import json
import sys

import pytest
from support import started

_JUDGE = """
import json, sys, warnings
import pyarrow as pa
from dataclasses import asdict
from expectations import gx_library as library
if {part}:
    library.for_shipped_suites()
from expectations.gx_runner import Runner
from expectations.gx_suites import DeclaredExpectation, Suite
declared = [
    (
        "expect_column_values_to_be_between",
        {{"column": "n", "min_value": 0, "max_value": {{"$PARAMETER": "most"}}}},
    ),
    (
        "expect_column_pair_values_to_be_equal",
        {{"column_A": "n", "column_B": "m", "ignore_row_if": "neither"}},
    ),
    ("expect_column_values_to_be_in_set", {{"column": "m", "value_set": [1, 2]}}),
    ("expect_column_sum_to_be_between", {{"column": "m", "max_value": 6}}),
]
made = tuple(DeclaredExpectation(t, t, k, "critical", "why") for t, k in declared)
suite = Suite("shipped.x", "x", made)
runner = Runner()
frame = pa.table({{"n": [1, 2, 9], "m": [1, 3, 9]}})
judged = runner.run(suite, parameters={{"most": 8}}, frame=frame)
modules = "multiprocessing.synchronize" if {part} else None, len(sys.modules)
assert modules[0] not in sys.modules  # a lock of the system, which outlives a killed process
found = [asdict(check) | {{"rows": rows}} for check, rows in judged]
print(json.dumps([found, len(library.registry()), modules[1]]))
"""


def _output(code: str) -> str:
    return started(sys.executable, "-c", code).ended().out


@pytest.mark.slow
def test_the_part_judges_as_the_whole() -> None:
    """Types that shipped suites use, and types that an invariant from elsewhere may name."""
    (part, registered, modules), (whole, every, most) = (
        json.loads(_output(_JUDGE.format(part=part))) for part in (True, False)
    )
    assert part == whole
    assert [judgement["broken"] for judgement in part] == [1, 1, 2, 1]
    assert registered < every  # so the part was imported, and not the whole in its place
    assert modules < most


_KEYS = """
import json
from expectations import gx_library as library
library.for_shipped_suites() if {part} else library.great_expectations()
from great_expectations.core.id_dict import IDDict
values = [1, True, None, "ein größerer", 2.5, float("nan"), (1, 2), {{"at": range(2)}}]
print(json.dumps([IDDict(column="n", value=value, most=3).to_id() for value in values]))
"""


@pytest.mark.slow
def test_keys_of_metrics_are_those_of_the_whole() -> None:
    """Of plain values, and of those that JSON cannot hold."""
    part, whole = (json.loads(_output(_KEYS.format(part=part))) for part in (True, False))
    assert part == whole
    assert len(set(part)) == 7  # nan is null in JSON


@pytest.mark.slow
def test_every_expectation_is_imported_when_it_is_asked_for() -> None:
    names = "import json; from expectations import gx_library as library; print(json.dumps([*{}]))"
    every = _output(names.format("library.registry()"))
    asked = f"map(lambda name: library.of_type(name).__name__, {json.loads(every)})"
    prepared = f"library.for_shipped_suites() or {asked}"
    assert len(json.loads(_output(names.format(f"({prepared})")))) == len(json.loads(every)) > 40
