"""The page of a build: its figures are the manifest's, its bytes the build's, a value stays text.

And by itself: its policy, charts, first line and size, and what it says of other builds.
"""

import base64
import hashlib
import json
import re
import shlex
import weakref
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, in_shell, read_manifest, read_rows, table, write_rows

import posttrain_pipeline as pp
from pipeline.builder import launch
from pipeline.builds import summary as summaries
from pipeline.builds.build import Build, StoredShard
from pipeline.builds.limits import Built
from pipeline.builds.summary import fitted, summary
from pipeline.manifest.manifest import Manifest
from pipeline.report import charts, difference, headline, numbers
from pipeline.report import page as report
from pipeline.shards.doubles import DIGEST

EVIL = "<script>document.title='PWNED'</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
CHAT = SAMPLES / "sft" / "chat.jsonl"
BUILDS = {
    "sft": CHAT,
    "rm": SAMPLES / "rm" / "pairs_margin.jsonl",
    "prm": SAMPLES / "prm" / "alternatives.jsonl",
}
SPLIT = ("--max-length", 512, "--test-size", 0.3)  # of a build that test_show has, too
CSS = (Path(report.__file__).parent / "page.css").read_text("utf-8")


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text, headings in order, pictures with what
    they say; and that every element is closed."""

    VOID = frozenset({"meta", "link", "br", "input"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.joined = ""
        self.levels: list[int] = []
        self.pictures: list[dict[str, str]] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the element."""
        named = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in named.items()]
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
        """Collect text but that of style and script."""
        if self.lasttag not in ("style", "script"):
            self.joined += data
            self.texts.append(data.strip())

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


@pytest.mark.parametrize("task", BUILDS)
def test_figures_are_the_manifests(built, task):
    """Cards, ledger, losses, splits and probes say what manifest.json says."""
    folder = built(task, BUILDS[task])
    manifest, text = read_manifest(folder), page_of(folder).text
    rows, tokens, examples = manifest["rows"], manifest["tokens"], manifest["examples"]
    trained = f"{tokens['trained']} {tokens['trained'] / tokens['total']:.1%} of all"
    sides = manifest["splits"].values()
    told = [
        f"rows used {rows['used']} of {rows['in']} read",
        f"examples {examples['kept']} of {examples['made']} made",
        f"tokens {tokens['total']} and {tokens['padding']} of padding",
        f"{'compared' if task == 'rm' else 'trained'} {trained}",
        f"refused {rows['rejected']} ",
        *(f"{code} {count} row" for code, count in rows["rejected_by_code"].items()),
        *(name.replace("_", " ") for name in manifest["probes"]),
        *(f"train {one['rows']} {one['examples']} {one['tokens']} 1" for one in sides),
    ]
    if packing := manifest["packing"]:
        told.append(f"packs {packing['packs']} {packing['efficiency']:.1%} full")
    for law in json.loads((folder / "validation.json").read_text("utf-8"))["expectations"]:
        judged = f"{law['broken']} of {law['checked']} passed {law['severity']}"
        told.append(f"{law['name']} {judged}")
    told += [one["id"] for one in read_rows(folder / "rejects.jsonl")]
    assert [one for one in told if one not in text] == []


def test_no_path_clock_or_host_is_in_the_page(built):
    """So equal builds have equal pages, wherever and by however many workers they were made."""
    folder = built("sft", CHAT)
    page = (folder / "report.html").read_bytes()
    for foreign in (str(folder), str(SAMPLES), str(Path.cwd()), "workers", "seconds"):
        assert foreign not in page.decode()
    assert not re.search(rb"\b\d\d:\d\d:\d\d\b", page)
    assert read_manifest(folder)["files"]["report.html"] == hashlib.sha256(page).hexdigest()


