"""The import of Great Expectations, as late and as fast as possible; only this file imports it.

The import takes seconds. Most of them are for scipy and altair, which only one of its fifty
expectations and its pages need: it gets both as modules that load when one of their attributes is
used. A process that judges shipped suites alone imports a part of the library: stand-ins take the
places of databases and clouds, and of expectations until one of that type is asked for. Workers,
``--help`` and ``plan`` do not import it.
"""

import functools
import gc
import importlib
import importlib.util
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PACKAGE = "great_expectations"
_ON_USE = ("scipy.stats", "altair", "jsonschema", "requests")
_NOT_NEEDED = ("boto3", "botocore")  # imported where installed, to read data from stores
_PLAIN = frozenset([str, int, bool, type(None)])
_TYPES = f"{_PACKAGE}.expectations.core"
_SOURCES = re.escape(f"{_PACKAGE}.datasource.fluent.")
_READERS = f"{_PACKAGE}.datasource.fluent.dynamic_pandas"
_LEFT_OUT = re.compile(
    rf"{re.escape(_TYPES)}\.expect_\w+|{_SOURCES}(fabric|(?!pandas_datasource)\w+_datasource)"
    rf"|{re.escape(_READERS)}"
    rf"|{_PACKAGE}\.(render\.view|metrics(\..+)?|data_context\.store\.gx_cloud_store_backend)"
)


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


class _StandIn:
    """An import hook and loader that gives modules whose every attribute is an empty class."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _NOT_NEEDED:
            raise ModuleNotFoundError(name)
        loader: Any = cls
        return ModuleSpec(name, loader, is_package=True) if _LEFT_OUT.fullmatch(name) else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """The usual module object."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        @functools.cache
        def attribute(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__module__": module.__name__})

        vars(module)["__getattr__"] = attribute
        if module.__name__ == _READERS:  # makes a model of every function that reads files
            vars(module)["_generate_pandas_data_asset_models"] = lambda *_, **__: {}


@contextmanager
def _hooks(*finders: Any) -> Iterator[None]:
    """Imports go through these first; meanwhile nothing is collected, since all of it stays."""
    sys.meta_path[:0] = finders
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations of its dependencies
            yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
        if collecting:
            gc.enable()


@functools.cache
def great_expectations() -> Any:
    """The package, imported once.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
    with _hooks(_Later):
        package = importlib.import_module("great_expectations")
        expectation = importlib.import_module(f"{_PACKAGE}.expectations.expectation")
        if hasattr(expectation, "camel_to_snake"):  # it asks for a few names thousands of times
            vars(expectation)["camel_to_snake"] = functools.cache(expectation.camel_to_snake)
        _configured_once(getattr(expectation, "Expectation", None))
        _plain_as_it_is(importlib.import_module(f"{_PACKAGE}.core.id_dict"))
    return package


def for_shipped_suites() -> None:
    """Import what shipped suites need of it, in a process that judges nothing else.

    Raises:
        Exception: whatever a version of the library raises that needs more of itself. Then another
            process must judge, since the library cannot be imported twice.
    """
    with _hooks(_StandIn):
        great_expectations()
    # Its progress bars, which are off, take a lock of the system otherwise: a process that is
    # killed leaves that behind.
    importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())


def _plain_as_it_is(module: ModuleType) -> None:
    """Have keys of metrics made without a look into each value for what JSON cannot hold.

    The library makes thousands of them for a few rows, of strings and whole numbers.
    """
    converted = getattr(module, "convert_to_json_serializable", None)
    if converted is None:
        return

    def convert(data: Any) -> Any:
        plain = type(data) is dict and all(type(value) in _PLAIN for value in data.values())
        return data if plain else converted(data=data)

    vars(module)["convert_to_json_serializable"] = convert


def _configured_once(kind: Any) -> None:
    """Have an expectation made into a configuration once for all arguments that are asked of it.

    The library does that for each argument, which is a third of what it takes to judge.
    """
    made, asked = (vars(kind or object).get(n) for n in ("configuration", "_get_runtime_kwargs"))
    if not isinstance(made, property) or made.fget is None or asked is None:
        return
    make, held = made.fget, {}

    def arguments(self: Any, *given: Any, **named: Any) -> Any:
        held[id(self)] = make(self)
        try:
            return asked(self, *given, **named)
        finally:
            del held[id(self)]

    kind.configuration = property(lambda self: held.get(id(self)) or make(self))
    kind._get_runtime_kwargs = arguments


def of_type(name: str) -> Any:
    """The class of an expectation; one that a stand-in is there for is imported now.

    Raises:
        KeyError: there is none.
    """
    if name not in registry():
        sys.modules.pop(f"{_TYPES}.{name}", None)
        with suppress(ImportError):
            importlib.import_module(f"{_TYPES}.{name}")
    return registry()[name]


def registry() -> dict[str, type]:
    """Every expectation that can be declared, by type."""
    great_expectations()
    registered: dict[str, type] = importlib.import_module(
        "great_expectations.expectations.registry"
    )._registered_expectations
    return registered
