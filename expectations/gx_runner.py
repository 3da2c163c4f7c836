"""Runs a suite with Great Expectations, and reduces its results to plain values.

The library reports an expectation that raised like one with a bad row, and may lose an expectation;
here both are errors.
"""

import functools
import html
import importlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expectations import gx_library, gx_suites
from stages.errors import GateError, counted
from stages.findings import NAMED, Judged

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

    def _loaded(self, suite: gx_suites.Suite, parameters: Mapping[str, int]) -> Any:
        """The suite as an object of the library."""
        expectations = []
        for at, declared in enumerate(suite.expectations):
            kwargs = gx_suites.resolved(declared.kwargs, parameters)
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
        self, suite: gx_suites.Suite, parameters: Mapping[str, int], frame: pa.Table
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
    outcome: Any, suite: gx_suites.Suite, parameters: Mapping[str, int]
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
        | gx_suites.resolved(declared.kwargs, parameters),  # whole numbers as they were declared
        passed=bool(outcome.success),
        broken=int(broken) if broken is not None else int(not outcome.success),
        observed=_plain(result.get("observed_value")),
    )
    return judged, at


# Great Expectations' own pages of the results, usable without a network.
#
# Its pages load scripts and styles from a dozen hosts, and stay empty or unstyled without them; not
# all values are escaped. Here the library renders each suite, everything that would be fetched or
# run is removed, and our own style is added. A content security policy in each page forbids
# scripts.


INDEX = "index.html"
_PAGES = re.compile(r"index\.html|\d{3,}-[A-Za-z0-9._-]+\.html")
_MARK = "<h1>Data Docs</h1>"
_DROPPED = re.compile(
    r"<script\b.*?</script\s*>|<link\b[^>]*>|<img\b[^>]*>|<footer\b.*?</footer\s*>"
    r"|<!--.*?-->|<style\b.*?</style\s*>",
    re.DOTALL | re.IGNORECASE,
)
_HANDLERS = re.compile(r"\son[a-z]+\s*=\s*(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_ADDRESSES = re.compile(r"\s(?:href|src)\s*=\s*[\"'](?!#)[^\"']*[\"']", re.IGNORECASE)
# The library calls each of its checks an expectation; one of ours can need several of them.
_WORDS = (
    ("Evaluated Expectations", "Checks"),
    ("Unsuccessful Expectations", "Checks that do not hold"),
    ("Successful Expectations", "Checks that hold"),
    ("Expectation Validation Result", "Checks of one table"),
    ("Evaluates whether a batch of data matches expectations.", ""),
    ("Table-Level Expectations", "Several columns"),
    ("Expectation Suite:", "Suite:"),
)
_BACK = f'<p><a href="{INDEX}">All suites</a></p>'


@functools.cache
def _head() -> str:
    style = Path(__file__).with_name("data_docs.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<link rel="icon" href="data:,"><style>{style}</style>'
    )


def _offline(page: str, title: str) -> str:
    """A page without anything that is fetched or run."""
    bare = _ADDRESSES.sub("", _HANDLERS.sub("", _DROPPED.sub("", page)))
    for theirs, ours in _WORDS:
        bare = bare.replace(theirs, ours)
    head = f"<head><title>{html.escape(title)}</title>{_head()}</head>"
    page = re.sub(r"<head\b.*?</head\s*>", lambda _: head, bare, count=1, flags=re.DOTALL)
    return re.sub(r"<body\b[^>]*>", lambda found: found[0] + _BACK, page, count=1)


def _rendered(result: Any) -> str:
    renderer = importlib.import_module("great_expectations.render.renderer")
    view = importlib.import_module("great_expectations.render.view")
    document = renderer.ValidationResultsPageRenderer().render(result)
    return str(view.DefaultJinjaPageView().render(document))


def _line(name: str, result: Any) -> str:
    counts = result.statistics
    state, verdict = ("pass", "passed") if result.success else ("fail", "failed")
    text = (
        f"{counts['successful_expectations']} of "
        f"{counted(counts['evaluated_expectations'], 'check')} hold"
    )
    title = html.escape(str(result.suite_name))
    return (
        f'<tr><td><a href="{name}">{title}</a></td>'
        f'<td><span class="state {state}">{verdict}</span> {text}</td></tr>'
    )


def is_own(folder: Path) -> bool:
    """Whether a folder contains such pages and nothing else."""
    index = folder / INDEX
    if not folder.is_dir() or not all(_PAGES.fullmatch(path.name) for path in folder.iterdir()):
        return False
    return index.is_file() and _MARK in index.read_text("utf-8", "replace")


def write(folder: Path, results: Sequence[Any], expectations: int) -> None:
    """Write one page per suite, and an index, into an existing folder.

    Args:
        results: the results of Great Expectations, in the order of its runs.
        expectations: of ours that they are about.
    """
    gx_library.great_expectations()
    for path in folder.iterdir() if is_own(folder) else ():
        path.unlink()
    lines = []
    for number, result in enumerate(results, 1):
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", str(result.suite_name))
        name = f"{number:03d}-{safe}.html"
        page = _offline(_rendered(result), str(result.suite_name))
        (folder / name).write_text(page, "utf-8")
        lines.append(_line(name, result))
    checks = sum(int(result.statistics["evaluated_expectations"]) for result in results)
    said = (
        f"<p>The {expectations} expectations of the build, as {checks} checks of Great "
        "Expectations on tables of numbers; report.html of the build has the rest.</p>"
    )
    table = f"<table><tr><th>suite</th><th>verdict</th></tr>{''.join(lines)}</table>"
    body = f"<body>{_MARK}{said}{table}</body>"
    head = f"<head><title>Data Docs</title>{_head()}</head>"
    (folder / INDEX).write_text(f'<!doctype html><html lang="en">{head}{body}</html>', "utf-8")
