"""Qwen2.5: base and instruct, Math, Coder, and the Math process reward models."""

from dataclasses import replace

from stages.models.profile import AddedToken, ModelProfile, RankLayout, StepTokens
from stages.profiles import template
from stages.profiles._chatml import CHATML, TOOLS, VISION, chatml

RANKS = RankLayout(
    "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    (
        *CHATML,
        *(replace(token, flag_order="nlrs") for token in VISION),
        *(replace(token, flag_order="lnrs") for token in TOOLS),
    ),
)
# In the process reward models, the marker of a step has the id of <|quad_end|> in the others.
_STEP = AddedToken("<extra_0>", flag_order="nlrs")
_PRM_RANKS = replace(
    RANKS,
    sha256="958ac3a01f67f04621ae76e93b65b8828861dbc2636e0c8a40cbead5ce34ab6e",
    of_vendor=False,
    added_tokens=tuple(
        _STEP if token.content == "<|quad_end|>" else token for token in RANKS.added_tokens
    ),
)

# size, embedding rows
_GENERAL = (
    ("0.5B", 151936),
    ("1.5B", 151936),
    ("3B", 151936),
    ("7B", 152064),
    ("14B", 152064),
    ("32B", 152064),
    ("72B", 152064),
)
_CODER = _GENERAL[:6]
_MATH = (("1.5B", 151936), ("7B", 152064), ("72B", 152064))


def _profile(size: str, embedding: int, suffix: str, kind: str = "") -> ModelProfile:
    return chatml(
        f"qwen2.5-{kind}{size}{suffix}".lower(),
        (f"Qwen/Qwen2.5-{kind}{size}{suffix}",),
        chat_template=template("qwen2_5_math" if kind == "Math-" else "qwen2_5"),
        embedding_size=embedding,
        context_length=4096 if kind == "Math-" else 32768,
        is_base=not suffix,
        ranks=RANKS,
    )


def _process_reward(size: str) -> ModelProfile:
    return chatml(
        f"qwen2.5-math-prm-{size}".lower(),
        (f"Qwen/Qwen2.5-Math-PRM-{size}",),
        chat_template=template("qwen2_5_math"),
        embedding_size=152064,
        context_length=4096,
        is_base=False,
        ranks=_PRM_RANKS,
        # By its model card, steps have the marker behind each, and nothing between them.
        step_tokens=StepTokens(step=_STEP.content, separator=""),
        token_ids=((_STEP.content, 151651),),
    )


PROFILES = (
    *(_profile(*size, suffix) for size in _GENERAL for suffix in ("", "-Instruct")),
    *(_profile(*size, suffix, "Coder-") for size in _CODER for suffix in ("", "-Instruct")),
    *(_profile(*size, suffix, "Math-") for size in _MATH for suffix in ("", "-Instruct")),
    *map(_process_reward, ("7B", "72B")),
)
