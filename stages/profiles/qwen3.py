"""Qwen3: base, hybrid (reasons unless ``enable_thinking`` is false) and 2507 instruct models."""

from stages.models.profile import RankLayout
from stages.profiles import template
from stages.profiles._chatml import CHATML, THINKING, TOOLS, VISION, chatml

RANKS = RankLayout(
    "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    CHATML + VISION + TOOLS + THINKING,
    merges_as_pairs=True,
)

_HYBRID = ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")
_BASE = ("0.6B", "1.7B", "4B", "8B", "14B", "30B-A3B")
_INSTRUCT_2507 = ("4B", "30B-A3B", "235B-A22B")

# Without thinking, the generation prompt ends in an empty thinking block.
_VARIANTS = ((), (("enable_thinking", False),))

PROFILES = (
    *(
        chatml(
            f"qwen3-{size.lower()}{suffix.lower()}",
            (f"Qwen/Qwen3-{size}{suffix}",),
            chat_template=template("qwen3"),
            template_variants=_VARIANTS,
            one_example_per_turn=True,
            embedding_size=151936,
            context_length=40960 if not suffix else 32768,
            is_base=bool(suffix),
            ranks=RANKS,
        )
        for sizes, suffix in ((_HYBRID, ""), (_BASE, "-Base"))
        for size in sizes
    ),
    *(
        chatml(
            f"qwen3-{size.lower()}-instruct-2507",
            (f"Qwen/Qwen3-{size}-Instruct-2507",),
            chat_template=template("qwen3_2507"),
            embedding_size=151936,
            context_length=262144,
            is_base=False,
            ranks=RANKS,
        )
        for size in _INSTRUCT_2507
    ),
)
