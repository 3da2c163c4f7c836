"""Llama 3, 3.1, 3.2 and 3.3, base and instruct.

The ids are Meta's. Some of the hub's files for 3.1, 3.2 and 3.3 differ in bytes, none in ids.
"""

from typing import Any

from stages.models.profile import AddedToken, ModelProfile, RankLayout, StepTokens
from stages.profiles import template


def _reserved(first: int, stop: int) -> list[str]:
    return [f"<|reserved_special_token_{i}|>" for i in range(first, stop)]


_V3_0 = [
    *"<|begin_of_text|> <|end_of_text|>".split(),
    *_reserved(0, 4),
    *"<|start_header_id|> <|end_header_id|>".split(),
    *_reserved(4, 5),
    "<|eot_id|>",
    *_reserved(5, 251),
]
SPECIAL = (
    *"<|begin_of_text|> <|end_of_text|>".split(),
    *_reserved(0, 2),
    "<|finetune_right_pad_id|>",
    *_reserved(2, 3),
    *"<|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|> <|python_tag|>".split(),
    *_reserved(3, 248),
)


def _layout(sha256: str, names: tuple[str, ...] | list[str], as_pairs: bool = False) -> RankLayout:
    added = tuple(map(AddedToken, names))
    return RankLayout(sha256, added, as_pairs, builder="llama3", carrier="llama3")


RANKS = _layout("e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7", _V3_0)
RANKS_3_1 = _layout("79e3e522635f3171300913bb421464a87de6222182a0570b9b2ccba2a964b2b4", SPECIAL)
RANKS_3_2 = _layout(
    "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b", SPECIAL, as_pairs=True
)

# The embedding has rows for the 256 added tokens and no others, so reserved ones mark steps.
_STEPS = StepTokens(*_reserved(240, 243))


def _llama(name: str, model_ids: tuple[str, ...], **rest: Any) -> ModelProfile:
    return ModelProfile(
        name=name,
        model_ids=model_ids,
        end_of_turn="<|eot_id|>",
        eos_token="<|eot_id|>",
        bos_token="<|begin_of_text|>",
        bos_policy="template",
        vocab_size=128000,
        embedding_size=128256,
        step_tokens=_STEPS,
        **rest,
    )


def _later(version: str, size: str, suffix: str, ranks: RankLayout) -> ModelProfile:
    name = f"Llama-{version}-{size}{suffix}"
    former = (f"meta-llama/Meta-{name}",) if version == "3.1" else ()
    return _llama(
        name.lower(),
        (f"meta-llama/{name}", *former),
        chat_template=template("llama3_1" if version != "3.2" else "llama3_2"),
        pad_token="<|finetune_right_pad_id|>",
        generation_eos=("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
        context_length=131072,
        is_base=not suffix,
        ranks=ranks,
    )


PROFILES = (
    *(
        _llama(
            f"llama-3-{size.lower()}{suffix.lower()}",
            (f"meta-llama/Meta-Llama-3-{size}{suffix}",),
            chat_template=template("llama3"),
            pad_token="<|reserved_special_token_2|>",
            generation_eos=("<|eot_id|>", "<|end_of_text|>"),
            context_length=8192,
            is_base=not suffix,
            ranks=RANKS,
        )
        for size in ("8B", "70B")
        for suffix in ("", "-Instruct")
    ),
    *(
        _later("3.1", s, suffix, RANKS_3_1)
        for s in ("8B", "70B", "405B")
        for suffix in ("", "-Instruct")
    ),
    *(_later("3.2", s, suffix, RANKS_3_2) for s in ("1B", "3B") for suffix in ("", "-Instruct")),
    _later("3.3", "70B", "-Instruct", RANKS_3_2),
)
