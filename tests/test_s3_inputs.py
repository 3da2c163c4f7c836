"""Builds from a store like S3: what it is asked for, counted in its own log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_s3 import BUCKET, S3Stub, serve_s3
from support import Ran, read_manifest

pytestmark = pytest.mark.slow
Run = Callable[..., Ran]
LARGE, SMALL = 16_000, 4_000  # rows of 2.2 kB


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    """A store with a file of several pieces and one of a single piece."""
    import boto3

    with serve_s3(tmp_path_factory.mktemp("s3")) as stub:
        client = boto3.client("s3", endpoint_url=stub.url, **_keys(stub))
        for name, content in CONTENT.items():
            client.put_object(Bucket=BUCKET, Key=f"set/{name}", Body=content)
        yield stub


def _keys(stub: S3Stub) -> dict[str, Any]:
    said = stub.environment
    return {
        "aws_access_key_id": said["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": said["AWS_SECRET_ACCESS_KEY"],
        "region_name": said["AWS_DEFAULT_REGION"],
    }


def _lines(letter: str, count: int) -> bytes:
    unread = "x" * 2100
    rows = ({"question": f"{letter} {i}?", "answer": f"{i}", "x": unread} for i in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


CONTENT = {"a.jsonl": _lines("a", LARGE), "b.jsonl": _lines("b", SMALL)}
PIECES = sum(-(-len(content) // (16 << 20)) for content in CONTENT.values())


def test_each_piece_is_one_request(pipeline: Run, tmp_path: Path, s3: S3Stub) -> None:
    """By two workers. The folder is listed a fixed number of times; a second build of the same
    objects reads none of them, and the build is that of the same files on this machine."""
    options = ("--model", "qwen2-1.5b", "--layout", "ragged", "--workers", "2", "--ignore", "x")
    before = len(s3.requests)
    address = f"s3://{BUCKET}/set"
    ran = pipeline("run", "sft", address, *options, "-o", "far", **s3.environment)
    assert ran.status == 0, ran.err
    asked = s3.requests[before:]
    assert not [status for _, _, status in asked if status >= 400 and status != 404]
    gets = Counter(path for method, path, _ in asked if method == "GET" and "list-type" not in path)
    # One for each piece; one for each cut; the head and at most nine windows of each file.
    cuts = PIECES - len(CONTENT)
    assert PIECES <= sum(gets.values()) <= PIECES + cuts + 10 * len(CONTENT)
    assert sum("list-type" in path for _, path, _ in asked) <= 4
    before = len(s3.requests)
    assert pipeline("run", "sft", address, *options, "-o", "far", **s3.environment).status == 0
    assert not [path for method, path, _ in s3.requests[before:] if _is_data(method, path)]
    here = tmp_path / "set"
    here.mkdir()
    for name, content in CONTENT.items():
        (here / name).write_bytes(content)
    assert pipeline("run", "sft", here, *options, "-o", "near").status == 0
    far, near = read_manifest(tmp_path / "far"), read_manifest(tmp_path / "near")
    assert far["build_id"] == near["build_id"]
    assert far["splits"] == near["splits"]
    assert [one["pieces"] for one in far["inputs"]] == [PIECES - 1, None]


def _is_data(method: str, path: str) -> bool:
    return method == "GET" and "list-type" not in path
