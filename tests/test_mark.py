"""Step tokens and ratings line up: the model's tokens are probed, sampled rows are read again."""

from dataclasses import replace

import pytest
from encoding import encoding
from rows import normalizing

from expectations import second_ids, second_sample
from stages import contract, encoders, errors, probes
from stages.profile import StepTokens, TargetModel

ROW = {"prompt": "1 + 1?", "completions": ["Add.", "So 2."], "labels": [1.0, 0.0]}


def read_again(step_model: TargetModel, model: TargetModel) -> second_sample.Witness:
    """The row built for one model, and read a second time for another."""
    encoder = encoders.load("tokenizers", step_model.tokenizer_json)
    normalize = normalizing("prm", "stepwise")
    record = contract.Record(0, 0, b"", ROW)
    batch = normalize([record])
    for stage in encoding("prm", step_model, encoder):
        batch = stage(batch)
    assert batch.column("reject_code").to_pylist() == [None]
    witness = second_sample.Witness(second_ids.SecondReading(model, encoder), normalize)
    witness(batch, {0: record})
    return witness


def test_both_texts_of_a_row_are_equally_long(step_model: TargetModel) -> None:
    """With registered tokens they are."""
    assert read_again(step_model, step_model).sampled == 1


@pytest.mark.parametrize(
    "tokens", [StepTokens(good="<|no such token|>"), StepTokens(bad="<|no such token|>")]
)
def test_a_rating_of_several_tokens_is_noticed(step_model: TargetModel, tokens: StepTokens) -> None:
    """The second reading compares the lengths of both texts; the probe finds it before any row."""
    model = replace(step_model, profile=replace(step_model.profile, step_tokens=tokens))
    with pytest.raises(errors.ReadingError, match="with the ratings' tokens in their place"):
        read_again(step_model, model)
    found = probes.examine(probes.ProbeSubject(model, model.tokenizer_json), (probes.TOKENS,))
    assert found["step_tokens_are_one_id_in_context"].passed is False


def test_a_lost_marker_is_counted(step_model: TargetModel) -> None:
    """A step without a marker among the ids fills the reject columns with ``marker_count``."""
    render, _, encode = encoding("prm", step_model)
    batch = normalizing("prm", "stepwise")([contract.Record(0, 0, b"", ROW)])
    found = encode(render(batch))  # not marked
    assert found.column("reject_code").to_pylist() == ["marker_count"]
