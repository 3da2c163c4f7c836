"""One example per trained turn: how much that repeats is counted exactly and told everywhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from datasets import load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SAMPLES, Run, read_manifest, write_rows
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


@settings(max_examples=40, deadline=None)
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
    rows = [
        {
            "messages": [
                {"role": role, "content": f"{role} says {i} of {exchanges}"}
                for i in range(exchanges)
                for role in ("user", "assistant")
            ]
        }
        for exchanges in (1, 3, 5)
    ]
    return write_rows(folder / "talk.jsonl", rows)


def test_the_factor_is_told_by_plan_summary_manifest_and_report(
    pipeline: Run, tmp_path: Path, cache_dir: Path
) -> None:
    """The figures are those of the stored examples, and every place has the same."""
    data = written(tmp_path)
    command = ("run", "sft", data, "--layout", "ragged", "-o", "out", "--model", MODEL)
    ran = pipeline(*command).ended()
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
    assert said in ran.err
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert f"{split['factor']:.1f} times" in page
    found = planned(cache_dir, "sft", data, model=MODEL)
    assert as_json(found)["turn_split"] == split
    assert said in as_text(found)
    # The way out that the sentence names makes one example of a conversation, and has no factor.
    assert "--train-on last" in loss_weights.REMEDY
    ran = pipeline(*command, "--train-on", "last").ended()
    manifest = read_manifest(tmp_path / "out")
    assert (manifest["examples"]["kept"], manifest["tokens"]["turn_split"]) == (3, None)
    assert "one per trained turn" not in ran.err


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
