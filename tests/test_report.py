"""The page: its figures are the manifest's, its bytes are the build's, and a value stays text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support import SAMPLES, Ran, read_manifest

Run = Callable[..., Ran]
Make = Callable[..., Path]
EVIL = "<script>document.title='PWNED'</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
KEPT = {"sft": "sft/chat.jsonl", "rm": "rm/pairs.jsonl", "prm": "prm/first_error.json"}


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text by section, tables and cards."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.joined = ""
        self.cards: dict[str, str] = {}
        self._in_card: list[str] | None = None
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the element; a card's three texts begin here."""
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if "card" in (dict(attrs).get("class") or "").split():
            self._in_card = []

    def handle_data(self, data: str) -> None:
        """Collect text but that of style and script; a card is label, value, note."""
        if self.lasttag in ("style", "script"):
            return
        self.joined += data
        if not data.strip():
            return
        self.texts.append(data.strip())
        if self._in_card is not None:
            self._in_card.append(data.strip())
            if len(self._in_card) == 3:
                label, value, note = self._in_card
                self.cards[label] = f"{value} {note}"
                self._in_card = None

    @property
    def text(self) -> str:
        """All text, blanks folded."""
        return " ".join(" ".join(self.texts).replace("\u202f", "").split())


def page_of(folder: Path) -> Page:
    """A build's page, parsed."""
    return Page((folder / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
def test_figures_are_the_manifests(make: Make, task: str) -> None:
    """Cards, ledger, losses, splits and probes say what manifest.json says."""
    folder = make(task, SAMPLES / KEPT[task])
    manifest, page = read_manifest(folder), page_of(folder)
    rows, tokens = manifest["rows"], manifest["tokens"]
    cards = {name: text.replace("\u202f", "") for name, text in page.cards.items()}
    assert cards["rows used"] == f"{rows['used']} of {rows['in']} read"
    examples = manifest["examples"]
    assert cards["examples"] == f"{examples['kept']} of {examples['made']} made"
    assert cards["tokens"] == f"{tokens['total']} and {tokens['padding']} of padding"
    trained = f"{tokens['trained']} {tokens['trained'] / tokens['total']:.1%} of all"
    assert cards["compared" if task == "rm" else "trained"] == trained
    assert cards["refused"].startswith(f"{rows['rejected']} ")
    if manifest["packing"]:
        packing = manifest["packing"]
        assert cards["packs"] == f"{packing['packs']} {packing['efficiency']:.1%} full"
    for code, count in rows["rejected_by_code"].items():
        assert f"{code} {count} row" in page.text
    for side in manifest["splits"].values():
        assert f"train {side['rows']} {side['examples']} {side['tokens']} 1" in page.text
    for name in manifest["probes"]:
        assert name.replace("_", " ") in page.text
    for law in json.loads((folder / "validation.json").read_text("utf-8"))["expectations"]:
        judged = f"{law['name']} {law['broken']} of {law['checked']} passed {law['severity']}"
        assert judged in page.text
    for reject in (folder / "rejects.jsonl").read_text("utf-8").splitlines():
        assert json.loads(reject)["id"] in page.text


def test_the_same_build_has_the_same_page(make: Make, tmp_path: Path) -> None:
    """Wherever and by however many workers it was made; no path, clock or host is in it."""
    source = tmp_path / "deep" / "rows.jsonl"
    source.parent.mkdir()
    source.write_bytes((SAMPLES / "sft" / "chat.jsonl").read_bytes())
    pages = [(make("sft", source, name) / "report.html").read_bytes() for name in ("a", "b")]
    pages.append((make("sft", source, "c", workers=2) / "report.html").read_bytes())
    assert pages[0] == pages[1] == pages[2]
    text = pages[0].decode()
    for foreign in (str(tmp_path), str(Path.cwd()), "workers", "seconds"):
        assert foreign not in text
    assert not re.search(r"\b\d\d:\d\d:\d\d\b", text)
    found = read_manifest(tmp_path / "a")["files"]["report.html"]
    assert found == hashlib.sha256(pages[0]).hexdigest()


@pytest.mark.parametrize("task", ["sft", "rm"])
def test_script_in_a_value_stays_text(make: Make, tmp_path: Path, task: str) -> None:
    """In content, in a refused row, in a file's name: no element, no handler, no address."""
    rows: list[dict[str, str]] = [
        {
            "prompt": f"{EVIL} {i}",
            "completion": f"{EVIL} yes",
            "chosen": EVIL,
            "rejected": f"{i} no",
        }
        for i in range(3)
    ]
    keep = ("prompt", "completion") if task == "sft" else ("prompt", "chosen", "rejected")
    lines = [json.dumps({key: row[key] for key in keep}) for row in rows]
    lines.append(json.dumps({keep[0]: EVIL, keep[1]: ""}))
    data = tmp_path / "<b>x<script>alert(2)<.jsonl"
    data.write_text("\n".join(lines))
    folder = make(task, data)
    page = page_of(folder)
    assert not page.tags & {"img", "b x", "iframe", "object", "embed", "base"}
    scripts = [one for one in page.attributes if one[0] == "script"]
    assert (folder / "report.html").read_text("utf-8").count("<script") == 1
    assert not scripts  # the one script is inline, and has no address
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src"):
            assert value.startswith("#") or value == "data:,"
        assert name != "style"
    assert page.joined.count("<script>document.title='PWNED'</script><img src=x onerror") >= 3
    assert "<script>alert(2)<.jsonl:4" in page.joined
    source = (folder / "report.html").read_text("utf-8")
    assert "\x1b" not in source
    assert "\u202e" not in source
    assert "\\x1b[31m" in page.joined
    assert "http:" not in source
    assert "https:" not in source
    assert "url(" not in source
    assert "@import" not in source


def test_the_page_can_be_made_again(make: Make, pipeline: Run, tmp_path: Path) -> None:
    """From the build alone: the same bytes in its place, and elsewhere on request."""
    folder = make("prm", SAMPLES / "prm" / "math_shepherd.jsonl")
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").write_bytes(b"gone")
    ran = pipeline("report", "out")
    assert ran.status == 0, ran.err
    assert (folder / "report.html").read_bytes() == page
    serving = json.loads((folder / "serving.json").read_text("utf-8"))
    (folder / "serving.json").write_text(json.dumps({**serving, "stop_strings": ["other"]}))
    ran = pipeline("report", "out")
    assert ran.status == 2
    assert "differs from the published page of out" in ran.err
    assert (folder / "report.html").read_bytes() == page
    assert pipeline("report", "out", "-o", "other.html").status == 0
    assert "other" in Page((tmp_path / "other.html").read_text("utf-8")).texts


def test_a_folder_that_is_no_build_is_refused(pipeline: Run, tmp_path: Path) -> None:
    """Exit status 2, by name."""
    (tmp_path / "empty").mkdir()
    ran = pipeline("report", "empty")
    assert (ran.status, "empty is not a build" in ran.err) == (2, True)
