"""Great Expectations' own pages of the results, usable without a network.

Its pages load scripts and styles from a dozen hosts, and stay empty or unstyled without them; not
all values are escaped. Here the library renders each suite, everything that would be fetched or run
is removed, and our own style is added. A content security policy in each page forbids scripts.
"""

from __future__ import annotations

import functools
import html
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expectations import gx_library
from stages.counted import counted

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
