"""The page of a build: its figures are the manifest's, its bytes the build's, a value stays text.

And by itself: its policy, charts, first line and size, and what it says of other builds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import weakref
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Ran, read_manifest, write_rows

from pipeline.builds.build import Build, StoredShard
from pipeline.manifest.records import Change
from pipeline.report import charts, headline, template
from pipeline.report import page as report
from pipeline.report.charts import Entry
from pipeline.report.page import spread

Run = Callable[..., Ran]
Make = Callable[..., Path]
EVIL = "<script>document.title='PWNED'</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
KEPT = {"sft": "sft/chat.jsonl", "rm": "rm/pairs.jsonl", "prm": "prm/first_error.json"}
CHAT = SAMPLES / KEPT["sft"]
CSS = (Path(report.__file__).parent / "page.css").read_text("utf-8")


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text, cards, headings in order, pictures with
    what they say; and that every element is closed."""

    VOID = frozenset({"meta", "link", "br", "input"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.joined = ""
        self.cards: dict[str, str] = {}
        self.levels: list[int] = []
        self.pictures: list[dict[str, str]] = []
        self.open: list[str] = []
        self._in_card: list[str] | None = None
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the element; a card's three texts begin here."""
        named = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in named.items()]
        if "card" in named.get("class", "").split():
            self._in_card = []
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "svg":
            inside = any(one == "div.img" for one in self.open)
            self.pictures.append(named | ({"inside": "1"} if inside else {}))
        if tag not in self.VOID:
            picture = tag == "div" and named.get("role") == "img"
            self.open.append("div.img" if picture else tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed at once."""

    def handle_endtag(self, tag: str) -> None:
        """The innermost element is the one that is closed."""
        assert self.open.pop().partition(".")[0] == tag

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
    return Page(source_of(folder))


def source_of(folder: Path) -> str:
    """A build's page as it is written."""
    return (folder / "report.html").read_text("utf-8")


def changed(folder: Path, name: str, **values: Any) -> None:
    """Other values in a file of a build."""
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
def test_figures_are_the_manifests(built: Make, task: str) -> None:
    """Cards, ledger, losses, splits and probes say what manifest.json says."""
    folder = built(task, SAMPLES / KEPT[task], "--max-reject", "1")
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
    keep = ("prompt", "completion") if task == "sft" else ("prompt", "chosen", "rejected")
    texts = {"completion": f"{EVIL} yes", "chosen": EVIL}
    rows = [{**texts, "prompt": f"{EVIL} {i}", "rejected": f"{i} no"} for i in range(3)]
    refused = {keep[0]: EVIL, keep[1]: ""}
    data = tmp_path / "<b>x<script>alert(2)<.jsonl"
    write_rows(data, [*({key: row[key] for key in keep} for row in rows), refused])
    folder = make(task, data)
    page = page_of(folder)
    assert not page.tags & {"img", "b x", "iframe", "object", "embed", "base"}
    scripts = [one for one in page.attributes if one[0] == "script"]
    assert not scripts  # the one script is inline, and has no address
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src"):
            assert value.startswith("#") or value == "data:,"
        assert name != "style"
    assert page.joined.count("<script>document.title='PWNED'</script><img src=x onerror") >= 3
    assert "<script>alert(2)<.jsonl:4" in page.joined
    assert "\\x1b[31m" in page.joined
    source = source_of(folder)
    assert source.count("<script") == 1
    for sign in ("\x1b", "\u202e", "http:", "https:", "url(", "@import"):
        assert sign not in source


def test_the_page_can_be_made_again(make: Make, pipeline: Run, tmp_path: Path) -> None:
    """From the build alone: the same bytes in its place, and elsewhere on request."""
    folder = make("prm", SAMPLES / "prm" / "math_shepherd.jsonl")
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").write_bytes(b"gone")
    ran = pipeline("report", "out").ended()
    assert (folder / "report.html").read_bytes() == page
    serving = json.loads((folder / "serving.json").read_text("utf-8"))
    (folder / "serving.json").write_text(json.dumps({**serving, "stop_strings": ["other"]}))
    ran = pipeline("report", "out").ended(2)
    assert "differs from the published page of out" in ran.err
    assert (folder / "report.html").read_bytes() == page
    pipeline("report", "out", "-o", "other.html").ended()
    assert "other" in Page((tmp_path / "other.html").read_text("utf-8")).texts


def test_a_folder_that_is_no_build_is_refused(pipeline: Run, tmp_path: Path) -> None:
    """Exit status 2, by name."""
    (tmp_path / "empty").mkdir()
    ran = pipeline("report", "empty")
    assert (ran.status, "empty is not a build" in ran.err) == (2, True)


def test_the_policy_allows_our_style_and_script_and_nothing_else(built: Make) -> None:
    """Both are named by the hashes of what is in the page; no attribute needs more."""
    source = source_of(built("sft", CHAT, "--max-reject", "1"))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', source)
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{hashed}'" in policy.replace("&#39;", "'")
    assert policy.startswith("default-src &#39;none&#39;;")
    assert "unsafe" not in policy
    assert " style=" not in source
    script = source.partition("<script>")[2]
    for sink in ("innerHTML", "outerHTML", "insertAdjacent", "eval", "fetch", "XMLHttp", "import("):
        assert sink not in script
    assert len(script) < 6000


def test_everything_is_told_in_text_and_headings_skip_no_level(built: Make) -> None:
    """A picture has a name, or what stands beside it says the same."""
    for task in ("sft", "rm"):
        page = page_of(built(task, SAMPLES / KEPT[task], "--max-reject", "1"))
        assert page.levels[0] == 1
        assert page.levels.count(1) == 1
        steps = zip(page.levels, page.levels[1:], strict=False)
        assert all(after <= before + 1 for before, after in steps)
        assert not page.open
        for picture in page.pictures:
            told = picture.get("role") == "img" and picture.get("aria-label")
            assert told or picture.get("aria-hidden") == "true" or "inside" in picture
        assert any(picture.get("role") == "img" for picture in page.pictures)


def _palette(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})", block))


def _luminance(colour: str) -> float:
    text = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(text[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_told_apart_in_light_and_dark() -> None:
    """Text has a contrast of 4.5, shapes have one of 3."""
    light, dark = (_palette(block) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL))
    for palette in (light, {**light, **dark}):
        for ink in ("ink", "soft", "accent", "control"):
            for ground in ("paper", "page"):
                assert _contrast(palette[ink], palette[ground]) >= 4.5, (ink, ground)
        for name in ("ok", "warn", "bad"):
            assert _contrast(palette[name], palette[f"{name}-bg"]) >= 4.5, name
        for ink, ground in (("trained-ink", "trained"), ("hit-ink", "hit"), ("soft", "pad")):
            assert _contrast(palette[ink], palette[ground]) >= 4.5, ink
        for fill in ("used", "refused", "doubles", "filtered", "seen", "near", "budget", "accent"):
            assert _contrast(palette[fill], palette["paper"]) >= 3, fill


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=300), st.integers(1, 1000))
def test_a_histogram_keeps_every_count_inside_its_axes(counts: list[int], width: int) -> None:
    """No bar leaves the plot, higher counts are never lower bars, and a count of 1 can be seen."""
    drawn = charts.histogram(counts, width, "tokens")
    assert len(drawn.columns) <= charts.BINS
    for column in drawn.columns:
        assert 0 < column.height <= 100
        assert column.x >= 0
        assert column.x + column.width <= 100.01
    said = [int(column.title.rpartition(": ")[2].replace(",", "")) for column in drawn.columns]
    assert sum(said) == sum(counts)
    heights = [column.height for column in drawn.columns]
    assert sorted(heights) == [h for _, h in sorted(zip(said, heights, strict=True))]
    for ticks in (drawn.x, drawn.y):
        places = [tick.at for tick in ticks]
        assert places == sorted(set(places))
        assert all(0 <= at <= 100.001 for at in places)
        assert 2 <= len(ticks) <= 11
    if said:
        assert drawn.log == (max(said) > charts.TAIL * min(said))
        assert drawn.log <= (min(heights) > 3)  # that is what the logarithm is for


