"""Open a build the way a trainer does, and print what one row teaches.

python examples/read_build.py demo-build/prm
"""

import sys
from pathlib import Path

from datasets import load_from_disk
from transformers import AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()  # "PyTorch was not found": right, and not needed here


def first_example(row: dict) -> tuple[list[int], list[int]]:
    """Ids and labels of the first example of a training row, padding and neighbours left out."""
    if "chosen_ids" in row:
        ids = row["chosen_ids"]
        return ids, [-100] * row["prompt_length"] + ids[row["prompt_length"] :]
    stop = row["seq_lengths"][0] if "seq_lengths" in row else None
    real = [i for i, m in enumerate(row.get("attention_mask") or row["input_ids"]) if m][:stop]
    return [row["input_ids"][i] for i in real], [row["labels"][i] for i in real]


def main(folder: str) -> None:
    """Print the first example: its text, and what is trained of it."""
    train = load_from_disk(folder)["train"]
    tokenizer = AutoTokenizer.from_pretrained(str(Path(folder) / "tokenizer"))
    ids, labels = first_example(train[0])
    print(train)
    print("--- text")
    print(tokenizer.decode(ids))
    print("--- trained")
    print(tokenizer.decode([label for label in labels if label != -100]))


if __name__ == "__main__":
    main(sys.argv[1])
