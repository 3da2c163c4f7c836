"""Every critical law is seen to stop a build: a staged shard is damaged, and law and row are named.

Damage is done where a faulty writer would do it, between writing and reading back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import SAMPLES

import pipeline.builder.build
from expectations.contract import ENCODER, STREAM
from expectations.invariants import invariants
from pipeline.builder import assembly, description, preparation
from pipeline.inputs import recipe
from pipeline.options.config import Config
from pipeline.shards import gather
from pipeline.shards.measured import read
from stages.columns import IGNORED
from stages.errors import ExpectationError
from stages.profile import TargetModel
from stages.tokens import packing

Rows = list[dict[str, Any]]
Damage = Callable[[Rows, TargetModel], None]
DATA = {
    "sft": "sft/word_problems.jsonl",
    "rm": "rm/pairs_margin.jsonl",
    "prm": "prm/math_shepherd.jsonl",
}
AT = 1  # the training row that is damaged
# Tests of their own; that of sources is beside their budgets, those of an index of packs in
# test_index_only and mutants.
ELSEWHERE = {
    "hashes_match",
    "shards_open",
    "ledger_balanced",
    "packs_filled",
    "sources_named",
    "index_complete",
    "index_names_stored_examples",
    "index_tokens_match",
    "packs_as_planned",
}


@dataclass(frozen=True)
class Case:
    """A damage, the laws it must break, and what the build is asked for."""

    damage: Damage
    laws: set[str]
    task: str
    layout: str
    options: dict[str, Any]


CASES: list[Case] = []


def breaks(
    *laws: str, task: str = "sft", layout: str = "ragged", **options: Any
) -> Callable[[Damage], Damage]:
    """Register a damage."""

    def register(damage: Damage) -> Damage:
        CASES.append(Case(damage, set(laws), task, layout, options))
        return damage

    return register


def trained(row: dict[str, Any]) -> list[int]:
    """Where a row is trained."""
    return [i for i, label in enumerate(row["labels"]) if label != IGNORED]


@breaks("labels_equal_ids", "examples_as_encoded")
@breaks("labels_equal_ids", layout="padded")
def flip_a_label(rows: Rows, model: TargetModel) -> None:
    row = rows[AT]
    row["labels"][trained(row)[0]] += 1
    if "attention_mask" not in row:
        row["labels"][trained(row)[0] - 1] = row["input_ids"][trained(row)[0] - 1]


@breaks("turns_end_supervised", "examples_whole", "examples_as_encoded", "counts_match")
def cut_the_last_tokens(rows: Rows, model: TargetModel) -> None:
    for name in ("input_ids", "labels"):
        rows[AT][name] = rows[AT][name][:-2]


@breaks("something_trained", "examples_as_encoded", "counts_match")
def train_nothing(rows: Rows, model: TargetModel) -> None:
    rows[AT]["labels"] = [IGNORED] * len(rows[AT]["labels"])


@breaks("first_label_untrained", "turns_end_supervised", "examples_as_encoded", "counts_match")
def train_the_first_token(rows: Rows, model: TargetModel) -> None:
    rows[AT]["labels"][0] = rows[AT]["input_ids"][0]


@breaks("labels_fit_ids", "something_trained", "examples_as_encoded", "counts_match")
def lose_a_label(rows: Rows, model: TargetModel) -> None:
    rows[AT]["labels"].pop()


@breaks("ids_in_vocabulary", "examples_as_encoded")
def leave_the_embedding(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"][2] = model.profile.embedding_size


@breaks("no_padding_inside", "examples_as_encoded")
def pad_inside(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"][2] = model.pad_id


@breaks("examples_as_encoded")
def change_a_context_token(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"][5] += 1


@breaks("length_within_bounds", "examples_whole", "examples_as_encoded", "counts_match")
def grow_beyond_the_limit(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"] += [13] * 4096
    rows[AT]["labels"] += [IGNORED] * 4096


@breaks("row_ids_known", "row_ids_as_planned")
def come_from_nowhere(rows: Rows, model: TargetModel) -> None:
    rows[AT]["row_id"] = "<script>alert(1)</script>:1"


@breaks("row_ids_as_planned", "row_ids_unique")
def take_a_name(rows: Rows, model: TargetModel) -> None:
    rows[AT]["row_id"] = rows[0]["row_id"]


SPLIT: dict[str, Any] = {"test_size": 0.4, "seed": 3}  # lines 1 and 4 are in test
TRAINED: list[dict[str, Any]] = []  # the row of the train side, which is written first


@breaks("row_ids_as_planned", "sides_disjoint", "row_ids_unique", **SPLIT)
def take_a_name_of_the_other_side(rows: Rows, model: TargetModel) -> None:
    if rows[AT]["row_id"].endswith(":4"):
        rows[AT]["row_id"] = "word_problems.jsonl:3"


@breaks(
    *("no_example_on_both_sides", "duplicates_as_declared"),
    *("examples_as_encoded", "examples_whole", "counts_match"),
    **SPLIT,
)
def put_a_trained_row_into_test(rows: Rows, model: TargetModel) -> None:
    if rows[AT]["row_id"].endswith(":4"):
        for name in ("input_ids", "labels"):
            rows[AT][name] = TRAINED[-1][name]
    else:
        TRAINED.append(rows[AT])


@breaks("shards_complete", "row_ids_unique", "counts_match")
def duplicate_a_row(rows: Rows, model: TargetModel) -> None:
    rows.insert(AT, copy.deepcopy(rows[AT]))


@breaks("duplicates_as_declared", "examples_as_encoded", "examples_whole", "counts_match")
def repeat_what_another_says(rows: Rows, model: TargetModel) -> None:
    for name in ("input_ids", "labels"):
        rows[AT][name] = list(rows[0][name])


@breaks("padding_in_place", layout="padded")
def swap_the_padding_side(rows: Rows, model: TargetModel) -> None:
    row = rows[AT]
    start = row["attention_mask"].index(1)
    for name in ("input_ids", "labels", "attention_mask"):
        row[name] = row[name][start:] + row[name][:start]


@breaks("padding_in_place", layout="padded")
def pad_with_the_end_of_turn(rows: Rows, model: TargetModel) -> None:
    row = rows[AT]
    for i, mask in enumerate(row["attention_mask"]):
        if not mask:
            row["input_ids"][i] = model.end_of_turn_id


@breaks("examples_whole", "examples_as_encoded", layout="packed", max_length=512)
def shift_a_boundary(rows: Rows, model: TargetModel) -> None:
    lengths = rows[AT]["seq_lengths"]
    lengths[0], lengths[1] = lengths[0] + 1, lengths[1] - 1


@breaks("seq_lengths_fill_the_pack", layout="packed", max_length=512)
def extend_a_pack(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"].append(13)
    rows[AT]["labels"].append(IGNORED)


@breaks("pack_within_max_length", layout="packed", max_length=512)
def join_two_packs(rows: Rows, model: TargetModel) -> None:
    for name in ("input_ids", "labels", "seq_lengths", "row_ids"):
        rows[AT][name] += rows[AT + 1][name]
    del rows[AT + 1]


@breaks("positions_reset", "row_ids_as_planned", layout="packed", max_length=512)
def lose_a_name(rows: Rows, model: TargetModel) -> None:
    rows[AT]["row_ids"].pop()


@breaks("chosen_differs", "examples_as_encoded", task="rm")
def make_both_sides_equal(rows: Rows, model: TargetModel) -> None:
    rows[AT]["rejected_ids"] = list(rows[AT]["chosen_ids"])


@breaks("answers_end_in_end_of_turn", "examples_as_encoded", task="rm")
def cut_the_last_token_of_an_answer(rows: Rows, model: TargetModel) -> None:
    rows[AT]["rejected_ids"].pop()


@breaks("prompt_shared", "examples_as_encoded", task="rm")
def ask_another_question(rows: Rows, model: TargetModel) -> None:
    rows[AT]["chosen_ids"][3] += 1


@breaks("examples_as_encoded", task="rm")
def shorten_the_prompt(rows: Rows, model: TargetModel) -> None:
    rows[AT]["prompt_length"] -= 1


@breaks("examples_as_encoded", task="rm")
def double_a_margin(rows: Rows, model: TargetModel) -> None:
    rows[AT]["margin"] *= 2


@breaks("margin_finite", "examples_as_encoded", task="rm")
def lose_a_margin_to_infinity(rows: Rows, model: TargetModel) -> None:
    rows[AT]["margin"] = float("inf")


@breaks("margin_finite", "examples_as_encoded", task="rm")
def make_a_margin_no_number(rows: Rows, model: TargetModel) -> None:
    rows[AT]["margin"] = float("nan")


@breaks("examples_as_encoded", task="rm")
def lose_a_margin(rows: Rows, model: TargetModel) -> None:
    rows[AT]["margin"] = None


@breaks("markers_match_steps", "labels_match_ratings", "examples_as_encoded", task="prm")
def drop_a_marker(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"][rows[AT]["step_positions"][0]] = 13


@breaks("labels_match_ratings", "examples_as_encoded", task="prm")
def flip_a_rating_token(rows: Rows, model: TargetModel) -> None:
    at = rows[AT]["step_positions"][0]
    swapped = {model.good_id: model.bad_id, model.bad_id: model.good_id}
    rows[AT]["labels"][at] = swapped[rows[AT]["labels"][at]]


@breaks("no_bos_inside", "examples_as_encoded", task="prm", bos="<|good|>")
def begin_again_inside(rows: Rows, model: TargetModel) -> None:
    rows[AT]["input_ids"][3] = model.good_id


@breaks("unlabelled_after_first_error", task="prm", data="prm/first_error.json")
def rate_what_nobody_rated(rows: Rows, model: TargetModel) -> None:
    row = next(r for r in rows if None in r["step_labels"])
    at = row["step_labels"].index(None)
    row["step_labels"][at] = 1.0
    row["labels"][row["step_positions"][at]] = model.good_id


@breaks("loss_weights_fit_labels", "examples_as_encoded", data="sft/turn_weights.jsonl")
@breaks("loss_weights_fit_labels", layout="padded", data="sft/turn_weights.jsonl")
def weigh_what_is_not_trained(rows: Rows, model: TargetModel) -> None:
    rows[AT]["loss_weights"][trained(rows[AT])[0] - 1] = 0.5


@breaks("loss_weights_fit_labels", "examples_as_encoded", data="sft/turn_weights.jsonl")
def lose_a_weight_to_infinity(rows: Rows, model: TargetModel) -> None:
    rows[AT]["loss_weights"][trained(rows[AT])[0]] = float("inf")


@breaks("loss_weights_fit_labels", "examples_as_encoded", data="sft/turn_weights.jsonl")
def lose_a_weight(rows: Rows, model: TargetModel) -> None:
    rows[AT]["loss_weights"].pop()


@breaks("examples_as_encoded", data="sft/turn_weights.jsonl")
def double_a_weight(rows: Rows, model: TargetModel) -> None:
    rows[AT]["loss_weights"][trained(rows[AT])[0]] *= 2


def rewritten(path: Path, change: Callable[[Rows], None]) -> None:
    """The shard once more, with other rows."""
    table = read(path)
    rows = table.to_pylist()
    change(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=table.schema))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    """A cache of parts for all builds of this file, beside the session's tokenizers."""
    folder = tmp_path_factory.mktemp("parts")
    cache_dir.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizers").symlink_to(cache_dir / "tokenizers")
    return folder


