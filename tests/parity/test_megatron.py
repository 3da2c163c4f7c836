"""Megatron-Bridge's own packed dataset and collator on the rows of our Parquet.

The newest release on the package index reads packs from NumPy files with the columns that its later
Parquet reader inherits; so the rows of our Parquet go into such a file, unchanged. What it imports
for GPUs (Transformer Engine, through its models) is entered without.
"""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from absent import absent
from datasets import load_from_disk
from support import read_manifest, started

Build = Callable[..., Path]
Use = Callable[..., Callable[[str], Any]]
VERSION = "0.3.1"
BARE = ("megatron", "megatron.core", "megatron.bridge", "megatron.bridge.data")
MISSING = ("megatron.bridge.training", "megatron.bridge.utils", "megatron.core.tokenizers")
LONGEST = 16384


def batches(
    peer: Use, folder: Path, tmp_path: Path, **options: Any
) -> tuple[list[dict[str, Any]], int]:
    """Every row through its dataset and its collator, one a batch; and the eos id it was told."""
    eos = read_manifest(folder)["model"]["eos_token_id"]
    stored = sorted((folder / "parquet" / "train").glob("*.parquet"))
    rows = [row for path in stored for row in _rows(path)]
    np.save(tmp_path / "packs.npy", np.array(rows, dtype=object), allow_pickle=True)
    with absent(*MISSING):
        load = peer("megatron-bridge", VERSION, bare=BARE)
        create = load("megatron.bridge.data.datasets.sft").create_sft_dataset
        tokenizer = types.SimpleNamespace(eos_id=eos)
        data = create(tmp_path / "packs.npy", tokenizer, seq_length=LONGEST, **options)
        assert len(data) == len(rows)
        return [data.collate_fn([data[i]]) for i in range(len(data))], eos


def _rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("padded", [False, True])
def test_tokens_labels_and_mask_are_ours_shifted_by_one(peer, build, sources, tmp_path, padded):
    """In each document token i stands before label i + 1, and is trained where that label is;
    positions restart, and cu_seqlens say where."""
    folder = build("sft", sources["sft"], "--for", "megatron")
    ours = load_from_disk(str(folder.parent))["train"]
    made, eos = batches(peer, folder, tmp_path, pad_to_max_length=padded)
    assert len(made) == len(ours) > 0
    for batch, row in zip(made, ours, strict=True):
        ends = np.cumsum(row["seq_lengths"])
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        ids, labels = np.array(row["input_ids"]), np.array(row["labels"])
        tokens = np.concatenate([ids[a : b - 1] for a, b in spans])
        following = np.concatenate([ids[a + 1 : b] for a, b in spans])
        trained = np.concatenate([labels[a + 1 : b] for a, b in spans]) != -100
        places = np.concatenate([np.arange(b - a - 1) for a, b in spans])
        count = len(tokens)
        assert batch["tokens"][0, :count].tolist() == tokens.tolist()
        assert batch["labels"][0, :count].tolist() == following.tolist()
        assert batch["position_ids"][0, :count].tolist() == places.tolist()
        assert batch["loss_mask"][0, :count].tolist() == trained.astype(int).tolist()
        assert not batch["loss_mask"][0, count:].any()
        assert (batch["tokens"][0, count:] == eos).all()
        starts = np.concatenate([[0], np.cumsum(np.array(row["seq_lengths"]) - 1)]).tolist()
        assert batch["cu_seqlens"][0, : len(starts)].tolist() == starts
    assert padded == (made[0]["tokens"].shape[1] == LONGEST)


def test_answer_only_loss_must_stay_true(peer, build, sources, tmp_path):
    """Set false, it makes a mask of its own over every token but eos."""
    folder = build("sft", sources["sft"], "--for", "megatron")
    made, eos = batches(peer, folder, tmp_path, answer_only_loss=False)
    batch = made[0]
    real = batch["tokens"][0] != eos
    assert batch["loss_mask"][0][real].all()


_PLACES = {
    "0.3": ("data/datasets/packed_sequence.py", "training/config.py", "FinetuningDatasetConfig"),
    "moved": ("data/packing/__init__.py", "data/builders/__init__.py", "GPTSFTDatasetConfig"),
}


@pytest.mark.parametrize(
    ("era", "says"), [("0.3", "packed_sequence_specs"), ("moved", "offline_packing_specs")]
)
def test_the_program_finds_the_configuration_where_a_release_has_it(
    build, sources, words, tmp_path, era, says
):
    """Names, places and fields as its sources have them before and after they were moved."""
    folder = build("sft", sources["sft"], "--for", "megatron", "--test-size", 0.4)
    root = tmp_path / "site" / "megatron" / "bridge"
    specs, config, name = _PLACES[era]
    for path in (specs, config):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        for package in [place.parent, *place.parent.parents]:
            if package == tmp_path:
                break
            (package / "__init__.py").touch()
    head = "from dataclasses import dataclass\nfrom typing import Any\n@dataclass(kw_only=True)\n"
    paths = "packed_train_data_path packed_val_data_path packed_metadata_path"
    fields = "".join(f"    {field}: str | None = None\n" for field in paths.split())
    (root / specs).write_text(
        f"{head}class PackedSequenceSpecs:\n    packed_sequence_size: int\n{fields}"
    )
    own = "enable_offline_packing dataset_root seq_length dataset_kwargs do_validation do_test"
    fields = "".join(f"    {field}: Any = None\n" for field in [*own.split(), says])
    (root / config).write_text(f"{head}class {name}:\n{fields}")
    bridge = "class AutoBridge:\n    from_hf_pretrained = classmethod(lambda cls, path: cls())\n"
    (root / "__init__.py").write_text(bridge)
    script, *options = words(folder, "megatron", "python")
    variables = {"PYTHONPATH": str(tmp_path / "site")}
    done = started(sys.executable, script, *options, env=variables).ended()
    assert f"{says}=PackedSequenceSpecs(packed_sequence_size={LONGEST}" in done.out
    assert f"packed_train_data_path={str(folder / 'parquet' / 'train')!r}" in done.out
    assert f"packed_val_data_path={str(folder / 'parquet' / 'test')!r}" in done.out
