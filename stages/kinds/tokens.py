"""Token ids and labels that rows contain already: nothing is rendered, only checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages import kinds
from stages.contract import Tokens

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize


class TokenIds(kinds.Kind):
    """Takes the place of conversations where the format reads token ids."""

    name = formats = kinds.TOKENS
    trains_as = kinds.CONVERSATION
    words = "token ids"
    columns = ("input_ids", "labels")
    given = True

    def ready(self, example: Tokens, normalize: Normalize) -> list[Any]:
        """The ids themselves."""
        return [example]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Ids and labels."""
        return {
            "input_ids": [row.ids if row else [] for row in ready],
            "labels": [row.labels if row else [] for row in ready],
        }


KIND = TokenIds()