@given(st.lists(st.floats(0, 50), min_size=1, max_size=60))
def test_bars_of_shares_end_inside_the_axis(values: list[float]) -> None:
    """As many as fit; the rest is one bar, so that nothing is missing."""
    drawn = charts.bars([Entry(f"s{at}", value) for at, value in enumerate(values)], shares=True)
    assert len(drawn.bars) == min(len(values), charts.BARS + 1)
    assert all(0 <= bar.length <= 100.001 for bar in drawn.bars)
    if len(values) > charts.BARS:
        assert drawn.bars[-1].name == f"{len(values) - charts.BARS} others"


@given(st.integers(1, 10**7), st.integers(2, 50))
def test_samples_are_spread_from_the_first_row_to_the_last(count: int, most: int) -> None:
    """Each once, in order."""
    found = spread(count, most)
    assert found == sorted(set(found))
    assert len(found) == min(count, most)
    assert (found[0], found[-1]) == (0, count - 1)


def test_the_first_line_counts_what_was_lost(make: Make) -> None:
    """All expectations hold in each of these, and its colour is still not always green."""
    folder = make("sft", SAMPLES / "sft" / "word_problems.jsonl")
    rows = read_manifest(folder)["rows"]
    for rejected, status in ((0, "pass"), (10, "pass"), (11, "warn"), (199, "warn"), (200, "fail")):
        rows |= {"in": 1000, "used": 1000 - rejected, "rejected": rejected}
        changed(folder, "manifest.json", rows=rows)
        build = Build.open(folder)
        first = headline.headline(build.manifest, build.validation, build.audits)
        assert first.answers[1].status == status
        assert (first.status == "fail") == (status == "fail")
        assert (first.text == "Sound, but much was lost") == (status == "fail")
        page = report.make(build)
        assert f'class="verdict {first.status}"' in page
        told = f"{rejected} of 1\u202f000 rows were refused ({rejected / 1000:.1%})"
        assert not rejected or told in page


