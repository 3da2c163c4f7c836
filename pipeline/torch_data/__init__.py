"""Builds for torch: a map-style dataset, collators, and a sampler that can resume.

No other package here imports torch, which posttrain-pipeline does not install. ::

    rows = Rows("build")
    loader = DataLoader(rows, batch_size=1, sampler=Order(rows, seed=0), collate_fn=Flatten())
"""

from pipeline.torch_data.collate import (
    BlockDiagonal,
    Flatten,
    Pad,
    PadPairs,
    Stack,
    StackPairs,
    pair_collator,
)
from pipeline.torch_data.rows import Order, Rows, documents

__all__ = [
    "BlockDiagonal",
    "Flatten",
    "Order",
    "Pad",
    "PadPairs",
    "Rows",
    "Stack",
    "StackPairs",
    "documents",
    "pair_collator",
]
