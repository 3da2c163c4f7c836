"""MedicalGPT's rows, read as its own scripts read them.

MedicalGPT is in no package and its code is not ours to keep, so its steps are written here anew, in
our words. What they follow, in https://github.com/shibing624/MedicalGPT, is named in ``FOLLOWS``.
``POSTTRAIN_MEDICALGPT`` names a folder of worktrees (``git worktree add FOLDER/9200708 9200708``,
and so on): the functions themselves are then taken out of those files and run beside ours.
"""

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import load_dataset
from support import SAMPLES, stored_rows, table

from pipeline.builds.build import Build
from pipeline.builds.packs import examples
from pipeline.tasks import kind_of
from stages.contract import FormatOptions, Record
from stages.normalize import evidence, stage

Ids = tuple[list[int], ...]
# Form: task, commit, file, function; read in copies of these commits' files.
FOLLOWS = dict(table("medicalgpt_code.jsonl"))
TEMPLATES = ("117f510", "template.py")  # Conversation._format_example, and the template base


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Rows as every version loads them: all files of lines below the folder, by datasets."""
    files = [str(path) for path in sorted((folder / "jsonl" / "train").glob("**/*.json*"))]
    return list(load_dataset("json", data_files=files, cache_dir=str(folder / "hf"))["train"])


def tokenizer_of(folder: Path) -> Any:
    """As ``main`` of each of them prepares it: a bos token is the eos token where there is none."""
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(str(folder / "tokenizer"), use_fast=True)
    if found.bos_token_id is None:
        found.add_special_tokens({"bos_token": found.eos_token})
    return found


def printed(turns: list[tuple[str, str]], system: str = "") -> str:
    """The template base: nothing but the texts, and ``</s>`` after a system text and turns."""
    texts = [question + answer for question, answer in turns]
    return (f"{system}</s>" if system else "") + "</s>".join(texts)


def pair_2023(row: dict[str, Any], tokenizer: Any) -> Ids:
    """A question and its two answers, in words of the script's own."""
    start = "Question: " + row["question"] + "\n\nAnswer: "
    sides = (row["response_chosen"], row["response_rejected"])
    return tuple(tokenizer(start + side)["input_ids"] for side in sides)


def pair_2024(row: dict[str, Any], tokenizer: Any) -> Ids:
    """The same columns with a system text and a history, through a template."""
    history = [tuple(turn) for turn in row["history"] or []]
    made = []
    for side in ("response_chosen", "response_rejected"):
        text = printed([*history, (row["question"], row[side])], row["system"] or "")
        made.append(tokenizer(text)["input_ids"])
    return tuple(made)


def pair_current(row: dict[str, Any], tokenizer: Any) -> Ids:
    """The conversation up to a last question, which each answer follows, through a template."""
    values = [turn["value"] for turn in row["conversations"]]
    history = list(zip(values[:-1:2], values[1::2], strict=True))
    return tuple(
        tokenizer(printed([*history, (values[-1], row[side])]))["input_ids"]
        for side in ("chosen", "rejected")
    )


def sft_current(row: dict[str, Any], tokenizer: Any) -> Ids:
    """Each turn alone, special tokens before the first; the eos token ends every answer."""
    eos, ids, labels = tokenizer.eos_token_id, [], []
    values = [turn["value"] for turn in row["conversations"]]
    for place in range(0, len(values), 2):
        source = tokenizer.encode(text=values[place], add_special_tokens=place == 0)
        target = tokenizer.encode(text=values[place + 1], add_special_tokens=False)
        source = source[1:] if source[:1] == [eos] else source
        target = target[:-1] if target[-1:] == [eos] else target
        ids += [*source, *target, eos]
        labels += [-100] * len(source) + [*target, eos]
    return ids, labels


OURS: dict[str, Callable[[dict[str, Any], Any], Ids]] = {
    "2023": pair_2023,
    "2024": pair_2024,
    "current": pair_current,
    "sft current": sft_current,
}


