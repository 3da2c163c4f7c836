"""Great Expectations' own pages of the results, usable without a network.

Its pages load scripts and styles from a dozen hosts, and stay empty or unstyled without them; not
all values are escaped. Here the library renders each suite, everything that would be fetched or run
is removed, and our own style is added. A content security policy in each page forbids scripts.
"""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expectations.gx import library

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
_HEAD = """<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<link rel="icon" href="data:,"><style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem }
th, td { border-bottom: 1px solid #d5dae0; padding: .4rem .6rem .4rem 0; text-align: left; vertical-align: top }
.badge, .badge-secondary { background: #e8edf2; border-radius: .25rem; padding: 0 .35rem }
.badge-info { color: #205a9c } .text-success { color: #12713f } .text-danger { color: #a61b1b }
.modal, .navbar, .fa-copy, nav, button, .tooltip, .d-none, .btn-group, a[data-toggle] { display: none }
.fa-check-circle::before { content: "✓" } .fa-times::before, .fa-exclamation-triangle::before { content: "✗" }
li { list-style: none; padding: .1rem 0 } ul { padding-left: .6rem } h5 { font-size: 1.1rem; margin: 1.2rem 0 .3rem }
</style>"""  # fmt: skip  # noqa: E501


def _offline(page: str, title: str) -> str:
    """A page without anything that is fetched or run."""
    bare = _ADDRESSES.sub("", _HANDLERS.sub("", _DROPPED.sub("", page)))
    head = f"<head><title>{html.escape(title)}</title>{_HEAD}</head>"
    return re.sub(r"<head\b.*?</head\s*>", lambda _: head, bare, count=1, flags=re.DOTALL)


def _rendered(result: Any) -> str:
    renderer = importlib.import_module("great_expectations.render.renderer")
    view = importlib.import_module("great_expectations.render.view")
    document = renderer.ValidationResultsPageRenderer().render(result)
    return str(view.DefaultJinjaPageView().render(document))


def _line(name: str, result: Any) -> str:
    counts = result.statistics
    verdict = "passed" if result.success else "failed"
    text = (
        f"{verdict}: {counts['successful_expectations']} of "
        f"{counts['evaluated_expectations']} expectations"
    )
    title = html.escape(str(result.suite_name))
    return f'<tr><td><a href="{name}">{title}</a></td><td>{text}</td></tr>'


def is_own(folder: Path) -> bool:
    """Whether a folder contains such pages and nothing else."""
    index = folder / INDEX
    if not folder.is_dir() or not all(_PAGES.fullmatch(path.name) for path in folder.iterdir()):
        return False
    return index.is_file() and _MARK in index.read_text("utf-8", "replace")


def write(folder: Path, results: Sequence[Any]) -> None:
    """Write one page per suite and piece of a table, and an index, into an existing folder.

    Args:
        results: the results of Great Expectations, in the order of its runs.
    """
    library.great_expectations()
    for path in folder.iterdir() if is_own(folder) else ():
        path.unlink()
    lines = []
    for number, result in enumerate(results, 1):
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", str(result.suite_name))
        name = f"{number:03d}-{safe}.html"
        page = _offline(_rendered(result), str(result.suite_name))
        (folder / name).write_text(page, "utf-8")
        lines.append(_line(name, result))
    table = f"<table><tr><th>suite</th><th>verdict</th></tr>{''.join(lines)}</table>"
    body = f"<body>{_MARK}{table}</body>"
    index = (
        f'<!doctype html><html lang="en"><head><title>Data Docs</title>{_HEAD}</head>{body}</html>'
    )
    (folder / INDEX).write_text(index, "utf-8")
