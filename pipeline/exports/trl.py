"""TRL: SFTTrainer on packs or single rows, RewardTrainer, and PRMTrainer while there was one."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._columns import class_labels, list_of, token_labels
from pipeline.exports._script import RATE, script
from stages.kinds import CONVERSATION, PAIR, STEPS

_HEAD = '''"""Written by the build; started by launch/trl.sh MODEL_DIR."""

import sys

import transformers
from datasets import load_from_disk
from packaging.version import Version
from transformers import AutoModelFor{auto}, AutoTokenizer, HfArgumentParser
from trl import __version__
{imports}

build, model_dir, *options = sys.argv[1:]
rows = load_from_disk(build)
tokenizer = AutoTokenizer.from_pretrained(model_dir)
release = Version(__version__)
if release < Version("0.15"):
    sys.exit(f"TRL {{__version__}} is not supported: install 0.15.2 or newer")
dtype = "dtype" if Version(transformers.__version__) >= Version("4.56") else "torch_dtype"
loaded = {{dtype: "auto"{loaded}}}
defaults = {{"output_dir": "trl-output", "save_strategy": "epoch"}}
more = {{}}
'''

_TAIL = """
trainer = {name}Trainer(
    model=model,
    args=args,
    train_dataset=rows["train"],
    eval_dataset=rows["test"] if "test" in rows else None,
    processing_class=tokenizer,
    **more,
)
trainer.train()
trainer.save_model()
"""

_PARSE = """parser = HfArgumentParser({name}Config)
parser.set_defaults(**defaults)
(args,) = parser.parse_args_into_dataclasses(options)
"""

_SFT = """if release < Version("0.20"):  # labels are not read: every token would be trained
    from pipeline.torch_data import {collator}

    more["data_collator"] = {collator}({settings})
    defaults["dataset_kwargs"] = {{"skip_prepare_dataset": True}}
    defaults["remove_unused_columns"] = False
else:
    defaults["max_length"] = None{padding_free}
"""

_SFT_MODEL = """if args.packing or (release >= Version("0.20") and args.max_length is not None):
    sys.exit("this build is already packed and truncated: do not set packing or max_length")
if getattr(args, "assistant_only_loss", False):
    sys.exit("this build already has a loss mask: do not set assistant_only_loss")
model = AutoModelForCausalLM.from_pretrained(model_dir, **loaded)
"""

_RM = """defaults["max_length"] = None
# Defaults for small sets; the options of these names change them. Do not set max_length:
# a side has at most {length} tokens, and a limit would drop pairs.
defaults["per_device_train_batch_size"] = {batch}
defaults["learning_rate"] = {rate}
if Version("0.24") <= release < Version("0.29"):
    sys.exit(f"TRL {{__version__}} is unsupported for pairs: install 0.29 or newer, or up to 0.23")
if release < Version("0.24"):  # other names, and a mask for each side
    names = {{f"{{side}}_ids": f"input_ids_{{side}}" for side in ("chosen", "rejected")}}
    rows = rows.rename_columns(names)

    def with_masks(batch):
        masks = {{
            f"attention_mask_{{side}}": [[1] * len(ids) for ids in batch[f"input_ids_{{side}}"]]
            for side in ("chosen", "rejected")
            if f"input_ids_{{side}}" in batch
        }}
        return {{**batch, **masks}}

    rows = rows.with_transform(with_masks)
    tokenizer.padding_side = "right"  # as newer versions pad
"""

_RM_MODEL = """if args.max_length is not None:
    sys.exit("max_length would drop rows: every row of this build fits already")
model = AutoModelForSequenceClassification.from_pretrained(model_dir, **loaded, num_labels=1)
model.config.pad_token_id = tokenizer.pad_token_id
model.config.use_cache = False
if not hasattr(model, "warnings_issued"):  # older TRL writes there, and transformers 5 has none
    model.warnings_issued = {}
"""

_PRM = """defaults["max_length"] = None
"""

_PRM_MODEL = """loaded["num_labels"] = 2
model = AutoModelForTokenClassification.from_pretrained(model_dir, **loaded)
model.config.pad_token_id = tokenizer.pad_token_id
model.config.use_cache = False
"""

_NO_MARGIN = """rows = rows.remove_columns("margin")  # some pairs have none; null cannot be read
"""

_PRM_IMPORT = """
try:
    from trl.experimental.prm import PRMConfig, PRMTrainer
