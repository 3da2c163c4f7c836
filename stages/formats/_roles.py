"""Who says a turn, in every spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "claude": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}


def speaker(turn: Mapping[str, Any]) -> Any:
    """Who says a turn, as the turn spells it; a table may hold both keys and fill one."""
    said = turn.get("role")
    return turn.get("from") if said is None else said


def role_of(turn: Mapping[str, Any]) -> str | None:
    """Who says a turn, in one spelling; None for nobody that is known."""
    said = speaker(turn)
    return ROLES.get(said.lower()) if isinstance(said, str) else None
