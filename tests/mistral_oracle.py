"""Ids by mistral-common itself. Run by a Python that can import it; JSON lines in and out.

Arguments: which of its tokenizers (v1, v3, tekken).
"""

import json
import sys
from pathlib import Path
from typing import Any

import mistral_common
from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import InstructRequest
from mistral_common.protocol.instruct.tool_calls import Tool
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV1, InstructTokenizerV3
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

DATA = Path(mistral_common.__file__).parent / "data"
MESSAGES = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}


def tokenizer(kind: str) -> Any:
    """The vendor's encoder of conversations."""
    if kind == "v1":
        return InstructTokenizerV1(SentencePieceTokenizer(str(DATA / "tokenizer.model.v1")))
    if kind == "v3":
        name = "mistral_instruct_tokenizer_240216.model.v2"
        return InstructTokenizerV3(SentencePieceTokenizer(str(DATA / name)))
    return InstructTokenizerV3(Tekkenizer.from_file(DATA / "tekken_240718.json"))


def message(turn: dict[str, Any]) -> Any:
    """A turn; arguments of calls are JSON text there."""
    turn = json.loads(json.dumps(turn))
    for call in turn.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return MESSAGES[turn["role"]].model_validate(turn)


def main() -> None:
    """One line of ids for each line of a conversation."""
    encoder = tokenizer(sys.argv[1])
    for line in sys.stdin:
        row = json.loads(line)
        turns = row["messages"]
        system = turns[0]["content"] if turns[0]["role"] == "system" else None
        request = InstructRequest(
            messages=[message(turn) for turn in turns if turn["role"] != "system"],
            system_prompt=system,
            available_tools=[Tool.model_validate(tool) for tool in row["tools"] or ()],
        )
        sys.stdout.write(json.dumps(encoder.encode_instruct(request).tokens) + "\n")


if __name__ == "__main__":
    main()
