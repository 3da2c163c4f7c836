"""OpenRLHF's own dataset, collate and loss code beside ours, on the same rows."""

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from absent import absent
from datasets import Dataset, load_from_disk
from parity.tiny import step_loss, tiny
from support import write_rows
from transformers import AutoTokenizer

from pipeline.torch_data.openrlhf import ShardPRM, ShardRM, ShardSFT
from stages.errors import UsageError

Build = Callable[..., Path]
NEWEST, LAST_PRM = "0.11.2", "0.9.5"
FROM_OLDEST = pytest.mark.parametrize("version", [NEWEST, LAST_PRM, "0.7.1"])
FROM_OLDEST_PRM = pytest.mark.parametrize("version", [LAST_PRM, "0.7.4"])
BARE = ("openrlhf", "openrlhf.utils", "openrlhf.datasets", "openrlhf.models")
LONGEST = 16384
OF_STEPS: dict[str, Any] = {
    "placeholder_token": "<|step|>",
    "reward_tokens": ["<|good|>", "<|bad|>"],
}
SAMPLE = 400


def tokenizer_of(folder: Path) -> Any:
    """The build's tokenizer."""
    return AutoTokenizer.from_pretrained(str(folder / "tokenizer"))


def rows_of(folder: Path) -> Any:
    """A sample of the build's training rows."""
    rows = load_from_disk(str(folder))["train"]
    return rows.select(range(min(SAMPLE, len(rows))))


def strategy(**data: Any) -> Any:
    """What its classes read of the command line: flat in old versions, in groups in new ones."""
    names = types.SimpleNamespace(**data)
    return types.SimpleNamespace(args=types.SimpleNamespace(**data, data=names))


def equal(ours: Any, theirs: Any) -> bool:
    """Equal tensors once the trainer has squeezed them, values and types."""
    ours, theirs = ours.squeeze(1), theirs.squeeze(1)
    return bool(ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.equal(theirs))


@FROM_OLDEST
def test_sft_gives_the_tensors_of_sft_dataset(peer, build, sources, version):
    """Where text is exact: its items are ours up to the untrained newline that it cuts off."""
    theirs = peer("openrlhf", version, bare=BARE)("openrlhf.datasets.sft_dataset").SFTDataset
    texts = build("sft", sources["single"], "--for", "openrlhf-text")
    shards = build("sft", sources["single"], "--for", "openrlhf", "--layout", "ragged")
    tokenizer = tokenizer_of(shards)
    keys = strategy(input_key="input", output_key="output", apply_chat_template=False)
    native = theirs(
        rows_of(texts), tokenizer, LONGEST, keys, input_template=None, num_processors=None
    )
    own = ShardSFT(rows_of(shards), tokenizer, LONGEST, keys)
    assert len(native) == len(own) > 5
    for index in range(len(own)):
        (ids, mask, loss_mask), (their_ids, their_mask, their_loss) = own[index][0], native[index]
        count = their_ids.size(1)
        assert ids[:, :count].equal(their_ids)
        assert mask[:, :count].equal(their_mask)
        assert loss_mask[:, :count].equal(their_loss)
        assert not loss_mask[:, count:].any()
        assert tokenizer.decode(ids[0, count:]) in ("", "\n")
    batch = own.collate_fn([own[i] for i in range(4)])
    their_batch = [t.squeeze(1) for t in native.collate_fn([native[i] for i in range(4)])]
    real = their_batch[1].bool()
    width = real.size(1)
    for ours, their in zip(batch, their_batch, strict=True):
        assert ours.squeeze(1)[:, :width][real].equal(their[real])


def test_packs_are_taken_apart_into_the_same_documents(build, sources):
    """Every document of every pack is an item of the ragged build, no more and no fewer."""
    packed = build("sft", sources["sft"], "--for", "openrlhf")
    ragged = build("sft", sources["sft"], "--for", "openrlhf", "--layout", "ragged")
    tokenizer, keys = tokenizer_of(packed), strategy()

    def documents(folder: Path) -> list[Any]:
        data = ShardSFT(load_from_disk(str(folder))["train"], tokenizer, LONGEST, keys)
        items = [doc for i in range(len(data)) for doc in data[i]]
        return sorted((ids.tolist(), mask.tolist()) for ids, _, mask in items)

    assert documents(packed) == documents(ragged)


