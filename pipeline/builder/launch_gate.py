"""Reads launch scripts and configurations as a shell, Python or YAML would, and compares what they
set with the manifest: limits, ids, tokens, and the switches without which a trainer reads other
rows. It knows nothing of the templates that they are made from.
"""

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.builds.build import Build
from pipeline.exports import ExportFacts
from stages.kinds import PAIR, STEPS

# What a script sets, by name: every value that it gives, in its order.
Settings: TypeAlias = dict[str, list[Any]]
# What it must set: one value, given at least once and nowhere another; None where it must not be.
Wanted: TypeAlias = dict[str, Any]
_SWITCH = ()  # the value of an option that has none


def _shell(text: str) -> Settings:
    """The options of every command that a script may end in."""
    found: Settings = {}
    for command in re.findall(r"^exec ((?:\\\n|.)*)$", text, re.MULTILINE):
        words = shlex.split(command.replace("\\\n", " ").partition(";;")[0])
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if word.startswith("--") and not equals:
                end = next((i for i in range(at + 1, len(words)) if _new(words[i])), len(words))
                values = tuple(words[at + 1 : end])
                found.setdefault(word, []).append(values if len(values) != 1 else values[0])
            elif equals:
                found.setdefault(name, []).append(value)
        found.setdefault("command", []).append(" ".join(words))
    return found


def _new(word: str) -> bool:
    return word.startswith(("--", "$@")) and word != ""


def _python(text: str) -> Settings:
    """Keyword arguments, the one argument of a method, and items of dictionaries that are set."""
    found: Settings = {}
    for node in ast.walk(ast.parse(text)):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(one.arg, one.value) for one in node.keywords if one.arg]
            if isinstance(node.func, ast.Attribute) and len(node.args) == 1:
                pairs.append((node.func.attr, node.args[0]))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant):
                pairs = [(str(key.value), node.value)]
        elif isinstance(node, ast.ImportFrom) and node.module == "pipeline.torch_data":
            found.setdefault("collators", []).extend(one.name for one in node.names)
        for name, value in pairs:
            try:
                found.setdefault(name, []).append(ast.literal_eval(value))
            except ValueError:
                found.setdefault(name, []).append(ast.unparse(value))
    return found


def _yaml(text: str) -> Settings:
    """Every ``key: value`` of flat YAML."""
    found: Settings = {}
    for name, value in re.findall(r"^[ -]*(\w+): *(.+)$", text, re.MULTILINE):
        try:
            found.setdefault(name, []).append(json.loads(value))
        except ValueError:
            found.setdefault(name, []).append(value)
    return found


_READERS: dict[str, Callable[[str], Settings]] = {".sh": _shell, ".py": _python, ".yaml": _yaml}


def _openrlhf(facts: ExportFacts, *, packs: bool, margin: bool = False) -> Iterator[Wanted]:
    """Its options as old and as new versions spell them; a script has one of them or both."""
    model, length = facts.model, str(facts.max_length)
    yield {"--max_len": length, "--data.max_len": length}
    switch = _SWITCH if packs else None
    yield {"--packing_samples": switch, "--ds.packing_samples": switch}
    switch = _SWITCH if margin and "margin" in facts.columns else None
    yield {"--margin_loss": switch, "--model.margin_loss_enable": switch}
    if facts.kind.marks:
        tokens = (model.good_token, model.bad_token)
        yield {"--placeholder_token": model.step_token}
        yield {"--reward_tokens": tokens}
    else:
        yield {"--input_template": "", "--data.input_template": ""}


def _small(facts: ExportFacts) -> int:
    """Pairs in a batch: four, or all where there are fewer."""
    return min(4, facts.rows) or 1


def _trl(facts: ExportFacts) -> Iterator[Wanted]:
    yield {"max_length": None}
    if facts.kind.marks:
        yield {"num_labels": 2}
    elif facts.kind.compares:
        yield from ({"num_labels": 1}, {"per_device_train_batch_size": _small(facts)})
        yield {"remove_columns": "margin" if facts.without_margin else None}
    elif facts.stored.packs:
        yield {"padding_free": True}
        yield {"per_device_train_batch_size": 1}


def _llamafactory(facts: ExportFacts) -> Iterator[Wanted]:
    stage = "rm" if facts.kind.compares else "sft"
    yield from ({"stage": stage}, {"tokenized_path": "BUILD_DIR"})
    packs = facts.stored.packs
    # Its collator fills packs up to a multiple of 8 tokens, beyond the longest.
    yield {"cutoff_len": facts.max_length + 8 - facts.max_length % 8 if packs else facts.max_length}
    if packs:
        yield from ({"packing": True}, {"neat_packing": True}, {"per_device_train_batch_size": 1})
    elif facts.kind.compares:
        yield {"per_device_train_batch_size": _small(facts)}


def _axolotl(facts: ExportFacts) -> Iterator[Wanted]:
    model = facts.model
    yield {"sequence_len": facts.max_length}
    yield {"excess_length_strategy": "raise"}
    yield from ({"pad_token": model.pad_token}, {"eos_token": model.eos_token})
    yield {"sample_packing": not facts.kind.marks}
    if facts.kind.marks:
        yield from ({"num_labels": 2}, {"process_reward_model": True})


