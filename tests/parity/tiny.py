"""A model that fits a test."""

from typing import Any

import transformers

_SIZES = {
    "vocab_size": 151936,  # Qwen2's own, for its own tokenizer
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 16384,
}


def tiny(kind: str, **more: Any) -> Any:
    """A Qwen2 of a few thousand weights beside its embedding, unless more is asked for."""
    config = transformers.Qwen2Config(**{**_SIZES, "use_cache": False, **more})
    return getattr(transformers, f"Qwen2For{kind}")(config)
