"""TRL: SFTTrainer on packs or single rows, RewardTrainer, and PRMTrainer while there was one."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.exports import Export, Facts, Projection
from pipeline.exports._columns import class_labels, list_of, token_labels
from pipeline.exports._script import script

_HEAD = '''"""Written by the build; started by launch/trl.sh MODEL_DIR."""

import sys
from pathlib import Path

from datasets import load_from_disk
from transformers import AutoTokenizer, HfArgumentParser
{imports}

build, model_dir, *options = sys.argv[1:]
rows = load_from_disk(build)
parser = HfArgumentParser({config})
parser.set_defaults(
    {defaults}
)
(args,) = parser.parse_args_into_dataclasses(options)
tokenizer = AutoTokenizer.from_pretrained(model_dir)
'''

_TAIL = """trainer = {trainer}(
    model={model},
    args=args,
    train_dataset=rows["train"],
    eval_dataset=rows["test"] if "test" in rows else None,
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
"""

_SFT = """
if args.packing or args.max_length is not None or args.assistant_only_loss:
    sys.exit("this build is packed and masked already: leave packing, max_length and masks alone")
model = AutoModelForCausalLM.from_pretrained(
    model_dir, dtype="auto", attn_implementation="{attention}", use_cache=False
)
"""

_RM = """
if args.max_length is not None:
    sys.exit("max_length would drop rows: every row of this build fits already")
model = AutoModelForSequenceClassification.from_pretrained(model_dir, dtype="auto", num_labels=1)
model.config.pad_token_id = tokenizer.pad_token_id
model.config.use_cache = False
"""

_NO_MARGIN = """
rows = rows.remove_columns("margin")  # some pairs have none, and the trainer cannot read null
"""

_PRM = """
model = AutoModelForTokenClassification.from_pretrained(model_dir, dtype="auto", num_labels=2)
model.config.pad_token_id = tokenizer.pad_token_id
model.config.use_cache = False
"""


def _program(facts: Facts) -> str:
    defaults = ['output_dir="trl-output"', "max_length=None", 'save_strategy="epoch"']
    auto = {"sft": "CausalLM", "rm": "SequenceClassification", "prm": "TokenClassification"}
    names = {"sft": "SFT", "rm": "Reward", "prm": "PRM"}[facts.task]
    module = "trl.experimental.prm" if facts.task == "prm" else "trl"
    if facts.layout == "packed":  # seq_lengths become position_ids only when padding_free is set
        defaults += ["padding_free=True", "per_device_train_batch_size=1"]
    imports = f"from transformers import AutoModelFor{auto[facts.task]}\n"
    imports += f"from {module} import {names}Config, {names}Trainer"
    body = {"sft": _SFT, "rm": _RM, "prm": _PRM}[facts.task]
    if facts.task == "sft":
        attention = "flash_attention_2" if facts.layout == "packed" else "sdpa"
        body = body.format(attention=attention)
    if facts.task == "rm" and facts.without_margin:
        body = _NO_MARGIN + body
    head = _HEAD.format(
        imports=imports, config=f"{names}Config", defaults=",\n    ".join(defaults) + ","
    ).replace("from pathlib import Path\n\n", "\n")
    return head + body + _TAIL.format(trainer=f"{names}Trainer", model="model")


def _files(facts: Facts) -> Mapping[str, str]:
    return {"train_trl.py": _program(facts)}


def _launch(facts: Facts) -> str:
    notes = []
    if facts.task == "prm":
        notes = ["Needs trl 1.13.0 or older: newer ones have no such trainer."]
    lines = [["accelerate", "launch", "$BUILD/launch/train_trl.py"], ["$BUILD", "$MODEL"]]
    return script("with TRL", "trl.sh", lines, notes)


def _detail(facts: Facts) -> str:
    if facts.task == "prm":
        return "one class at each step token: 1 good, 0 bad; last version with a PRM trainer"
    if facts.task == "rm":
        return "max_length=None, or rows are dropped; pads right, pooled at the last real token"
    if facts.layout == "packed":
        return "padding_free=True and max_length=None, or documents of a pack see each other"
    return "max_length=None, or rows lose their end; pads right"


def _refuses(facts: Facts) -> str | None:
    if facts.soft:
        return "trl trains step rewards as two classes: soft labels cannot be said in them."
    if (facts.model.get("pair") or {}).get("token_types"):
        return "trl gives the model no token types, which this encoder tells two texts apart by."
    return None


def _projection(facts: Facts) -> Projection | None:
    if facts.task != "prm":
        return None  # it takes its columns from ours and drops the rest
    good, bad = facts.model["good_token_id"], facts.model["bad_token_id"]

    def forward(table: pa.Table) -> pa.Table:
        labels = class_labels(list_of(table, "labels"), good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    def back(table: pa.Table) -> pa.Table:
        labels = token_labels(list_of(table, "labels"), good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)


EXPORT = Export(
    name="trl",
    versions="trl 1.16.0 (prm: up to 1.13.0)",
    takes={"sft": ("packed", "ragged"), "rm": ("ragged",), "prm": ("ragged",)},
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    takes_encoders=True,
    projection=_projection,
    takes_margins=True,
    no_margin="it needs one for every pair or for none, so its program leaves the column out",
)
