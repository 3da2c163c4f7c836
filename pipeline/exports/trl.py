"""TRL: SFTTrainer on packs or single rows, RewardTrainer, and PRMTrainer while there was one."""

import numpy as np
import pyarrow as pa

from pipeline.exports import ExportFacts, Projection, _script
from stages.columns import list_parts, make_list, numbers, offsets_of
from stages.errors import UsageError


def _refuses(facts: ExportFacts) -> str | None:
    if facts.pair and facts.pair.token_types:
        return "trl gives the model no token types, which this encoder needs to separate two texts."
    return None


def _projection(facts: ExportFacts) -> Projection | None:
    # Of other rows it takes its columns from ours, and drops the rest.
    return _script.rows_of_ids(facts, masked=False) if facts.kind.marks else None


EXPORT = _script.export("trl", refuses=_refuses, projection=_projection)


# transformers.Trainer, with the collators of ``pipeline.torch_data``.


def _program(facts: ExportFacts) -> str:
    return "train_prm.py" if facts.kind.marks else "train_transformers.py"


TRANSFORMERS = _script.export(
    "transformers",
    files=lambda facts: _script.scripts(_program(facts))(facts),
    shares=lambda facts: facts.stored.packs or facts.kind.marks,
)


# open-r1: its SFT script with a recipe; the TRL version that it pins reads a mask, not labels.


def _forward(table: pa.Table) -> pa.Table:
    ids, labels = _script.list_of(table, "input_ids"), _script.list_of(table, "labels")
    mask = _script.trained(labels)
    # A mask can only say which ids are trained, not that another id is the label.
    if not np.array_equal(numbers(labels)[1][mask], numbers(ids)[1][mask]):
        raise UsageError("open-r1 trains on the ids only; this build has other labels.")
    return pa.table({"input_ids": ids, "completion_mask": _script.like(ids, mask.astype(np.int8))})


def _back(table: pa.Table) -> pa.Table:
    ids = _script.list_of(table, "input_ids")
    mask = list_parts(_script.list_of(table, "completion_mask"))[1].to_numpy() != 0
    return pa.table({"input_ids": ids, "labels": _script.labels_where(ids, mask)})


def _open_r1_projection(facts: ExportFacts) -> Projection:
    return Projection(("input_ids", "labels"), _forward, _back)


OPEN_R1 = _script.export("open-r1", projection=_open_r1_projection)


# Megatron-Bridge: packed Parquet with document starts and a mask moved one token forward.


def _megatron_projection(facts: ExportFacts) -> Projection:
    eos = int(facts.model.eos_token_id)

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = _script.list_of(table, "input_ids"), _script.list_of(table, "labels")
        first, lengths = numbers(_script.list_of(table, "seq_lengths"))
        mask, values = _script.trained(labels), numbers(ids)[1]
        starts = offsets_of(lengths)[:-1]
        # Its loss leaves out positions whose input is eos. A document's first token has none.
        lost = np.flatnonzero(mask[1:] & (values[:-1] == eos)) + 1
        lost = lost[~np.isin(lost, starts)]
        if len(lost):
            row = int(np.searchsorted(list_parts(ids)[0], lost[0], side="right")) - 1
            raise UsageError(
                f"megatron leaves out the loss after an eos token, and row {row} of a shard "
                "trains a token there.",
                "Export for another trainer.",
            )
        if not np.array_equal(numbers(labels)[1][mask], values[mask]):
            raise UsageError("megatron trains on the ids only; this build has other labels.")
        moved = np.append(mask[1:], False)  # to the token that predicts the trained one
        ends = starts + lengths - 1
        moved[ends] = False
        before = np.repeat(list_parts(ids)[0][:-1], np.diff(first))
        return pa.table(
            {
                "input_ids": ids,
                "seq_start_id": make_list(first, pa.array((starts - before).astype(np.int32))),
                "loss_mask": make_list(list_parts(ids)[0], pa.array(moved.astype(np.int8))),
            }
        )

    def back(table: pa.Table) -> pa.Table:
        ids = _script.list_of(table, "input_ids")
        offsets, moved = list_parts(_script.list_of(table, "loss_mask"))
        mask = np.append(False, moved.to_numpy()[:-1] != 0)
        first, starts = numbers(_script.list_of(table, "seq_start_id"))
        absolute = starts + np.repeat(offsets[:-1], np.diff(first))
        lengths = np.diff(np.append(absolute, offsets[-1])).astype(np.int32)
        return pa.table(
            {
                "input_ids": ids,
                "labels": _script.labels_where(ids, mask),
                "seq_lengths": make_list(first, pa.array(lengths)),
            }
        )

    return Projection(("input_ids", "labels", "seq_lengths"), forward, back)


MEGATRON = _script.export("megatron", projection=_megatron_projection)
