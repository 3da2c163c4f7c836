"""A toy task that a tiny model learns in seconds: short answers to short questions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NAMES = ("Ana", "Ben", "Chi", "Dov", "Eva", "Fay", "Gus", "Hal")
THINGS = ("pens", "cups", "hats", "keys", "nuts", "jars")


def questions(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Question and answer rows."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        name, thing, number = draw.choice(NAMES), draw.choice(THINGS), draw.randint(2, 9)
        rows.append(
            {
                "question": f"{name} has {number} {thing}. How many?",
                "answer": f"{name} has {number} {thing}.",
            }
        )
    return rows


def write(rows: list[dict[str, Any]], path: Path) -> Path:
    """As JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path
