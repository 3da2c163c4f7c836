"""Generated rows: the same seed gives the same rows, and no text is taken from elsewhere.

A file of rows is made for a task, a kind of text and a shape. Shapes hold the same content in the
columns that different programs ask for.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.rows import chinese, code, english
from benchmarks.rows.exercise import Exercise, Text

Row: TypeAlias = dict[str, Any]
TEXTS: dict[str, Text] = {
    "english": english.exercise,
    "chinese": chinese.exercise,
    "code": code.exercise,
}
_RIGHT = 0.7  # share of chains of steps without a mistake


def _turn(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def _solution(steps: tuple[str, ...], answer: str) -> Row:
    return _turn("assistant", "\n".join([*steps, answer]))


def _chat(made: Exercise, draw: random.Random) -> Row:
    return {"messages": [_turn("user", made.question), _solution(made.steps, made.answer)]}


def _completion(made: Exercise, draw: random.Random) -> Row:
    question = [_turn("user", made.question)]
    return {"prompt": question, "completion": [_solution(made.steps, made.answer)]}


def _pair(made: Exercise, draw: random.Random) -> Row:
    return {
        "prompt": [_turn("user", made.question)],
        "chosen": [_solution(made.steps, made.answer)],
        "rejected": [_solution((*made.steps[:-1], made.wrong), made.answer)],
    }


def _single_turns(made: Exercise, draw: random.Random) -> Row:
    pair = _pair(made, draw)
    return {**pair, "chosen": pair["chosen"][0], "rejected": pair["rejected"][0]}


def _steps(made: Exercise, draw: random.Random) -> Row:
    right = draw.random() < _RIGHT
    steps = [*made.steps[:-1], made.steps[-1] if right else made.wrong]
    labels = [True] * (len(steps) - 1) + [right]
    return {"prompt": made.question, "completions": steps, "labels": labels}


SHAPES: dict[str, Callable[[Exercise, random.Random], Row]] = {
    "messages": _chat,
    "completion": _completion,
    "pair": _pair,
    "single_turns": _single_turns,
    "steps": _steps,
}


def rows(text: str, shape: str, count: int, seed: int = 0) -> Iterator[Row]:
    """Rows one by one; a smaller count is the beginning of a larger one."""
    draw, labels = random.Random(f"{text} {seed}"), random.Random(seed)
    for _ in range(count):
        yield SHAPES[shape](TEXTS[text](draw), labels)


def write(path: Path, text: str, shape: str, count: int, seed: int = 0) -> Path:
    """Write rows as lines of JSON, unless the file is there already; returns its path."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            for row in rows(text, shape, count, seed):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        partial.rename(path)
    return path
