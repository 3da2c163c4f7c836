"""Builds for torch: a map-style dataset, collators, and a sampler that can resume.

No other package here imports torch, which posttrain-pipeline does not install. ::

    rows = Rows("build")
    loader = DataLoader(rows, batch_size=1, sampler=Order(rows, seed=0), collate_fn=Flatten())
"""

from pipeline.torch_data.collate import BlockDiagonal as BlockDiagonal
from pipeline.torch_data.collate import Flatten as Flatten
from pipeline.torch_data.collate import Pad as Pad
from pipeline.torch_data.collate import PadPairs as PadPairs
from pipeline.torch_data.collate import Stack as Stack
from pipeline.torch_data.collate import StackPairs as StackPairs
from pipeline.torch_data.collate import pair_collator as pair_collator
from pipeline.torch_data.rows import Order as Order
from pipeline.torch_data.rows import Rows as Rows
from pipeline.torch_data.rows import documents as documents
