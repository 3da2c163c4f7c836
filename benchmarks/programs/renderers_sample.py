"""Prime Intellect's renderers: conversations rendered and masked by their code of a family.

python renderers_sample.py sft ROWS.jsonl CACHE TOKENIZER MAX_LENGTH OUT.jsonl
"""

import json
import sys
from importlib import import_module
from pathlib import Path

from transformers import AutoTokenizer


def main() -> None:
    """Render all rows; a row that it refuses is said."""
    _, source, _, folder, _, out = sys.argv[1:]
    configs, base = import_module("renderers.configs"), import_module("renderers.base")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    renderer = base.create_renderer(tokenizer, configs.Qwen3RendererConfig())
    with Path(out).open("w") as file:
        for number, line in enumerate(Path(source).read_text("utf-8").splitlines(), 1):
            try:
                made = base.build_training_sample(
                    renderer, json.loads(line)["messages"], ensure_final_stop=True
                )
            except (TypeError, ValueError) as error:
                print(f"line {number}: {error}", file=sys.stderr)
                continue
            row = {"input_ids": list(made.token_ids), "mask": [int(m) for m in made.loss_mask]}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
