"""LLaMA-Factory's own program, started by our launch script: its tensors at the model are our rows.

Of its packages only torchaudio is absent (a module that stops the program when used stands in its
place); the model's head, which would fill the memory with logits, is left out, and its trunk runs
on what LLaMA-Factory gives it. flash-attn, which the launch file asks for, needs a GPU: without it
LLaMA-Factory goes on with a mask of four dimensions, and where its collator is told that
flash-attn is there it takes the padding out and leaves positions that restart.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from parity.documents import alone, padded, restarts, stored
from support import sweep
from transformers import AutoModelForCausalLM

Build = Callable[..., Path]
NEWEST = "llamafactory-0.9.5"
# Every row once, with weights that stay as they are.
STILL = ("num_train_epochs=1", "learning_rate=0", "report_to=none")
FLASH = """
from llamafactory.data import collator
whole = collator.SFTDataCollatorWith4DAttentionMask.__post_init__
def flash(self):
    whole(self)
    self.attn_implementation = "flash_attention_2"
collator.SFTDataCollatorWith4DAttentionMask.__post_init__ = flash
"""


@sweep(1)
@pytest.mark.parametrize("flash", [False, True], ids=["mask", "flash"])
def test_packs_reach_the_model_with_their_documents_apart(train, build, few, tmp_path, flash):
    """neat_packing: every pack once, ids, labels and positions as planned, nothing else seen."""
    made = build("sft", few["sft"], "--for", "llamafactory", "--max-length", 2048)
    packs = load_from_disk(str(made.parent))["train"]
    batches = train(NEWEST, made, *STILL, before=FLASH if flash else "")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    found = {}
    for batch in batches:
        ids, labels = batch["input_ids"][0], batch["labels"][0]
        if flash:
            assert "attention_mask" not in batch
            places = list(restarts(batch))
        else:
            places = documents_of(batch["attention_mask"])
            assert (ids[places[-1].stop :] == model.config.pad_token_id).all()
            assert (labels[places[-1].stop :] == -100).all()
        for place in places:
            assert batch["position_ids"][0, place].tolist() == list(range(len(ids[place])))
            assert torch.allclose(batch["hidden"][0, place], alone(model, ids[place]), atol=1e-4)
        real = slice(0, places[-1].stop)
        lengths = [place.stop - place.start for place in places]
        found[tuple(ids[real].tolist())] = (labels[real].tolist(), lengths)
    assert len(batches) == len(found) == len(packs) > 5
    for pack in packs:
        assert found[tuple(pack["input_ids"])] == (pack["labels"], pack["seq_lengths"])


def documents_of(mask: torch.Tensor) -> list[slice]:
    """The documents that a mask of shape (1, 1, tokens, tokens) keeps apart, by its own numbers.

    A token sees (0) its document's tokens up to itself and no other; padding sees nothing.
    """
    sees = mask[0, 0] == 0
    count = int(sees.diagonal().sum())
    assert not sees[count:].any()
    starts = sees[:count].int().argmax(1)
    at = torch.arange(len(sees))
    assert sees[:count].equal((at <= at[:count, None]) & (at >= starts[:, None]))
    edges = [*torch.unique_consecutive(starts).tolist(), count]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]


def test_single_rows_reach_the_model_whole(train, build, few):
    """Nothing is cut, nothing added, nothing else trained."""
    made = build("sft", few["single"], "--for", "llamafactory", "--layout", "ragged")
    plain = build("sft", few["single"], "--layout", "ragged")
    assert padded(train(NEWEST, made, *STILL)) == stored(plain)


def test_pairs_reach_the_reward_model(train, build, few):
    """Every pair once, the chosen sides in the first half of a batch, the rejected ones after."""
    made = build("rm", few["rm"], "--for", "llamafactory")
    rows = load_from_disk(str(made.parent))["train"]
    found = []
    for batch in train(NEWEST, made, *STILL, "per_device_train_batch_size=4"):
        sides = [
            tuple(ids[mask.bool()].tolist())
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ]
        half = len(sides) // 2
        found += list(zip(sides[:half], sides[half:], strict=True))
    wanted = [(tuple(row["chosen_ids"]), tuple(row["rejected_ids"])) for row in rows]
    assert sorted(found) == sorted(wanted)
