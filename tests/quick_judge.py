"""The whole of Great Expectations judges as fast as the part of it that ordinary builds import.

A build that is judged in a process of its own gets that part, which works a few things out once
(``library.for_shipped_suites``). Where thousands of builds share one process it has the whole, for
suites of users and pages: here that gets the same. ``test_gate_library.py`` has that it judges
alike.
"""

from __future__ import annotations

import functools
import sys

from expectations.gx import library

_PACKAGE = "great_expectations"


@functools.cache
def _hasten() -> None:
    expectation = sys.modules[f"{_PACKAGE}.expectations.expectation"]
    vars(expectation)["camel_to_snake"] = functools.cache(vars(expectation)["camel_to_snake"])
    library._configured_once(vars(expectation)["Expectation"])
    library._plain_as_it_is(sys.modules[f"{_PACKAGE}.core.id_dict"])


def hasten() -> None:
    """Have it judge faster from now on, if it is imported."""
    if f"{_PACKAGE}.expectations.expectation" in sys.modules:
        _hasten()
