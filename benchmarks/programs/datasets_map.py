"""The usual way: ``datasets.map`` around ``apply_chat_template(tokenize=True)``, row by row.

    python datasets_map.py TASK ROWS.jsonl CACHE TOKENIZER [MAX_LENGTH OUT.jsonl]

What ``map`` writes into its cache is the result; nothing is saved a second time.
"""

import sys
from typing import Any

from datasets import load_dataset
from transformers import AutoTokenizer

STEP = "\n"


def main() -> None:
    """Tokenize all rows."""
    task, source, cache, folder, *more = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(messages: list[dict[str, str]]) -> list[int]:
        made: Any = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)
        found: list[int] = made["input_ids"]
        return found

    def chat(row: dict[str, Any]) -> dict[str, list[int]]:
        return {"input_ids": ids(row["messages"])}

    def pair(row: dict[str, Any]) -> dict[str, list[int]]:
        sides = ("chosen", "rejected")
        return {f"{side}_ids": ids(row["prompt"] + row[side]) for side in sides}

    def steps(row: dict[str, Any]) -> dict[str, list[int]]:
        made = ids(
            [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": STEP.join(row["completions"])},
            ]
        )
        return {"input_ids": made}

    rows = load_dataset("json", data_files=source, split="train", cache_dir=cache)
    encode = {"sft": chat, "rm": pair, "prm": steps}[task]
    made = rows.map(encode, remove_columns=rows.column_names)
    assert len(made) == len(rows)
    for out in more[1:]:
        made.to_json(out)


if __name__ == "__main__":
    main()
