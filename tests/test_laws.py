"""The laws of a build: determinism over workers, and the chain by hand equals the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SAMPLES, Run, few, files_of, read_manifest

PRM_CHAIN = ("render", "mark", "encode", "validate")
CHAIN = ("render", "encode", "validate")


@pytest.mark.parametrize("several", ["2", pytest.param("3", marks=pytest.mark.slow)])
def test_any_number_of_workers_gives_the_same_bytes(
    pipeline: Run, tmp_path: Path, several: str
) -> None:
    """Shards and manifest are byte-identical for 1, 2 and 3 workers, from empty caches."""
    rows = (SAMPLES / "sft" / "word_problems.jsonl").read_bytes()
    data = tmp_path / "data.jsonl"
    data.write_bytes(rows * (34_000_000 // len(rows)))
    made = []
    for workers in ("1", several):
        options = ("--workers", workers, "--cache-dir", f"cache{workers}", "--shuffle")
        out = f"out{workers}"
        pipeline("run", "sft", "--model", "qwen2-1.5b", data, "-o", out, *options).ended()
        made.append(files_of(tmp_path / out, with_run=True))
        del made[-1]["run.json"]
    assert made[0] == made[1]
    assert len(read_manifest(tmp_path / "out1")["splits"]["train"]["shards"]) > 1


@pytest.mark.parametrize(
    ("task", "data", "chain", "layout"),
    few(
        [
            ("sft", "sft/chat.jsonl", CHAIN, ("pad", "padded")),
            ("sft", "sft/chat.jsonl", CHAIN, ("pack", "packed")),
            ("prm", "prm/alternatives.jsonl", PRM_CHAIN, ("pack", "packed")),
            ("rm", "rm/pairs.jsonl", CHAIN, ("ragged", "ragged")),
        ],
        2,
    ),
)
def test_the_chain_by_hand_gives_the_shards_of_the_run(
    pipeline: Run,
    tmp_path: Path,
    task: str,
    data: str,
    chain: tuple[str, ...],
    layout: tuple[str, str],
) -> None:
    """normalize, render, (mark,) encode, validate, then a layout: the same Arrow bytes."""
    source = SAMPLES / data
    options = ("--model", "qwen2-1.5b", "--layout", layout[1])
    pipeline("run", task, source, *options, "-o", "run").ended()
    pipeline("stage", "normalize", source, "--task", task, *options, "-o", "0.arrow").ended()
    for number, stage in enumerate(chain):
        pipeline("stage", stage, f"{number}.arrow", "-o", f"{number + 1}.arrow").ended()
    pipeline("stage", layout[0], f"{len(chain)}.arrow", "-o", "chain").ended()
    shards = {k: v for k, v in files_of(tmp_path / "run").items() if k.endswith(".arrow")}
    assert shards
    assert shards == {k: v for k, v in files_of(tmp_path / "chain").items() if k.endswith(".arrow")}


def test_until_stops_after_a_stage(pipeline: Run, tmp_path: Path) -> None:
    """--until writes that stage's file, from which the chain can go on."""
    source = SAMPLES / "prm" / "stepwise.jsonl"
    options = ("--model", "qwen2-1.5b", "-o", "here.arrow")
    ran = pipeline("run", "prm", source, *options, "--until", "render").ended()
    assert "1 row refused" in ran.err
    pipeline("stage", "mark", "here.arrow", "-o", "marked.arrow").ended()
    ran = pipeline("stage", "encode", "here.arrow", "-o", "unmarked.arrow")
    assert ran.status == 3
    assert "no rows left" in ran.err
