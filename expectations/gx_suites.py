"""Suites: lists of expectations for one table each, shipped or a user's, loaded strictly.

Great Expectations drops what it does not understand and passes what is left. Here a suite is loaded
completely or is an error: every type must be known, every severity one of three, every column must
exist.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from expectations import contract, gx_library, invariants
from stages.errors import GateError
from stages.findings import SEVERITIES

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


def shipped(context: contract.Context) -> list[Suite]:
    """The invariants that apply to what a build writes, as suites."""
    suites = []
    for table in contract.LEVELS:
        declared = [
            DeclaredExpectation(law.name, *check.expectation(), severity=law.severity, why=law.why)
            for law in invariants.applying(context, table)
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
    gx = gx_library.great_expectations()
    known = gx_library.registry()
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
    table = (document.get("meta") or {}).get("table", contract.EXAMPLE)
    if table not in contract.LEVELS:
        raise GateError(
            f"{where} is for a table {table!r}; there are {', '.join(contract.LEVELS)}.", _REMEDY
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
    if kind not in gx_library.registry():
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
