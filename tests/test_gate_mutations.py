"""Every critical law is seen to stop a build: a staged shard is damaged, and law and row are named.

Damage is done where a faulty writer would do it, between writing and reading back."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damages import damages
from support import SAMPLE_OF, SAMPLES, Make, few, raised, read_manifest
from test_check import rewrite

import pipeline.builder.build
from expectations.contract import ENCODER, STREAM
from expectations.invariants import invariants
from pipeline.builder import assembly, description
from pipeline.builds import stored
from pipeline.inputs import recipe
from pipeline.options.config import Config
from pipeline.shards import gather
from stages.errors import ExpectationError
from stages.tokens import packed

DATA = SAMPLE_OF | {"rm": SAMPLES / "rm" / "pairs_margin.jsonl"}
AT = 1  # the training row that is damaged
# Tests of their own; that of sources is beside their budgets, those of an index of packs in
# test_index_only and mutants, where that of questions is, too.
ELSEWHERE = {
    "no_question_on_both_sides",
    *("hashes_match", "shards_open", "ledger_balanced", "packs_filled", "sources_named"),
    *("index_complete", "index_names_stored_examples", "index_tokens_match", "packs_as_planned"),
}
CASES = damages("shard")


MODELS: dict[str, Any] = {}  # proved once


@pytest.fixture
def build(make, monkeypatch) -> Make:
    """Build in this process, into a folder that must stay empty when it fails."""
    find = recipe.find_model

    def found(config: Config) -> Any:
        if config.task not in MODELS:
            MODELS[config.task] = find(config)
        return MODELS[config.task]

    monkeypatch.setattr(recipe, "find_model", found)

    def run(task: str, layout: str, data: str = "", **options: Any) -> Path:
        return make(task, SAMPLES / (data or DATA[task]), layout=layout, **options)

    return run


def damaging(monkeypatch: pytest.MonkeyPatch, after: Callable[[Path], None]) -> None:
    """Let something happen to every shard between its writing and its reading back."""
    write = gather.write

    def writes(path: Path, *arguments: Any, **options: Any) -> int:
        tokens = write(path, *arguments, **options)
        after(path)
        return tokens

    monkeypatch.setattr(gather, "write", writes)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("case", few(CASES, 9), ids=[f"{c.does}-{c.layouts[0]}" for c in CASES])
def test_a_damaged_shard_is_not_published(case, build, monkeypatch, tmp_path):
    """The build ends with the status for a bug of ours, and names every law and the row."""
    named: list[str] = []
    if case.bos:
        find = recipe.find_model

        def bound(config: Config) -> Any:
            source, model = find(config)
            return source, replace(model, profile=replace(model.profile, bos_token=case.bos))

        monkeypatch.setattr(recipe, "find_model", bound)

    def damage(path: Path) -> None:
        rows = stored.read_file(path).to_pylist()
        before = copy.deepcopy(rows)
        case.do(rows, AT, MODELS[case.tasks[0]][1])
        changed = [row for i, row in enumerate(before) if i >= len(rows) or row != rows[i]]
        named.extend(row.get("row_id") or row["row_ids"][0] for row in changed[:1])
        rewrite(path, rows)

    damaging(monkeypatch, damage)
    with pytest.raises(ExpectationError) as caught:
        build(case.tasks[0], case.layouts[0], case.data, **case.options)
    text = str(caught.value)
    broken = {name for name in LAWS if f"  {name}: " in text}
    assert caught.value.exit_code == 1
    assert broken.issuperset(case.breaks), text
    assert named
    assert named[0] in text or case.renames, text
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] in ([], ["out.failed"])


LAWS = {law.name for law in invariants()}


def caught(build: Make, *arguments: Any, **options: Any) -> str:
    """What a build that is not published says."""
    return str(raised(ExpectationError, build, *arguments, **options))


def test_swapped_shards_are_found(build, monkeypatch):
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


def test_a_cut_off_shard_is_found(build, monkeypatch):
    """A file whose end is missing does not open."""
    damaging(monkeypatch, lambda path: path.write_bytes(path.read_bytes()[:-20]))
    text = caught(build, "sft", "ragged")
    assert "shards_open" in text
    assert "train/data-00000-of-00001.arrow" in text


def test_a_row_that_vanished_from_the_ledger_is_found(build, monkeypatch):
    """Counts that do not add up stop the build, with the counts."""
    ledger = description.ledger
    monkeypatch.setattr(
        description, "ledger", lambda outcome: ledger(outcome) | {"rows_accounted": 1}
    )
    text = caught(build, "sft", "ragged")
    assert "ledger_balanced" in text
    assert "rows_accounted=1" in text


def test_half_empty_packs_are_found(build, monkeypatch):
    """A packing of one example each is no packing."""
    monkeypatch.setattr(packed, "plan", lambda lengths, capacity: np.arange(len(lengths)))
    assert "packs_filled" in caught(build, "sft", "packed")


def test_every_critical_law_was_seen_to_fail():
    """None is left out, but the one that only the stream can judge, and those of encoder families,
    whose own tests damage their rows."""
    critical = {law.name for law in invariants() if law.severity == "critical"}
    in_stream = {law.name for law in invariants() if STREAM in law.needs}
    of_encoders = {law.name for law in invariants() if ENCODER in law.needs}
    assert critical - in_stream - of_encoders == ELSEWHERE.union(*(case.breaks for case in CASES))


def test_what_is_published_says_what_was_judged(build):
    """The verdict names every law that applies, on every row, without clock or path."""
    folder = build("prm", "packed")
    verdict = json.loads((folder / "validation.json").read_text("utf-8"))
    held = read_manifest(folder)
    assert verdict["passed"]
    assert verdict["tables"]["examples"] == held["examples"]["kept"]
    checked = {e["name"]: e["checked"] for e in verdict["expectations"]}
    assert checked["markers_match_steps"] == held["examples"]["kept"]
    assert checked["packs_filled"] == 1
    assert held["validation"]["judged"] == len(verdict["expectations"])
    assert str(folder.parent) not in json.dumps(verdict)
    assert not (folder / ".metrics").exists()
