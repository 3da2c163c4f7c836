"""Padded and ragged rows: what was added can be told from what was there, and taken off again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import columns
from stages.columns import IGNORED
from stages.errors import UsageError
from stages.tokens.padded import LAYOUT, pad
from stages.tokens.ragged import ordered

PAD = 151643
SIDES = st.sampled_from(["left", "right"])
IDS = st.lists(st.integers(0, 99), min_size=1, max_size=7)


def table(**values: Any) -> pa.Table:
    """Columns of their declared types."""
    return pa.table({k: pa.array(v, columns.TYPES[k]) for k, v in values.items()})


def examples(found: list[list[int]], ratings: list[list[float | None]] | None = None) -> pa.Table:
    """SFT examples, or PRM ones whose steps stand at their own number."""
    values: dict[str, Any] = {
        "row_id": [f"x:{i}" for i in range(len(found))],
        "input_ids": found,
        "labels": [[IGNORED, *ids[1:]] for ids in found],
    }
    if ratings is not None:
        steps = [row[: len(ids)] for row, ids in zip(ratings, found, strict=True)]
        values["step_positions"] = [list(range(len(row))) for row in steps]
        values["step_labels"] = steps
    return table(**values)


def unpadded(row: dict[str, Any], ids: str, mask: str) -> list[int]:
    """The tokens where the mask is 1."""
    return [token for token, real in zip(row[ids], row[mask], strict=True) if real]


@settings(max_examples=80, deadline=None)
@given(
    found=st.lists(IDS | st.just([PAD]), min_size=1, max_size=6),
    side=SIDES,
    more=st.integers(0, 5),
    data=st.data(),
)
def test_the_mask_undoes_the_padding(
    found: list[list[int]], side: str, more: int, data: st.DataObject
) -> None:
    """Where the mask is 1 stands the example, where it is 0 the pad token and the label -100.

    Padding is on one side only, and steps point at the tokens they pointed at.
    """
    rating = st.lists(st.none() | st.sampled_from([0.0, 1.0]), max_size=3)
    ratings = data.draw(st.lists(rating, min_size=len(found), max_size=len(found)))
    before = examples(found, ratings)
    size = max(map(len, found)) + more
    after = pad(before, size, side, PAD)
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        assert len(new["input_ids"]) == len(new["labels"]) == len(new["attention_mask"]) == size
        assert unpadded(new, "input_ids", "attention_mask") == old["input_ids"]
        assert unpadded(new, "labels", "attention_mask") == old["labels"]
        missing = size - len(old["input_ids"])
        mask = [1] * len(old["input_ids"])
        assert new["attention_mask"] == (
            [0] * missing + mask if side == "left" else mask + [0] * missing
        )
        added = slice(0, missing) if side == "left" else slice(size - missing, size)
        assert new["input_ids"][added] == [PAD] * missing
        assert new["labels"][added] == [IGNORED] * missing
        assert new["row_id"] == old["row_id"]
        assert new["step_labels"] == old["step_labels"]
        pointed = [old["input_ids"][i] for i in old["step_positions"]]
        assert [new["input_ids"][i] for i in new["step_positions"]] == pointed


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), side=SIDES)
def test_both_sides_of_a_pair_have_one_width(
    pairs: list[tuple[list[int], list[int]]], side: str
) -> None:
    """Chosen and rejected are padded alike, each with its own mask; the prompt's length stays."""
    before = table(
        row_id=[f"x:{i}" for i in range(len(pairs))],
        chosen_ids=[chosen for chosen, _ in pairs],
        rejected_ids=[rejected for _, rejected in pairs],
        prompt_length=[1] * len(pairs),
    )
    size = max(len(ids) for pair in pairs for ids in pair)
    after = pad(before, size, side, PAD)
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        for name in ("chosen", "rejected"):
            assert len(new[f"{name}_ids"]) == size
            mask = f"{name}_attention_mask"
            assert unpadded(new, f"{name}_ids", mask) == old[f"{name}_ids"]
        assert new["prompt_length"] == 1


@pytest.mark.parametrize(
    ("pad_to", "longest", "max_length", "wanted"),
    [
        ("longest", 1, 4096, 8),
        ("longest", 8, 4096, 8),
        ("longest", 9, 4096, 16),
        ("longest", 4090, 4096, 4096),
        ("longest", 99, 100, 100),
        ("longest", 100, 100, 100),
        ("max-length", 9, 4096, 4096),
        ("max-length", 9, 100, 100),
        ("512", 9, 4096, 512),
    ],
)
def test_width_follows_what_is_asked_for(
    pad_to: str, longest: int, max_length: int, wanted: int
) -> None:
    """The longest example rounded up to a multiple of 8, never above the limit; or as named."""
    assert LAYOUT.width(pad_to, longest, max_length) == wanted


@settings(max_examples=60, deadline=None)
@given(longest=st.integers(1, 5000), room=st.integers(0, 5000))
def test_the_longest_example_always_fits(longest: int, room: int) -> None:
    """No width is too small for an example within the limit, nor above the limit."""
    limit = longest + room
    found = LAYOUT.width("longest", longest, limit)
    assert longest <= found <= limit
    assert found % 8 == 0 or found == limit
    assert found < longest + 8


def test_an_example_wider_than_the_width_is_refused() -> None:
    """Nothing is cut off to fit a width."""
    with pytest.raises(UsageError, match="3 tokens"):
        pad(examples([[1, 2, 3], [1]]), 2, "left", PAD)


@pytest.mark.parametrize(
    ("with_steps", "names"),
    [
        (False, ["row_id", "input_ids", "attention_mask", "labels"]),
        (
            True,
            [
                "row_id",
                "input_ids",
                "attention_mask",
                "labels",
                "step_positions",
                "step_labels",
            ],
        ),
    ],
)
def test_padded_rows_have_their_declared_columns(with_steps: bool, names: list[str]) -> None:
    """Names and types are those of the padded layout; no rows make no rows."""
    found = examples([[1, 2]], [[1.0]] if with_steps else None)
    after = pad(found, 8, "left", PAD)
    assert after.schema == columns.schema(names)
    empty = pad(found.slice(1), 8, "left", PAD)
    assert empty.schema == columns.schema(names)
    assert empty.num_rows == 0


def test_pairs_have_their_declared_columns() -> None:
    """The margin stays where there is one."""
    found = table(
        margin=[0.5], rejected_ids=[[2]], chosen_ids=[[1]], prompt_length=[1], row_id=["x:1"]
    )
    order = ["row_id", "chosen_ids", "rejected_ids", "prompt_length", "margin"]
    assert ordered(found).schema == columns.schema(order)
    assert pad(found, 1, "right", PAD).schema == columns.schema(
        [
            "row_id",
            "chosen_ids",
            "chosen_attention_mask",
            "rejected_ids",
            "rejected_attention_mask",
            "prompt_length",
            "margin",
        ]
    )


@settings(max_examples=40, deadline=None)
@given(found=st.lists(IDS, min_size=1, max_size=6), cut=st.integers(0, 6))
def test_ragged_rows_are_the_examples(found: list[list[int]], cut: int) -> None:
    """Ragged rows hold what was stored, from a column in any number of pieces; ours come first."""
    whole = examples(found).add_column(0, "length", pa.array([7] * len(found), pa.int32()))
    pieces = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    rows = [{**row, "length": 7} for row in examples(found).to_pylist()]
    assert ordered(pieces).to_pylist() == rows
    assert ordered(pieces).column_names == ["row_id", "input_ids", "labels", "length"]
