"""Step tokens and ratings line up: the model's tokens are probed, sampled rows are read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from expectations.second_ids import SecondReading
from expectations.second_sample import Witness
from pipeline.tasks import kind_of
from stages import encoders, formats, probes
from stages.chat_template.render import Renderer
from stages.chat_template.render_steps import RenderSteps
from stages.contract import FormatOptions, Record
from stages.errors import ReadingError
from stages.normalize.stage import Normalize
from stages.profile import StepTokens, TargetModel
from stages.tokens.encode import EncodeSteps
from stages.tokens.insert_step_tokens import Mark
from stages.tokens.segment_encoder import SegmentEncoder

ROW = {"prompt": "1 + 1?", "completions": ["Add.", "So 2."], "labels": [1.0, 0.0]}


def read_again(step_model: TargetModel, model: TargetModel) -> Witness:
    """The row built for one model, and read a second time for another."""
    encoder = encoders.load("tokenizers", step_model.tokenizer_json)
    normalize = Normalize(kind_of("prm"), formats.load("stepwise"), FormatOptions())
    record = Record(0, 0, b"", ROW)
    batch = normalize([record])
    segments = SegmentEncoder(step_model, encoder, 4096, "reject")
    for stage in (RenderSteps(Renderer(step_model)), Mark(step_model)):
        batch = stage(batch)
    batch = EncodeSteps(step_model, segments)(batch)
    assert batch.column("reject_code").to_pylist() == [None]
    witness = Witness(SecondReading(model, encoder), normalize)
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
    with pytest.raises(ReadingError, match="with the ratings' tokens in their place"):
        read_again(step_model, model)
    found = probes.examine(probes.ProbeSubject(model, model.tokenizer_json), (probes.TOKENS,))
    assert found["step_tokens_are_one_id_in_context"].passed is False


def test_a_lost_marker_is_counted(step_model: TargetModel) -> None:
    """A step without a marker among the ids fills the reject columns with ``marker_count``."""
    encoder = encoders.load("tokenizers", step_model.tokenizer_json)
    batch = Normalize(kind_of("prm"), formats.load("stepwise"), FormatOptions())(
        [Record(0, 0, b"", ROW)]
    )
    batch = RenderSteps(Renderer(step_model))(batch)  # not marked
    found = EncodeSteps(step_model, SegmentEncoder(step_model, encoder, 4096, "reject"))(batch)
    assert found.column("reject_code").to_pylist() == ["marker_count"]
