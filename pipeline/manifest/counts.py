"""The manifest's counts: what became of rows, examples and tokens, how rows are filled, and what
each source of a recipe was asked for and gave."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from stages.errors import UsageError
from stages.findings import OPTIONAL, SPARSE, JsonRecord

if TYPE_CHECKING:
    from pipeline.manifest.manifest import Manifest

# What becomes of a row, one of them; and how that is said.
FATES = {name: name for name in ("used", "rejected", "duplicates", "filtered", "contaminated")}
FATES |= {"rejected": "refused", "near_duplicates": "near-duplicates"}
FATES |= {"left_out": "left out by budgets"}


class MarginCounts(JsonRecord):
    """Pairs with a margin, and without."""

    present: int
    absent: int


class RowCounts(JsonRecord):
    """What became of the rows: ``in_`` is the sum of all ``FATES``.

    A row that became several examples is used where one of them is; else it has the last fate of
    its examples, in the order of ``FATES``.

    Attributes:
        used_in_part: those of the used rows of which an example was refused.
        filtered: left out by ``--where`` or by a filter; ``lacking``: by ``--where`` because the
            column that it asks for is null, by column.
        duplicates: removed by ``--dedup``; ``duplicates_found``: examples equal to an earlier one.
        contaminated: too much like a row of an evaluation file.
        near_duplicates: too much like another row.
        left_out: not needed for the budget of their source.
        rejected_by_code, notes: rows, by the stable word for the reason; ``first_noted``: the id
            of the first.
    """

    in_: int
    used: int
    rejected: int
    duplicates: int
    filtered: int
    duplicates_found: int
    rejected_by_code: Mapping[str, int]
    notes: Mapping[str, int]
    contaminated: int = field(default=0, metadata=OPTIONAL)
    near_duplicates: int = field(default=0, metadata=OPTIONAL)
    left_out: int = field(default=0, metadata=OPTIONAL)
    used_in_part: int = field(default=0, metadata=SPARSE)
    lacking: Mapping[str, int] = field(default_factory=dict, metadata=SPARSE)
    first_noted: Mapping[str, str] = field(default_factory=dict, metadata=SPARSE)


class TurnCounts(JsonRecord):
    """Trained turns of the examples that were made, and of those that were refused."""

    made: int
    rejected: int


class ExampleCounts(JsonRecord):
    """What became of the examples: ``made`` is the sum of ``kept`` and of all that are not.

    Attributes:
        copies: stored beside the first of each, where a source is used several times.
        rejected_in_part: of the refused ones those whose rows have others that were encoded.
        turns: what became of trained turns, where there are not as many as examples.
    """

    made: int
    rejected: int
    duplicates: int
    kept: int
    rejected_by_code: Mapping[str, int]
    filtered: int = field(default=0, metadata=OPTIONAL)
    contaminated: int = field(default=0, metadata=OPTIONAL)
    near_duplicates: int = field(default=0, metadata=OPTIONAL)
    left_out: int = field(default=0, metadata=OPTIONAL)
    copies: int = field(default=0, metadata=OPTIONAL)
    rejected_in_part: Mapping[str, int] = field(default_factory=dict, metadata=SPARSE)
    turns: TurnCounts | None = field(default=None, metadata=SPARSE)

    @property
    def accounted(self) -> int:
        """Examples whose fate is known."""
        own = self.kept + self.rejected + self.duplicates + self.filtered
        return own + self.contaminated + self.near_duplicates + self.left_out


class FilterCounts(JsonRecord):
    """What one ``--filter`` left out of what those before it left.

    Attributes:
        source: of a build of named sources; None otherwise.
        examples: left out; ``null``: those of them for which it is null.
        rows: rows that it was the last to leave nothing of.
    """

    expression: str
    source: str | None
    examples: int
    null: int
    rows: int


class DoubleCounts(JsonRecord):
    """Examples of one source that ``--dedup`` left out for equal ones of another, or of its own."""

    source: str
    kept_in: str
    examples: int


class SidesRecord(JsonRecord):
    """How examples were split into train and test.

    Attributes:
        by: ``question`` or ``column``: rows that are equal in it are on one side; ``source`` where
            sources of the build differ in this; ``files`` where ``--test`` names those of the test
            split.
        column: of ``--group-by``.
        asked: the share of ``--test-size``; ``share``: of the examples that are in test.
        deviation: the standard deviation of that share over seeds, which follows from the groups.
        groups: different questions, or values of columns; ``largest``: the share of the
            examples that are in the largest.
    """

    by: str
    column: str | None
    asked: float
    share: float
    deviation: float
    groups: int
    groups_in_test: int
    largest: float


class TurnSplit(JsonRecord):
    """Conversations that became one example per trained turn.

    Attributes:
        tokens: of these examples; ``tokens_if_whole``: of the conversations.
        factor: how many times as many.
    """

    conversations: int
    examples: int
    tokens: int
    tokens_if_whole: int
    factor: float


class TokenCounts(JsonRecord):
    """Tokens of all shards.

    Attributes:
        total: without padding; of pairs, both sides. Where packs are an index, of every stored
            example once.
        trained: of all that is trained on: where packs are an index, of all packs.
        truncated: left out by ``--too-long trim-turns`` or ``trim-steps``.
        history: how earlier answers are printed.
    """

    total: int
    trained: int
    padding: int
    truncated: int
    turn_split: TurnSplit | None = field(default=None, metadata=OPTIONAL)
    history: str = field(default="rendered", metadata=SPARSE)


class PackingCounts(JsonRecord):
    """Packs of a packed build.

    Attributes:
        efficiency: share of the room that holds tokens, 0 to 1.
        lower_bound: no fewer packs could hold the examples; None after a change of layout.
    """

    packs: int
    efficiency: float
    lower_bound: int | None


class PaddingCounts(JsonRecord):
    """Rows of a padded build: tokens of each, and the share that is padding."""

    width: int
    waste: float


class Inference(JsonRecord):
    """The generation prompts that a hybrid reasoning model was trained after.

    Attributes:
        trained_turns: by the prompt's name.
        arguments: of the chat template at inference; None where a build mixes both.
        modes: the arguments of each prompt.
    """

    trained_turns: Mapping[str, int]
    arguments: Mapping[str, object] | None
    mixed: bool
    modes: Mapping[str, Mapping[str, object]]


class AnswerTokens(JsonRecord):
    """Tokens that an answer needs: 99.9 % of the trained turns have at most ``p999``."""

    p999: int
    max: int
    turns: int


TOLERATED = 0.01  # between a share that was asked for and what is given


class Portion(JsonRecord):
    """Examples with their tokens (of pairs, those of the longer side) and their trained tokens."""

    examples: int
    tokens: int
    trained: int


class SourceRecord(JsonRecord):
    """One source.

    Attributes:
        asked: its budget, by the keys of the recipe; empty where it is used once, whole.
        unit: what the budget came to: ``rows`` (examples), ``tokens``, ``trained_tokens`` or
            ``epochs``; ``amount``: how many, ``given``: how many of these.
        short: it has less than the amount, in as many passes as are allowed.
        has: what could be trained on, each once.
        splits: what is stored, by split, copies included.
        share: of the build's trained tokens, of the train split.
        wanted_share: that share as its share or weight says; None where it has neither.
        scarcest: all that it may give is used, and so sets the size of the mixture.
    """

    name: str
    asked: Mapping[str, float]
    unit: str
    amount: float
    given: float
    short: bool
    has: Portion
    splits: Mapping[str, Portion]
    share: float
    wanted_share: float | None
    scarcest: bool

    @property
    def has_more(self) -> bool:
        """Whether trained tokens of it are left."""
        return self.given < self.has.trained

    @property
    def coarse(self) -> bool:
        """Whether its share is not met, though it has enough: examples are not divided."""
        wanted = self.wanted_share
        return not self.short and wanted is not None and abs(self.share - wanted) > TOLERATED


# The numbers of a build whose change ``--drift`` limits.


DRIFTS = ("rows", "trained_tokens", "source_share")


def require_limits(limits: Mapping[str, float]) -> None:
    """Each is a limit of one of these numbers.

    Raises:
        UsageError: one is not.
    """
    for name, limit in limits.items():
        if name not in DRIFTS or not 0 <= limit < float("inf"):
            raise UsageError(
                f"--drift {name}={limit:g} is not a limit.",
                f"Name {', '.join(DRIFTS)} and a share, as in --drift rows=0.2.",
            )


class WitnessCounts(JsonRecord):
    """Rows that the witness has compared with the inputs.

    Attributes:
        drawn: at random within every part; ``read``: of these, compared.
        unread: the others, by the reason.
    """

    drawn: int
    read: int
    unread: Mapping[str, int]


def sums(manifest: "Manifest") -> Iterator[tuple[str, int, int]]:
    """Each total of the manifest: its name, the number given, and the sum of its parts."""
    rows, examples, tokens = manifest.rows, manifest.examples, manifest.tokens
    sides = manifest.splits.values()
    kept = examples.kept + examples.copies
    if manifest.packs:  # stored once, those included that only another budget would use
        kept = examples.kept + examples.left_out
    yield "rows", rows.in_, sum(getattr(rows, fate) for fate in FATES)
    yield "rows of inputs", rows.in_, sum(source.rows for source in manifest.inputs)
    yield "refused rows by code", rows.rejected, sum(rows.rejected_by_code.values())
    yield "examples", examples.made, examples.accounted
    yield "refused examples by code", examples.rejected, sum(examples.rejected_by_code.values())
    yield "kept examples", kept, sum(side.examples for side in sides)
    yield "tokens", tokens.total, sum(side.tokens for side in sides)
    if manifest.filters:
        left_out = sum(one.examples for one in manifest.filters)
        yield "filtered examples", examples.filtered, left_out
    if manifest.doubles:
        left_out = sum(one.examples for one in manifest.doubles)
        yield "duplicates of sources", examples.duplicates, left_out
    if manifest.packs:
        used = sum(one.examples for one in manifest.packs.values())
        yield "examples in packs", examples.kept + examples.copies, used
    for name, side in manifest.splits.items() if manifest.sources else ():
        parts = [one.splits[name] for one in manifest.sources if name in one.splits]
        packed = manifest.packs[name].examples if manifest.packs else side.examples
        yield f"examples of sources in {name}", packed, sum(part.examples for part in parts)
    for name, side in manifest.splits.items():
        yield f"rows of {name}", side.rows, sum(shard.rows for shard in side.shards)
        yield f"tokens of {name}", side.tokens, sum(shard.tokens for shard in side.shards)