except ImportError:  # where it was before
    from trl import PRMConfig, PRMTrainer"""


def _program(facts: ExportFacts) -> str:
    packed = facts.stored.packs
    auto = {CONVERSATION: "CausalLM", PAIR: "SequenceClassification", STEPS: "TokenClassification"}
    name = {CONVERSATION: "SFT", PAIR: "Reward", STEPS: "PRM"}[facts.kind.trains_as]
    imports = _PRM_IMPORT if facts.kind.marks else f"from trl import {name}Config, {name}Trainer"
    loaded = ""
    if facts.kind.trains_answers:
        attention = "flash_attention_2" if packed else "sdpa"
        loaded = f', "attn_implementation": "{attention}", "use_cache": False'
    # seq_lengths become position_ids only when padding_free is set
    free = '\n    defaults["padding_free"] = True' if packed else ""
    one = 'defaults["per_device_train_batch_size"] = 1\n' if packed else ""
    before = {
        CONVERSATION: one
        + _SFT.format(
            collator="Flatten" if packed else "Pad",
            settings="" if packed else 'tokenizer.pad_token_id, "right"',
            padding_free=free,
        ),
        PAIR: _RM.format(length=facts.max_length, batch=max(1, min(4, facts.rows)), rate=RATE),
        STEPS: _PRM,
    }[facts.kind.trains_as]
    if facts.kind.compares and facts.without_margin:
        before = _NO_MARGIN + before
    head = _HEAD.format(auto=auto[facts.kind.trains_as], imports=imports, loaded=loaded)
    model = {CONVERSATION: _SFT_MODEL, PAIR: _RM_MODEL, STEPS: _PRM_MODEL}[facts.kind.trains_as]
    return head + before + _PARSE.format(name=name) + model + _TAIL.format(name=name)


def _files(facts: ExportFacts) -> Mapping[str, str]:
    return {"train_trl.py": _program(facts)}


def _launch(facts: ExportFacts) -> str:
    notes = []
    if facts.kind.marks:
        notes = ["Needs trl 0.15.2 to 1.13.0: newer ones have no such trainer."]
    lines = [["accelerate", "launch", "$BUILD/launch/train_trl.py"], ["$BUILD", "$MODEL"]]
    return script("with TRL", "trl.sh", lines, notes=notes)


def _detail(facts: ExportFacts) -> str:
    if facts.kind.marks:
        return "one class at each step token: 1 good, 0 bad; last version with a PRM trainer"
    if facts.kind.compares:
        return (
            "max_length=None, or rows are dropped; pads right, pooled at the last real token; "
            "launch/trl.sh gives 0.15 to 0.23 the columns that they read"
        )
    old = "before 0.20 it reads no labels, and launch/trl.sh gives it a collator that does"
    if facts.stored.packs:
        return (
            f"padding_free=True and max_length=None, or documents of a pack see each other; {old}"
        )
    return f"max_length=None, or rows lose their end; pads right; {old}"


def _refuses(facts: ExportFacts) -> str | None:
    if facts.soft:
        return "trl trains step rewards as two classes: they cannot express soft labels."
    if facts.pair and facts.pair.token_types:
        return "trl gives the model no token types, which this encoder needs to separate two texts."
    return None


def _projection(facts: ExportFacts) -> Projection | None:
    good, bad = facts.model.good_token_id, facts.model.bad_token_id
    if not facts.kind.marks or good is None or bad is None:
        return None  # it takes its columns from ours and drops the rest

    def forward(table: pa.Table) -> pa.Table:
        labels = class_labels(list_of(table, "labels"), good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    def back(table: pa.Table) -> pa.Table:
        labels = token_labels(list_of(table, "labels"), good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)


EXPORT = Export(
    name="trl",
    versions="trl 1.16.0, 0.15.2 to 0.17.0 (prm: up to 1.13.0)",
    takes={CONVERSATION: ("packed", "ragged"), PAIR: ("ragged",), STEPS: ("ragged",)},
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    takes_encoders=True,
    projection=_projection,
    takes_margins=True,
    no_margin="it needs one for every pair or for none, so its program leaves the column out",
)
