"""Both sides begin with the same prompt, id for id."""

from __future__ import annotations

from expectations.checks import holds
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="prompt_shared",
    why="sides that answer different prompts compare prompts, not answers",
    checks=(holds("prompt_shared"),),
    breaks={"prompt_shared": 0},
    tasks=("rm",),
)
