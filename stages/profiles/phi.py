"""Phi-3, 3.5 and 4. The vendor pads with ``<|endoftext|>``, which its template also prints (Phi-3)
or which also begins texts (Phi-4); here the pad token is one that is used for nothing else.
"""

from __future__ import annotations

from stages.models.profile import ModelProfile, StepTokens
from stages.profiles import template

_PHI3_IDS = (
    *(("<unk>", 0), ("<s>", 1), ("</s>", 2), ("<|endoftext|>", 32000), ("<|assistant|>", 32001)),
    *(("<|system|>", 32006), ("<|end|>", 32007), ("<|placeholder6|>", 32009), ("<|user|>", 32010)),
)
_PHI4_IDS = (
    *(("<|endoftext|>", 100257), ("<|im_start|>", 100264), ("<|im_end|>", 100265)),
    *(("<|im_sep|>", 100266), ("<|dummy_85|>", 100349)),
)


def _phi3(name: str, model_id: str, source: str, context: int) -> ModelProfile:
    return ModelProfile(
        name=name,
        model_ids=(f"microsoft/{model_id}",),
        chat_template=template(source),
        end_of_turn="<|end|>",
        eos_token="<|end|>",
        pad_token="<|placeholder6|>",
        generation_eos=("<|end|>", "<|endoftext|>"),
        vocab_size=32000,
        embedding_size=32064,
        context_length=context,
        is_base=False,
        bos_token="<s>",
        unk_token="<unk>",
        token_ids=_PHI3_IDS,
    )


PROFILES = (
    *(
        _phi3(
            f"phi-3-{size}-{window}",
            f"Phi-3-{size}-{window}-instruct",
            source="phi3",
            context=context,
        )
        for size in ("mini", "medium")
        for window, context in (("4k", 4096), ("128k", 131072))
    ),
    _phi3("phi-3.5-mini", "Phi-3.5-mini-instruct", source="phi3_5", context=131072),
    ModelProfile(
        name="phi-4",
        model_ids=("microsoft/phi-4",),
        chat_template=template("phi4"),
        end_of_turn="<|im_end|>",
        eos_token="<|im_end|>",
        pad_token="<|dummy_85|>",
        generation_eos=("<|im_end|>", "<|endoftext|>"),
        vocab_size=100256,
        embedding_size=100352,
        context_length=16384,
        is_base=False,
        bos_token="<|endoftext|>",
        token_ids=_PHI4_IDS,
        step_tokens=StepTokens("<|dummy_82|>", "<|dummy_83|>", "<|dummy_84|>"),
    ),
)
