"""Data Docs: Great Expectations' pages, whole without a network, and no part of the verdict."""

import json
import re
from html.parser import HTMLParser

import pytest
from support import SAMPLES

from expectations import gx_runner
from stages.errors import ExpectationError

DATA = SAMPLES / "sft" / "word_problems.jsonl"

pytestmark = pytest.mark.great_expectations


class Loads(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Scripts, handlers, and every address but a mark in the page itself."""
        if tag in ("script", "img", "iframe", "object", "embed"):
            self.found.append(tag)
        for name, value in attrs:
            if name.startswith("on"):
                self.found.append(f"{tag} {name}")
            if name in ("href", "src") and value != "data:," and not (value or "").startswith("#"):
                self.links.append(value or "")


def test_every_page_is_whole_offline(make, tmp_path):
    """The index leads to a page per suite; none fetches or runs anything."""
    docs = tmp_path / "docs"
    folder = make("sft", DATA, data_docs=docs)
    index = Loads((docs / "index.html").read_text("utf-8"))
    assert sorted(index.links) == sorted(p.name for p in docs.iterdir() if p.name != "index.html")
    judged = json.loads((folder / "validation.json").read_bytes())["expectations"]
    names = {law["table"] for law in judged}
    assert len(index.links) == len(names)
    for path in docs.iterdir():
        source = path.read_text("utf-8")
        page = Loads(source)
        assert not page.found
        assert path.name == "index.html" or page.links == ["index.html"]
        assert "prefers-color-scheme: dark" in source
        assert not re.search(r"https?:", source)
        assert "default-src 'none'" in source
    text = "".join((docs / name).read_text("utf-8") for name in index.links)
    assert "Status: " in re.sub(r"<[^>]*>", "", text)
    assert "n_trained" in text
    make("sft", DATA, "again", data_docs=docs)  # its own pages are replaced
    assert len(list(docs.iterdir())) == len(names) + 1


def test_a_page_loses_what_is_fetched_or_run():
    """Scripts, styles and images of other hosts, and handlers; text stays."""
    page = (
        "<html><head><script>a()</script><link href='https://x/y.css'></head><body>"
        '<script src=https://x></script><p onclick="b()" class="k">kept</p>'
        "<img src='https://x/z.png' onerror='c()'><a href='https://x'>word</a></body></html>"
    )
    found = gx_runner._offline(page, "<b>title")
    loads = Loads(found)
    assert (loads.found, loads.links) == ([], ["index.html"])
    assert '<p class="k">kept</p>' in found
    assert "<title>&lt;b&gt;title</title>" in found


def test_a_refused_build_has_pages_and_trouble_with_them_refuses_none(
    make, tmp_path, monkeypatch, capsys
):
    """The verdict comes first, whatever becomes of the pages."""
    law = {"type": "expect_column_values_to_be_between", "severity": "critical"}
    law |= {"kwargs": {"column": "n_tokens", "max_value": 1}}
    suite = json.dumps({"name": "mine", "expectations": [law]})
    docs = tmp_path / "docs"
    with pytest.raises(ExpectationError):
        make("sft", DATA, data_docs=docs, expectations=(("mine.json", suite),))
    assert "failed" in (docs / "index.html").read_text("utf-8")

    def broken(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(gx_runner, "write", broken)
    assert (make("sft", DATA, data_docs=docs) / "manifest.json").exists()
    assert "warning: no Data Docs, OSError: no room" in capsys.readouterr().err
