"""axolotl's own program, started by our launch script: its tensors at the model are our rows.

Packages that need a GPU, send something or only report are stood in for by modules that stop the
program when one of their functions is called (``ABSENT`` in conftest.py); of numba the decorator
is, so that axolotl's packing runs as the Python it is written in. The model's head, which would
fill the memory with logits, is left out; its trunk runs on what axolotl gives it.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from parity.documents import alone, padded, restarts, stored
from support import sweep
from transformers import AutoModelForCausalLM

Build = Callable[..., Path]
NEWEST = "axolotl-0.19.0"
# On a CPU, in this process, in float32, with weights that stay as they are.
CPU = ("--launcher", "python", "--bf16", "false", "--learning-rate", "0")
IN_ORDER = ("--sample-packing-sequentially", "true", "--curriculum-sampling", "true")


@sweep(1)
@pytest.mark.parametrize("order", [(), IN_ORDER], ids=["shuffled", "in order"])
def test_documents_packed_at_run_time_are_our_rows(order, train, build, few, tmp_path, pipeline):
    """Each once, whole, with positions of its own, unseen by its neighbours; the test rows too.

    Of shuffled documents axolotl may leave out a pack: it packs four times to see how many batches
    an epoch has, takes the least, and the packs of the epoch itself may be one more.
    """
    options = ("--max-length", 2048, "--test-size", 0.2)
    made = build("sft", few["sft"], "--for", "axolotl", *options)
    plain = build("sft", few["sft"], "--layout", "ragged", *options)
    batches = train(NEWEST, made, *CPU, *order)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    found = []
    for batch in [b for b in batches if b["training"]]:
        assert "attention_mask" not in batch
        (ids,), (labels,) = batch["input_ids"], batch["labels"]
        for place in restarts(batch):
            document = tuple(ids[place].tolist()), tuple(labels[place].tolist())
            if set(document[1]) == {-100}:
                assert set(document[0]) == {model.config.pad_token_id}
                continue
            found.append(document)
            assert torch.allclose(batch["hidden"][0, place], alone(model, ids[place]), atol=1e-4)
    wanted, there = Counter(stored(plain)), Counter(found)  # some documents are there twice
    assert not there - wanted
    assert sum(len(ids) for ids, _ in (wanted - there).elements()) <= (0 if order else 2048)
    evaluated = padded(b for b in batches if not b["training"])  # more than once
    assert sorted(set(evaluated)) == stored(plain, "test")
    pipeline("check", made.parent).ended()


def test_steps_are_classes_at_the_step_tokens(train, build, few):
    """process_reward_model: every row, padded, 1 or 0 at each step token and nothing elsewhere."""
    batches = train(NEWEST, build("prm", few["prm"], "--for", "axolotl"), *CPU)
    plain = build("prm", few["prm"], "--layout", "ragged")
    good, bad = 151647, 151648
    classes = {-100: -100, good: 1, bad: 0}
    wanted = [(ids, tuple(classes[label] for label in labels)) for ids, labels in stored(plain)]
    assert padded(batches) == sorted(wanted)