def test_one_count_of_expectations_everywhere(make: Make, pipeline: Run, tmp_path: Path) -> None:
    """Manifest, verdict, page, card, Data Docs and check speak of the same expectations."""
    folder = make("sft", CHAT, data_docs=tmp_path / "docs")
    count = read_manifest(folder)["validation"]["judged"]
    verdict = json.loads((folder / "validation.json").read_text("utf-8"))
    assert verdict["judged"] == len(verdict["expectations"]) == count
    assert f"All {count} expectations hold" in source_of(folder)
    assert f"{count} expectations, checked on" in source_of(folder)
    assert f"{count} expectations were checked" in (folder / "README.md").read_text("utf-8")
    assert f"{count} expectations" in (tmp_path / "docs" / "index.html").read_text("utf-8")
    ran = pipeline("check", "out").ended()
    again = json.loads(pipeline("check", "out", "--json").out)["validation"]["judged"]
    assert again < count
    assert f"{again} of {count} expectations hold" in ran.out


HOSTILE = '"<&\u202e' * 110  # longer than anything that the page shows whole


def _enormous(folder: Path) -> None:
    """Everything of a build that grows with the data, grown, with texts that escaping lengthens."""
    manifest = read_manifest(folder)
    one = manifest["inputs"][0]
    column = {"column": HOSTILE, "rows": 1, "share": 0.5, "bytes": 1}
    entry = {**one, "path": HOSTILE, "evidence": HOSTILE, "unread": [column] * 10}
    source = {
        "name": HOSTILE, "asked": {"share": 0.5}, "unit": "trained_tokens", "amount": 9.0,
        "given": 1.0, "short": True, "has": {"examples": 1, "tokens": 1, "trained": 1},
        "splits": {"train": {"examples": 1, "tokens": 1, "trained": 1}}, "share": 0.001,
        "wanted_share": 0.002, "scarcest": False,
    }  # fmt: skip
    left = {"expression": HOSTILE, "source": HOSTILE, "examples": 1, "null": 1, "rows": 1}
    codes = {f"{HOSTILE}{at}": at for at in range(90)}
    changed(
        folder,
        "manifest.json",
        inputs=[{**entry, "path": f"{at}{HOSTILE}"} for at in range(60)],
        sources=[source] * 60,
        filters=[left] * 60,
        doubles=[{"source": HOSTILE, "kept_in": HOSTILE, "examples": 1}] * 60,
        rows={**manifest["rows"], "rejected_by_code": codes},
        options={**manifest["options"], "system": HOSTILE},
        model={**manifest["model"], "added_tokens": {f"{at}{HOSTILE}": at for at in range(120)}},
    )
    reject = {
        "id": HOSTILE, "source": HOSTILE, "line": 1, "offset": None, "stage": "normalize",
        "detail": HOSTILE, "raw": HOSTILE,
    }  # fmt: skip
    lines = [json.dumps({**reject, "code": code}) for code in codes]
    (folder / "rejects.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    audits = json.loads((folder / "audits.json").read_text("utf-8"))["audits"]
    for audit in audits:
        figure = {
            "name": HOSTILE, "value": 0.5, "unit": "share", "detail": HOSTILE, "status": "warn",
            "rows": [HOSTILE] * 8, "bins": [[HOSTILE, 5]] * 30,
        }  # fmt: skip
        if audit["name"] != "lengths":
            audit |= {"status": "warn", "figures": [*audit["figures"], *[figure] * 20]}
    changed(folder, "audits.json", audits=audits)
    validation = json.loads((folder / "validation.json").read_text("utf-8"))
    law = {**validation["expectations"][0], "name": HOSTILE, "why": HOSTILE, "passed": False}
    changed(folder, "validation.json", expectations=[law] * 120, judged=120)


def test_no_build_makes_the_page_larger_than_its_bound(make: Make) -> None:
    """More of everything than is shown, all with long texts full of markup."""
    folder = make("sft", CHAT)
    usual = len(report.make(Build.open(folder)).encode())
    _enormous(folder)
    page = report.make(Build.open(folder))
    assert usual < len(page.encode()) <= report.LARGEST
    assert "\u202e" not in page
    assert "10 more, in manifest.json" in page
    Page(page)


def test_the_page_opens_shards_one_after_the_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page needs of memory does not grow with the shards."""
    build = Build.open(make("sft", CHAT, test_size=0.3))
    opened: list[weakref.ref[pa.Table]] = []
    read = StoredShard.table

    def table(self: StoredShard) -> pa.Table:
        assert sum(one() is not None for one in opened) <= 1  # the one before it
        found = read(self)
        opened.append(weakref.ref(found))
        return found

    monkeypatch.setattr(StoredShard, "table", table)
    report.make(build)
    assert len(opened) == 1 + len(build.splits)  # once for the chart of packs


def test_rows_with_anything_in_them_stay_text(make: Make, tmp_path: Path) -> None:
    """An end of a script, marks of direction, a token without end, half of a surrogate pair."""
    scripts = "</script><script>alert(1)</script>"
    texts = [scripts, "\u202eabc\u2066", "x" * 100_000, "a\x00b\x1b[2J"]
    rows = [
        json.dumps({"question": text, "answer": f"{at} {text[:5000]}"})
        for at, text in enumerate(texts)
    ]
    rows += ['{"question": "\\ud800", "answer": "\\udfff"}', '{"question": "q", "answer": ""}']
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(rows), "utf-8")
    folder = make("sft", data, max_length=64_000)
    source = source_of(folder)
    assert source.count("<script") == source.count("</script") == 1
    assert "script>alert(1)" in re.sub(r"<[^>]*>", "", source.replace("&gt;", ">"))
    for sign in ("\u202e", "\u2066", "\x00", "\x1b"):
        assert sign not in source
    assert len(source.encode()) < 400_000
    Page(source)


def test_a_page_elsewhere_says_what_changed(make: Make, pipeline: Run, tmp_path: Path) -> None:
    """Against the build that was replaced, or another one; commands name the folder."""
    data = tmp_path / "rows.jsonl"
    lines = CHAT.read_text("utf-8").splitlines()
    data.write_text("\n".join(lines[:6]), "utf-8")
    make("sft", data, "old")
    make("sft", data)
    data.write_text("\n".join(lines), "utf-8")
    folder = make("sft", data)
    assert "Against the build before" not in source_of(folder)
    assert '<var class="folder">DIR</var>' in source_of(folder)
    drift = json.loads((folder / "run.json").read_text("utf-8"))["drift"]
    pipeline("report", "out", "-o", "page.html").ended()
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Against the build that it replaced." in page
    assert "rows.used" in page
    assert f"{drift['rows.used']['change']:+.1%}" in page
    assert '<var class="folder">out</var>' in page
    pipeline("report", "out", "-o", "page.html", "--against", "old").ended()
    other = (tmp_path / "page.html").read_text("utf-8")
    assert f"Against build {read_manifest(tmp_path / 'old')['build_id']} in old." in other
    assert "rows.used" in other
    ran = pipeline("report", "out", "--against", "old")
    assert (ran.status, "-o FILE" in ran.err) == (2, True)


def test_changes_are_ordered_by_their_size() -> None:
    """What came from nothing first; a number that is gone is no bar."""
    numbers = {
        "a": Change(1, 2, 1.0),
        "b": Change(0, 5, None),
        "c": Change(4, 3, -0.25),
        "d": Change(2, None, -1.0),
        "e": Change(100, 101, 0.01),
    }
    section = headline.section(headline.Before("Against x.", numbers))
    assert [line.name for line in section.rows] == ["b", "a", "d", "c", "e"]
    assert [line.change for line in section.rows[:3]] == ["from nothing", "+100.0%", "gone"]
    assert [line.notable for line in section.rows] == [True, True, True, True, False]
    assert section.bars is not None
    assert [bar.name[0] for bar in section.bars.bars] == ["a", "d", "c", "e"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0%"), (0.0001, "under 0.1%"), (0.5, "50.0%"), (0.99999, "over 99.9%"), (1, "100.0%")],
)
def test_a_share_is_none_or_all_only_where_it_is(value: float, text: str) -> None:
    """A rest that rounding would hide is told."""
    assert template.share(value) == text
