"""A recipe: everything a build needs, resolved, with the columns of its stages checked.

It is a value: it can be sent to a worker, which makes the same stages from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from expectations.contract import PLANNED, Context
from expectations.validate import Validate
from pipeline import exports, tasks
from pipeline.inputs.detection import recognise, rows_each
from pipeline.inputs.reading import format_options, selection_of
from pipeline.inputs.scan import Input
from pipeline.options.config import Config
from pipeline.recipe.fingerprints import code_version, hash_of
from pipeline.recipe.stage_tools import Tools
from stages import formats, probes
from stages.binding import bind
from stages.chat_template import reasoning
from stages.chat_template.printed_fields import printed_fields
from stages.contract import Stage
from stages.errors import ModelError, UsageError
from stages.layouts import Shape
from stages.models import encoders
from stages.models.profile import ModelProfile, TargetModel, tokenizer_of
from stages.normalize.stage import Normalize
from stages.parity.sample import Witness
from stages.tokenizers import oracle
from stages.tokenizers.repairs import Repair
from stages.tokenizers.resolve import Overrides, Resolved, resolve
from stages.tokens import inference
from stages.tokens.folded_labels import readable
from stages.tokens.pretokenized import Accept


@dataclass(frozen=True, slots=True)
class Recipe:
    """A resolved build.

    Attributes:
        formats: the reading of each input (see ``formats.load``), in the order of the inputs.
        evidence: why.
        tokenizer_source: where the tokenizer's bytes were found.
        backend: the encoder that runs.
        repairs: what the model's own files declare otherwise.
    """

    config: Config
    model: TargetModel
    formats: tuple[str, ...]
    evidence: tuple[str, ...]
    tokenizer_source: str
    backend: str
    repairs: tuple[Repair, ...] = ()

    @property
    def task(self) -> tasks.Task:
        return tasks.load(self.config.task)

    @property
    def splits_turns(self) -> bool:
        """Whether every trained turn of a conversation becomes an example of its own."""
        split = self.model.profile.one_example_per_turn and self.task.kind.trains_answers
        return (
            split and self.config.source.train_on != "all"
        )  # which trains the text as it is printed

    @property
    def context(self) -> Context:
        """What the shards of this build are judged against."""
        config = self.config
        return Context(
            kind=self.task.kind,
            layout=config.plan.layout,
            max_length=config.plan.longest_example,
            model=self.model,
            evidence=PLANNED,
        )

    def shape(self, width: int) -> Shape:
        """What all training rows have in common; ``width``: of padded rows, in tokens."""
        profile = self.model.profile
        types = profile.pair is not None and profile.pair.token_types
        return Shape(
            width=width,
            padding_side=profile.padding_side,
            pad_id=self.model.pad_id,
            token_types=types,
        )

    def normalize(self, format_name: str) -> Normalize:
        """Normalize for rows of one format."""
        config = self.config
        return Normalize(
            kind=self.task.kind,
            format=formats.load(format_name),
            options=format_options(config),
            train_on=config.source.train_on,
            turn_by_turn=self.splits_turns,
            raw=config.parts.prm_template == "raw",
            reasoning=self._reasoning_field,
            strip_reasoning=config.source.reasoning == "strip",
            selection=selection_of(config),
            printed=printed_fields(self.model.profile.chat_template),
            stop_text=config.source.stop_text,
            step_separator=self.model.profile.step_tokens.separator,
        )

    @property
    def _reasoning_field(self) -> str | None:
        """Where reasoning goes; a template that prints none is left to refuse it."""
        if self.config.source.reasoning_in == "think":
            return None
        return reasoning.spelled_by(self.model.profile.chat_template) or reasoning.FIELD

    def stages(self, format_name: str) -> tuple[Stage, ...]:
        """The stages after normalize for rows of one format, made in this process."""
        encoder = encoders.load(self.backend, self.model.tokenizer_json)
        tools = Tools(config=self.config, kind=self.task.kind, model=self.model, encoder=encoder)
        if formats.load(format_name).token_ids:
            return (Accept(self.model, self.config.plan.longest_example), Validate(tools.context))
        return self.task.stages(tools)

    def witness(self, format_name: str) -> Witness:
        """The second reading of sampled rows of one format."""
        reference = encoders.load("tokenizers", self.model.tokenizer_json)
        config = self.config
        mask = config.source.reasoning == "mask"
        normalize = self.normalize(format_name)
        vocabulary = oracle.find(self.model, config.run.cache_dir)
        return Witness(
            model=self.model,
            reference=reference,
            normalize=normalize,
            system=config.source.system,
            mask_reasoning=mask,
            oracle=vocabulary,
        )

    def _profile(self) -> dict[str, object]:
        return asdict(self.model.profile)

    @property
    def fingerprint(self) -> str:
        """Hash of options, profile and code."""
        return _fingerprint(self.config, self.model.profile, self.model.tokenizer_json)

    def part_fingerprint(self, format_name: str) -> str:
        """Hash of all that a part depends on but its split."""
        tokenizer = hashlib.sha256(self.model.tokenizer_json).hexdigest()
        encoder = encoders.load(self.backend, self.model.tokenizer_json)
        options = self.config.for_parts | {"format": format_name}
        profile = self._profile() | {"padding_side": None}  # of the plan: a part is not padded
        engine = [encoder.name, encoder.version]
        return hash_of([options, profile, tokenizer, code_version(), engine])


def _fingerprint(config: Config, profile: ModelProfile, tokenizer_json: bytes) -> str:
    tokenizer = hashlib.sha256(tokenizer_json).hexdigest()
    return hash_of([config.for_build, asdict(profile), tokenizer, code_version()])


def declared_fingerprint(config: Config) -> str:
    """The fingerprint of the recipe that ``resolve_recipe`` would give, in a fraction of its time:
    no row is looked at, no claim about the model is proved, no encoder is loaded.

    Raises:
        UsageError, ModelError: model and options do not go together.
    """
    task = tasks.load(config.task)
    config = config.but(layout=_layout(config, task))
    resolved, profile = _resolved(config)
    tokenizer_json = tokenizer_of(profile, resolved.tokenizer_json, task.with_steps)
    return _fingerprint(_fitted(config, profile), profile, tokenizer_json)


def _fitted(config: Config, profile: ModelProfile) -> Config:
    """The options with a length that the model can read: an encoder's positions are absolute."""
    if profile.pair is None:
        return config
    return config.but(max_length=min(config.plan.max_length, profile.context_length))


