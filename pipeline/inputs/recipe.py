"""A recipe: everything a build needs, resolved, with the columns of its stages checked.

It is a value: it can be sent to a worker, which makes the same stages from it.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from expectations.contract import APART, PLANNED, RENDERED, Context
from expectations.gate import Validate
from pipeline import tasks
from pipeline.builds.stored_model import model_of
from pipeline.inputs import answers, declared, opening, readings, scan
from pipeline.inputs.proved import Tools, fast_encoder, find_model
from pipeline.manifest.records import ModelRecord
from pipeline.options import overlaps
from pipeline.options.config import Config
from stages import contract, encoders, formats
from stages.chat_template import reasoning, spelling
from stages.chat_template.appended import APPENDED
from stages.chat_template.printed_fields import offers_tools, printed_fields
from stages.chat_template.render import template_of_profile
from stages.contract import Refused
from stages.errors import ContainerError, DataError, PipelineError, UsageError
from stages.files import file_hash
from stages.normalize.evidence import Detection
from stages.normalize.stage import Normalize
from stages.profile import ModelProfile, TargetModel
from stages.tokenizers import claims, hub, resolve
from stages.tokenizers.survival import Sample
from stages.tokens.folded_labels import NO_MARKER, readable
from stages.tokens.layouts import Shape
from stages.tokens.pretokenized import Accept


def traits(
    names: Sequence[str], policies: Sequence[tuple[str, str]], by_question: bool
) -> tuple[str, ...]:
    """The traits of a build's rows that follow from its options.

    Args:
        names: of the formats; ``policies``: what is trained, and what becomes of reasoning, of
            each source.
        by_question: rows that ask the same are on one side of train and test.
    """
    answers = all(trained != "all" and kept != "mask" for trained, kept in policies)
    rendered = answers and not any(formats.load(name).token_ids for name in names)
    return (*((RENDERED,) if rendered else ()), *((APART,) if by_question else ()))


@functools.lru_cache(maxsize=8)
def _spelled(profile: ModelProfile) -> spelling.Spelled:
    return frozenset() if profile.pair else spelling.in_python(template_of_profile(profile))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A resolved build.

    Attributes:
        formats: the reading of each input (see ``formats.load``), in the order of the inputs.
        sources: the number of each input's source; ``of_source`` is the recipe for its rows.
        evidence: why.
        tokenizer_source: where the tokenizer's bytes were found.
        fetched: what was downloaded for it; None where nothing was.
        backend: the encoder that runs.
        repairs: what the model's own files declare otherwise.
    """

    config: Config
    model: TargetModel
    formats: tuple[str, ...]
    evidence: tuple[str, ...]
    tokenizer_source: str
    backend: str
    repairs: tuple[claims.Repair, ...] = ()
    sources: tuple[int, ...] = ()
    fetched: str | None = None

    def of_source(self, number: int) -> "Recipe":
        """The recipe for the rows of one source: what makes stages takes its options from there."""
        if len(self.config.sources) == 1:
            return self
        return replace(self, config=self.config.only(number))

    @property
    def readings(self) -> tuple[tuple[int, str], ...]:
        """The source and the format of each input."""
        return tuple(zip(self.sources, self.formats, strict=True))

    @property
    def task(self) -> tasks.Task:
        return tasks.load(self.config.task)

    @property
    def splits_turns(self) -> bool:
        """Whether every trained turn of a conversation becomes an example of its own."""
        if self.config.source.train_on == "all" or self.config.parts.history == APPENDED:
            return False  # the text is trained as it is printed
        return self.model.profile.one_example_per_turn and self.task.kind.trains_answers

    @property
    def marker(self) -> int:
        """The id at which labels stand; ``NO_MARKER`` where a label is its token's id."""
        return self.model.step_id if self.task.kind.marks else NO_MARKER

    @property
    def context(self) -> Context:
        """What the shards of this build are judged against."""
        config, options = self.config, [one.options for one in self.config.sources]
        asked = bool(config.plan.test_size) and not config.plan.test
        by_question = asked and all(one.group_by is None for one in options)
        return Context(
            kind=self.task.kind,
            layout=config.plan.layout,
            max_length=config.plan.longest_example,
            model=self.model,
            evidence=PLANNED,
            more=traits(self.formats, [(x.train_on, x.reasoning) for x in options], by_question),
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
        config, template = self.config, self.model.profile.chat_template
        printed = printed_fields(template)
        # A template that prints no reasoning is left to refuse it.
        thinks = config.source.reasoning_in == "think"
        return Normalize(
            kind=self.task.kind,
            format=formats.load(format_name),
            options=opening.format_options(config),
            train_on=config.source.train_on,
            turn_by_turn=self.splits_turns,
            raw=config.parts.prm_template == "raw",
            reasoning=None if thinks else reasoning.spelled_by(printed) or reasoning.FIELD,
            strip_reasoning=config.source.reasoning == "strip",
            selection=opening.selection_of(config),
            printed=printed,
            offers_tools=offers_tools(template),
            stop_text=config.source.stop_text,
            drops_greeting=config.source.greeting == "drop",
            step_separator=self.model.profile.step_tokens.separator,
            group_by=config.groups,
            carried=config.carried,
            search=overlaps.search_of(config.plan),
            likeness=overlaps.likeness_of(config.plan),
            leave=frozenset(config.sources[0].left),
            spelled=_spelled(self.model.profile),
        )

    def stages(self, format_name: str) -> tuple[contract.Stage, ...]:
        """The stages after normalize for rows of one format, made in this process."""
        encoder = encoders.load(self.backend, self.model.tokenizer_json)
        tools = Tools(config=self.config, kind=self.task.kind, model=self.model, encoder=encoder)
        if formats.load(format_name).token_ids:
            return (Accept(self.model, self.config.plan.longest_example), Validate(tools.context))
        return self.task.stages(tools)

    def sample(self) -> Sample:
        """What encodes texts of sampled rows by the reference, too."""
        backends = (self.backend, encoders.Reference.name)
        both = [encoders.load(name, self.model.tokenizer_json) for name in backends]
        kind = self.task.kind
        given = kind.texts if self.config.parts.prm_template != "raw" else kind.texts[-1:]
        return Sample(self.model, both[0], both[1], given)

    def load(self) -> None:
        """Load what the stages load once per process."""
        encoders.load(self.backend, self.model.tokenizer_json)
        self.sample()

    @property
    def fingerprint(self) -> str:
        """Hash of options, profile and code."""
        return declared.fingerprint_of(self.config, self.model.profile, self.model.tokenizer_json)

    def part_fingerprint(self, format_name: str) -> str:
        """Hash of all that a part of the one source depends on but its split."""
        tokenizer = file_hash.of_content(self.model.tokenizer_json)
        options = self.config.for_parts | {"format": format_name}
        profile = asdict(self.model.profile) | {
            "padding_side": None
        }  # of the plan: a part is not padded
        engine = [self.backend, encoders.version_of(self.backend)]
        return declared.hash_of([options, profile, tokenizer, declared.code_version(), engine])

    def made_with(self, format_name: str) -> dict[str, str]:
        """The same in words, see ``declared.made_with``."""
        return declared.made_with(self.config, self.model.profile, format_name, self.backend)


def _check_columns(recipe: Recipe) -> None:
    """What a stage reads must have been written before it."""
    recipe = recipe.of_source(recipe.sources[0])
    present = set(recipe.normalize(recipe.formats[0]).writes)
    recipe = replace(recipe, backend=encoders.Reference.name)  # which is loaded already
    for stage in recipe.stages(recipe.formats[0]):
        missing = set(stage.reads) - readable(present)
        if missing:
            raise UsageError(
                f"Stage {stage.name} reads {', '.join(sorted(missing))}; no stage writes it."
            )
        present |= set(stage.writes)


FAST_FROM = 1 << 20  # bytes of inputs: fewer are encoded sooner than the fast encoder is loaded


def _encoder_for(config: Config, inputs: Sequence[scan.Input], tokenizer_json: bytes) -> str:
    """The fast encoder where it agrees with the reference, and where there is so much to encode
    that loading it pays. It depends on nothing else, so that equal inputs give equal manifests."""
    if sum(source.bytes for source in inputs) < FAST_FROM:
        return encoders.Reference.name
    return fast_encoder(config.run.cache, tokenizer_json)


class Models:
    """The model of a build, found once for each thing that sources ask of it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.of = functools.cache(self._of)

    def _of(
        self, task: str, train_on: str, system: str | None
    ) -> tuple[resolve.Resolved, TargetModel]:
        """The model, proved for what a source asks of it; raises as ``find_model``."""
        return find_model(self._config.only(0).but(task=task, train_on=train_on, system=system))

    def proved(self) -> tuple[resolve.Resolved, TargetModel]:
        """The model, proved for what each source asks of it; raises as ``find_model``."""
        asked = [one.options for one in self._config.sources]
        first, *others = [self.of(self._config.task, one.train_on, one.system) for one in asked]
        for _, model in others:
            first[1].probes.update(model.probes)
        return first


def refusals(models: Models) -> readings.Refusals:
    """Says which of some rows of a build's sources its template, or what stands before that in a
    build, refuses; of none where the model cannot be found, as is said elsewhere."""

    @functools.cache
    def model_for(task: str, train_on: str, system: str | None) -> TargetModel | None:
        try:
            return models.of(task, train_on, system)[1]
        except PipelineError:
            return None

    def refused(
        own: Config, reading: str, records: list[contract.Record]
    ) -> dict[int, Refused | None]:
        source = own.source
        model = model_for(own.task, source.train_on, source.system)
        if model is None or not records:
            return {}
        recipe = Recipe(own, model, (), (), "", encoders.Reference.name)
        numbered = [replace(record, line=i) for i, record in enumerate(records)]
        normalize = recipe.normalize(reading)  # of which nothing but the rows is wanted
        made = replace(normalize, search=None, likeness=None, group_by=None)(numbered)
        printed = recipe.stages(reading)[0](made.filter(made.column("reject_code").is_null()))
        found: dict[int, Refused | None] = {}
        for batch in (made, printed):
            names = ("line", "reject_code", "reject_detail")
            for line, code, detail in zip(
                *(batch.column(n).to_pylist() for n in names), strict=True
            ):
                if code is not None:
                    found.setdefault(line, Refused(code, detail))
                elif batch is printed:
                    found[line] = None  # a row is used while one of its examples is
        return dict(sorted(found.items()))

    return refused


def opened_otherwise(error: ContainerError, config: Config) -> DataError:
    """The error for a file that cannot be read as it is opened, with what follows from each option
    that opens it otherwise."""
    if len(config.sources) > 1:
        return error

    def read(own: Config) -> None:
        readings.recognise_looks(readings.opened(own)[1], own, refusals(Models(own)))

    told = answers.explained(error, read, config)
    return told if isinstance(told, DataError) else error


def resolve_recipe(
    config: Config,
    inputs: Sequence[scan.Input],
    choose: Callable[[bytes], str] | None = None,
    read: Sequence[tuple[int, Detection]] = (),
) -> Recipe:
    """Resolve a build's options over its inputs.

    Args:
        read: the source and the reading of inputs that were read already.
        choose: names the encoder for a tokenizer; by default the fast one, if it agrees
            with the reference and there is enough to encode.

    Raises:
        UsageError: model, format, layout or columns do not go together.
        DataError: an input's format cannot be detected.
    """
    task = tasks.load(config.task)
    config = config.but(layout=declared.layout_of(config, task))  # before any row is read
    models = Models(config)
    detected = readings.recognise_all(inputs, config, refusals(models))
    read = [*read, *((one.source, found) for one, found in zip(inputs, detected, strict=True))]
    found, model = models.proved()
    content = model.tokenizer_json
    backend = choose(content) if choose else _encoder_for(config, inputs, content)
    recipe = Recipe(
        config=declared.fitted(config, model.profile).leaving((n, one.left) for n, one in read),
        model=model,
        formats=tuple(one.reading for _, one in read),
        evidence=tuple(one.evidence for _, one in read),
        tokenizer_source=found.source,
        fetched=hub.downloaded(found.tokenizer_json),
        backend=backend,
        repairs=found.repairs,
        sources=tuple(number for number, _ in read),
    )
    if inputs:
        _check_columns(recipe)
    return recipe


def repaired(recipe: Recipe) -> ModelRecord:
    """The model of a recipe, with what its own files declare otherwise."""
    return replace(model_of(recipe.model), repairs=recipe.repairs)
