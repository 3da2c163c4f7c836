"""Columns that pairs and chains of steps may have beside their answers, by what they say."""

from __future__ import annotations

from stages.formats import _pairs, _steps, _turns

_BEFORE = {"system text": _turns.SYSTEM, "history": ("history",)}
PAIR = {
    "prompt": (*_pairs.PROMPTS, "conversations", "messages"),
    "instruction": ("instruction", "input", "context"),
    **_BEFORE,
    "tools": ("tools", "functions"),
    "margin": ("margin",),
    "scores": tuple(name for names in _pairs.SCORES for name in names),
}
CHAIN = {"problem": _steps.PROBLEMS, **_BEFORE}
