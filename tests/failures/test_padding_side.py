"""Right padding breaks a decoder: what it generates from a padded batch is not what it would alone.

Flash-attention refused right-padded batches of Qwen2 outright; other attentions go on behind the
padding without a word.
"""

import torch
from datasets import load_from_disk
from failures import sums, tiny
from transformers import AutoTokenizer

NEW_TOKENS = 6


def test_a_left_padded_batch_generates_what_single_rows_do(build, figure):
    rows = [
        {"question": "x " * (3 * number) + row["question"], "answer": row["answer"]}
        for number, row in enumerate(sums.questions(8))
    ]
    folder = build("sft", rows, "--model", "qwen2-1.5b", "--layout", "padded")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    model = tiny.causal(len(tokenizer), initializer_range=0.5).eval()
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": row["question"]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        for row in rows
    ]

    def generated(texts: list[str], side: str) -> list[list[int]]:
        batch = tokenizer(
            texts,
            return_tensors="pt",
            padding=True,
            padding_side=side,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        out = model.generate(
            **batch,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
        )
        return out[:, batch["input_ids"].shape[1] :].tolist()

    alone = [generated([prompt], "left")[0] for prompt in prompts]
    naive = sum(a == b for a, b in zip(generated(prompts, "right"), alone, strict=True))
    ours = sum(
        a == b for a, b in zip(generated(prompts, tokenizer.padding_side), alone, strict=True)
    )
    figure("rows of a padded batch that generate what they would alone, of 8", naive, ours)
    assert tokenizer.padding_side == "left"
    assert naive <= 1, "only the longest row has no padding"
    assert ours == len(rows)


def test_padded_rows_train_what_unpadded_rows_do(build):
    rows = sums.questions(12)
    losses = {}
    for layout in ("padded", "ragged"):
        folder = build("sft", rows, "--model", "qwen2-1.5b", "--layout", layout)
        model = tiny.causal(151936).double()
        losses[layout] = []
        for row in load_from_disk(str(folder))["train"].to_list():
            named = ("input_ids", "labels", "attention_mask")
            batch = {name: torch.tensor([row[name]]) for name in named if name in row}
            with torch.no_grad():
                losses[layout].append(model(**batch).loss)
    torch.testing.assert_close(torch.stack(losses["padded"]), torch.stack(losses["ragged"]))