@pytest.mark.parametrize("task", ["sft", "rm"])
def test_script_in_a_value_stays_text(make, tmp_path, task):
    """In content, in a refused row, in a file's name: no element, no handler, no address. So do
    marks of direction, a token without end, half of a surrogate pair."""
    keep = ("prompt", "completion") if task == "sft" else ("prompt", "chosen", "rejected")
    texts = {"completion": f"{EVIL} yes", "chosen": EVIL}
    rows = [{**texts, "prompt": f"{EVIL} {i}", "rejected": f"{i} no"} for i in range(3)]
    refused = {keep[0]: EVIL, keep[1]: ""}
    data = tmp_path / "<b>x<script>alert(2)<.jsonl"
    long = {
        "prompt": "x" * 100_000,
        "completion": "a\x00b\u2066",
        "chosen": "\ud800",
        "rejected": "y",
    }
    given = [{key: row[key] for key in keep} for row in (*rows, long)]
    write_rows(data, [*given[:3], refused, given[3]])
    folder = make(task, data, max_length=64_000)
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
    for sign in ("\x1b", "\u202e", "\u2066", "\x00", "http:", "https:", "url(", "@import"):
        assert sign not in source
    assert len(source.encode()) < 400_000


def test_the_policy_allows_our_style_and_script_and_nothing_else(built):
    """Both are named by the hashes of what is in the page; no attribute needs more."""
    source = source_of(built("sft", CHAT))
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


def test_everything_is_told_in_text_and_headings_skip_no_level(built):
    """A picture has a name, or what stands beside it says the same."""
    for task in ("sft", "rm"):
        page = page_of(built(task, BUILDS[task]))
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


def test_colours_can_be_told_apart_in_light_and_dark():
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
def test_a_histogram_keeps_every_count_inside_its_axes(counts, width):
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


def test_the_first_line_counts_what_was_lost(make):
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
        assert (first.text == "Fit to train on, but much was lost") == (status == "fail")
        page = report.make(build)
        assert f'class="verdict {first.status}"' in page
        told = f"{rejected} of 1\u202f000 rows were refused ({rejected / 1000:.1%})"
        assert not rejected or told in page


def test_one_count_of_expectations_everywhere(make, pipeline, tmp_path):
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
    hostile = json.dumps(table("enormous.toml")).replace("HOSTILE", json.dumps(HOSTILE)[1:-1])
    one = json.loads(hostile)
    manifest = read_manifest(folder)
    given = {**manifest["inputs"][0], **one["input"]}
    codes = {f"{HOSTILE}{at}": at for at in range(90)}
    changed(
        folder,
        "manifest.json",
        inputs=[{**given, "path": f"{at}{HOSTILE}"} for at in range(60)],
        sources=[one["source"]] * 60,
        filters=[one["filter"]] * 60,
        doubles=[one["double"]] * 60,
        rows={**manifest["rows"], "rejected_by_code": codes},
        options={**manifest["options"], "system": HOSTILE},
        model={**manifest["model"], "added_tokens": {f"{at}{HOSTILE}": at for at in range(120)}},
    )
    rejects = ({**one["reject"], "offset": None, "code": code} for code in codes)
    write_rows(folder / "rejects.jsonl", rejects)
    audits = json.loads((folder / "audits.json").read_text("utf-8"))["audits"]
    figure = {**one["figure"], "bins": [[HOSTILE, 5]] * 30}
    for audit in audits:
        if audit["name"] != "lengths":
            audit |= {"status": "warn", "figures": [*audit["figures"], *[figure] * 20]}
    changed(folder, "audits.json", audits=audits)
    validation = json.loads((folder / "validation.json").read_text("utf-8"))
    law = {**validation["expectations"][0], **one["law"]}
    changed(folder, "validation.json", expectations=[law] * 120, judged=120)


def test_no_build_makes_the_page_larger_than_its_bound(make):
    """More of everything than is shown, all with long texts full of markup."""
    folder = make("sft", CHAT)
    usual = len(report.make(Build.open(folder)).encode())
    _enormous(folder)
    page = report.make(Build.open(folder))
    assert usual < len(page.encode()) <= report.LARGEST
    assert "\u202e" not in page
    assert "10 more, in manifest.json" in page
    Page(page)


def test_the_page_opens_shards_one_after_the_other(built, monkeypatch):
    """What the page needs of memory does not grow with the shards."""
    build = Build.open(built("sft", CHAT.with_name("word_problems.jsonl"), *SPLIT))
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


