"""Ids by the vendors' own libraries. Run by a Python that can import them; JSON lines in and out.

Arguments: ``sentencepiece`` or ``tiktoken``, the vocabulary's file, and for tiktoken the pattern
that splits words.
"""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _ranks(table: bytes) -> tuple[dict[bytes, int], int]:
    """The ranks, and the id of rank 0."""
    if not table.startswith(b"{"):
        pairs = (line.split() for line in table.splitlines())
        return {base64.b64decode(token): int(rank) for token, rank in pairs}, 0
    document: dict[str, Any] = json.loads(table)
    config = document["config"]
    first = config["default_num_special_tokens"]
    entries = document["vocab"][: config["default_vocab_size"] - first]
    return {base64.b64decode(e["token_bytes"]): e["rank"] for e in entries}, first


def encoder(library: str, path: Path, pattern: str) -> Callable[[str], list[int]]:
    """The library's encoder of a text without control tokens."""
    if library == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_file=str(path)).encode
    import tiktoken

    ranks, first = _ranks(path.read_bytes())
    found = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [first + rank for rank in found.encode_ordinary(text)]


def main() -> None:
    """One line of ids for each line of a text."""
    encode = encoder(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(encode(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