def taught(rows: Any, place: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One stored row of a padded build: ids, mask and labels, [width] each."""
    row = rows[place]
    made = [torch.tensor(row[name]) for name in ("input_ids", "attention_mask", "labels")]
    assert all(len(values) == width for values in made)
    return made[0], made[1], made[2]


def actor_around(model: Any, load: Callable[[str], Any]) -> Any:
    """Its Actor around a model, as without its packing, which alone calls flash-attn."""
    with absent("flash_attn"):
        made = load("openrlhf.models.actor").Actor(model)
    made.packing_samples = False
    return made


class Seen(torch.nn.Module):
    """A model that keeps what it is given, and gives what another makes of it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.given = model, {}

    def forward(self, sequences: Any, **given: Any) -> Any:
        """As transformers' models are called."""
        self.given = {"input_ids": sequences, **given}
        return self.model(sequences, **given)


SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_reach_the_newest_actor_and_its_sft_loss_as_stored(peer, build, sources, side):
    """Its collate call, its Actor, its loss: ids and mask as stored, positions counted from the
    mask, and the loss of each row is the cross entropy of the unpadded document's labels."""
    load = peer("openrlhf", NEWEST, bare=BARE)
    options = ("--for", "openrlhf", "--layout", "padded", "--padding-side", side)
    folder = build("sft", sources["single"], *options)
    rows = rows_of(folder)
    data = ShardSFT(rows, tokenizer_of(folder), LONGEST, strategy())
    batch = data.collate_fn([data[i] for i in range(6)])
    ids, mask, gates = (tensor.squeeze(1) for tensor in batch)
    for place in range(6):
        stored, real, labels = taught(rows, place, ids.size(1))
        assert ids[place].equal(stored)
        assert mask[place].equal(real)
        assert (gates[place, :-1] != 0).equal(labels[1:] != -100)
    assert (mask[:, 0 if side == "left" else -1] == 0).any()
    torch.manual_seed(0)
    model = tiny("CausalLM", **SMALL).eval()
    seen = Seen(model)
    actor = actor_around(seen, load)
    with torch.no_grad():
        chances, _ = actor(ids, attention_mask=mask, return_output=True, return_logprobs=True)
        assert seen.given["input_ids"].equal(ids)
        assert seen.given["attention_mask"].equal(mask)
        loss_of = load("openrlhf.models.loss").SFTLoss()
        for place in range(6):
            real = mask[place].bool()
            assert seen.given["position_ids"][place][real].tolist() == list(range(int(real.sum())))
            alone, labels = ids[place][real], taught(rows, place, ids.size(1))[2][real]
            wanted = torch.nn.functional.cross_entropy(
                model(alone[None]).logits[0, :-1].float(), labels[1:]
            )
            one = slice(place, place + 1)
            loss = loss_of(chances[one], gates[one, :-1])
            assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_left_padded_steps_reach_the_last_process_reward_loss_as_stored(peer, build, sources):
    """OpenRLHF 0.9.5: ids, mask and labels of a left-padded build, through its Actor to its loss,
    which is that of the same documents without padding."""
    load = peer("openrlhf", LAST_PRM, bare=BARE)
    command = ("prm", sources["prm"], "--for", "openrlhf", "--layout")
    folder, ragged = build(*command, "padded"), build(*command, "ragged")
    rows, tokenizer = rows_of(folder).select(range(6)), tokenizer_of(folder)
    keys = strategy(**OF_STEPS)
    data = ShardPRM(rows, tokenizer, LONGEST, keys)
    ids, mask, labels = (t.squeeze(1) for t in data.collate_fn([data[i] for i in range(6)]))
    for place in range(6):
        for ours, stored in zip((ids, mask, labels), taught(rows, place, ids.size(1)), strict=True):
            assert ours[place].equal(stored)
    assert (mask[:, 0] == 0).any()
    assert mask[:, -1].all()
    torch.manual_seed(0)
    actor = actor_around(tiny("CausalLM", **SMALL).eval(), load)
    step, *rewards = tokenizer.convert_tokens_to_ids(["<|step|>", "<|good|>", "<|bad|>"])
    loss_of = load("openrlhf.models.loss").PRMLoss(step, rewards)
    single = ShardPRM(rows_of(ragged).select(range(6)), tokenizer, LONGEST, keys)
    with torch.no_grad():
        for place in range(6):
            one = slice(place, place + 1)
            made = actor(ids[one], attention_mask=mask[one], return_output=True)
            loss, hits = loss_of(ids[one], made.logits, labels[one], return_acc=True)
            alone, ones, wanted = (t.squeeze(1) for t in single.collate_fn([single[place]]))
            bare = actor(alone, attention_mask=ones, return_output=True)
            expected, right = loss_of(alone, bare.logits, wanted, return_acc=True)
            assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
            assert hits.item() == right.item()


@FROM_OLDEST
@pytest.mark.parametrize("is_dpo", [False, True], ids=["rm", "dpo"])
def test_pairs_are_the_tensors_of_reward_dataset(peer, build, sources, is_dpo, version):
    """Both sides, masks, padding side and extras of a batch, for rm and dpo."""
    theirs = peer("openrlhf", version, bare=BARE)("openrlhf.datasets.reward_dataset").RewardDataset
    source = Path(__file__).parents[2] / "sample_data" / "rm" / "pairs_margin.jsonl"
    texts = build("rm", source, "--for", "openrlhf-text")
    shards = build("rm", source, "--for", "openrlhf")
    tokenizer = tokenizer_of(shards)
    keys = strategy(prompt_key="prompt", chosen_key="chosen", rejected_key="rejected")
    native = theirs(rows_of(texts), tokenizer, LONGEST, keys, is_dpo=is_dpo, num_processors=None)
    own = ShardRM(rows_of(shards), tokenizer, LONGEST, keys, is_dpo=is_dpo)
    assert len(native) == len(own) > 3
    everything = range(len(own))
    batch = own.collate_fn([own[i] for i in everything])
    their_batch = native.collate_fn([native[i] for i in everything])
    for ours, their in zip(batch[:4], their_batch[:4], strict=True):
        assert equal(ours, their)
    assert batch[4] == their_batch[4]


@FROM_OLDEST_PRM
def test_steps_are_the_tensors_of_process_reward_dataset(peer, build, sources, version):
    """First and last version that we feed: ids, masks and labels of every row, and its loss."""
    load = peer("openrlhf", version, bare=BARE)
    theirs = load("openrlhf.datasets.process_reward_dataset").ProcessRewardDataset
    texts = build("prm", sources["prm"], "--for", "openrlhf-text")
    shards = build("prm", sources["prm"], "--for", "openrlhf", "--layout", "ragged")
    tokenizer = tokenizer_of(shards)
    keys = strategy(input_key="input", label_key="label", **OF_STEPS)
    native = theirs(rows_of(texts), tokenizer, LONGEST, keys)
    own = ShardPRM(rows_of(shards), tokenizer, LONGEST, keys)
    assert len(native) == len(own) > 5
    everything = range(len(own))
    batch = own.collate_fn([own[i] for i in everything])
    their_batch = native.collate_fn([native[i] for i in everything])
    for ours, their in zip(batch, their_batch, strict=True):
        assert equal(ours, their)
    ids, _, labels = (tensor.squeeze(1) for tensor in batch)
    step, *rewards = tokenizer.convert_tokens_to_ids(["<|step|>", "<|good|>", "<|bad|>"])
    loss_of = load("openrlhf.models.loss").PRMLoss(step, rewards)
    logits = torch.zeros(*ids.shape, max(rewards) + 1, dtype=torch.float16)
    loss, _ = loss_of(ids, logits.float(), labels, return_acc=True)
    assert loss.item() == pytest.approx(0.6931, abs=1e-3)  # two classes, nothing known


def test_its_own_preparation_finds_no_step_on_qwen(peer, build, sources):
    """The failure that a build ends, by its own code: the bare tag's token never occurs."""
    load = peer("openrlhf", LAST_PRM, bare=BARE)
    theirs = load("openrlhf.datasets.process_reward_dataset").ProcessRewardDataset
    tokenizer = tokenizer_of(build("prm", sources["prm"], "--for", "openrlhf"))
    tag, rewards = "ки", ["+", "-"]
    keys = strategy(
        input_key="input", label_key="label", placeholder_token=tag, reward_tokens=rewards
    )
    lines = [json.loads(line) for line in sources["prm"].read_text("utf-8").splitlines()]
    rated = [row for row in lines if tag in row.get("input", "")]
    rows = [
        {"input": row["input"], "label": [rewards[0]] * row["input"].count(tag)} for row in rated
    ]
    native = theirs(Dataset.from_list(rows), tokenizer, LONGEST, keys)
    ids, _, labels = native.collate_fn([native[i] for i in range(len(rows))])
    pad = tokenizer.pad_token_id  # which it pads labels with
    assert set(labels.flatten().tolist()) <= {-100, pad}
    (step,) = tokenizer.encode(tag, add_special_tokens=False)
    loss_of = load("openrlhf.models.loss").PRMLoss(step, tokenizer.convert_tokens_to_ids(rewards))
    assert not (ids == step).any()
    small = torch.randn(*ids.squeeze(1).shape, 16)
    assert loss_of(ids.squeeze(1), small, labels.squeeze(1)).isnan()


def test_what_does_not_fit_is_refused(build, sources):
    """Another task's shards, a short max_len and a wrong placeholder stop before training."""
    folder = build("prm", sources["prm"], "--for", "openrlhf", "--layout", "ragged")
    tokenizer, rows = tokenizer_of(folder), rows_of(folder)
    with pytest.raises(UsageError, match="no column chosen_ids"):
        ShardRM(rows, tokenizer, LONGEST, strategy())
    keys = strategy(**OF_STEPS)
    with pytest.raises(UsageError, match="more than the trainer's max_len 8"):
        ShardPRM(rows, tokenizer, 8, keys)[0]
    keys = strategy(placeholder_token="ки", reward_tokens=["<|good|>", "<|bad|>"])
    with pytest.raises(UsageError, match="labels outside its step tokens"):
        ShardPRM(rows, tokenizer, LONGEST, keys)[0]
    keys = strategy(placeholder_token="<|step|>", reward_tokens=["+", "-"])
    with pytest.raises(UsageError, match="not the tokens of this build"):
        ShardPRM(rows, tokenizer, LONGEST, keys)


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_the_example_has_the_loss_and_the_gradients_of_its_process_reward_loss(
    peer, build, sources, tmp_path, soft
):
    """Of six rows, padded there and one behind the other here."""
    load = peer("openrlhf", LAST_PRM, bare=BARE)
    data = sources["prm"]
    if soft:
        labels = [[0.25, 1.0], [0.7], [0.5, 0.0, 0.9]] * 2
        rated = [
            {"prompt": f"{n}?", "completions": [*map(str, range(len(one)))], "labels": one}
            for n, one in enumerate(labels)
        ]
        data = write_rows(tmp_path / "soft.jsonl", rated)
    folder = build("prm", data, "--for", "openrlhf", "--layout", "ragged")
    rows, tokenizer = rows_of(folder).select(range(6)), tokenizer_of(folder)
    own = ShardPRM(rows, tokenizer, LONGEST, strategy(**OF_STEPS))
    ids, mask, labels = (t.squeeze(1) for t in own.collate_fn([own[i] for i in range(6)]))
    step, *rewards = tokenizer.convert_tokens_to_ids(["<|step|>", "<|good|>", "<|bad|>"])
    model = tiny("CausalLM", **SMALL).eval()
    made = actor_around(model, load)(ids, attention_mask=mask, return_output=True)
    theirs = load("openrlhf.models.loss").PRMLoss(step, rewards)(ids, made.logits, labels)
    expected = torch.autograd.grad(theirs, list(model.parameters()))
    loss = step_loss(folder, model, rows.to_list(), tmp_path)
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    for ours, their in zip(
        torch.autograd.grad(loss, list(model.parameters())), expected, strict=True
    ):
        torch.testing.assert_close(ours, their, rtol=1e-4, atol=1e-7)