def _check_columns(recipe: Recipe) -> None:
    """What a stage reads must have been written before it."""
    present = set(recipe.normalize(recipe.formats[0]).writes)
    for stage in recipe.stages(recipe.formats[0]):
        missing = set(stage.reads) - readable(present)
        if missing:
            raise UsageError(
                f"Stage {stage.name} reads {', '.join(sorted(missing))}; no stage writes it."
            )
        present |= set(stage.writes)


def _resolved(config: Config) -> tuple[Resolved, ModelProfile]:
    """The model of a build as it was found, and its profile as the options have it.

    Raises:
        ModelError: there is no such model, or the options do not suit it.
    """
    overrides = Overrides(
        chat_template=config.parts.chat_template,
        eos=config.parts.eos,
        date=config.parts.date,
        added_tokens=config.parts.add_token,
    )
    resolved = resolve(config.parts.model, config.run.cache_dir, overrides)
    return resolved, _suited(resolved.profile, config)


def find_model(config: Config) -> tuple[Resolved, TargetModel]:
    """Resolve and bind the model of a build.

    Raises:
        ModelError: there is no such model, or it does not prove what it must.
    """
    resolved, profile = _resolved(config)
    model = bind(profile, resolved.tokenizer_json, tasks.load(config.task).with_steps)
    subject = probes.ProbeSubject(
        model=model,
        stock=resolved.tokenizer_json,
        train_on=config.source.train_on,
        system=config.source.system,
    )
    model.probes.update(probes.require(subject, probes.rendering(model)))
    return resolved, model


def _suited(profile: ModelProfile, config: Config) -> ModelProfile:
    """The profile with the build's padding side.

    Raises:
        ModelError: the family is not trained on this task, or not padded so.
    """
    if profile.pair is not None and not tasks.kind_of(config.task).compares:
        raise ModelError(
            f"{profile.name} is an encoder: it reads a pair of texts and generates no text.",
            f"Use it for rm, or name a language model for {config.task}.",
        )
    if profile.pair is not None and config.plan.padding_side == "left":
        raise ModelError(
            f"{profile.name} is read at its first token and counts positions from the left.",
            "Leave --padding-side out: encoders are padded right.",
        )
    profile = inference.chosen(profile, config.parts.thinking)
    return replace(profile, padding_side=config.plan.padding_side or profile.padding_side)


def _layout(config: Config, task: tasks.Task) -> str:
    """The build's layout: as asked for, or the first that task and trainer have in common.

    Raises:
        UsageError: it is not offered.
    """
    export = exports.load(config.plan.trainer) if config.plan.trainer else None
    if not config.plan.layout:
        return export.layout(task.name, task.layouts) if export else task.layouts[0]
    if config.plan.layout not in task.layouts:
        raise UsageError(
            f"{task.name} does not support layout {config.plan.layout}.",
            f"Choose {' or '.join(task.layouts)}.",
        )
    if export is not None:
        export.require(
            exports.ExportFacts(
                task=config.task,
                layout=config.plan.layout,
                max_length=config.plan.max_length,
                bound=None,
            )
        )
    return config.plan.layout


def resolve_recipe(
    config: Config, inputs: Sequence[Input], choose: Callable[[bytes], str] = encoders.choose
) -> Recipe:
    """Resolve a build's options over its inputs.

    Args:
        choose: names the encoder for a tokenizer; by default the fast one where it agrees with
            the reference.

    Raises:
        UsageError: model, format, layout or columns do not go together.
        DataError: an input's format cannot be detected.
    """
    task = tasks.load(config.task)
    config = config.but(layout=_layout(config, task))  # before any row is read
    detected = [recognise(source, config, rows_each(len(inputs))) for source in inputs]
    resolved, model = find_model(config)
    recipe = Recipe(
        config=_fitted(config, model.profile),
        model=model,
        formats=tuple(d.reading for d in detected),
        evidence=tuple(d.evidence for d in detected),
        tokenizer_source=resolved.source,
        backend=choose(model.tokenizer_json),
        repairs=resolved.repairs,
    )
    if inputs:
        _check_columns(recipe)
    return recipe
