"""DeepSeek-R1-Distill, on Qwen and on Llama.

The vendor's template drops reasoning from every answer, the last one included, while its
generation prompt opens a block of reasoning: trained on, it teaches neither. Ours prints what
inference sees: earlier answers without reasoning, and the last one behind the generation prompt
with its reasoning, or with an empty block where it has none.
"""

from dataclasses import replace
from typing import Any

from stages.profile import AddedToken, ModelProfile, RankLayout, StepTokens
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
_NAMED = {
    "<|begin_of_text|>": "<｜begin▁of▁sentence｜>",
    "<|end_of_text|>": "<｜end▁of▁sentence｜>",
    "<|reserved_special_token_3|>": _TURNS[0],
    "<|reserved_special_token_4|>": _TURNS[1],
    "<|reserved_special_token_5|>": "<think>",
    "<|reserved_special_token_6|>": "</think>",
}
_PLAIN = {*_TURNS, "<think>", "</think>"}
_LLAMA = replace(
    llama3.RANKS_3_1,
    sha256="709191b3ddf7b35c6dbfa57385db754aa6e663c2ec9b9b6998046e6f0d1e8560",
    of_vendor=False,
    added_tokens=tuple(
        AddedToken(_NAMED.get(name, name), special=_NAMED.get(name) not in _PLAIN)
        for name in llama3.SPECIAL
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
        ranks=_LLAMA,
        step_tokens=StepTokens(*llama3.SPECIAL[-3:]),
        token_ids=((_TURNS[0], 128011), (_TURNS[1], 128012), ("<think>", 128013)),
    )


PROFILES = (
    _on_qwen("1.5B", 151936),
    _on_qwen("7B", 152064),
    _on_qwen("14B", 152064),
    _on_qwen("32B", 152064),
    _on_llama("8B"),
    _on_llama("70B"),
)
