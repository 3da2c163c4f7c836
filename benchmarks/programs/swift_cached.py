"""``swift export --to_cached_dataset true``, and what its template makes of the stored rows.

    python swift_cached.py sft ROWS.jsonl CACHE TOKENIZER MAX_LENGTH OUT.jsonl

It stores turns and lengths: the ids are made while a model trains, by the same template.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

from datasets import load_from_disk


def main() -> None:
    """Let it export the rows, then encode what it kept."""
    _, source, cache, folder, length, out = sys.argv[1:]
    export = import_module("swift.pipelines.export.cached_dataset").ExportCachedDataset(
        [
            *("--to_cached_dataset", "true", "--model", folder, "--model_type", "qwen3"),
            *("--template", "qwen3", "--dataset", source, "--max_length", length),
            *("--output_dir", f"{cache}/out", "--split_dataset_ratio", "0", "--exist_ok", "true"),
        ]
    )
    export.main()
    export.template.set_mode("train")
    with Path(out).open("w") as file:
        for row in load_from_disk(f"{cache}/out/train"):
            made = export.template.encode(row)
            file.write(json.dumps({name: made[name] for name in ("input_ids", "labels")}) + "\n")


if __name__ == "__main__":
    main()
