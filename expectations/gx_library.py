"""The import of Great Expectations, as late and as fast as possible; only this file imports it.

The import takes seconds. Most of them are for scipy and altair, which only one of its fifty
expectations and its pages need: it gets both as modules that load when one of their attributes is
used. A process that judges shipped suites alone imports a part of the library: stand-ins take the
places of databases and clouds, and of expectations until one of that type is asked for. Workers,
``--help`` and ``plan`` do not import it.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import json
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from expectations.contract import EXAMPLE, LEVELS, SEVERITIES, Context
from expectations.invariants import applying
from stages.errors import GateError

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


# Suites: lists of expectations for one table each, shipped or a user's, loaded strictly.
#
# Great Expectations drops what it does not understand and passes what is left. Here a suite is
# loaded completely or is an error: every type must be known, every severity one of three, every
# column must exist.


SHIPPED = "shipped"
_REMEDY = "Nothing was published; fix the suite."


@dataclass(frozen=True, slots=True)
class DeclaredExpectation:
    """One expectation as declared.

    Attributes:
        law: the invariant it belongs to, or its own name in a user's suite.
        kwargs: arguments; ``{"$PARAMETER": name}`` is replaced by a bound of the build.
    """

    law: str
    type: str
    kwargs: Mapping[str, Any]
    severity: str
    why: str


@dataclass(frozen=True, slots=True)
class Suite:
    """Expectations for one table, in their order."""

    name: str
    table: str
    expectations: tuple[DeclaredExpectation, ...]

    def described(self) -> dict[str, Any]:
        """The suite in the JSON of Great Expectations."""
        return {
            "name": self.name,
            "meta": {"table": self.table},
            "expectations": [
                {
                    "type": declared.type,
                    "kwargs": dict(declared.kwargs),
                    "severity": declared.severity,
                    "notes": declared.why,
                    "meta": {"name": declared.law},
                }
                for declared in self.expectations
            ],
        }


def shipped(context: Context) -> list[Suite]:
    """The invariants that apply to what a build writes, as suites."""
    suites = []
    for table in LEVELS:
        declared = [
            DeclaredExpectation(law.name, *check.expectation(), severity=law.severity, why=law.why)
            for law in applying(context, table)
            for check in law.checks_for(context)
        ]
        if declared:
            suites.append(Suite(f"{SHIPPED}.{table}", table, tuple(declared)))
    return suites


def load(name: str, text: str) -> list[Suite]:
    """A user's suites: JSON as Great Expectations writes it (one suite or a list of them), or
    Python with ``def suite(gx)`` that returns one or several.

    Args:
        name: of the file; ``.py`` makes it Python.

    Raises:
        GateError: the file, or a part of it, cannot be loaded.
    """
    try:
        content = _python(name, text) if name.endswith(".py") else json.loads(text)
    except GateError:
        raise
    except Exception as error:  # a user's file may raise anything
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise GateError(f"{name} does not load: {what}.", _REMEDY) from error
    # Pandas evaluates it: any code could run.
    if not name.endswith(".py") and re.search('"row_condition": (?!null)', json.dumps(content)):
        raise GateError(f"{name} has a row_condition.", "Write that suite in Python.")
    listed = content if isinstance(content, list) else [content]
    if not listed:
        raise GateError(f"{name} has no suite.", _REMEDY)
    several = len(listed) > 1
    stem = name.rsplit(".", 1)[0]
    return [
        _read(one, f"{name}[{i}]" if several else name, f"{stem}.{i}" if several else stem)
        for i, one in enumerate(listed)
    ]


_DEFINED: dict[str, set[str]] = {}  # expectations that a user's file defined, by the file's name


def _python(name: str, text: str) -> list[Any]:
    """Run a user's file; it may define expectations, but not redefine existing ones.

    A notebook loads the same file again, perhaps edited: what it defined before makes room.
    """
    gx = great_expectations()
    known = registry()
    for key in _DEFINED.pop(name, ()):
        known.pop(key, None)
    before = dict(known)
    module = ModuleType(f"_user_suite_{len(before)}")
    try:
        exec(compile(text, name, "exec"), module.__dict__)
        returned = module.suite(gx)
    finally:
        replaced = sorted(key for key in before if known.get(key) is not before[key])
        known.update(before)  # restore the library's own expectations, also after an exception
        _DEFINED[name] = known.keys() - before.keys()
    if replaced:
        raise GateError(f"{name} redefines {', '.join(replaced)}.", "Give it another name.")
    suites = returned if isinstance(returned, (list, tuple)) else [returned]
    return [suite.to_json_dict() for suite in suites]


def _read(document: Any, where: str, stem: str) -> Suite:
    if not isinstance(document, dict) or not isinstance(document.get("expectations"), list):
        raise GateError(f"{where} is not a suite: it has no list of expectations.", _REMEDY)
    table = (document.get("meta") or {}).get("table", EXAMPLE)
    if table not in LEVELS:
        raise GateError(
            f"{where} is for a table {table!r}; there are {', '.join(LEVELS)}.", _REMEDY
        )
    if not document["expectations"]:
        raise GateError(f"{where} is empty: a suite without expectations always passes.", _REMEDY)
    name = str(document.get("name") or stem)
    if name.startswith(SHIPPED):
        raise GateError(f"{where} is called {name}, which only a shipped suite may.", _REMEDY)
    declared = [
        _declared(one, f"{where}, expectation {i + 1}", i)
        for i, one in enumerate(document["expectations"])
    ]
    return Suite(name, table, tuple(declared))


def _declared(document: Any, where: str, index: int) -> DeclaredExpectation:
    if not isinstance(document, dict):
        raise GateError(f"{where} is not an object.", _REMEDY)
    kind, severity = document.get("type"), document.get("severity", "critical")
    if kind not in registry():
        raise GateError(f"{where} has the unknown type {kind!r}.", _REMEDY)
    if severity not in SEVERITIES:
        raise GateError(
            f"{where} has the severity {severity!r}; there are {', '.join(SEVERITIES)}.", _REMEDY
        )
    meta = document.get("meta") or {}
    kwargs = {k: v for k, v in (document.get("kwargs") or {}).items() if v is not None}
    why = document.get("description") or document.get("notes") or ""
    law = str(meta.get("name") or f"{kind}_{index + 1}")
    return DeclaredExpectation(law, str(kind), kwargs=kwargs, severity=str(severity), why=str(why))


def resolved(kwargs: Mapping[str, Any], parameters: Mapping[str, int]) -> dict[str, Any]:
    """Arguments with parameters replaced by the bounds of the build.

    Raises:
        GateError: there is no such parameter.
    """
    arguments = {}
    for key, value in kwargs.items():
        if isinstance(value, dict) and "$PARAMETER" in value:
            if value["$PARAMETER"] not in parameters:
                known = ", ".join(sorted(parameters))
                raise GateError(
                    f"There is no parameter {value['$PARAMETER']!r}; there are {known}.", _REMEDY
                )
            arguments[key] = parameters[value["$PARAMETER"]]
        else:
            arguments[key] = value
    return arguments


def columns_of(declared: Sequence[DeclaredExpectation]) -> list[str]:
    """The columns that expectations use, each once."""
    names: dict[str, None] = {}
    for one in declared:
        for key, value in one.kwargs.items():
            if key in ("column", "column_A", "column_B") and isinstance(value, str):
                names[value] = None
            elif key in ("column_list", "column_set") and isinstance(value, list):
                names.update(dict.fromkeys(value))
    return list(names)