def test_a_share_is_none_or_all_only_where_it_is():
    """A rest that rounding would hide is told."""
    told = [headline.share(value) for value in (0.0, 0.0001, 0.5, 0.99999, 1)]
    assert told == ["0.0%", "under 0.1%", "50.0%", "over 99.9%", "100.0%"]


# The last words of a build: what it came to, what it lost, and the commands that go on from it.

DATA = SAMPLES / "sft" / "word_problems.jsonl"


@pytest.mark.slow
def test_the_commands_can_be_pasted(make, tmp_path):
    """Into a shell, as they are printed at any width, whatever the folder is called."""
    name = "it's a \"long\" folder's name"
    manifest = pp.open(make("sft", DATA, name)).manifest
    for columns in (40, 1 << 20):
        lines = launch.lines(Path(name), manifest, columns)
        text = "\n".join(line[10:] if line[:1].strip() else line for line in lines)
        load, *_ = text.split("\npipeline show")
        assert "num_rows" in in_shell(load, tmp_path).ended().out
        joined = text.replace("\\\n", " ")
        assert ["pipeline", "show", name] in [shlex.split(line) for line in joined.split("\n")]


def test_an_export_of_a_version_goes_beside_the_versions(built, tmp_path, monkeypatch):
    """Not among them, where nothing lists it."""
    manifest = pp.open(built("sft", DATA)).manifest
    for output, beside in (("r", "r-trl"), ("a/r", "a/r-trl"), (".", "../work-trl")):
        (tmp_path / "work" / output).mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(tmp_path / "work")
        (Path(output) / "history.jsonl").touch()
        lines = launch.lines(Path(output, manifest.build_id), manifest, 1 << 20)
        (line,) = [line for line in lines if "export trl" in line]
        assert Path(shlex.split(line)[-1]).resolve() == Path(beside).resolve()


def test_nothing_breaks_inside_a_word(built):
    """Every word of the wide summary is one of the narrow summary, and lines fit."""
    lines = summary(Built(pp.open(built("sft", DATA)), fresh=True))
    for columns in (40, 60, 80):
        narrow = fitted(lines[:-1], columns)  # the report's path is long
        assert " ".join(narrow).split() == " ".join(lines[:-1]).split()
        assert all(len(line) <= columns or len(line.split()) <= 2 for line in narrow), narrow


def _losing(manifest: Manifest, **counts: int) -> Manifest:
    by_code = {f"code_{n}": n for n in range(1, 9)}
    lost = sum(counts.values())
    rows = replace(manifest.rows, in_=100_000, used=100_000 - lost, rejected_by_code=by_code)
    return replace(manifest, rows=replace(rows, **counts))


def test_every_loss_has_its_line_and_codes_their_fix(built):
    """The most frequent codes first; long fixes are said by their first sentence."""
    manifest = pp.open(built("sft", DATA)).manifest
    counts = {"rejected": 36, "duplicates": 2, "filtered": 1500, "near_duplicates": 4}
    lost = _losing(manifest, **counts, contaminated=5, left_out=6)
    fixes = {"code_8": "Do this.", "code_7": f"Do that. {'And more. ' * 20}"}
    said = summaries.said("losses", lost, lambda code: fixes.get(code, ""))
    assert said[0] == "lost      1,553 of 100,000 rows (1.6%)"
    assert [line.split()[0] for line in said[1:7]] == ["36", "2", "1,500", "5", "4", "6"]
    assert said[8:11] == [
        "          8 code_8: Do this.",
        "          7 code_7: Do that.",
        "          6 code_6",
    ]
    assert said[-1] == "          and 2 more codes (see rejects.jsonl)"
    assert summaries.said("losses", _losing(manifest, rejected=36), summaries.no_fix)[0].endswith(
        "(less than 0.1%)"
    )


# What changed between two builds: every example of both is in exactly one group.


def _numbers(rows: list[tuple[int, int]]) -> numbers.Numbers:
    """Examples by row id and content."""
    what = np.zeros(len(rows), DIGEST)
    what["a"] = 7
    what["b"] = [content for _, content in rows]
    ones = np.ones(len(rows), np.int32)
    who = np.array([name for name, _ in rows], np.uint64)
    return numbers.Numbers(
        ("train",), ("x",), who, what, ones, ones, np.zeros(len(rows), np.uint8), ones * 0
    )


