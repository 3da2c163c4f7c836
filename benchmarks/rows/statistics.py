"""What generated texts are like, in numbers."""

import re

from benchmarks.rows import rows
from stages.encoders import Encoder


def statistics(encoder: Encoder, text: str, count: int) -> dict[str, float]:
    """Tokens a row, characters a token, and how many different words and ids occur.

    Tokens are those of the contents alone, without what the chat template puts around them.
    """
    found = [turn["content"] for row in rows(text, "messages", count) for turn in row["messages"]]
    ids = encoder.encode(found)[0]
    words = {word for content in found for word in re.findall(r"[^\W\d_]+", content)}
    return {
        "rows": count,
        "tokens": round(len(ids) / count, 1),
        "characters": round(sum(map(len, found)) / len(ids), 2),
        "words": len(words),
        "ids": len(set(ids.tolist())),
    }