MODELS: dict[str, Any] = {}  # proved once


@pytest.fixture
def build(tmp_path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Build in this process, into a folder that must stay empty when it fails."""
    output = tmp_path / "out"
    find = recipe.find_model

    def found(config: Config) -> Any:
        if config.task not in MODELS:
            MODELS[config.task] = find(config)
        return MODELS[config.task]

    monkeypatch.setattr(recipe, "find_model", found)

    def run(task: str, layout: str, data: str = "", **options: Any) -> Path:
        config = Config.of(
            task=task,
            data=(str(SAMPLES / (data or DATA[task])),),
            model="qwen2-1.5b",
            output=output,
            layout=layout,
            cache_dir=parts,
            workers=1,
            max_reject=1.0,
            **options,
        )
        pipeline.builder.build.build(config, lambda *_: None)
        return output

    return run


def damaging(monkeypatch: pytest.MonkeyPatch, after: Callable[[Path], None]) -> None:
    """Let something happen to every shard between its writing and its reading back."""
    write = gather.write

    def writes(path: Path, *arguments: Any, **options: Any) -> int:
        tokens = write(path, *arguments, **options)
        after(path)
        return tokens

    monkeypatch.setattr(gather, "write", writes)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.damage.__name__}-{c.layout}" for c in CASES])
def test_a_damaged_shard_is_not_published(
    case: Case,
    build: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The build ends with the status for bad data, and names every law and the row."""
    named: list[str] = []
    options = dict(case.options)
    bos = options.pop("bos", None)

    find = recipe.find_model

    def bound(config: Config) -> Any:
        source, model = find(config)
        return source, replace(model, profile=replace(model.profile, bos_token=bos))

    if bos:
        monkeypatch.setattr(recipe, "find_model", bound)

    def damage(path: Path) -> None:
        def change(rows: Rows) -> None:
            before = copy.deepcopy(rows)
            case.damage(rows, models[0])
            changed = [i for i, row in enumerate(before) if i >= len(rows) or row != rows[i]]
            if changed:
                row = before[changed[0]]
                named.append(row.get("row_id") or row["row_ids"][0])

        rewritten(path, change)

    models: list[TargetModel] = []
    resolve = preparation.resolve_recipe

    def resolved(*arguments: Any) -> Any:
        found = resolve(*arguments)
        models.append(found.model)
        return found

    monkeypatch.setattr(preparation, "resolve_recipe", resolved)
    damaging(monkeypatch, damage)
    with pytest.raises(ExpectationError) as caught:
        build(case.task, case.layout, **options)
    text = str(caught.value)
    broken = {name for name in LAWS if f"  {name}: " in text}
    assert caught.value.exit_code == 3
    assert case.laws <= broken, text
    assert named
    renamed = {"come_from_nowhere", "take_a_name", "take_a_name_of_the_other_side"}
    assert named[0] in text or case.damage.__name__ in renamed, text
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] in ([], ["out.failed"])


