"""What this process has downloaded, by the tokenizer that came of it: ``run.json`` says so.

A model is looked for several times in a build, and only the first time finds it missing.
"""

from __future__ import annotations

import hashlib

_MADE: dict[str, str] = {}


def note(tokenizer_json: bytes, what: str) -> None:
    """Remember what was downloaded for a tokenizer."""
    _MADE[hashlib.sha256(tokenizer_json).hexdigest()] = what


def of(tokenizer_json: bytes) -> str | None:
    """What was downloaded for a tokenizer; None where nothing was."""
    return _MADE.get(hashlib.sha256(tokenizer_json).hexdigest()) if _MADE else None
