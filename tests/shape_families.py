"""Chats as two model families print them, written by hand: what decoded examples must equal."""

from collections.abc import Sequence
from dataclasses import dataclass

Piece = tuple[bool, str]  # whether it is trained, and its text
Turn = tuple[str, str, bool]  # role, text, whether it is trained


@dataclass(frozen=True)
class Family:
    """How a family prints a chat.

    Attributes:
        begin: before everything; ``opening``: of a conversation without a system text.
        before, after: around a turn; ``between``: behind a turn, never trained.
    """

    begin: str
    opening: str
    before: str
    after: str
    between: str
    system: str = "{}"

    def turns(self, turns: Sequence[Turn]) -> list[Piece]:
        """A conversation in pieces."""
        given = turns[0][0] == "system"
        pieces = [(False, self.begin + ("" if given else self._turn("system", self.opening)))]
        for role, text, trained in turns:
            if trained:
                head, tail = self.before.format(role), self.after
                pieces += [(False, head), (True, text + tail), (False, self.between)]
            else:
                said = self.system.format(text) if role == "system" else text
                pieces.append((False, self._turn(role, said)))
        return merged(pieces)

    def _turn(self, role: str, text: str) -> str:
        if role == "system" and not text:
            return ""
        return self.before.format(role) + text + self.after + self.between


def merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one kind joined, empty ones left out."""
    found: list[Piece] = []
    for trained, text in pieces:
        if text and found and found[-1][0] == trained:
            found[-1] = (trained, found[-1][1] + text)
        elif text:
            found.append((trained, text))
    return found


FAMILIES = {
    "qwen2.5-7b-instruct": Family(
        "",
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        "<|im_start|>{}\n",
        "<|im_end|>",
        "\n",
    ),
    "llama-3.1-8b-instruct": Family(
        "<|begin_of_text|>",
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
        "<|start_header_id|>{}<|end_header_id|>\n\n",
        "<|eot_id|>",
        "",
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n{}",
    ),
}
