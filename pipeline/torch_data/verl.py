"""verl's custom dataset: ``data.custom_cls.path=pkg://pipeline.torch_data.verl``, name ShardSFT."""

from pathlib import Path
from typing import Any

import torch

from pipeline.torch_data.rows import Rows
from stages.errors import UsageError


class ShardSFT:
    """One document an item: ids, positions and the mask of trained tokens, unshifted.

    The trainer moves the mask itself, so it stays where the labels are. Its loss is multiplied by
    the mask and divided by the mask's sum over the whole batch, so the mask of a build with loss
    weights is those weights. Packs are taken apart: verl joins documents anew, up to
    ``max_token_len_per_gpu``.

    Args:
        parquet_files: a split's folder, ``BUILD/train``, or a list with one.
        config: verl's ``data``: ``pad_mode`` and ``max_length`` are read.

    Raises:
        UsageError: it wants padding, or a document is longer than ``max_length``.
    """

    def __init__(self, parquet_files: Any, tokenizer: Any, config: Any, **rest: Any) -> None:
        given = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        if len(given) != 1:
            raise UsageError(f"One split of one build is read, not {len(given)}.")
        if config.get("pad_mode", "no_padding") != "no_padding":
            raise UsageError("data.pad_mode must be no_padding.", "Set it so.")
        folder = Path(given[0])
        packed = "seq_lengths" in Rows(folder.parent, folder.name)[0]
        self._rows = Rows(folder.parent, folder.name, explode=packed)
        self._longest = int(config.get("max_length", 0)) or None
        count = int(rest.get("max_samples", -1))
        self._count = len(self._rows) if count < 0 else min(count, len(self._rows))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        """ids, position_ids and loss_mask, each int64 [length]; with loss weights, float32."""
        row = self._rows[index]
        ids = torch.tensor(row["input_ids"], dtype=torch.long)
        if self._longest is not None and len(ids) > self._longest:
            raise UsageError(
                f"{row.get('row_id', index)} has {len(ids)} tokens, above data.max_length "
                f"{self._longest}.",
                "Give the build's own max_length.",
            )
        mask = (torch.tensor(row["labels"], dtype=torch.long) != -100).long()
        if "loss_weights" in row:
            mask = mask * torch.tensor(row["loss_weights"], dtype=torch.float32)
        return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}
