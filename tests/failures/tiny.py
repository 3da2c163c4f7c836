"""Tiny random-weight models, built in memory, and the loop that trains them for seconds."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from small_tokenizers import small
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithFlattening,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    set_seed,
)

from stages.tokenizers.profiles import template

Batch = dict[str, torch.Tensor]

_SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}


VOCABULARY = 640  # of a model of ``chatml``


def chatml(folder: Path) -> str:
    """A model directory with ChatML over a small tokenizer: its logits cost nothing."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(small("smollm2-1.7b")[1])
    said = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    said["chat_template"] = template("qwen3_2507")
    (folder / "tokenizer_config.json").write_text(json.dumps(said), "utf-8")
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY}), "utf-8")
    return f"{folder}/"


def qwen2_config(vocab_size: int, **more: Any) -> Qwen2Config:
    """Qwen2's architecture, small enough to train on two cores."""
    return Qwen2Config(vocab_size=vocab_size, **{**_SIZE, **more})


def llama_config(vocab_size: int, **more: Any) -> LlamaConfig:
    """The same of Llama."""
    return LlamaConfig(vocab_size=vocab_size, **{**_SIZE, "tie_word_embeddings": False, **more})


def causal(vocab_size: int, seed: int = 0, **more: Any) -> Qwen2ForCausalLM:
    """A language model; the same weights for the same seed."""
    set_seed(seed)
    return Qwen2ForCausalLM(qwen2_config(vocab_size, use_cache=False, **more))


def made(config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A language model of any architecture."""
    set_seed(seed)
    return AutoModelForCausalLM.from_config(config, experts_implementation="eager")


def encoder(family: str, vocab_size: int, seed: int = 0) -> PreTrainedModel:
    """A reward model on RoBERTa's or BERT's architecture, with as many positions as theirs."""
    set_seed(seed)
    shared = {
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": 1,
    }
    if family == "bert":
        return BertForSequenceClassification(BertConfig(**shared)).eval()
    config = RobertaConfig(**shared, max_position_embeddings=514, type_vocab_size=1)
    return RobertaForSequenceClassification(config).eval()


def forever(batches: list[Batch], seed: int = 0) -> Iterator[Batch]:
    """The batches again and again, in a new order each time."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[index]


def flattened(rows: list[dict[str, Any]], size: int = 4) -> list[Batch]:
    """So many rows a batch, one behind the other without padding."""
    flatten = DataCollatorWithFlattening(return_tensors="pt")
    return [dict(flatten(rows[at : at + size])) for at in range(0, len(rows), size)]


def asked(tokenizer: Any, question: str) -> Any:
    """A question, as a chat model is prompted with it."""
    turns = [{"role": "user", "content": question}]
    given = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    return tokenizer.apply_chat_template(turns, **given)


def labelled(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels that logits are compared with, int64 [rows, positions], where any row has one, and
    these positions: logits of 152,000 tokens everywhere cost more than all the rest."""
    following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    at = (following != -100).any(dim=0).nonzero().flatten()
    return following[:, at], at


def _own_loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    following, at = labelled(batch["labels"])
    return model(**batch, logits_to_keep=at, shift_labels=following).loss


def train(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    steps: int,
    loss_of: Callable[[PreTrainedModel, Batch], torch.Tensor] | None = None,
    rate: float = 3e-3,
) -> list[float]:
    """AdamW with a constant rate.

    Args:
        loss_of: the loss of a batch; the model's own where it is None.

    Returns:
        The loss of every step.
    """
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, fused=True)
    losses = []
    for _, batch in zip(range(steps), batches, strict=False):
        loss = (loss_of or _own_loss)(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    return losses


def learnt(rows: list[dict[str, Any]]) -> Qwen2ForCausalLM:
    """A model of ``chatml`` that knows the answers of a build's rows."""
    model = causal(VOCABULARY)
    train(model, forever(flattened(rows)), 200)
    return model
