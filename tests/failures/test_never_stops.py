"""A tuned model that never stops, for either of two reasons.

Pad was made the token that ends a turn: the usual collator masks padding by comparing ids with the
pad id, so every stop is masked along, and nothing teaches the model to end a turn. Or it was
taught, and the configuration of the base model waits for another token.
"""

from typing import Any

import torch
from datasets import load_from_disk
from failures import sums, tiny
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    GenerationConfig,
    PreTrainedModel,
)

END_OF_TEXT = 0  # pad of the small tokenizer, and eos of a base model
STEPS = 200
BATCH = 4
NEW_TOKENS = 24


def stop_rate(
    model: PreTrainedModel, tokenizer: Any, prompts: list[str], config: GenerationConfig
) -> float:
    """Share of greedy answers that stop by themselves, under a generation config."""
    stops = torch.tensor(config.eos_token_id).flatten().tolist()
    stopped = 0
    for prompt in prompts:
        ids = tiny.asked(tokenizer, prompt)
        given = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
        out = model.generate(**ids, generation_config=config, **given)
        stopped += out[0, -1].item() in stops
    return stopped / len(prompts)


def test_the_stop_is_trained(build, figure, tmp_path):
    rows = sums.questions(96)
    asked = [row["question"] for row in sums.questions(8, seed=1)]
    folder = build("sft", rows, "--model", tiny.chatml(tmp_path / "base"), "--layout", "ragged")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    turns = [*map(sums.chat, rows)]

    naive_tokenizer = AutoTokenizer.from_pretrained(
        str(folder / "tokenizer"), eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    collate = DataCollatorForLanguageModeling(naive_tokenizer, mlm=False)
    encoded = naive_tokenizer.apply_chat_template(turns, return_dict=True)["input_ids"]
    naive_batches = [
        dict(collate([{"input_ids": ids} for ids in encoded[at : at + BATCH]]))
        for at in range(0, len(encoded), BATCH)
    ]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert all((batch["labels"] != end).all() for batch in naive_batches), "no stop is trained"
    naive = tiny.causal(tiny.VOCABULARY)
    tiny.train(naive, tiny.forever(naive_batches), STEPS)

    train = load_from_disk(str(folder))["train"].select_columns(["input_ids", "labels"]).to_list()
    ours_batches = tiny.flattened(train, BATCH)
    assert all((batch["labels"] == end).sum() == BATCH for batch in ours_batches)
    ours = tiny.causal(tiny.VOCABULARY)
    losses = tiny.train(ours, tiny.forever(ours_batches), STEPS)

    config = GenerationConfig.from_pretrained(str(folder / "tokenizer"))
    base = GenerationConfig(eos_token_id=END_OF_TEXT, pad_token_id=END_OF_TEXT)
    masked = stop_rate(naive, tokenizer, asked, config)
    waiting = stop_rate(ours, tokenizer, asked, base)
    after = stop_rate(ours, tokenizer, asked, config)
    figure(
        "answers that stop by themselves, pad made the end of turn", f"{masked:.0%}", f"{after:.0%}"
    )
    figure(
        "the same, of trained stops and the base model's generation config",
        f"{waiting:.0%}",
        f"{after:.0%}",
    )
    assert losses[-1] < losses[0] / 4
    assert (masked, waiting, after) == (0.0, 0.0, 1.0)