LAWS = {law.name for law in invariants()}


def caught(build: Callable[..., Path], *arguments: Any, **options: Any) -> str:
    """What a build that is not published says."""
    with pytest.raises(ExpectationError) as error:
        build(*arguments, **options)
    return str(error.value)


def test_swapped_shards_are_found(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files that change places after both were measured."""
    monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 512)
    judge = assembly._judge

    def swapping(outcome: Any, folder: Path, users: Any) -> Any:
        one, two = (folder / shard.path for shard in outcome.shards[:2])
        one.rename(folder / "aside")
        two.rename(one)
        (folder / "aside").rename(two)
        return judge(outcome, folder, users)

    monkeypatch.setattr(assembly, "_judge", swapping)
    text = caught(build, "sft", "ragged")
    assert "hashes_match: 2 of" in text
    assert "train/data-00000-of-" in text


@pytest.mark.parametrize("keep", [0.3, 0.999])
def test_a_cut_off_shard_is_found(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    """A file whose end is missing does not open."""
    damaging(monkeypatch, lambda path: path.write_bytes(
        path.read_bytes()[: int(path.stat().st_size * keep)]))  # fmt: skip
    text = caught(build, "sft", "ragged")
    assert "shards_open" in text
    assert "train/data-00000-of-00001.arrow" in text


def test_a_row_that_vanished_from_the_ledger_is_found(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts that do not add up stop the build, with the counts."""
    ledger = description.ledger
    monkeypatch.setattr(
        description, "ledger", lambda outcome: ledger(outcome) | {"rows_accounted": 1}
    )
    text = caught(build, "sft", "ragged")
    assert "ledger_balanced" in text
    assert "rows_accounted=1" in text


def test_half_empty_packs_are_found(
    build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packing of one example each is no packing."""
    monkeypatch.setattr(packing, "plan", lambda lengths, capacity: np.arange(len(lengths)))
    assert "packs_filled" in caught(build, "sft", "packed")


def test_every_critical_law_was_seen_to_fail() -> None:
    """None is left out, but the one that only the stream can judge, and those of encoder families,
    whose own tests damage their rows."""
    critical = {law.name for law in invariants() if law.severity == "critical"}
    in_stream = {law.name for law in invariants() if STREAM in law.needs}
    of_encoders = {law.name for law in invariants() if ENCODER in law.needs}
    assert critical - in_stream - of_encoders == ELSEWHERE.union(*(case.laws for case in CASES))


def test_what_is_published_says_what_was_judged(build: Callable[..., Path]) -> None:
    """The verdict names every law that applies, on every row, without clock or path."""
    folder = build("prm", "packed")
    verdict = json.loads((folder / "validation.json").read_text("utf-8"))
    held = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert verdict["passed"]
    assert verdict["tables"]["examples"] == held["examples"]["kept"]
    checked = {e["name"]: e["checked"] for e in verdict["expectations"]}
    assert checked["markers_match_steps"] == held["examples"]["kept"]
    assert checked["packs_filled"] == 1
    assert held["validation"]["judged"] == len(verdict["expectations"])
    assert str(folder.parent) not in json.dumps(verdict)
    assert not (folder / ".metrics").exists()
