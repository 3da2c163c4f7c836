"""What a manifest says of a model, and the model of a finished build, from its own tokenizer and
manifest alone."""

import hashlib
from dataclasses import asdict, field, fields, replace
from typing import Any

from pipeline.builds.build import Build
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import ModelRecord, PairRecord
from stages.chat_template import ways
from stages.chat_template.render import template_of_profile
from stages.errors import DataError, require_reading
from stages.files import file_hash
from stages.findings import OPTIONAL, JsonRecord
from stages.profile import ModelProfile, PairFraming, StepTokens, TargetModel, declare

_CONFIG = "tokenizer/tokenizer_config.json"
# What a profile and a manifest call alike.
_ALIKE = (
    *("name", "eos_token", "end_of_turn", "pad_token", "padding_side", "bos_policy"),
    *("embedding_size", "is_base", "end_of_call", "recurrent"),
)


def _alike(one: ModelProfile | ModelRecord) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _ALIKE}


def model_of(model: TargetModel) -> ModelRecord:
    """What the manifest says of the model."""
    profile = model.profile
    steps = profile.step_tokens if model.step_id >= 0 else None
    return ModelRecord(
        **_alike(profile),
        revision=profile.revision,
        tokenizer_sha256=file_hash.of_content(model.tokenizer_json),
        chat_template_sha256=hashlib.sha256(profile.chat_template.encode()).hexdigest(),
        eos_token_id=model.eos_id,
        end_of_turn_id=model.end_of_turn_id,
        end_of_call_id=model.end_of_call_id,
        pad_token_id=model.pad_id,
        step_token=steps.step if steps else None,
        step_token_id=model.step_id if steps else None,
        good_token=steps.good if steps else None,
        good_token_id=model.good_id if steps else None,
        bad_token=steps.bad if steps else None,
        bad_token_id=model.bad_id if steps else None,
        vocab_size=model.vocab_size,
        date_string=profile.date_string,
        family=profile.family,
        pair=_pair(profile),
        added_tokens=model.added_ids,
    )


def _pair(profile: ModelProfile) -> PairRecord | None:
    """How an encoder's two texts are framed, and which positions it has; None for decoders."""
    if profile.pair is None:
        return None
    return PairRecord(**asdict(profile.pair), positions=profile.context_length, read_at="first")


class _TokenizerConfig(JsonRecord, kw_only=True):
    chat_template: str
    model_max_length: int
    bos_token: str | None = field(default=None, metadata=OPTIONAL)
    unk_token: str | None = field(default=None, metadata=OPTIONAL)


def _config(build: Build) -> _TokenizerConfig:
    try:
        return load(_TokenizerConfig, build.path(_CONFIG).read_bytes())
    except (OSError, MalformedError) as error:
        require_reading(error)
        raise DataError(f"{build.shown(_CONFIG)}: {error}.", "Build it again.") from error


def _steps(model: ModelRecord) -> StepTokens | None:
    if model.step_token is None or model.good_token is None or model.bad_token is None:
        return None
    return StepTokens(model.step_token, model.good_token, model.bad_token)


def _framing(model: ModelRecord) -> PairFraming | None:
    pair = model.pair
    if pair is None:
        return None
    return PairFraming(**{one.name: getattr(pair, one.name) for one in fields(PairFraming)})


def stored_model(build: Build) -> TargetModel:
    """The model from the build's own tokenizer and manifest; no probe is run on it.

    Raises:
        DataError: a file of the tokenizer is missing, or is not what it should be.
    """
    model, config, steps = build.manifest.model, _config(build), _steps(build.manifest.model)
    pair = _framing(model)
    profile = ModelProfile(
        **_alike(model),
        model_ids=(),
        chat_template=config.chat_template,
        generation_eos=() if pair else tuple(filter(None, (model.end_of_turn, model.end_of_call))),
        vocab_size=model.vocab_size,
        context_length=config.model_max_length,
        bos_token=config.bos_token,
        step_tokens=steps or StepTokens(),
        unk_token=config.unk_token,
        pair=pair,
    )
    if pair is None:
        profile = replace(profile, template_variants=ways.variants(template_of_profile(profile)))
    return declare(profile, build.tokenizer_json, with_steps=steps is not None)
