"""One example per trained turn: how much that repeats is counted exactly and told everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SAMPLES, Run, read_manifest
from test_plan_command import planned

from pipeline.builder.plan_page import as_json, as_text
from stages import columns
from stages.chat_template import loss_weights

MODEL = "qwen3-8b"


def batch(rows: list[list[list[int]]]) -> pa.RecordBatch:
    """Rows of conversations of examples, each given as its number of turns."""
    line, messages, length = [], [], []
    for number, row in enumerate(rows):
        for conversation, sizes in enumerate(row):
            for size in sizes:
                line.append(number)
                length.append(10 * size + 1)
                messages.append(
                    [
                        {"role": "user", "content": f"{conversation} {i}", "trained": i == size - 1}
                        for i in range(size)
                    ]
                )
    arrays = {
        "line": pa.array(line, pa.int64()),
        "messages": pa.array(messages, columns.MESSAGES),
        "length": pa.array(length, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(arrays)


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True).map(sorted)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(SIZES, min_size=1, max_size=3), max_size=6))
def test_conversations_of_several_examples_are_counted(rows: list[list[list[int]]]) -> None:
    """Also where a row holds several conversations, and none where each is one example."""
    several = [sizes for row in rows for sizes in row if len(sizes) > 1]
    assert loss_weights.count(batch(rows)) == {
        "conversations": len(several),
        "examples": sum(map(len, several)),
        "tokens": sum(10 * size + 1 for sizes in several for size in sizes),
        "tokens_if_whole": sum(10 * sizes[-1] + 1 for sizes in several),
    }


def written(folder: Path) -> Path:
    """Two conversations of several answers and one of a single one."""
    path = folder / "talk.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for exchanges in (1, 3, 5):
            turns = [
                {"role": role, "content": f"{role} says {i} of {exchanges}"}
                for i in range(exchanges)
                for role in ("user", "assistant")
            ]
            file.write(json.dumps({"messages": turns}) + "\n")
    return path


def build(pipeline: Run, data: Path, *more: object) -> tuple[Any, str]:
    """A build's manifest, and what its summary says."""
    ran = pipeline("run", "sft", data, "--layout", "ragged", "-o", "out", *more).ended()
    return ran, ran.err


def test_the_factor_is_told_by_plan_summary_manifest_and_report(
    pipeline: Run, tmp_path: Path, cache_dir: Path
) -> None:
    """The figures are those of the stored examples, and every place has the same."""
    data = written(tmp_path)
    _, err = build(pipeline, data, "--model", MODEL)
    split = read_manifest(tmp_path / "out")["tokens"]["turn_split"]
    lengths: dict[str, list[int]] = {}
    for row in load_from_disk(str(tmp_path / "out"))["train"]:
        lengths.setdefault(row["row_id"].split("#")[0], []).append(len(row["input_ids"]))
    several = [found for found in lengths.values() if len(found) > 1]
    whole = sum(found[-1] for found in several)
    assert split == {
        "conversations": 2,
        "examples": 8,
        "tokens": sum(map(sum, several)),
        "tokens_if_whole": whole,
        "factor": round(sum(map(sum, several)) / whole, 4),
    }
    said = loss_weights.sentence(split)
    assert said in err
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"{split['factor']:.1f} times" in page
    found = planned(cache_dir, "sft", data, model=MODEL)
    assert as_json(found)["turn_split"] == split
    assert said in as_text(found)


@pytest.mark.parametrize(
    "way",
    [("--model", MODEL, "--train-on", "last"), ("--model", "qwen3-4b-instruct-2507")],
    ids=["last", "another model"],
)
def test_the_ways_out_make_one_example_of_a_conversation(
    pipeline: Run, tmp_path: Path, way: tuple[str, ...]
) -> None:
    """Each that the sentence names builds, and then there is no factor to tell."""
    assert "--train-on last" in loss_weights.REMEDY
    _, err = build(pipeline, written(tmp_path), *way)
    manifest = read_manifest(tmp_path / "out")
    assert manifest["examples"]["kept"] == 3
    assert manifest["tokens"]["turn_split"] is None
    assert "one per trained turn" not in err


def test_a_plan_of_pairs_counts_the_tokens_of_both_sides(cache_dir: Path) -> None:
    """What is trained is a share of all tokens, so never above all of them."""
    found = planned(cache_dir, "rm", SAMPLES / "rm" / "pairs.jsonl")
    both = sum(
        len(ids)
        for _, row in found.sampled.shown
        for ids in (row["chosen_ids"], row["rejected_ids"])
    )
    share = as_json(found)["lengths"]["trained_share"]
    assert found.sampled.tokens > found.sampled.lengths.sum() > 0
    assert found.sampled.tokens >= both
    assert share == round(int(found.sampled.trained.sum()) / found.sampled.tokens, 4)
    assert 0 < share < 1
