"""Mistral: v1 (7B v0.1 and v0.2, Mixtral 8x7B), v3 (7B v0.3, Mixtral 8x22B) and Tekken (Nemo).

Ids are those of the vendor's own encoder, mistral-common. The hub's ``tokenizer.json`` of the older
models gives other ids than it; train and serve with the tokenizer of the build.
"""

from typing import Any

from stages.models.profile import AddedToken, ModelProfile, RankLayout, StepTokens
from stages.profiles import template

_V1 = RankLayout(
    "e1619f17ab9181ba2adc3d241d8d991ac6188ecc2458731ef4ad6f31283bef5f",
    builder="sentencepiece",
    carrier="mistral_v1",
    of_vendor=False,
)
_V3 = RankLayout(
    "4e6d0ee4893db03f53e347bf3b06a9ae60aa63322328536f7e740994de88c777",
    builder="sentencepiece",
    carrier="mistral_v3",
    of_vendor=False,
)
# Equal to Ministral 8B's file on the hub; Nemo's own file there has the same ids.
_TEKKEN = RankLayout(
    "d7edbeaf20dd7f571b5dd1c54d9ace4f9b6299127cc7ba2afb14a6d51a4a79a4",
    tuple(
        map(
            AddedToken,
            "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] "
            "[/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] "
            "[SUFFIX]".split(),
        )
    ),
    builder="tekken",
    carrier="tekken",
)


def _mistral(name: str, model_ids: tuple[str, ...], **rest: Any) -> ModelProfile:
    return ModelProfile(
        name=name,
        model_ids=model_ids,
        end_of_turn="</s>",
        eos_token="</s>",
        generation_eos=("</s>",),
        bos_token="<s>",
        bos_policy="template",
        **rest,
    )


def _v1(name: str, *model_ids: str) -> ModelProfile:
    """A v1 model: its 32,000 rows are all used, so tokens of bytes that UTF-8 lacks mark steps."""
    return _mistral(
        name,
        model_ids,
        chat_template=template("mistral_v1"),
        pad_token="<unk>",
        vocab_size=32000,
        embedding_size=32000,
        context_length=32768,
        is_base="instruct" not in name,
        ranks=_V1,
        step_tokens=StepTokens("<0xFD>", "<0xFE>", "<0xFF>"),
        text_markers=("[INST]", "[/INST]"),
        text_lead=" ",
    )


def _v3(name: str, model_id: str, context_length: int) -> ModelProfile:
    return _mistral(
        name,
        (model_id,),
        chat_template=template("mistral_v3"),
        one_example_per_turn=True,
        pad_token="<unk>",
        vocab_size=32768,
        embedding_size=32768,
        context_length=context_length,
        is_base="instruct" not in name,
        ranks=_V3,
        step_tokens=StepTokens("[control_760]", "[control_761]", "[control_762]"),
        text_lead=" ",
    )


def _tekken(name: str, model_id: str) -> ModelProfile:
    return _mistral(
        name,
        (model_id,),
        chat_template=template("mistral_v3_tekken"),
        one_example_per_turn=True,
        pad_token="<pad>",
        vocab_size=131072,
        embedding_size=131072,
        context_length=131072,
        is_base="instruct" not in name,
        ranks=_TEKKEN,
        step_tokens=StepTokens("<SPECIAL_990>", "<SPECIAL_991>", "<SPECIAL_992>"),
    )


PROFILES = (
    _v1("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1"),
    _v1("mistral-7b-instruct-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"),
    _v1("mistral-7b-instruct-v0.2", "mistralai/Mistral-7B-Instruct-v0.2"),
    _v1("math-shepherd-mistral-7b-prm", "peiyi9979/math-shepherd-mistral-7b-prm"),
    _v1("mixtral-8x7b-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
    _v1("mixtral-8x7b-instruct-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    _v3("mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", 32768),
    _v3("mistral-7b-instruct-v0.3", "mistralai/Mistral-7B-Instruct-v0.3", 32768),
    _v3("mixtral-8x22b-instruct-v0.1", "mistralai/Mixtral-8x22B-Instruct-v0.1", 65536),
    _tekken("mistral-nemo-base-2407", "mistralai/Mistral-Nemo-Base-2407"),
    _tekken("mistral-nemo-instruct-2407", "mistralai/Mistral-Nemo-Instruct-2407"),
    _tekken("ministral-8b-instruct-2410", "mistralai/Ministral-8B-Instruct-2410"),
)
