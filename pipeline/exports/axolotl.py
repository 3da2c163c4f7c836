"""axolotl: rows recognised as tokenized by exactly three columns; it packs at run time itself."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.exports import Export, Facts, Projection
from pipeline.exports._columns import class_labels, list_of, ones, token_labels
from pipeline.exports._script import script

_CONFIG = """# Written by the build; axolotl is started by launch/axolotl.sh MODEL_DIR.
datasets:
  - path: BUILD_DIR
    type:
    split: train
{test}sequence_len: {length}
sample_packing: {packing}
excess_length_strategy: raise
train_on_inputs: false
use_cache: false
special_tokens:
  pad_token: "{pad}"
  eos_token: "{eos}"
{prm}"""

_TEST = """test_datasets:
  - path: BUILD_DIR
    type:
    split: test
"""

_PRM = """process_reward_model: true
num_labels: 2
model_type: AutoModelForTokenClassification
remove_unused_columns: false
"""


def _files(facts: Facts) -> Mapping[str, str]:
    config = _CONFIG.format(
        test=_TEST if "test" in facts.splits else "",
        length=facts.max_length,
        packing="false" if facts.task == "prm" else "true",
        pad=facts.model["pad_token"],
        eos=facts.model["eos_token"],
        prm=_PRM if facts.task == "prm" else "",
    )
    return {"axolotl.yaml": config}


def _launch(facts: Facts) -> str:
    notes = ["The configuration names the build; this folder is put there before the start."]
    text = script("with axolotl", "axolotl.sh", [["axolotl", "train", "$CONFIG"]], notes)
    text = text.replace("'$CONFIG'", '"$CONFIG" --base-model "$MODEL"')
    fill = (
        "CONFIG=$(mktemp -d)/axolotl.yaml\n"
        'sed "s|BUILD_DIR|$BUILD|" "$BUILD/launch/axolotl.yaml" > "$CONFIG"\n'
    )
    return text.replace("exec ", fill + "exec ")


def _detail(facts: Facts) -> str:
    if facts.task == "prm":
        return "one class at each step token: 1 good, 0 bad; sample_packing off"
    return "single rows, packed at run time by sample_packing with positions of their own"


def _refuses(facts: Facts) -> str | None:
    if facts.soft:
        return "axolotl trains step rewards as two classes: soft labels cannot be said in them."
    return None


def _projection(facts: Facts) -> Projection:
    good, bad = facts.model.get("good_token_id"), facts.model.get("bad_token_id")
    classes = facts.task == "prm"

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
        if classes and good is not None and bad is not None:
            labels = class_labels(labels, good, bad)
        return pa.table({"input_ids": ids, "attention_mask": ones(ids), "labels": labels})

    def back(table: pa.Table) -> pa.Table:
        labels = list_of(table, "labels")
        if classes and good is not None and bad is not None:
            labels = token_labels(labels, good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)


EXPORT = Export(
    name="axolotl",
    versions="axolotl 0.19.0",
    takes={"sft": ("ragged",), "prm": ("ragged",)},
    why_not={"rm": "its reward trainer tokenizes text itself"},
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    projection=_projection,
)
