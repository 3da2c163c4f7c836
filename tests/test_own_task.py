"""The task that CONTRIBUTING.md adds from one file, with its kind and its format, works in every
command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import NAME
from datasets import load_from_disk
from support import Ran, install_examples, read_manifest

Run = Callable[..., Ran]

ROWS = [
    {"asked": f"{n} + 1?", "good": f"It is {n + 1}.", "bad": f"{n}, I think.", "sure": n / 4}
    for n in range(5)
]


@pytest.mark.slow
def test_it_builds_and_is_judged_checked_shown_and_reported(pipeline: Run, tmp_path: Path) -> None:
    """From one file, through entry points, by every command that knows of tasks."""
    folder = install_examples(tmp_path / "elsewhere", "sure_pairs")
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
    for layout in ("padded", "ragged"):
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
        assert "expectations hold" in run("check", layout).out
        assert "It is 3." in run("show", layout, "--row", "rows.jsonl:3").out
        assert "sure" in (tmp_path / layout / "report.html").read_text("utf-8")
    run("export", "trl", "ragged", "-o", "exported")
    assert "expectations hold" in run("check", "exported").out
    refused = pipeline("run", "rm", data, *model, "-o", "rm", PYTHONPATH=str(folder))
    assert refused.status == 3
