"""The seal of a JSON file: a hash of its content, stored in the file itself.

The manifest has the hash of every other file but not its own; it leaves out ``run.json``, which may
differ between equal builds. These two, and the report of a part, carry their own hash. A sealed
file must also have the exact bytes that we would write, so that every change is noticed.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import orjson

from pipeline.manifest.dataset_files import json_text

KEY = "content_sha256"
_SPELLING = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with a new seal; an older one is dropped."""
    bare = {key: value for key, value in content.items() if key != KEY}
    return {**bare, KEY: _hash(bare)}


def problem(data: bytes) -> str | None:
    """What is wrong with a sealed file's bytes; None when they are what was written."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            return "it is not an object"
    except ValueError as error:
        return f"it is not JSON: {error}"
    if KEY not in content:
        return "it has no seal"
    if sealed(content)[KEY] != content[KEY]:
        return "its content changed after it was sealed"
    return None if _is_spelled(content, data) else "its JSON is written differently"


def content_of(data: bytes) -> dict[str, Any]:
    """What a sealed file says.

    Raises:
        ValueError: its bytes are not those that were written; it says what is wrong.
    """
    wrong = problem(data)
    if wrong is not None:
        raise ValueError(wrong)
    content: dict[str, Any] = json.loads(data)
    return content


def _is_spelled(content: object, data: bytes) -> bool:
    """Whether these are the bytes that we would write; orjson is asked first, since it is fast.

    It spells some numbers in another way, and refuses some texts: then Python has the last word.
    """
    with suppress(TypeError):
        if orjson.dumps(content, option=_SPELLING) == data:
            return True
    return json_text(content).encode(errors="surrogatepass") == data  # a lone half is JSON, too
