"""DeepSeek-R1-Distill, on Qwen and on Llama.

The vendor's template drops reasoning from every answer, also from the last one, while its
generation prompt opens a block of reasoning. So training with it would not train reasoning. Our
template prints what inference sees: earlier answers without reasoning, and the last one after the
generation prompt with its reasoning, or with an empty block where it has none.
"""

from typing import Any

from stages.models.profile import AddedToken, ModelProfile, RankLayout, StepTokens
from stages.profiles import llama3, qwen2_5, template

_TURNS = ("<｜User｜>", "<｜Assistant｜>")
_QWEN = RankLayout(
    "88145e3c3249adc2546ede277e9819d6e405e19072456e4b521cbc724bd60773",
    (
        AddedToken("<｜end▁of▁sentence｜>"),
        *(AddedToken(token, special=False) for token in _TURNS),
        AddedToken("<｜begin▁of▁sentence｜>", flag_order="nlrs"),
        *(
            AddedToken(t, special=False, flag_order="nlrs")
            for t in "<|EOT|> <think> </think>".split()
        ),
        *qwen2_5.RANKS.added_tokens[7:],
    ),
)


def _distilled(base: str, size: str, **rest: Any) -> ModelProfile:
    return ModelProfile(
        name=f"deepseek-r1-distill-{base}-{size}".lower(),
        model_ids=(f"deepseek-ai/DeepSeek-R1-Distill-{base}-{size}",),
        chat_template=template("deepseek_r1_distill"),
        one_example_per_turn=True,
        end_of_turn="<｜end▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
        generation_eos=("<｜end▁of▁sentence｜>",),
        bos_token="<｜begin▁of▁sentence｜>",
        bos_policy="template",
        context_length=131072,
        is_base=False,
        promoted=_TURNS,
        **rest,
    )


def _on_qwen(size: str, embedding: int) -> ModelProfile:
    return _distilled(
        "Qwen",
        size,
        vocab_size=151643,
        embedding_size=embedding,
        pad_token="<|vision_pad|>",
        ranks=_QWEN,
        token_ids=((_TURNS[0], 151644), (_TURNS[1], 151645), ("<think>", 151648)),
    )


def _on_llama(size: str) -> ModelProfile:
    return _distilled(
        "Llama",
        size,
        vocab_size=128000,
        embedding_size=128256,
        pad_token="<|finetune_right_pad_id|>",
        file_sha256="b9c9eb63a8e03059914880f918cd28a880dec8b6e15e4461e1ff677e3743dbb8",
        step_tokens=StepTokens(*llama3.SPECIAL[-3:]),
        token_ids=(("<｜begin▁of▁sentence｜>", 128000), ("<｜end▁of▁sentence｜>", 128001)),
    )


PROFILES = (
    _on_qwen("1.5B", 151936),
    _on_qwen("7B", 152064),
    _on_qwen("14B", 152064),
    _on_qwen("32B", 152064),
    _on_llama("8B"),
    _on_llama("70B"),
)
