"""TRL's trainers as they are published, up to the training rows: they prepare data when made.

    python trl_prepare.py TASK ROWS.jsonl CACHE TOKENIZER MAX_LENGTH [OUT.jsonl]

SFT rows are tokenized and packed ("bfd", its default), pairs tokenized and filtered, steps
tokenized. The model that a trainer needs is a tiny one. What TRL's ``map`` writes into its cache
is the result; nothing is saved a second time.
"""

import sys
import tempfile
from importlib import import_module
from typing import Any

import datasets
import transformers

_SIZES: dict[str, Any] = {
    "vocab_size": 152064,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "use_cache": False,
}


def _model(kind: str, **more: Any) -> Any:
    config = transformers.Qwen2Config(**_SIZES, **more)
    return getattr(transformers, f"Qwen2For{kind}")(config)


def main() -> None:
    """Make the trainer of the task."""
    task, source, cache, folder, length, *more = sys.argv[1:]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = datasets.load_dataset("json", data_files=source, split="train", cache_dir=cache)
    shared = {"report_to": [], "use_cpu": True, "bf16": False, "max_length": int(length)}
    with tempfile.TemporaryDirectory() as out:
        if task == "sft":
            trl = import_module("trl")
            # Rows that are to be written are those of answers alone, one by one.
            chosen = {"assistant_only_loss": True} if more else {"packing": True}
            arguments = trl.SFTConfig(out, **chosen, **shared)
            trainer, model = trl.SFTTrainer, _model("CausalLM")
        elif task == "rm":
            trl = import_module("trl")
            arguments = trl.RewardConfig(out, **shared)
            trainer, model = trl.RewardTrainer, _model("SequenceClassification", num_labels=1)
        else:
            prm = import_module("trl.experimental.prm")
            arguments = prm.PRMConfig(out, max_completion_length=None, **shared)
            trainer, model = prm.PRMTrainer, _model("TokenClassification", num_labels=2)
        model.config.pad_token_id = tokenizer.pad_token_id
        made = trainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer)
        assert len(made.train_dataset)
        for path in more:
            made.train_dataset.to_json(path)


if __name__ == "__main__":
    main()
