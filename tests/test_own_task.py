"""A task of somebody else is one file: a kind, its format, its stages; every command takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import NAME
from datasets import load_from_disk
from support import Ran, read_manifest

Run = Callable[..., Ran]

# Preference pairs with one column more: how sure whoever chose was.
TOY = '''
"""Preference pairs that say how sure the choice was."""

from dataclasses import dataclass

import pyarrow as pa

from pipeline.tasks.rm import Rm
from stages.contract import Message, Pair
from stages.errors import RowError
from stages.format import Format
from stages.kinds.pair import Pairs


@dataclass(frozen=True, slots=True)
class SurePair(Pair):
    sure: float = 1.0


class SurePairs(Pairs):
    name = formats = "sure_pair"
    words = "sure pairs"
    columns = (*Pairs.columns, "sure")
    types = {"sure": pa.float32()}

    def ready(self, example, normalize):
        (made,) = super().ready(example, normalize)
        return [(*made, example.sure)]

    def filled(self, ready, normalize):
        sure = [row[3] if row else None for row in ready]
        return {**super().filled(ready, normalize), "sure": sure}


class Sure(Format):
    name = "sure"
    kinds = ("sure_pair",)
    columns = {"question": ("asked",), "answers": ("good", "bad"), "confidence": ("sure",)}

    def matches(self, row):
        return "asked, good, bad and sure" if {"asked", "good", "bad", "sure"} <= set(row) else None

    def read(self, row, options):
        if not 0 <= row["sure"] <= 1:
            raise RowError("bad_sureness", f"sure is {row['sure']}, not between 0 and 1")
        turns = [[Message("assistant", row[name])] for name in ("good", "bad")]
        return [SurePair([Message("user", row["asked"])], *turns, sure=row["sure"])]


class SureTask(Rm):
    name = "sure"
    help = "Reward models on pairs that say how sure the choice was."
    kind = SurePairs()
    kept = (*Rm.kept, "sure")
    stored = kept


TASK, KIND, FORMAT = SureTask(), SureTask.kind, Sure()
'''
ROWS = [
    {"asked": f"{n} + 1?", "good": f"It is {n + 1}.", "bad": f"{n}, I think.", "sure": n / 4}
    for n in range(5)
]


def test_it_builds_and_is_judged_checked_shown_and_reported(pipeline: Run, tmp_path: Path) -> None:
    """From one file, through entry points, by every command that knows of tasks."""
    folder = tmp_path / "elsewhere"
    information = folder / "somebodys_task-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "sure_pairs.py").write_text(TOY)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: somebodys-task\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[posttrain_pipeline.tasks]\nsure = sure_pairs:TASK\n"
        "[posttrain_pipeline.kinds]\nsure_pair = sure_pairs:KIND\n"
        "[posttrain_pipeline.formats]\nsure = sure_pairs:FORMAT\n"
    )
    data = tmp_path / "rows.jsonl"
    odd = {**ROWS[0], "sure": 7}
    data.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, odd]))

    def run(*words: object) -> Ran:
        ran = pipeline(*words, PYTHONPATH=str(folder))
        assert ran.status == 0, ran.err
        return ran

    assert "sure" in run("list", "tasks").out
    assert "how sure the choice was" in run("run", "--help").out
    model = ("--model", NAME, "--max-reject", "0.5")
    assert "sure" in run("plan", data, "--task", "sure", *model).out
    for layout in ("ragged", "padded"):
        run("run", "sure", data, *model, "-o", layout, "--layout", layout)
        made = load_from_disk(str(tmp_path / layout))["train"]
        assert made["sure"][:] == [n / 4 for n in range(5)]
        assert {"chosen_ids", "rejected_ids", "prompt_length"} <= set(made.column_names)
        manifest = read_manifest(tmp_path / layout)
        assert (manifest["task"], manifest["rows"]["rejected_by_code"]) == (
            "sure",
            {"bad_sureness": 1},
        )
        laws = json.loads((tmp_path / layout / "validation.json").read_text())["expectations"]
        assert "chosen_differs" in {law["name"] for law in laws}
        assert "examples rebuilt from the source equal the stored ones" in run("check", layout).out
        assert "It is 3." in run("show", layout, "--row", "rows.jsonl:3").out
        assert "sure" in (tmp_path / layout / "report.html").read_text("utf-8")
    run("export", "trl", "ragged", "-o", "exported")
    assert "expectations hold" in run("check", "exported").out
    refused = pipeline("run", "rm", data, *model, "-o", "rm", PYTHONPATH=str(folder))
    assert refused.status == 3
