"""Step tokens and ratings line up: the model's tokens are probed, sampled rows are read again."""

from dataclasses import replace

import pytest
from encoding import encoding
from rows import normalizing

from stages import contract
from stages.profile import StepTokens, TargetModel
from stages.tokenizers import probes

ROW = {"prompt": "1 + 1?", "completions": ["Add.", "So 2."], "labels": [1.0, 0.0]}


@pytest.mark.parametrize(
    "tokens", [StepTokens(good="<|no such token|>"), StepTokens(bad="<|no such token|>")]
)
def test_a_rating_of_several_tokens_is_noticed(step_model: TargetModel, tokens: StepTokens) -> None:
    """A probe finds it before any row is read."""
    model = replace(step_model, profile=replace(step_model.profile, step_tokens=tokens))
    found = probes.examine(probes.ProbeSubject(model, model.tokenizer_json), (probes.TOKENS,))
    assert found["step_tokens_are_one_id_in_context"].passed is False


def test_a_lost_marker_is_counted(step_model: TargetModel) -> None:
    """A step without a marker among the ids fills the reject columns with ``marker_count``."""
    render, _, encode = encoding("prm", step_model)
    batch = normalizing("prm", "stepwise")([contract.Record(0, 0, b"", ROW)])
    found = encode(render(batch))  # not marked
    assert found.column("reject_code").to_pylist() == ["marker_count"]
