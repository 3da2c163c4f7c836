"""A toy task that a tiny model learns in seconds: short answers to short questions."""

import json
import random
from pathlib import Path
from typing import Any

NAMES = ("Ana", "Ben", "Chi", "Dov", "Eva", "Fay", "Gus", "Hal")
THINGS = ("pens", "cups", "hats", "keys", "nuts", "jars")
KNOWING = ("counted", "checked", "looked", "asked")
GUESSING = ("guessed", "dreamed", "hoped", "forgot")


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


def chat(row: dict[str, str]) -> list[dict[str, str]]:
    """A row as two turns."""
    said = (("user", row["question"]), ("assistant", row["answer"]))
    return [{"role": role, "content": content} for role, content in said]


def pairs(count: int, seed: int) -> list[dict[str, str]]:
    """Answers that know are better than answers that guess; which is longer is drawn."""
    draw = random.Random(seed)
    found = []
    for row in questions(count, seed):
        ends = [" Sure.", ""] if draw.random() < 0.5 else ["", " Sure."]
        found.append(
            {
                "prompt": row["question"],
                "chosen": f"I {draw.choice(KNOWING)}: {row['answer']}{ends[0]}",
                "rejected": f"I {draw.choice(GUESSING)}: {row['answer']}{ends[1]}",
            }
        )
    return found


def write(rows: list[dict[str, Any]], path: Path) -> Path:
    """As JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path
