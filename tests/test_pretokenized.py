"""Rows that are token ids already: passed through as they are, and judged like all others."""

import pyarrow as pa
from datasets import load_from_disk
from encoding import encoded
from hypothesis import given
from hypothesis import strategies as st
from rows import normalizing
from support import SAMPLES, read_manifest, rows_to

from stages import contract, profile
from stages.tokens.pretokenized import Accept

MODEL = ("--model", "qwen2-1.5b")


def accepted(model: profile.TargetModel, limit: int, rows: list[contract.Row]) -> pa.RecordBatch:
    """Rows behind the stage that takes them as they are."""
    return encoded(normalizing("sft", "pretokenized"), [Accept(model, limit)], rows)


IDS = st.lists(st.integers(0, 151645), min_size=2, max_size=12)


@given(ids=IDS, data=st.data(), pads=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_what_is_given_is_what_is_stored(ids, data, pads, model):
    """Labels or a mask, padded or not: the same ids and labels, the first of which is -100."""
    mask = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    labels = [one if kept else -100 for one, kept in zip(ids, mask, strict=True)]
    left, right = pads
    rows: list[contract.Row] = [
        {"input_ids": ids, "labels": labels},
        {"input_ids": ids, "loss_mask": list(map(int, mask))},
        {
            "input_ids": [7] * left + ids + [7] * right,
            "labels": [-100] * left + labels + [-100] * right,
            "attention_mask": [0] * left + [1] * len(ids) + [0] * right,
        },
    ]
    made = accepted(model, 64, rows)
    assert made["reject_code"].null_count == 3
    assert made["input_ids"].to_pylist() == [ids] * 3
    assert made["labels"].to_pylist() == [[-100, *labels[1:]]] * 3
    assert made["length"].to_pylist() == [len(ids)] * 3
    assert made["trained"].to_pylist() == [sum(label >= 0 for label in labels[1:])] * 3
    assert len(set(made["digest"].to_pylist())) == 1


def test_ids_beyond_the_vocabulary_and_the_limit_are_refused(model):
    """Each with its code; equal ids under other labels are other examples."""
    rows: list[contract.Row] = [
        {"input_ids": [1, model.vocab_size], "labels": [-100, -100]},
        {"input_ids": [1] * 9, "labels": [1] * 9},
        {"input_ids": [1, 2], "labels": [-100, 2]},
        {"input_ids": [1, 2], "labels": [-100, 3]},
        {"input_ids": [1, 2], "labels": [-100, -100]},
    ]
    made = accepted(model, 8, rows)
    codes = ["id_outside_vocabulary", "too_long", None, None, None]
    assert made["reject_code"].to_pylist() == codes
    assert len(set(made["digest"].to_pylist()[2:])) == 3


def test_a_build_of_a_build_is_the_build(built, pipeline, tmp_path):
    """Its ids and labels, taken in again, come out as they were, once somebody says so."""
    source = built("sft", SAMPLES / "sft" / "word_problems.jsonl", "--layout", "ragged")
    first = load_from_disk(str(source))["train"]
    kept = [{"input_ids": row["input_ids"], "labels": row["labels"]} for row in first]
    data = rows_to(tmp_path / "ids.jsonl", *kept)
    pipeline("run", "sft", data, *MODEL, "-o", "second").refused(3, "--format pretokenized")
    for layout in ("ragged", "packed"):
        folder = built("sft", data, "--format", "pretokenized", "--layout", layout)
        second = load_from_disk(str(folder))["train"]
        manifest = read_manifest(folder)
        assert manifest["format"] == "pretokenized"
        assert manifest["encoder"]["parity"]["sampled"] == len(kept)
        for column in ("input_ids", "labels"):
            flat = [[i for row in rows[column] for i in row] for rows in (first, second)]
            assert flat[0] == flat[1]