def _verl(facts: ExportFacts) -> Iterator[Wanted]:
    length = str(facts.max_length)
    yield from ({"data.max_length": length}, {"data.max_token_len_per_gpu": length})
    yield from ({"data.truncation": "error"}, {"data.pad_mode": "no_padding"})
    yield {"data.custom_cls.name": "ShardSFT"}


def _medicalgpt(facts: ExportFacts) -> Iterator[Wanted]:
    """Its own limits cut prompts and answers apart, so they must be out of reach."""
    yield {"--template_name": "base"}
    if facts.kind.compares:
        yield {"--max_source_length": str(facts.max_length)}
        yield {"--max_target_length": "0"}
    else:
        yield {"--model_max_length": str(3 * facts.max_length)}


def _megatron(facts: ExportFacts) -> Iterator[Wanted]:
    yield from ({"packed_sequence_size": facts.max_length}, {"seq_length": facts.max_length})


def _open_r1(facts: ExportFacts) -> Iterator[Wanted]:
    yield from ({"max_length": facts.max_length}, {"packing": False})
    yield from ({"completion_only_loss": True}, {"use_liger_kernel": False})
    yield {"eos_token": facts.model.eos_token}


def _transformers(facts: ExportFacts) -> Iterator[Wanted]:
    yield {"collators": {"packed": "Flatten", "ragged": "Pad", "padded": "Stack"}[facts.layout]}
    yield {"remove_unused_columns": False}
    yield {"per_device_train_batch_size": 1 if facts.stored.packs else 8}


def _openrlhf_own(facts: ExportFacts) -> Iterator[Wanted]:
    return _openrlhf(facts, packs=not facts.stored.pads, margin=facts.kind.compares)


_FILES: dict[str, dict[str, Callable[[ExportFacts], Iterator[Wanted]]]] = {
    "axolotl": {"axolotl.yaml": _axolotl},
    "llamafactory": {"llamafactory.yaml": _llamafactory},
    "medicalgpt": {"medicalgpt.sh": _medicalgpt},
    "megatron": {"train_megatron.py": _megatron},
    "open-r1": {"open-r1.yaml": _open_r1},
    "openrlhf": {"openrlhf.sh": _openrlhf_own},
    "openrlhf-text": {"openrlhf-text.sh": partial(_openrlhf, packs=True)},
    "transformers": {"train_transformers.py": _transformers},
    "trl": {"train_trl.py": _trl},
    "verl": {"verl.sh": _verl},
}


def _wanted(name: str, facts: ExportFacts) -> dict[str, list[Wanted]]:
    """What each file of a trainer's ``launch/`` must set; empty for a trainer of a package."""
    files = {file: [*wanted(facts)] for file, wanted in _FILES.get(name, {}).items()}
    if name == "openrlhf" and facts.kind.compares:
        files["openrlhf-dpo.sh"] = [*_openrlhf(facts, packs=False)]
    if name == "transformers" and facts.kind.marks:  # its program is no text of a build
        size = "1" if facts.stored.packs else "8"
        files = {
            "transformers.sh": [{"--build": "$BUILD"}, {"--per_device_train_batch_size": size}]
        }
    return files


def _differs(set_: Settings, wanted: Wanted, file: str) -> Iterator[str]:
    """Settings that are missing, or have another value."""
    asked = {name: value for name, value in wanted.items() if value is not None}
    if asked and not any(name in set_ for name in asked):
        yield f"it does not set {next(iter(asked))}"
    for name, value in wanted.items():
        for given in set_.get(name, []):
            if name == "collators" and given == "Rows":
                continue
            if given != value:
                told = "nothing" if value is None and file.endswith(".sh") else value
                yield f"it sets {name} to {given!r}, and the manifest says {told!r}"


def problems(build: Build, trainer: str = "") -> Iterator[tuple[str, str]]:
    """What the launch scripts of an export say otherwise than its manifest: file and difference.

    Args:
        trainer: of a build for one, which is no export.
    """
    made_for = build.manifest.export
    name = made_for.trainer if made_for else trainer
    facts, folder = build.facts, build.here / "launch"
    for file, wanted in _wanted(name, facts).items():
        path = folder / file
        if not path.is_file():
            yield f"launch/{file}", "it is not there"
            continue
        settings = _READERS[Path(file).suffix](path.read_text("utf-8"))
        for one in wanted:
            for what in _differs(settings, one, file):
                yield f"launch/{file}", what
    yield from _task(folder, name, facts)


def _task(folder: Path, name: str, facts: ExportFacts) -> Iterator[tuple[str, str]]:
    """OpenRLHF's script starts the program of the task."""
    path = folder / f"{name}.sh"
    if not name.startswith("openrlhf") or not path.is_file():
        return
    tasks: Mapping[str, str] = {PAIR: "rm", STEPS: "prm"}
    task = tasks.get(facts.kind.trains_as, "sft")
    pattern = re.compile(rf"(pipeline-openrlhf {task}|openrlhf\.cli\.train_{task}) ")
    for command in _shell(path.read_text("utf-8")).get("command", []):
        if not pattern.search(command):
            yield f"launch/{name}.sh", f"it does not start the trainer of {task}"
