"""Runs a suite with Great Expectations, and reduces its results to plain values.

The library reports an expectation that raised like one with a bad row, and may lose an expectation;
here both are errors.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from expectations import gx_library
from expectations.gx_suites import Suite, resolved
from expectations.verdict import NAMED
from stages.errors import GateError
from stages.findings import Judged

HELP = "Nothing was published."


def _config() -> Any:
    """Everything in memory: by default, an ephemeral context makes a folder for its pages."""
    types = importlib.import_module("great_expectations.data_context.types.base")
    stores = types.InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    return types.DataContextConfig(store_backend_defaults=stores)


class Runner:
    """One ephemeral context, which writes no files and needs no network.

    Attributes:
        results: all results of the library, in the order of the runs.
    """

    def __init__(self) -> None:
        try:
            self._gx = gx_library.great_expectations()
            self._context = self._gx.get_context(mode="ephemeral", project_config=_config())
            self._context.variables.progress_bars = {"globally": False}
            source = self._context.data_sources.add_pandas("metrics")
            asset = source.add_dataframe_asset("table")
            self._batch = asset.add_batch_definition_whole_dataframe("all")
        except Exception as error:
            raise GateError(
                f"Great Expectations does not start: {type(error).__name__}: {error}.",
                "Reinstall posttrain-pipeline, or great-expectations.",
            ) from error
        self.results: list[Any] = []

    def _loaded(self, suite: Suite, parameters: Mapping[str, int]) -> Any:
        """The suite as an object of the library."""
        expectations = []
        for at, declared in enumerate(suite.expectations):
            kwargs = resolved(declared.kwargs, parameters)
            kind = gx_library.of_type(declared.type)
            try:
                expectations.append(kind(**kwargs, severity=declared.severity, meta={"at": at}))
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                raise GateError(
                    f"Suite {suite.name}: {declared.type} cannot be created: {text}.", HELP
                ) from error
        loaded = self._gx.ExpectationSuite(name=suite.name, expectations=expectations)
        if len(loaded.expectations) != len(suite.expectations):
            raise GateError(
                f"Suite {suite.name} declares {len(suite.expectations)} expectations, "
                f"and {len(loaded.expectations)} were loaded.",
                HELP,
            )
        return loaded

    def run(
        self, suite: Suite, parameters: Mapping[str, int], frame: pa.Table
    ) -> list[tuple[Judged, tuple[int, ...]]]:
        """The result of each declared expectation, in their order, and the first broken rows.

        Raises:
            GateError: one of them was not loaded, raised, skipped a row, or is missing.
        """
        import pandas as pd

        loaded = self._loaded(suite, parameters)
        data = pd.DataFrame({name: frame[name].to_numpy() for name in frame.column_names})
        form = {"result_format": "SUMMARY", "partial_unexpected_count": NAMED}
        try:
            outcome = self._batch.get_batch({"dataframe": data}).validate(
                loaded, result_format=form
            )
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            raise GateError(f"Suite {suite.name} could not be run: {text}.", HELP) from error
        self.results.append(outcome)
        judged = {
            r.expectation_config.meta["at"]: _judged(r, suite, parameters) for r in outcome.results
        }
        if sorted(judged) != list(range(len(suite.expectations))):
            raise GateError(
                f"Suite {suite.name} has {len(suite.expectations)} expectations, but "
                f"{len(judged)} were run.",
                HELP,
            )
        return [judged[at] for at in range(len(suite.expectations))]


def _raised(information: Mapping[str, Any]) -> str | None:
    """The message of an exception in an expectation, wherever the library has put it."""
    entries = [information, *(v for v in information.values() if isinstance(v, dict))]
    for entry in entries:
        if entry.get("raised_exception"):
            return str(entry.get("exception_message") or "an exception without a message")
    return None


def _plain(value: Any) -> Any:
    """A value as a number or a text, None where it is neither: what a verdict may contain."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value if isinstance(value, float) and math.isfinite(value) else None


def _arguments(kind: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The given arguments, and the defaults of the class, which the library does not report."""
    names = (*kind.domain_keys, *kind.success_keys)
    fields = kind.__fields__
    values = {n: kwargs.get(n, fields[n].default if n in fields else None) for n in names}
    left_out = ("batch_id", "table", "row_condition", "condition_parser", "mostly")
    return {n: v for n, v in values.items() if v is not None and n not in left_out} | {
        n: v for n, v in kwargs.items() if n != "batch_id"
    }


def _judged(
    outcome: Any, suite: Suite, parameters: Mapping[str, int]
) -> tuple[Judged, tuple[int, ...]]:
    config = outcome.expectation_config
    result = outcome.result or {}
    raised = _raised(outcome.exception_info or {})
    if raised is not None or not result:
        text = " ".join((raised or "it gave no result").split())[:300]
        raise GateError(f"Suite {suite.name}: {config.type} could not run: {text}.", HELP)
    declared = suite.expectations[config.meta["at"]]
    if result.get("missing_count"):
        raise GateError(f"Suite {suite.name}: {config.type} skipped rows as missing.", HELP)
    broken = result.get("unexpected_count")
    at = tuple(int(i) for i in result.get("partial_unexpected_index_list") or ())
    kwargs = _arguments(gx_library.of_type(declared.type), config.kwargs)
    judged = Judged(
        type=declared.type,
        kwargs=kwargs
        | resolved(declared.kwargs, parameters),  # whole numbers as they were declared
        passed=bool(outcome.success),
        broken=int(broken) if broken is not None else int(not outcome.success),
        observed=_plain(result.get("observed_value")),
    )
    return judged, at
