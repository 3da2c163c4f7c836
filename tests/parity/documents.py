"""What a batch holds, row by row or document by document."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from datasets import load_from_disk

Document = tuple[tuple[int, ...], tuple[int, ...]]


def stored(folder: Path, split: str = "train") -> list[Document]:
    """Ids and labels of a ragged build's rows, sorted."""
    rows = load_from_disk(str(folder))[split]
    return sorted((tuple(row["input_ids"]), tuple(row["labels"])) for row in rows)


def padded(batches: Iterable[dict[str, Any]]) -> list[Document]:
    """Ids and labels where the mask is 1, sorted; nothing else is trained."""
    found = []
    for batch in batches:
        mask = batch["attention_mask"]
        assert ((mask == 0) | (mask == 1)).all()
        assert (batch["labels"][mask == 0] == -100).all()
        for ids, labels, real in zip(batch["input_ids"], batch["labels"], mask.bool(), strict=True):
            found.append((tuple(ids[real].tolist()), tuple(labels[real].tolist())))
    return sorted(found)


def restarts(batch: dict[str, Any]) -> Iterable[slice]:
    """The stretches of a batch of one row in which positions count from 0."""
    (positions,) = batch["position_ids"]
    starts = (positions == 0).nonzero().flatten().tolist()
    for start, end in zip(starts, [*starts[1:], len(positions)], strict=True):
        assert positions[start:end].tolist() == list(range(end - start))
        yield slice(start, end)


def alone(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """What the model's trunk makes of one document by itself."""
    with torch.no_grad():
        hidden: torch.Tensor = model.model(input_ids=ids[None])[0][0]
    return hidden
