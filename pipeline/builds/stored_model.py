"""The model of a finished build, from its own tokenizer and manifest alone."""

from dataclasses import dataclass, field, fields

from pipeline.builds.build import Build
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import ModelRecord
from stages.errors import DataError, require_reading
from stages.findings import OPTIONAL, JsonRecord
from stages.profile import ModelProfile, PairFraming, StepTokens, TargetModel, declare

_CONFIG = "tokenizer/tokenizer_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenizerConfig(JsonRecord):
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
        name=model.name,
        model_ids=(),
        chat_template=config.chat_template,
        end_of_turn=model.end_of_turn,
        eos_token=model.eos_token,
        pad_token=model.pad_token,
        generation_eos=() if pair else (model.end_of_turn,),
        vocab_size=model.vocab_size,
        embedding_size=model.embedding_size,
        context_length=config.model_max_length,
        is_base=model.is_base,
        padding_side=model.padding_side,
        bos_policy=model.bos_policy,
        bos_token=config.bos_token,
        step_tokens=steps or StepTokens(),
        unk_token=config.unk_token,
        pair=pair,
    )
    return declare(profile, build.tokenizer_json, with_steps=steps is not None)
