"""Qwen2.5, base and instruct."""

from dataclasses import replace

from stages.profile import RankLayout
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

_SIZES = (
    ("0.5B", 151936),
    ("1.5B", 151936),
    ("3B", 151936),
    ("7B", 152064),
    ("14B", 152064),
    ("32B", 152064),
    ("72B", 152064),
)

PROFILES = tuple(
    chatml(
        f"qwen2.5-{size.lower()}{suffix.lower()}",
        (f"Qwen/Qwen2.5-{size}{suffix}",),
        chat_template=template("qwen2_5"),
        embedding_size=embedding,
        context_length=32768,
        is_base=not suffix,
        ranks=RANKS,
    )
    for size, embedding in _SIZES
    for suffix in ("", "-Instruct")
)
