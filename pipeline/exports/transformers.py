"""transformers.Trainer, with the collators of ``pipeline.torch_data``."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import script
from stages.kinds import CONVERSATION, PAIR, STEPS

_PROGRAM = '''"""Written by the build; started by launch/transformers.sh MODEL_DIR."""

import sys

from transformers import AutoModelFor{auto}, AutoTokenizer, HfArgumentParser, Trainer
from transformers import TrainingArguments

from pipeline.torch_data import Rows, {collator}

build, model_dir, *options = sys.argv[1:]
parser = HfArgumentParser(TrainingArguments)
parser.set_defaults(
    output_dir="transformers-output",
    save_strategy="epoch",
    remove_unused_columns=False,
    per_device_train_batch_size={batch},
)
(args,) = parser.parse_args_into_dataclasses(options)
tokenizer = AutoTokenizer.from_pretrained(model_dir)
model = AutoModelFor{auto}.from_pretrained(model_dir, {arguments})
model.config.pad_token_id = tokenizer.pad_token_id
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=Rows(build, "train"),
    eval_dataset={test},
    data_collator={collator}({settings}),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
'''


def _program(facts: ExportFacts) -> str:
    packed = facts.stored.packs
    collator = {"packed": "Flatten", "ragged": "Pad", "padded": "Stack"}[facts.layout]
    settings = "tokenizer.pad_token_id" if collator == "Pad" else ""
    # A key-value cache, or a mask of ones, would let the documents of a pack see each other.
    arguments = 'dtype="auto", use_cache=False'
    if packed:
        arguments += ', attn_implementation="sdpa"'
    return _PROGRAM.format(
        auto="CausalLM",
        collator=collator,
        settings=settings,
        batch=1 if packed else 8,
        arguments=arguments,
        test='Rows(build, "test")' if "test" in facts.splits else "None",
    )


def _files(facts: ExportFacts) -> Mapping[str, str]:
    return {"train_transformers.py": _program(facts)}


def _launch(facts: ExportFacts) -> str:
    lines = [
        ["accelerate", "launch", "$BUILD/launch/train_transformers.py"],
        ["$BUILD", "$MODEL"],
    ]
    return script("with transformers.Trainer", "transformers.sh", lines)


def _detail(facts: ExportFacts) -> str:
    if facts.stored.packs:
        return (
            "pipeline.torch_data.Flatten, batch size 1 and use_cache=False: positions restart, no "
            "attention mask; or the default collator lets documents of a pack see each other"
        )
    return "the mask of the batch is read; use_cache=False"


EXPORT = Export(
    name="transformers",
    versions="transformers 5.23.0",
    takes={CONVERSATION: ("packed", "ragged", "padded")},
    why_not={
        PAIR: "Trainer has no pairwise loss; trl and openrlhf have",
        STEPS: "Trainer shifts labels, and these are read at the step token; trl and openrlhf do",
    },
    detail=_detail,
    launch=_launch,
    files=_files,
)
