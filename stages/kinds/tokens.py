"""Token ids and labels that rows contain already: nothing is rendered, only checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages import kinds
from stages.contract import Tokens

if TYPE_CHECKING:
    import pyarrow as pa

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

    def questions(self, batch: pa.RecordBatch) -> list[str]:
        """The ids before the first that is trained; all where none is before it."""
        from stages.columns import IGNORED

        asked = []
        rows = (batch.column(name).to_pylist() for name in self.columns)
        for ids, labels in zip(*rows, strict=True):
            first = next((at for at, label in enumerate(labels[1:], 1) if label != IGNORED), 0)
            asked.append(" ".join(f"_{token}" for token in ids[: first or None]))
        return asked


KIND = TokenIds()
