"""The common part of the families with ChatML and Qwen's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stages.models.profile import AddedToken, ModelProfile

CHATML = tuple(AddedToken(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
VISION = tuple(
    AddedToken(f"<|{name}|>")
    for name in (
        "object_ref_start object_ref_end box_start box_end quad_start quad_end vision_start "
        "vision_end vision_pad image_pad video_pad"
    ).split()
)
TOOLS = tuple(
    AddedToken(name, special=False)
    for name in (
        "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> "
        "<|repo_name|> <|file_sep|>"
    ).split()
)
THINKING = tuple(
    AddedToken(name, special=False)
    for name in "<tool_response> </tool_response> <think> </think>".split()
)


def chatml(name: str, model_ids: Iterable[str], **rest: Any) -> ModelProfile:
    """A profile whose turns end in ``<|im_end|>`` and whose pad is ``<|endoftext|>``.

    The eos token of the emitted tokenizer is the end-of-turn token for base and tuned models, so
    that the token that is trained to end a turn also ends generation.
    """
    return ModelProfile(
        name=name,
        model_ids=tuple(model_ids),
        end_of_turn="<|im_end|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        generation_eos=("<|im_end|>", "<|endoftext|>"),
        vocab_size=151643,
        tokenizer_class="Qwen2Tokenizer",
        **rest,
    )