def theirs(name: str, tokenizer: Any, root: Path) -> Callable[[dict[str, Any]], Ids]:
    """The function itself, out of its file, with what it reads of the script around it."""
    task, commit, file, wanted = FOLLOWS[name]
    tree = ast.parse((root / commit / file).read_text("utf-8"))
    found = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    needed = [found[n] for n in (wanted, "_parse_conversations_to_messages") if n in found]
    template: dict[str, Any] = {}
    text = (root / TEMPLATES[0] / TEMPLATES[1]).read_text("utf-8")
    exec(compile(text, TEMPLATES[1], "exec"), template)
    names: dict[str, Any] = {
        "tokenizer": tokenizer,
        "prompt_template": template["get_conv_template"]("base"),
        "script_args": SimpleNamespace(tool_format=None, train_on_inputs=False),
        "max_length": 1 << 20,
        "IGNORE_INDEX": -100,
        "json": json,
    }
    exec(compile(ast.Module(needed, []), file, "exec"), names)
    columns = (
        ("input_ids_chosen", "input_ids_rejected") if task == "rm" else ("input_ids", "labels")
    )

    def one(row: dict[str, Any]) -> Ids:
        made = names[wanted]({key: [value] for key, value in row.items()})
        return tuple(list(made[column][0]) for column in columns)

    return one


@pytest.mark.parametrize(
    "model", ["qwen2-1.5b", pytest.param("llama-3.1-8b-instruct", marks=pytest.mark.slow)]
)
def test_its_scripts_make_our_ids_from_its_rows(pipeline, tmp_path, model):
    """Those of 2024 and the current ones, with and without a bos token that the tokenizer adds by
    itself; what stands after an SFT row's end of turn is untrained and left out."""
    command = ("--model", model, "--fetch", "--for", "medicalgpt", "--max-reject", 1, "-o")
    pipeline("run", "rm", SAMPLES / "rm" / "pairs.jsonl", *command, "rm").ended()
    pipeline("run", "sft", SAMPLES / "sft" / "word_problems.jsonl", *command, "sft").ended()
    pairs = [(row["chosen_ids"], row["rejected_ids"]) for row in stored_rows(tmp_path / "rm")]
    sft = [(row["input_ids"], row["labels"]) for row in stored_rows(tmp_path / "sft")]
    given = {task: rows_of(tmp_path / task / "medicalgpt") for task in ("rm", "sft")}
    tokenizer = tokenizer_of(tmp_path / "rm")
    for name in ("2024", "current"):
        assert [OURS[name](row, tokenizer) for row in given["rm"]] == pairs
    for row, (ids, labels) in zip(given["sft"], sft, strict=True):
        made, wanted = sft_current(row, tokenizer)
        assert (made, wanted) == (ids[: len(made)], labels[: len(made)])
        assert set(labels[len(made) :]) <= {-100}
    assert all(
        pair_2023(row, tokenizer) != pair for row, pair in zip(given["rm"], pairs, strict=True)
    )
    root = os.environ.get("POSTTRAIN_MEDICALGPT")
    for name, ours in OURS.items() if root else ():
        own = theirs(name, tokenizer, Path(str(root)))
        for row in given[FOLLOWS[name][0]]:
            assert own(row) == ours(row, tokenizer)
    pipeline("export", "trl", tmp_path / "rm" / "medicalgpt", "-o", "back").ended()
    tables = [examples(t) for t in Build.open(tmp_path / "back").splits["train"].tables()]
    assert [row for table in tables for row in table.to_pylist()] == stored_rows(tmp_path / "rm")


def test_raw_rows_of_every_form_say_the_same():
    """The column forms of its own data sets, as they changed."""
    for task, forms in table("medicalgpt.toml").items():
        read = [evidence.detect([row], kind_of(task), "x.jsonl").format for row in forms.values()]
        made = [
            stage.Normalize(kind_of(task), form, FormatOptions())([Record(0, 0, b"", row)])
            for form, row in zip(read, forms.values(), strict=True)
        ]
        assert all(batch.equals(made[0]) for batch in made), task
        assert made[0]["reject_code"].null_count == 1
