"""Ids by the vendors' own libraries. Run by a Python that can import them; JSON lines in and out.

Arguments: ``sentencepiece`` or ``tiktoken``, the vocabulary's file, and for tiktoken the pattern
that splits words; or ``mistral_common`` and which of its tokenizers (v1, v3, tekken), for lines of
conversations instead of texts.
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


def _mistral_common(kind: str) -> Callable[[Any], list[int]]:
    """The encoder of conversations."""
    import mistral_common
    from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
    from mistral_common.protocol.instruct.request import InstructRequest
    from mistral_common.protocol.instruct.tool_calls import Tool
    from mistral_common.tokens.tokenizers import instruct, sentencepiece, tekken

    data = Path(mistral_common.__file__).parent / "data"
    if kind == "tekken":
        own = instruct.InstructTokenizerV3(tekken.Tekkenizer.from_file(data / "tekken_240718.json"))
    else:
        name = {"v1": "tokenizer.model.v1", "v3": "mistral_instruct_tokenizer_240216.model.v2"}[
            kind
        ]
        made = {"v1": instruct.InstructTokenizerV1, "v3": instruct.InstructTokenizerV3}[kind]
        own = made(sentencepiece.SentencePieceTokenizer(str(data / name)))
    messages = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}

    def encode(row: Any) -> list[int]:
        turns = row["messages"]
        system = turns.pop(0)["content"] if turns[0]["role"] == "system" else None
        for call in (call for turn in turns for call in turn.get("tool_calls") or ()):
            given = call["function"]["arguments"]  # of which JSON text is asked there
            call["function"]["arguments"] = json.dumps(given, ensure_ascii=False)
        request = InstructRequest(
            messages=[messages[turn["role"]].model_validate(turn) for turn in turns],
            system_prompt=system,
            available_tools=[Tool.model_validate(tool) for tool in row["tools"] or ()],
        )
        return own.encode_instruct(request).tokens

    return encode


def encoder(library: str, source: str, pattern: str = "") -> Callable[[Any], list[int]]:
    """The library's encoder, of texts without control tokens or of conversations."""
    if library == "mistral_common":
        return _mistral_common(source)
    if library == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_file=source).encode
    import tiktoken

    ranks, first = _ranks(Path(source).read_bytes())
    found = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [first + rank for rank in found.encode_ordinary(text)]


if __name__ == "__main__":
    encode = encoder(*sys.argv[1:])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(encode(json.loads(line))) + "\n")
