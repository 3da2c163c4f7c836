"""verl's own configuration, dataset creation, collator and loss over our class.

Its engines need a GPU, and the package that starts them (ray) and its adapters (peft) are not
installed: the modules that hold them are entered without them. Its own dataset class, which is not
used where ``data.custom_cls`` is set, does not load with the transformers of these tests.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from absent import absent
from support import SAMPLES, sweep

from pipeline.torch_data import Rows
from pipeline.torch_data.verl import ShardSFT

Build = Callable[..., Path]
VERSION = "0.9.1"
MISSING = ("ray", "peft", "PIL", "codetiming", "verl.utils.dataset.multiturn_sft_dataset")
ENGINES = "verl.workers.engine_workers"
SAMPLE = 40


@pytest.fixture
def verl(peer) -> Iterator[Callable[[str], Any]]:
    """An importer of its modules."""
    with absent(*MISSING, ENGINES):
        yield peer("verl", VERSION)


def configured(verl: Callable[[str], Any], said: list[str]) -> Any:
    """Its configuration with the launch script's options, as its program composes it."""
    module, *options = said[said.index("-m") + 1 :]
    assert module == "verl.trainer.sft_trainer"
    hydra, trainer = verl("hydra"), verl(module)
    place = str(Path(trainer.__file__).parent / "config")
    with hydra.initialize_config_dir(place, version_base=None):
        return hydra.compose("sft_trainer_engine", options)


def batch_of(verl: Callable[[str], Any], config: Any, split: str = "train") -> Any:
    """A sample of a split as its trainer makes it: dataset, collator, tensordict."""
    files = {"train": config.data.train_files, "test": config.data.val_files}[split]
    create = verl("verl.trainer.sft_trainer").create_sft_dataset
    data = create(files, config.data, None, None, max_samples=config.data.train_max_samples)
    assert type(data) is ShardSFT
    collate = verl("verl.utils.dataset.dataset_utils").SFTTensorCollator(config.data.pad_mode)
    count = min(SAMPLE, len(data))
    tensors = verl("verl.utils.tensordict_utils").get_tensordict(
        collate([data[i] for i in range(count)]),
        {
            "use_dynamic_bsz": config.data.use_dynamic_bsz,
            "max_token_len_per_gpu": config.data.max_token_len_per_gpu,
            "pad_mode": config.data.pad_mode,
        },
    )
    return len(data), tensors


@sweep(1)
@pytest.mark.parametrize("layout", ["packed", "ragged"])
def test_what_the_launch_script_says_gives_our_documents(verl, build, sources, words, layout):
    """Nested tensors of ids, positions and mask, document for document; the test split too; and
    its division into micro batches keeps each document whole."""
    options = ("--for", "verl", "--layout", layout, "--test-size", 0.4)
    folder = build("sft", sources["sft"], *options)
    config = configured(verl, words(folder, "verl", "torchrun"))
    for split in ("train", "test"):
        count, batch = batch_of(verl, config, split)
        rows = Rows(folder, split, explode=layout == "packed")
        assert count == len(rows)
        ids, mask, places = (
            batch[name].unbind() for name in ("input_ids", "loss_mask", "position_ids")
        )
        for index in range(min(SAMPLE, count)):
            row = rows[index]
            assert ids[index].tolist() == row["input_ids"].tolist()
            assert mask[index].tolist() == (row["labels"] != -100).tolist()
            assert places[index].tolist() == list(range(len(row["input_ids"])))
    divide = verl("verl.workers.engine.utils").prepare_micro_batches
    small, _ = divide(batch)
    parts = [doc.tolist() for part in small for doc in part["input_ids"].unbind()]
    assert sorted(parts) == sorted(doc.tolist() for doc in ids)


def its_loss(verl: Callable[[str], Any], batch: Any, chance: torch.Tensor) -> float:
    """``sft_loss`` of one process, divided as its engines divide: by the sum of the mask."""
    names = verl("verl.utils.tensordict_utils")
    names.assign_non_tensor(batch, dp_size=1, batch_num_tokens=batch["loss_mask"].sum().item())
    ids = batch["input_ids"]
    nxt = torch.roll(ids.values(), -1) % chance.size(1)
    each = torch.log_softmax(chance, -1).gather(-1, nxt[:, None])[:, 0]
    nested = torch.nested.nested_tensor_from_jagged(each, ids.offsets())
    loss, _ = verl("verl.workers.utils.losses").sft_loss(None, {"log_probs": nested}, batch)
    return float(loss.item())


@pytest.mark.parametrize("weighted", [False, True])
def test_its_loss_trains_our_labels_with_their_weights(verl, build, sources, words, weighted):
    """The cross entropy of our labels, shifted by one, times the weights, over their sum."""
    source = SAMPLES / "sft" / "turn_weights.jsonl" if weighted else sources["sft"]
    folder = build("sft", source, "--for", "verl")
    config = configured(verl, words(folder, "verl", "torchrun"))
    _, batch = batch_of(verl, config)
    rows = Rows(folder, explode=True)
    torch.manual_seed(0)
    chance = torch.randn(batch["input_ids"].values().numel(), 50)
    losses, weights, start = [], [], 0
    for index in range(len(batch["input_ids"])):
        row = rows[index]
        labels = torch.tensor(row["labels"], dtype=torch.long)
        labels = torch.where(labels == -100, labels, labels % 50)
        mine = chance[start : start + len(labels)]
        losses.append(torch.nn.functional.cross_entropy(mine[:-1], labels[1:], reduction="none"))
        default = (labels != -100).float().numpy()
        weights.append(torch.tensor(row.get("loss_weights", default))[1:])
        start += len(labels)
    each, weight = torch.cat(losses), torch.cat(weights)
    assert weighted == bool((weight.ne(0) & weight.ne(1)).any())
    expected = (each * weight).sum() / weight.sum()
    assert its_loss(verl, batch, chance) == pytest.approx(expected.item(), rel=1e-5)
