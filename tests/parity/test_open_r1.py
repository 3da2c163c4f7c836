"""open-r1's trainer, TRL's own, on a build made for it with the recipe that is written beside it.

open-r1 is no package: its script parses the recipe, loads the dataset by name, and gives both to
the SFTTrainer of the TRL that it pins, as is done here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from parity.tiny import tiny
from transformers import AutoTokenizer

from pipeline.builds.build import Build as BuildDir

Build = Callable[..., Path]
FIRST, PINNED, NEWEST = "0.17.0", "0.18.0", "1.16.0"
HERE = ["--bf16", "false", "--use_cpu", "true", "--report_to", "none"]  # no GPU
SAMPLE = 60


def ours(folder: Path, split: str) -> list[dict[str, Any]]:
    """A split's rows in our columns."""
    return [
        row for table in BuildDir.open(folder).splits[split].tables() for row in table.to_pylist()
    ]


@pytest.mark.parametrize("version", [FIRST, PINNED, NEWEST])
def test_the_recipe_trains_exactly_our_labels(peer, build, sources, words, tmp_path, version):
    """Ids and labels of every row of both splits, through its preparation and its collator."""
    trl = peer("trl", version)("trl")
    folder = build("sft", sources["sft"], "--for", "open-r1", "--test-size", 0.4)
    _, script, *options = words(folder, "open-r1", "accelerate")
    assert script == "src/open_r1/sft.py"
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    named, args, _ = parser.parse_args_and_config(
        [*options, *HERE, "--output_dir", str(tmp_path / "out")]
    )
    assert args.eval_strategy == "epoch"
    data = load_dataset(named.dataset_name)
    wanted = {split: ours(folder, split) for split in ("train", "test")}
    assert {split: len(rows) for split, rows in data.items()} == {
        split: len(rows) for split, rows in wanted.items()
    }
    trainer = trl.SFTTrainer(
        model=tiny("CausalLM"),
        args=args,
        train_dataset=data[named.dataset_train_split],
        eval_dataset=data[named.dataset_test_split],
        processing_class=AutoTokenizer.from_pretrained(str(folder / "tokenizer")),
    )
    for split, prepared in (("train", trainer.train_dataset), ("test", trainer.eval_dataset)):
        assert len(prepared) == len(wanted[split])
        rows = wanted[split][:SAMPLE]
        prepared = trainer._remove_unused_columns(prepared, "training")
        batch = trainer.data_collator([prepared[i] for i in range(len(rows))])
        for index, row in enumerate(rows):
            real = batch["attention_mask"][index].bool()
            assert batch["input_ids"][index][real].tolist() == row["input_ids"]
            assert batch["labels"][index][real].tolist() == row["labels"]
            assert (batch["labels"][index][~real] == -100).all()
