"""LLaMA-Factory's own preparation of rows: tokenized with labels and, for SFT, packed.

    python llamafactory_dataset.py TASK ROWS.jsonl CACHE TOKENIZER MAX_LENGTH [OUT.jsonl]

Only torchaudio, which it imports and does not use here, is stood in for.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}
_COLUMNS = {
    "sft": {"messages": "messages"},
    "rm": {"messages": "prompt", "chosen": "chosen", "rejected": "rejected"},
}


def _described(task: str, source: str, folder: Path) -> None:
    """LLaMA-Factory's list of data sets, with this one."""
    entry: dict[str, Any] = {"file_name": source, "formatting": "sharegpt", "tags": _TAGS}
    entry |= {"columns": _COLUMNS[task], "ranking": task == "rm"}
    (folder / "dataset_info.json").write_text(json.dumps({"rows": entry}))


def main() -> None:
    """Let it prepare the rows."""
    task, source, cache, folder, length, *more = sys.argv[1:]
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    import_module("absent").stand_in("torchaudio")
    made = Path(cache)
    made.mkdir(parents=True, exist_ok=True)
    _described(task, source, made)
    options = {
        "stage": task,
        "do_train": True,
        "model_name_or_path": folder,
        "dataset": "rows",
        "dataset_dir": cache,
        "template": "qwen3" if more else "qwen",
        "cutoff_len": int(length),
        "packing": task == "sft" and not more,
        "neat_packing": task == "sft" and not more,
        "cache_dir": f"{cache}/hf",
        "output_dir": f"{cache}/out",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
    }
    data, hparams = import_module("llamafactory.data"), import_module("llamafactory.hparams")
    model, given, training, _, _ = hparams.get_train_args(options)
    loaded = import_module("llamafactory.model").load_tokenizer(model)
    template = data.get_template_and_fix_tokenizer(loaded["tokenizer"], given)
    found = data.get_dataset(template, model, given, training, stage=task, **loaded)
    assert len(found["train_dataset"])
    for out in more:
        found["train_dataset"].to_json(out)


if __name__ == "__main__":
    main()
