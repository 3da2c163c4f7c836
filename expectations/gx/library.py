"""The import of Great Expectations, as late and as fast as possible; only this file imports it.

The import takes seconds, most of them for scipy and altair, which only one of its fifty
expectations and its pages need. It gets both as modules that load when one of their attributes is
used. Workers, ``--help`` and ``plan`` do not import it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_ON_USE = ("scipy.stats", "altair")


class _Later:
    """An import hook that delays loading the heavy modules until their first use."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _ON_USE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def _lightly() -> Iterator[None]:
    finder: Any = _Later
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations of its dependencies
            yield
    finally:
        sys.meta_path.remove(finder)


@functools.cache
def great_expectations() -> Any:
    """The package, imported once.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
    with _lightly():
        return importlib.import_module("great_expectations")


def registry() -> dict[str, type]:
    """Every expectation that can be declared, by type."""
    great_expectations()
    registered: dict[str, type] = importlib.import_module(
        "great_expectations.expectations.registry"
    )._registered_expectations
    return registered
