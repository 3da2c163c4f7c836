"""Markers stand behind their steps, and both aligned texts have equally many tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stages import encoders, formats
from stages.contract import FormatOptions, Record
from stages.mark import Mark
from stages.normalize import Normalize
from stages.profile import StepTokens, TargetModel
from stages.render import Renderer, RenderSteps

ROW = {"prompt": "1 + 1?", "completions": ["Add.", "So 2."], "labels": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("tokens", "codes"),
    [
        (StepTokens(), [None]),
        (StepTokens(good="<|no such token|>"), ["misaligned_tokens"]),
        (StepTokens(bad="<|no such token|>"), ["misaligned_tokens"]),
    ],
)
def test_a_rating_of_several_tokens_is_refused(
    step_model: TargetModel, tokens: StepTokens, codes: list[str | None]
) -> None:
    """The row's text with step tokens and that with its ratings must be equally long."""
    model = replace(step_model, profile=replace(step_model.profile, step_tokens=tokens))
    normalize = Normalize("prm", formats.load("stepwise"), FormatOptions())
    batch = RenderSteps(Renderer(step_model))(normalize([Record(0, 0, b"", ROW)]))
    marked = Mark(model, encoders.load("tokenizers", step_model.tokenizer_json))(batch)
    assert marked.column("reject_code").to_pylist() == codes
