"""axolotl's own preprocessing of chats: ids and labels.

    python axolotl_preprocess.py sft ROWS.jsonl CACHE TOKENIZER MAX_LENGTH [OUT.jsonl]

Packages that need a GPU, send something or only report are stood in for by modules that stop the
program when they are used. axolotl chooses the packs while it trains; that is not measured here.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

ABSENT = (
    "axolotl.monkeypatch.trainer.utils",
    *("bitsandbytes", "evaluate", "fastcore", "numba", "posthog", "wandb"),
)


def main() -> None:
    """Write axolotl's configuration and let it prepare the rows."""
    _, source, cache, folder, length, *more = sys.argv[1:]
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    # numba's decorator compiles a function that runs as it is as well; no run of wandb goes on.
    import_module("absent").stand_in(*ABSENT, njit=lambda function: function, run=None)
    config = Path(cache) / "axolotl.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "base_model": folder,
        "datasets": [
            {
                "path": source,
                "ds_type": "json",
                "type": "chat_template",
                "field_messages": "messages",
            }
        ],
        "chat_template": "tokenizer_default",
        "dataset_prepared_path": f"{cache}/prepared",
        "dataset_processes": 1,
        "sequence_len": int(length),
        "sample_packing": False,
        "attn_implementation": "sdpa",
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "learning_rate": 1e-5,
        "output_dir": f"{cache}/out",
        "bf16": False,
    }
    config.write_text(json.dumps(content))  # which is YAML
    datasets = import_module("axolotl.common.datasets")
    made = datasets.load_datasets(cfg=import_module("axolotl.cli.config").load_cfg(str(config)))
    assert len(made.train_dataset)
    for out in more:
        made.train_dataset.to_json(out)


if __name__ == "__main__":
    main()
