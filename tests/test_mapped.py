"""Files that are read: their hash, and pieces of mapped ones, whose pages are not held."""

import hashlib
import io
import os
from pathlib import Path

import pytest

from pipeline.shards import mapped
from stages.files import file_hash

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def file(tmp_path: Path) -> mapped.Mapped:
    """The content, mapped."""
    path = tmp_path / "part.arrow"
    path.write_bytes(CONTENT)
    return mapped.Mapped(path)


@pytest.mark.parametrize(("count", "read"), [(1, 0), (3, 0), (100, 100)])
def test_many_pieces_are_read_and_few_are_looked_at(
    file: mapped.Mapped, count: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either way they are the bytes that were asked for, from where the view begins."""
    calls, pread = [], os.pread

    def counted(*arguments: int) -> bytes:
        calls.append(arguments)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", counted)
    part = file.part(file.content[100:])
    bounds = [(7 * n, 7 * n + 5) for n in range(count)]
    found = mapped.joined([(part, *bound) for bound in bounds])
    assert bytes(found) == b"".join(CONTENT[100:][slice(*bound)] for bound in bounds)
    assert len(calls) == read


def test_what_is_not_in_the_file_is_never_read_from_it(file: mapped.Mapped) -> None:
    """A column that was put together in memory."""
    copy = memoryview(bytes(1000))
    part = file.part(copy)
    assert part.start == -1
    assert bytes(mapped.joined([(part, n, n + 1) for n in range(100)])) == bytes(100)


def test_a_file_that_shrinks_is_noticed(file: mapped.Mapped, tmp_path: Path) -> None:
    """Read bytes that are missing raise; mapped ones would end the process."""
    part = file.part(file.content)
    pieces = [(part, n, n + 100) for n in range(0, 15_000, 150)]
    os.truncate(tmp_path / "part.arrow", 9_000)
    with pytest.raises(OSError, match="shorter"):
        mapped.joined(pieces)


def test_an_empty_file_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert bytes(mapped.Mapped(tmp_path / "empty").content) == b""


@pytest.mark.parametrize("size", [0, 1, file_hash._BLOCK, file_hash._BLOCK + 1])
def test_the_hash_is_that_of_all_bytes(size: int, tmp_path: Path) -> None:
    """Of a file by path or by name, and of a stream while it is copied."""
    content = bytes(i % 251 for i in range(size))
    path = tmp_path / "file"
    path.write_bytes(content)
    wanted = hashlib.sha256(content).hexdigest()
    copy = io.BytesIO()
    assert file_hash.sha256(path) == file_hash.sha256(str(path)) == wanted
    assert file_hash.copied(io.BytesIO(content), copy) == wanted
    assert copy.getvalue() == content
