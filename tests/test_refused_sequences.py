"""Sequences that are refused beside others of their row: none is missing from the counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import Ran, read_manifest

Run = Callable[..., Ran]


def completion(text: str, rating: int | None) -> dict[str, Any]:
    """One alternative."""
    return {"text": text, "rating": rating}


def alternatives(*steps: tuple[list[dict[str, Any]], int | None]) -> str:
    """A row of completions and the chosen one of each step."""
    made = [{"completions": given, "chosen_completion": chosen} for given, chosen in steps]
    return json.dumps({"question": {"problem": "What?"}, "label": {"steps": made}}) + "\n"


def test_each_is_counted_by_its_code(pipeline: Run, tmp_path: Path) -> None:
    """Made = kept + rejected; rows stay used; the summary names what a used row lost."""
    good, bad, nothing = completion("a", 1), completion("b", -1), completion("c", None)
    (tmp_path / "steps.jsonl").write_text(
        alternatives(([good, nothing, bad], 0), ([bad], None), ([good], 0))
        + alternatives(([nothing], None))
        + alternatives(([nothing, nothing], None))
        + "{}\n"
    )
    command = ("steps.jsonl", "--model", "qwen2-1.5b", "--format", "prm800k", "-o", "out")
    done = pipeline("run", "prm", *command)
    assert done.status == 0, done.err
    manifest = read_manifest(tmp_path / "out")
    rows, examples = manifest["rows"], manifest["examples"]
    assert (rows["in"], rows["used"], rows["rejected"]) == (4, 1, 3)
    assert rows["rejected_by_code"] == {"bad_column": 1, "unrated_completion": 2}
    # of the first row three are kept, one has no rating, and one is behind the chain's end
    assert (examples["made"], examples["kept"], examples["rejected"]) == (7, 3, 4)
    assert examples["rejected_by_code"] == {"behind_chain_end": 1, "unrated_completion": 3}
    assert "1 example refused from rows that kept others: behind_chain_end" in done.err
    lines = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    found = [(r["id"], r["code"]) for r in map(json.loads, lines)]
    assert found == [
        ("steps.jsonl:1#0", "unrated_completion"),
        ("steps.jsonl:1#4", "behind_chain_end"),
        ("steps.jsonl:2#0", "unrated_completion"),
        ("steps.jsonl:3#0", "unrated_completion"),
        ("steps.jsonl:3#1", "unrated_completion"),
        ("steps.jsonl:4#0", "bad_column"),
    ]
    assert pipeline("check", "out").status == 0


def test_ties_among_ranked_answers_are_counted(pipeline: Run, tmp_path: Path) -> None:
    """Two answers with one score make no pair, and the tie is in the ledger."""
    row = {"prompt": "Which?", "responses": ["a", "b", "c"], "scores": [3, 3, 1]}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    done = pipeline("run", "rm", "r.jsonl", "--model", "qwen2-1.5b", "-o", "out")
    assert done.status == 0, done.err
    examples = read_manifest(tmp_path / "out")["examples"]
    assert (examples["made"], examples["kept"], examples["rejected_by_code"]) == (2, 1, {"tie": 1})
