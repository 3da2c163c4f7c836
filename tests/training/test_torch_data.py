"""Rows, collators and the resumable order, with torch and tiny random models."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from failures import tiny
from support import SAMPLES, started
from torch.utils.data import DataLoader

from pipeline.torch_data import (
    BlockDiagonal,
    Flatten,
    Order,
    Pad,
    PadPairs,
    Rows,
    Stack,
    StackPairs,
    documents,
)
from pipeline.torch_data.verl import ShardSFT
from stages.errors import UsageError

PAD = 151643
SOURCES = {
    "sft": SAMPLES / "sft" / "chat.jsonl",
    "rm": SAMPLES / "rm" / "pairs_margin.jsonl",
    "prm": SAMPLES / "prm" / "math_shepherd.jsonl",
}
LAYOUTS = [
    (task, layout)
    for task in SOURCES
    for layout in ("packed", "ragged", "padded")
    if (task, layout) != ("rm", "packed")
]


@pytest.fixture(scope="module")
def builds(built) -> dict[Any, Path]:
    """Every task in every layout."""
    return {
        (task, layout): built(task, SOURCES[task], "--layout", layout, "--max-length", 512)
        for task, layout in LAYOUTS
    }


@pytest.fixture(scope="module")
def model() -> Any:
    """Two layers of attention, so that what documents see of each other can be told."""
    return tiny.causal(151936, hidden_size=32, attn_implementation="sdpa").eval()


def losses(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Loss of each trained token, in the order of the batch."""
    labels, at = tiny.labelled(batch["labels"])
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits = model(**inputs, logits_to_keep=at).logits.transpose(1, 2)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")[labels != -100]


