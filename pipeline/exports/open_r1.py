"""open-r1: its SFT script with a recipe; the TRL version that it pins reads a mask, not labels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._columns import labels_where, like, list_of, trained
from pipeline.exports._script import script
from stages.columns import list_parts, numbers
from stages.errors import UsageError
from stages.kinds import CONVERSATION, PAIR, STEPS

_RECIPE = """# Written by the build; started by launch/open-r1.sh MODEL_DIR.
dataset_train_split: train
{test}max_length: {length}
packing: false
completion_only_loss: true
use_liger_kernel: false
eos_token: "{eos}"
bf16: true
do_eval: {evaluate}
eval_strategy: "{strategy}"
output_dir: open-r1-output
"""


def _files(facts: ExportFacts) -> Mapping[str, str]:
    test = "test" in facts.splits
    recipe = _RECIPE.format(
        test="dataset_test_split: test\n" if test else "",
        length=facts.max_length,
        eos=facts.model.eos_token,
        evaluate="true" if test else "false",
        strategy="epoch" if test else "no",
    )
    return {"open-r1.yaml": recipe}


def _launch(facts: ExportFacts) -> str:
    lines = [
        ["accelerate", "launch", "src/open_r1/sft.py"],
        ["--config", "$BUILD/launch/open-r1.yaml"],
        ["--model_name_or_path", "$MODEL", "--dataset_name", "$BUILD"],
    ]
    return script("with open-r1 (run it in its checkout)", "open-r1.sh", lines)


def _detail(facts: ExportFacts) -> str:
    return (
        "completion_only_loss=true, or its TRL trains every token; use_liger_kernel=false, or it "
        "drops the mask; packing=false, since its packing drops it too; trl 0.15 and 0.16, which "
        "its first recipes pinned, read no mask at all: train with trl's launch script there"
    )


def _forward(table: pa.Table) -> pa.Table:
    ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
    mask = trained(labels)
    # A mask can only say which ids are trained, not that another id is the label.
    if not np.array_equal(numbers(labels)[1][mask], numbers(ids)[1][mask]):
        raise UsageError("open-r1 trains on the ids only; this build has other labels.")
    return pa.table({"input_ids": ids, "completion_mask": like(ids, mask.astype(np.int8))})


def _back(table: pa.Table) -> pa.Table:
    ids = list_of(table, "input_ids")
    mask = list_parts(list_of(table, "completion_mask"))[1].to_numpy() != 0
    return pa.table({"input_ids": ids, "labels": labels_where(ids, mask)})


def _projection(facts: ExportFacts) -> Projection:
    return Projection(("input_ids", "labels"), _forward, _back)


EXPORT = Export(
    name="open-r1",
    versions="open-r1 with trl 0.17.0 to 1.16.0",
    takes={CONVERSATION: ("ragged",)},
    why_not={
        PAIR: "it has no reward trainer",
        STEPS: "it has no process reward trainer",
    },
    detail=_detail,
    launch=_launch,
    files=_files,
    projection=_projection,
)
