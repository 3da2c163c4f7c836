"""One hash of files: of the whole file, whatever the size of the blocks that it is read in."""

from __future__ import annotations

import hashlib
import inspect
import io
import re
from pathlib import Path

import pytest
from support import ROOT

from pipeline.inputs import versions
from pipeline.stores import objects
from stages.files import file_hash


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


def test_no_other_module_hashes_files() -> None:
    """``hashlib.file_digest`` has one caller, and nothing hashes what it has read for that."""
    hashing = re.compile(r"file_digest|sha256\([^()]*read_bytes|\.update\([^()]*\.read(_bytes)?\(")
    folders = ("stages", "expectations", "pipeline", "posttrain_pipeline")
    paths = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    found = {path for path in paths if hashing.search(path.read_text("utf-8"))}
    # The code's version is one hash over many files and their names; stores name objects by MD5.
    assert found == {
        Path(file_hash.__file__),
        Path(objects.__file__),
        Path(inspect.getfile(inspect.unwrap(versions.code_version))),
    }
