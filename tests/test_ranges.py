"""Inputs that lie elsewhere: each byte is fetched once, only of the version that was planned."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.http import HTTPFileSystem
from stub_http import Site, serve_http
from stub_s3 import BUCKET
from support import own_cache, read_manifest, silent

from pipeline import filesystem, remote, stores
from pipeline.builder.planning import make_parts, works_of
from pipeline.builder.preparation import prepare, refuse_early
from pipeline.inputs import scan
from pipeline.options.config import Config
from stages.errors import SurroundingsError
from stages.readers import _tables, jsonl

ROWS: list[dict[str, Any]] = [
    {"question": f"q{i} " + "é" * (i % 7), "answer": f"a{i} " * 9} for i in range(500)
]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
OTHERS = LINES.replace(b': "q', b': "Q')  # of the same size


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    """A server; no input is small, and few bytes are looked at."""
    served = Site()
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    monkeypatch.setattr(scan, "SMALL", 0)
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 12_000)
    monkeypatch.setattr(_tables, "FETCHED", 1024)
    monkeypatch.setattr(remote, "BLOCK", 1024)
    monkeypatch.setattr(remote, "_blocks", {})

    with serve_http(served.answer) as served.url:
        yield served
        HTTPFileSystem.clear_instance_cache()


def _config(data: str, cache_dir: Path, folder: Path) -> Config:
    own_cache(folder, cache_dir)
    given: dict[str, Any] = {"max_reject": 1.0, "workers": 1, "model": "qwen2-1.5b"}
    return Config.of(task="sft", data=(data,), output=folder / "out", cache_dir=folder, **given)


def _parts(config: Config) -> tuple[str, str, list[bytes]]:
    """The id of a build, the hash of its input, and its parts."""
    prepared = prepare(config)
    refuse_early(prepared)
    made = make_parts(prepared, silent)
    prepared = prepared.having_read(made.reports)
    works = works_of(prepared, made.backend)
    return prepared.build_id, prepared.inputs[0].sha256, [w.path.read_bytes() for w in works]


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, 500, compression="none", use_dictionary=False)
    return sink.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_each_byte_is_fetched_once(tmp_path, cache_dir, tokenizer_json, site, name):
    """But for the few that are looked at; the parts are those of a local file, and a second build
    that finds them fetches nothing."""
    content = {
        "rows.jsonl": LINES,
        "rows.json": json.dumps(ROWS).encode(),
        "rows.parquet": _parquet(ROWS * 6),  # larger than what Arrow reads at its end
    }[name]
    site.files[f"/{name}"] = content
    (tmp_path / name).write_bytes(content)
    near = _parts(_config(str(tmp_path / name), cache_dir, tmp_path / "near"))
    prepared = prepare(_config(f"{site.url}/{name}", cache_dir, tmp_path / "far"))
    refuse_early(prepared)
    looked = site.got.pop(f"/{name}")
    splits = [split for split, _, _ in prepared.splits]
    made = make_parts(prepared, silent)
    got = site.got.pop(f"/{name}")
    pieces = [piece for split in splits if split.version for piece in split.version.pieces]
    assert sorted(got) == sorted((piece.start, piece.stop) for piece in pieces)
    assert name == "rows.json" or len(splits) > 2
    if name == "rows.jsonl":
        assert sum(stop - start for start, stop in got) == len(content)
        # The head, three places, and the bytes around each cut.
        cuts = (len(splits) - 1) * (1 << 14)
        assert sum(stop - start for start, stop in looked) <= len(content) + cuts
    prepared = prepared.having_read(made.reports)
    found = [work.path.read_bytes() for work in works_of(prepared, made.backend)]
    assert (prepared.build_id, prepared.inputs[0].sha256, found) == near
    remote._blocks.clear()  # as another process
    assert _parts(_config(f"{site.url}/{name}", cache_dir, tmp_path / "far")) == near
    assert site.got == {}


@pytest.mark.slow
def test_an_object_that_changes_is_refused(tmp_path, cache_dir, tokenizer_json, site):
    """Before each request, of whatever: the parts are those of one version, or there are none."""

    def config(n: int) -> Config:
        return _config(f"{site.url}/rows.jsonl", cache_dir, tmp_path / f"{n}")

    lines, others = (content[: content.index(b"\n", 30_000) + 1] for content in (LINES, OTHERS))
    outcomes: list[Any] = []
    versions: list[Any] = []
    for content in (lines, others):
        site.files["/rows.jsonl"] = content
        versions.append(_parts(config(len(versions)))[1:])
    for at in range(1, 40):
        site.files["/rows.jsonl"], count = lines, 0
        remote._blocks.clear()

        def change(at: int = at) -> None:
            nonlocal count
            count += 1
            if count == at:
                site.files["/rows.jsonl"] = others

        site.before = change
        try:
            found: Any = _parts(config(f"change {at}"))[1:]
        except SurroundingsError as error:
            found = error.exit_code if "rows.jsonl changed" in str(error) else str(error)
        outcomes.append(found)
        site.before = lambda: None
        if count < at:
            break
    assert count < at
    assert all(found == 5 or found in versions for found in outcomes)
    assert 5 in outcomes


def test_torn_answers_are_asked_for_again(tmp_path, cache_dir, tokenizer_json, site):
    """Twice; a third one ends the build."""
    site.files["/rows.jsonl"] = LINES
    (tmp_path / "rows.jsonl").write_bytes(LINES)
    near = _parts(_config(str(tmp_path / "rows.jsonl"), cache_dir, tmp_path / "near"))
    prepared = prepare(_config(f"{site.url}/rows.jsonl", cache_dir, tmp_path / "far"))
    site.torn = 2
    made = make_parts(prepared, silent)
    assert site.torn == 0
    assert prepared.having_read(made.reports).build_id == near[0]
    site.torn = 3
    with pytest.raises(SurroundingsError, match=r"rows\.jsonl cannot be read"):
        _parts(_config(f"{site.url}/rows.jsonl", cache_dir, tmp_path / "other"))


LARGE, SMALL = 16_000, 4_000  # rows of 2.2 kB


def _s3_lines(letter: str, count: int) -> bytes:
    unread = "x" * 2100
    rows = ({"question": f"{letter} {i}?", "answer": f"{i}", "x": unread} for i in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.slow
def test_each_piece_is_one_request(pipeline, tmp_path, in_s3):
    """By two workers. The folder is listed a fixed number of times; a second build of the same
    objects reads none of them, and the build is that of the same files on this machine."""
    content = {"a.jsonl": _s3_lines("a", LARGE), "b.jsonl": _s3_lines("b", SMALL)}
    pieces = sum(-(-len(data) // (16 << 20)) for data in content.values())
    address = f"s3://{BUCKET}/set"
    for name, data in content.items():
        stores.open_store(address).put(name, data)
    options = ("--model", "qwen2-1.5b", "--layout", "ragged", "--workers", "2", "--ignore", "x")
    before = len(in_s3.requests)
    pipeline("run", "sft", address, *options, "-o", "far").ended()
    asked = in_s3.requests[before:]
    assert not [status for _, _, status in asked if status >= 400 and status != 404]
    gets = Counter(path for method, path, _ in asked if method == "GET" and "list-type" not in path)
    # One for each piece; one for each cut; the head and at most nine windows of each file.
    cuts = pieces - len(content)
    assert pieces <= sum(gets.values()) <= pieces + cuts + 10 * len(content)
    assert sum("list-type" in path for _, path, _ in asked) <= 4
    before = len(in_s3.requests)
    pipeline("run", "sft", address, *options, "-o", "far").ended()
    asked = in_s3.requests[before:]
    assert not [path for method, path, _ in asked if method == "GET" and "list-type" not in path]
    here = tmp_path / "set"
    here.mkdir()
    for name, data in content.items():
        (here / name).write_bytes(data)
    pipeline("run", "sft", here, *options, "-o", "near").ended()
    far, near = read_manifest(tmp_path / "far"), read_manifest(tmp_path / "near")
    assert (far["build_id"], far["splits"]) == (near["build_id"], near["splits"])
    assert [one["pieces"] for one in far["inputs"]] == [pieces - 1, None]
