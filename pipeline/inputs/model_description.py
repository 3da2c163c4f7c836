"""Describes a model: what a manifest will say of it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

from pipeline.inputs.recipe import Recipe
from pipeline.manifest.records import ModelRecord, PairRecord
from stages.files import file_hash
from stages.profile import ModelProfile, TargetModel


def model_of(model: TargetModel) -> ModelRecord:
    """What the manifest says of the model."""
    profile = model.profile
    steps = profile.step_tokens if model.step_id >= 0 else None
    return ModelRecord(
        name=profile.name,
        revision=profile.revision,
        tokenizer_sha256=file_hash.of_content(model.tokenizer_json),
        chat_template_sha256=hashlib.sha256(profile.chat_template.encode()).hexdigest(),
        eos_token=profile.eos_token,
        eos_token_id=model.eos_id,
        end_of_turn=profile.end_of_turn,
        end_of_turn_id=model.end_of_turn_id,
        pad_token=profile.pad_token,
        pad_token_id=model.pad_id,
        padding_side=profile.padding_side,
        bos_policy=profile.bos_policy,
        step_token=steps.step if steps else None,
        step_token_id=model.step_id if steps else None,
        good_token=steps.good if steps else None,
        good_token_id=model.good_id if steps else None,
        bad_token=steps.bad if steps else None,
        bad_token_id=model.bad_id if steps else None,
        vocab_size=model.vocab_size,
        embedding_size=profile.embedding_size,
        date_string=profile.date_string,
        is_base=profile.is_base,
        family=profile.family,
        pair=_pair(profile),
        added_tokens=model.added_ids,
    )


def _pair(profile: ModelProfile) -> PairRecord | None:
    """How an encoder's two texts are framed, and which positions it has; None for decoders."""
    if profile.pair is None:
        return None
    return PairRecord(**asdict(profile.pair), positions=profile.context_length, read_at="first")


def repaired(recipe: Recipe) -> ModelRecord:
    """The model of a recipe, with what its own files declare otherwise."""
    return replace(model_of(recipe.model), repairs=recipe.repairs)
