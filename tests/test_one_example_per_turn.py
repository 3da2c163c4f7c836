"""Models whose template wants one example per trained turn, where a row is not a plain dialogue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import load_from_disk
from support import Ran, few, rows_to
from tokenizers import Tokenizer

RUN = ("run", "sft", "--model", "qwen3-8b", "--layout", "ragged")
CHAT = [
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "Hm ok"},
    {"role": "assistant", "content": "Fine"},
]


def write(tmp_path: Path, *rows: dict[str, object]) -> Path:
    """The rows as a file."""
    path = tmp_path / "data.jsonl"
    rows_to(path, *rows)
    return path


def trained(build: Path) -> list[tuple[str, str]]:
    """Each stored row: its text, and the text of its trained tokens."""
    tokenizer = Tokenizer.from_file(str(build / "tokenizer" / "tokenizer.json"))

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    rows = load_from_disk(build)["train"]
    return [(text(row["input_ids"]), text([i for i in row["labels"] if i >= 0])) for row in rows]


def test_texts_without_turns_are_one_example_each(
    pipeline: Callable[..., Ran], tmp_path: Path
) -> None:
    """A text has no turns to make examples of, and is trained whole."""
    data = write(tmp_path, {"text": "One text."}, {"text": "Two texts, say."})
    assert pipeline(*RUN, data, "-o", tmp_path / "b").status == 0
    assert [whole for whole, _ in trained(tmp_path / "b")] == [
        "One text.<|im_end|>",
        "Two texts, say.<|im_end|>",
    ]


@pytest.mark.parametrize("turns", few([4, 2], 1))
def test_training_on_all_trains_every_turn_of_the_text(
    pipeline: Callable[..., Ran], tmp_path: Path, turns: int
) -> None:
    """The row stays one example: split, it would leave out the users' turns before an answer."""
    data = write(tmp_path, {"messages": CHAT[:turns]})
    assert pipeline(*RUN, data, "-o", tmp_path / "b", "--train-on", "all").status == 0
    ((whole, labels),) = trained(tmp_path / "b")
    assert whole.removeprefix("<|im_start|>").removesuffix("\n") == labels
    assert all(str(turn["content"]) in labels for turn in CHAT[:turns])
