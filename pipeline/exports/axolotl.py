"""axolotl: rows recognised as tokenized by exactly three columns; it packs at run time itself."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._columns import class_labels, list_of, ones, token_labels
from pipeline.exports._script import PLAIN, script
from stages.kinds import CONVERSATION, PAIR, STEPS

# learning_rate has no default there: without one nothing starts. Without an attention
# implementation packed documents would see each other; sdpa needs nothing else installed.
_CONFIG = """# Written by the build; axolotl is started by launch/axolotl.sh MODEL_DIR.
datasets:
  - path: DATA_DIR
    type:
    split: train
{test}dataset_prepared_path: DATA_DIR/prepared
sequence_len: {length}
excess_length_strategy: raise
train_on_inputs: false
learning_rate: 0.00001
special_tokens:
  pad_token: "{pad}"
  eos_token: "{eos}"
{task}"""

_TEST = """test_datasets:
  - path: DATA_DIR
    type:
    split: test
eval_strategy: epoch
"""

_SFT = """sample_packing: true
eval_sample_packing: false
attn_implementation: sdpa
"""

_PRM = """sample_packing: false
process_reward_model: true
num_labels: 2
model_type: AutoModelForTokenClassification
remove_unused_columns: false
"""


def _files(facts: ExportFacts) -> Mapping[str, str]:
    config = _CONFIG.format(
        test=_TEST if "test" in facts.splits else "",
        length=facts.max_length,
        pad=facts.model.pad_token,
        eos=facts.model.eos_token,
        task=_PRM if facts.kind.marks else _SFT,
    )
    return {"axolotl.yaml": config}


# axolotl finds its prepared data again by the folder's name alone, and datasets writes caches
# beside the shards. So axolotl gets links to the shards, in a folder named by a checksum of the
# build.
_FILL = """DATA=$PWD/axolotl-$(cksum < "$BUILD/manifest.json" | cut -d ' ' -f 1)
for SPLIT in {splits}; do
    mkdir -p "$DATA/$SPLIT"
    ln -sf "$BUILD/$SPLIT/"data-* "$BUILD/$SPLIT/"*.json "$DATA/$SPLIT"
done
ln -sf "$BUILD/dataset_dict.json" "$DATA"
sed "s|DATA_DIR|$(plain "$DATA")|" "$BUILD/launch/axolotl.yaml" > "$DATA/axolotl.yaml"
"""


def _launch(facts: ExportFacts) -> str:
    notes = [
        "The shards are linked into ./axolotl-NUMBER, and axolotl writes its prepared data there."
    ]
    text = script("with axolotl", "axolotl.sh", [["axolotl", "train", "CONFIG"]], notes=notes)
    text = text.replace("CONFIG", '"$DATA/axolotl.yaml" --base-model "$MODEL"')
    return text.replace("exec ", PLAIN + _FILL.format(splits=" ".join(facts.splits)) + "exec ")


def _detail(facts: ExportFacts) -> str:
    if facts.kind.marks:
        return "one class at each step token: 1 good, 0 bad; sample_packing off"
    return (
        "single rows, packed at run time by sample_packing, which may leave a pack out of an "
        "epoch; sdpa keeps their documents apart"
    )


def _refuses(facts: ExportFacts) -> str | None:
    if facts.soft:
        return "axolotl trains step rewards as two classes: they cannot express soft labels."
    return None


def _projection(facts: ExportFacts) -> Projection:
    good, bad = facts.model.good_token_id, facts.model.bad_token_id
    classes = facts.kind.marks

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
    takes={CONVERSATION: ("ragged",), STEPS: ("ragged",)},
    why_not={PAIR: "its reward trainer tokenizes text itself"},
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    projection=_projection,
)
