"""Qwen2, base and instruct."""

from stages.models.profile import RankLayout
from stages.profiles import template
from stages.profiles._chatml import CHATML, chatml

RANKS = RankLayout("f7c9b2dba4a296b1aa76c16a34b8225c0c118978400d4bb66bff0902d702f5b8", CHATML)

# size, embedding rows, positions of the instruct model
_SIZES = (
    ("0.5B", 151936, 32768),
    ("1.5B", 151936, 32768),
    ("7B", 152064, 32768),
    ("72B", 152064, 32768),
)

PROFILES = tuple(
    chatml(
        f"qwen2-{size.lower()}{suffix.lower()}",
        (f"Qwen/Qwen2-{size}{suffix}",),
        chat_template=template("qwen2"),
        embedding_size=embedding,
        context_length=131072 if not suffix else context,
        is_base=not suffix,
        ranks=RANKS,
    )
    for size, embedding, context in _SIZES
    for suffix in ("", "-Instruct")
)