def test_packed_loss_and_gradients_are_those_of_single_rows(builds, model):
    """Flattened packs and block-diagonal packs see what single rows see: isolation, on SDPA."""
    packs = list(Rows(builds["sft", "packed"]))
    singles = [doc for row in packs for doc in documents(row)]
    assert len(packs) > 1
    assert len(singles) > len(packs)

    def run(batches: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
        model.zero_grad()
        each = torch.cat([losses(model, batch) for batch in batches])
        each.mean().backward()
        return each.detach(), model.model.layers[0].self_attn.q_proj.weight.grad.clone()

    alone, gradient = run([Pad(PAD, multiple=1)([doc]) for doc in singles])
    for batches in (
        [Flatten()([row]) for row in packs],
        [BlockDiagonal(PAD)(packs)],
        [Pad(PAD)(packs)],
        [Pad(PAD, side="right")(packs)],
    ):
        each, slope = run(batches)
        torch.testing.assert_close(each, alone, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(slope, gradient, rtol=1e-3, atol=1e-7)


def test_padded_builds_give_the_batch_of_ragged_ones(builds):
    """Stacked rows and rows padded here agree wherever a token is real, positions included."""
    for task in ("sft", "prm"):
        stacked = Stack()(list(Rows(builds[task, "padded"])))
        padded = Pad(PAD)(list(Rows(builds[task, "ragged"])))
        one, two = stacked["attention_mask"].bool(), padded["attention_mask"].bool()
        for name in ("input_ids", "labels", "position_ids"):
            assert stacked[name][one].equal(padded[name][two])
        assert (stacked["labels"][~one] == -100).all()
        assert (padded["input_ids"][~two] == PAD).all()
        assert stacked["position_ids"][:, 0].eq(0).all()


def test_pairs_stand_chosen_first(builds):
    """Both collators give the same real tokens, and a margin per pair."""
    ragged, padded = (list(Rows(builds["rm", layout])) for layout in ("ragged", "padded"))
    one, two = PadPairs(PAD)(ragged), StackPairs()(padded)
    count = len(ragged)
    for batch in (one, two):
        assert batch["input_ids"].shape[0] == 2 * count
        assert batch["margin"].tolist() == pytest.approx([row["margin"] for row in ragged])
        for place, row in enumerate(ragged):
            for at, side in ((place, "chosen"), (place + count, "rejected")):
                real = batch["attention_mask"][at].bool()
                assert batch["input_ids"][at][real].tolist() == row[f"{side}_ids"].tolist()


def test_a_pair_without_a_margin_has_the_loss_without_one(builds):
    """Null becomes 0, which changes nothing where it is subtracted."""
    for layout, collate in (("ragged", PadPairs(PAD)), ("padded", StackPairs())):
        rows = list(Rows(builds["rm", layout]))[:2]
        rows[0] = {**rows[0], "margin": None}
        assert collate(rows)["margin"].tolist() == pytest.approx([0.0, rows[1]["margin"]])


def test_positions_of_absolute_models_start_where_they_say(builds):
    """RoBERTa counts from 2, and padding stands at 1, on either side."""
    rows = list(Rows(builds["sft", "ragged"]))[:4]
    for side in ("left", "right"):
        batch = Pad(PAD, side=side, position_start=2)(rows)
        for place, row in enumerate(rows):
            real = batch["attention_mask"][place].bool()
            count = len(row["input_ids"])
            assert batch["position_ids"][place][real].tolist() == list(range(2, 2 + count))
            assert (batch["position_ids"][place][~real] == 1).all()


def test_exploded_packs_are_the_ragged_rows(builds):
    """One item per document, with positions of its own; a pack's hash differs from its pieces'."""
    packed, exploded = Rows(builds["prm", "packed"]), Rows(builds["prm", "packed"], explode=True)
    ragged = {row["row_id"]: row for row in Rows(builds["prm", "ragged"])}
    assert len(exploded) == len(ragged) > len(packed)
    for row in exploded:
        other = ragged[row["row_id"]]
        for name in ("input_ids", "labels", "step_positions"):
            assert list(row[name]) == list(other[name])
        assert list(row["step_labels"]) == list(other["step_labels"])
    assert packed.order_hash != exploded.order_hash
    assert exploded[-1]["row_id"] == exploded[len(exploded) - 1]["row_id"]
    with pytest.raises(IndexError):
        exploded[len(exploded)]


def test_loaders_see_every_row(builds):
    """Workers open the files themselves."""
    rows = Rows(builds["sft", "ragged"])
    assert len(pickle.dumps(rows)) < 10_000
    loader = DataLoader(rows, batch_size=4, collate_fn=Pad(PAD), num_workers=2)
    assert sum(len(batch["input_ids"]) for batch in loader) == len(rows)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_stopped_run_goes_on_where_it_was(builds, world):
    """What was taken before and after the stop is the epoch, once each."""
    rows = Rows(builds["sft", "ragged"])
    whole = {rank: list(Order(rows, seed=3, rank=rank, world=world)) for rank in range(world)}
    assert len({i for ids in whole.values() for i in ids}) == len(rows) // world * world
    for rank in range(world):
        first = Order(rows, seed=3, rank=rank, world=world)
        steps = iter(first)
        before = [next(steps) for _ in range(2)]
        second = Order(rows, seed=3, rank=rank, world=world)
        second.load_state_dict(first.state_dict())
        assert len(second) == len(whole[rank]) - 2
        assert before + list(second) == whole[rank]
        assert list(second) == list(_epoch(rows, rank, world, 1))  # the next one is another order


def _epoch(rows: Rows, rank: int, world: int, epoch: int) -> Order:
    order = Order(rows, seed=3, rank=rank, world=world)
    order.set_epoch(epoch)
    return order


def test_another_build_does_not_resume(builds):
    """Rows in another order, or another seed, are refused instead of trained twice or never."""
    one, two = Rows(builds["sft", "ragged"]), Rows(builds["sft", "padded"])
    state = Order(one).state_dict()
    with pytest.raises(UsageError, match="order_hash differs"):
        Order(two).load_state_dict(state)
    with pytest.raises(UsageError, match="seed differs"):
        Order(one, seed=1).load_state_dict(state)


def test_the_dataset_of_verl_takes_whole_documents_alone(builds):
    """Other padding modes are refused, and what is longer than its limit."""
    with pytest.raises(UsageError, match="must be no_padding"):
        ShardSFT(str(builds["sft", "ragged"] / "train"), None, {"pad_mode": "right"})
    data = ShardSFT(str(builds["sft", "ragged"] / "train"), None, {"max_length": 8})
    with pytest.raises(UsageError, match=r"above data\.max_length 8"):
        data[0]


@pytest.fixture(scope="module")
def weighted(built) -> dict[str, Path]:
    """A build whose turns have weights, in every layout."""
    source = SAMPLES / "sft" / "turn_weights.jsonl"
    return {
        layout: built("sft", source, "--layout", layout, "--max-length", 512)
        for layout in ("packed", "ragged", "padded")
    }


def test_every_collator_carries_the_weights(weighted):
    """Each token has its stored weight in every batch, beside its label; what is padded has 0."""
    rows = {layout: list(Rows(folder)) for layout, folder in weighted.items()}
    stored = sorted(
        (row["input_ids"].tolist(), row["loss_weights"].tolist()) for row in rows["ragged"]
    )
    assert any(w not in (0, 1) for _, weights in stored for w in weights)
    batches = [
        *(Flatten()([row]) for row in rows["packed"]),
        BlockDiagonal(PAD)(rows["packed"]),
        Pad(PAD)(rows["ragged"]),
        Pad(PAD, side="right")(rows["packed"]),
        Stack()(rows["padded"]),
    ]
    for batch in batches:
        weights = batch["loss_weights"]
        assert weights.dtype == torch.float32
        assert weights.shape == batch["labels"].shape
        assert weights.ne(0).equal(batch["labels"].ne(-100))
    for batch in batches[-3:]:
        real = batch["attention_mask"].bool()
        each = zip(batch["input_ids"], batch["loss_weights"], real, strict=True)
        assert sorted((i[r].tolist(), w[r].tolist()) for i, w, r in each) == stored
    block = batches[-4]
    for place, pack in enumerate(rows["packed"]):
        width = len(pack["loss_weights"])
        assert block["loss_weights"][place, :width].tolist() == pack["loss_weights"].tolist()
    assert "loss_weights" not in Pad(PAD)([{"input_ids": [1, 2], "labels": [-100, 2]}])


def test_a_split_that_is_not_there(builds):
    """The folder is named."""
    with pytest.raises(UsageError, match="is not a split of a build"):
        Rows(builds["sft", "ragged"], "test")


def test_overlay_and_launch_train_with_transformers(pipeline, builds, tmp_path, model):
    """The program of --for transformers trains an overlaid model, and the loss falls."""
    import json
    import sys

    model.save_pretrained(tmp_path / "model")
    pipeline("export", "transformers", builds["sft", "packed"], "-o", "build").ended()
    pipeline("overlay", tmp_path / "model", "-o", "over", "--build", "build").ended()
    options = (
        "--num_train_epochs 6 --learning_rate 0.02 --use_cpu true --logging_steps 1 "
        "--save_strategy no --report_to none --lr_scheduler_type constant"
    )
    program = tmp_path / "build" / "launch" / "train_transformers.py"
    command = [sys.executable, program, tmp_path / "build", tmp_path / "over", *options.split()]
    done = started(*command, folder=tmp_path).ended()
    first, *_, last = map(float, re.findall(r"'loss': '?([\d.]+)", done.out))
    assert last < 0.8 * first
    config = json.loads((tmp_path / "transformers-output" / "config.json").read_text())
    assert config["pad_token_id"] == PAD
