"""Loss weights: a turn's own number on each of its trained tokens, in every layout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import load_from_disk
from encoding import encoding
from hypothesis import given
from hypothesis import strategies as st
from rows import normalizing
from support import SAMPLES

from pipeline.publish.check import check
from pipeline.shards.chain import split_off
from stages.chat_template import loss_weights, segments
from stages.columns import IGNORED
from stages.contract import Record
from stages.errors import RowError
from stages.profile import TargetModel
from stages.tokens.folded_labels import unfold

Row = dict[str, Any]
SAMPLE = SAMPLES / "sft" / "turn_weights.jsonl"


def talk(*turns: tuple[str, str, float | None]) -> Row:
    """A row of turns, some of them with a weight."""
    said = [{"role": role, "content": text, "weight": weight} for role, text, weight in turns]
    return {"messages": said}


def encoded(
    model: TargetModel,
    rows: list[Row],
    train_on: str = "assistant",
    limit: int = 4096,
    turn_by_turn: bool = False,
) -> tuple[list[Row], list[Row]]:
    """Rows through door, render and encode: those that came through, and those that did not."""
    door = normalizing("sft", "openai", train_on, turn_by_turn)
    batch = door([Record(n, 0, b"", row) for n, row in enumerate(rows)])
    refused = []
    stages = encoding("sft", model, limit=limit, policy="trim-turns", train_on=train_on)
    for stage in (lambda b: b, *stages):
        batch, gone = split_off(stage(batch))
        refused += gone.select(["line", "reject_code", "reject_detail"]).to_pylist() if gone else []
    return unfold(batch).to_pylist(), refused


def expected(model: TargetModel, row: Row, ids: list[int], train_on: str) -> list[float]:
    """Read off the ids: between two ends of turn the weight of the turn that ends there; what the
    generation prompt supplies only under ``all``, and never the first token."""
    start, end = model.controls["<|im_start|>"], model.end_of_turn_id
    turns = [(turn["role"], turn["weight"]) for turn in row["messages"]]
    if turns[0][0] != "system":
        turns.insert(0, ("system", None if train_on == "all" else 0))
    last = max(i for i, (role, _) in enumerate(turns) if role == "assistant")
    found: list[float] = []
    at = 0
    for number, (role, weight) in enumerate(turns):
        stop = ids.index(end, at) + 1
        by_policy = role == "assistant" and (train_on != "last" or number == last)
        if weight is None:
            weight = 1 if by_policy or train_on == "all" else 0
        opens = ids.index(start, at) + 3  # <|im_start|>, the role, a newline
        context = 0 if train_on == "all" else opens - at
        found += [0.0] * context + [float(np.float32(weight))] * (stop - at - context)
        at = stop
    found += [0.0] * (len(ids) - at)
    return [0.0, *found[1:]]


WEIGHTS = st.sampled_from([None, 0, 1, 0.5, 2, 0.1, 3.75])
ANSWERS = st.tuples(st.sampled_from(["Yes.", "It is 4.", "好", "Why\n\nnot?"]), WEIGHTS)


@given(
    answers=st.lists(ANSWERS, min_size=1, max_size=4),
    asked=WEIGHTS,
    system=st.booleans(),
    train_on=st.sampled_from(["assistant", "last", "all"]),
    limit=st.integers(20, 120),
)
def test_each_trained_token_has_the_weight_of_its_turn(
    model, answers, asked, system, train_on, limit
):
    """Alone, trimmed, under every policy; rows whose weights say nothing more carry none."""
    turns: list[tuple[str, str, float | None]] = [("system", "Be brief.", None)] if system else []
    for text, weight in answers:
        turns += [
            ("user", "And?", asked if train_on == "all" else None),
            ("assistant", text, weight),
        ]
    turns[-1] = ("assistant", answers[-1][0], 0.25)
    row = talk(*turns)
    ((whole,), _) = encoded(model, [row], train_on)
    wanted = expected(model, row, whole["input_ids"], train_on)
    assert whole["loss_weights"] == wanted
    assert [w != 0 for w in wanted] == [label != IGNORED for label in whole["labels"]]
    for cut in encoded(model, [row], train_on, limit)[0]:
        if cut["reject_code"] is not None:
            continue
        kept = wanted[: cut["length"]]
        kept = [
            w if label != IGNORED else 0.0 for w, label in zip(kept, cut["labels"], strict=True)
        ]
        plain = set(kept) <= {0.0, 1.0}
        assert cut["loss_weights"] == ([] if plain else kept)


def test_one_example_per_turn_keeps_that_turns_weight(model):
    """The turns before it are context, whatever their weight."""
    row = talk(
        ("user", "a", None), ("assistant", "b", 0.5), ("user", "c", None), ("assistant", "d", 1)
    )
    made, _ = encoded(model, [row], turn_by_turn=True)
    assert [set(one["loss_weights"]) for one in made] == [{0.0, 0.5}, set()]


def test_turns_that_a_template_joins_have_no_weights_of_their_own():
    """Where a turn has no end of its own, its weight has no place; nothing is guessed."""
    texts = ["ask", " answer", "</s>"]
    kinds = bytes([segments.TRAINED, segments.TRAINED, segments.CONTROL | segments.TRAINED])
    assert loss_weights.of_segments(texts[1:], kinds[1:], [0.0, 0.5], "</s>", None) == [0.5, 0.5]
    for ends in (None, [3, 14]):
        with pytest.raises(RowError, match="weights cannot be placed") as caught:
            loss_weights.of_segments(texts, kinds, [2.0, 0.5], "</s>", ends)
        assert caught.value.code == "weight_unplaced"


def stored(folder: Path) -> list[Row]:
    """The rows of a build's train side."""
    return list(load_from_disk(str(folder))["train"])


@pytest.fixture
def sample(built) -> Callable[[str], Path]:
    """A build of the sample in a layout."""
    return lambda layout: built("sft", SAMPLE, "--layout", layout)


def test_every_layout_holds_the_same_weights(sample, cache_dir):
    """Packs are the ragged rows joined, padding weighs nothing, and check finds no fault."""
    ragged = stored(sample("ragged"))
    tops = [[0.0, 0.5, 1.0], [0.0, 1.0], [0.0, 2.0], [0.0, 0.25, 1.0], [0.0, 1.0]]
    assert [sorted(set(row["loss_weights"])) for row in ragged] == tops
    (pack,) = stored(sample("packed"))
    for name in ("input_ids", "labels", "loss_weights"):
        assert pack[name] == [value for row in ragged for value in row[name]]
    for row, alone in zip(stored(sample("padded")), ragged, strict=True):
        before = row["attention_mask"].index(1)
        assert row["loss_weights"] == [0.0] * before + alone["loss_weights"]
    found = check(sample("padded"), cache_dir)
    assert not found.faults
    assert found.rows_made_again == 5
