"""Models whose template wants one example per trained turn, where a row is not a plain dialogue."""

from pathlib import Path

from datasets import load_from_disk
from rows import turns
from support import Make, rows_to
from tokenizers import Tokenizer

ASKED = {"model": "qwen3-8b", "layout": "ragged"}
CHAT = turns(("user", "Hi there"), ("assistant", "Yo"), ("user", "Hm ok"), ("assistant", "Fine"))


def trained(build: Path) -> list[tuple[str, str]]:
    """Each stored row: its text, and the text of its trained tokens."""
    tokenizer = Tokenizer.from_file(str(build / "tokenizer" / "tokenizer.json"))

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    rows = load_from_disk(build)["train"]
    return [(text(row["input_ids"]), text([i for i in row["labels"] if i >= 0])) for row in rows]


def test_texts_without_turns_are_one_example_each(make: Make, tmp_path: Path) -> None:
    """A text has no turns to make examples of, and is trained whole."""
    data = rows_to(tmp_path / "data.jsonl", {"text": "One text."}, {"text": "Two texts, say."})
    assert [whole for whole, _ in trained(make("sft", data, **ASKED))] == [
        "One text.<|im_end|>",
        "Two texts, say.<|im_end|>",
    ]


def test_training_on_all_trains_every_turn_of_the_text(make: Make, tmp_path: Path) -> None:
    """The row stays one example: split, it would leave out the users' turns before an answer."""
    data = rows_to(tmp_path / "data.jsonl", *({"messages": CHAT[:size]} for size in (2, 4)))
    found = trained(make("sft", data, train_on="all", **ASKED))
    for size, (whole, labels) in zip((2, 4), found, strict=True):
        assert whole.removeprefix("<|im_start|>").removesuffix("\n") == labels
        assert all(str(turn["content"]) in labels for turn in CHAT[:size])