ROWS = st.dictionaries(st.integers(0, 30), st.integers(0, 6), max_size=20).map(
    lambda rows: list(rows.items())
)


@given(ROWS, ROWS)
def test_every_example_is_in_one_group(one, other):
    """Against the definition, by sets and counters: moved by content, changed by id."""
    found = numbers.match(_numbers(one), _numbers(other))
    left = [found.same.one, found.moved.one, found.changed.one, found.removed]
    right = [found.same.other, found.moved.other, found.changed.other, found.added]
    assert sorted(np.concatenate(left).tolist()) == list(range(len(one)))
    assert sorted(np.concatenate(right).tolist()) == list(range(len(other)))

    def pairs(group: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return [(one[a], other[b]) for a, b in zip(group.one, group.other, strict=True)]

    assert {a for a, _ in pairs(found.same)} == set(one) & set(other)
    assert all(a == b for a, b in pairs(found.same))
    a_left = Counter(content for row in one if row not in other for content in row[1:])
    b_left = Counter(content for row in other if row not in one for content in row[1:])
    assert Counter(a[1] for a, _ in pairs(found.moved)) == a_left & b_left
    assert all(a[1] == b[1] and a[0] != b[0] for a, b in pairs(found.moved))
    assert all(a[0] == b[0] and a[1] != b[1] for a, b in pairs(found.changed))
    removed = {one[at][0] for at in found.removed}
    added = {other[at][0] for at in found.added}
    assert not removed & added


@pytest.mark.slow
def test_content_is_all_that_a_trainer_reads(built):
    """Of every task: equal rows are equal in another layout, and any change of ids, labels, weights
    or ratings is one."""
    for task, name, layouts in (
        ("sft", "sft/word_problems.jsonl", ("packed", "ragged", "padded")),
        ("prm", "prm/math_shepherd.jsonl", ("packed", "ragged", "padded")),
        ("rm", "rm/pairs.jsonl", ("ragged", "padded")),
    ):
        data = SAMPLES / name
        read = [
            numbers.read(Build.open(built(task, data, "--layout", layout))) for layout in layouts
        ]
        assert len(read[0]) > 5
        for other in read[1:]:
            found = numbers.match(read[0], other)
            assert len(found.same) == len(read[0]) == len(other)
            for one in ("length", "trained"):
                assert sorted(getattr(read[0], one)) == sorted(getattr(other, one))


def _sft(path: Path, rows: list[tuple[str, str]]) -> Path:
    return write_rows(path, ({"question": q, "answer": a} for q, a in rows))


def test_options_of_sources_are_compared_by_name():
    """Another value, a source that came, one that went, and another order."""
    a, b = {"name": "a", "weight": 1}, {"name": "b", "weight": 1}
    heavy = {**b, "weight": 9}

    def told(one: list[Any], other: list[Any]) -> dict[str, Any]:
        return difference.by_source({"seed": {"a": 0, "b": 1}, "sources": {"a": one, "b": other}})

    rest = {"seed": {"a": 0, "b": 1}}
    assert told([a, b], [a, heavy]) == {**rest, "source.b.weight": {"a": 1, "b": 9}}
    assert told([a, b], [a]) == {**rest, "source.b": {"a": b, "b": None}}
    assert told([a], [a, b]) == {**rest, "source.b": {"a": None, "b": b}}
    order = {"order of sources": {"a": ["a", "b"], "b": ["b", "a"]}}
    assert told([a, b], [b, a]) == {**rest, **order}
    assert difference.by_source(rest) == rest


def test_versions_are_named_by_their_first_characters(make, tmp_path):
    """And other tasks are not compared."""
    data = _sft(tmp_path / "a.jsonl", [(f"Question {n}?", "Yes.") for n in range(9)])
    folder = make("sft", data, "r", keep=3)
    build_id = Build.open(folder / "current").manifest.build_id
    assert difference.opened(folder / build_id[:8]).folder == folder / build_id
