"""The nouns that every file of this package speaks.

A row travels ``bytes -> Split -> Record -> Normalize -> Stage ... -> part``. A reader cuts a file
into splits and a split into records; a format turns a record into examples; from there on rows
are columns of a batch, and stages add columns to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from stages.file_version import FileVersion

Batch: TypeAlias = pa.RecordBatch
Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, tuple[str, ...]]  # what a row may say, and where it says it


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one file: the unit of work, of retry and of caching.

    Attributes:
        path: the file, as it can be opened.
        start, stop: the piece, in the reader's own unit (bytes, row groups); a line belongs to
            the split that holds its first byte.
        sha256: of the bytes it was planned over, so that a part can be named by its content and
            an input that changes during a build is noticed.
        reader: the reader's name.
        piece: which piece, where the bytes are those of the whole file.
        salvage: rows before a damage are kept, and the damage is told, instead of refusing all.
        version: the bytes that it may be read from; a reader from elsewhere may leave it out.
        lines: lines in it, where they were counted with the bytes.
    """

    path: str
    start: int
    stop: int
    sha256: str
    reader: str
    piece: int = 0
    salvage: bool = False
    version: FileVersion | None = field(default=None, repr=False)
    lines: int | None = None


@dataclass(slots=True)
class Record:
    """One row as the file has it.

    Attributes:
        line: 0-based, counted from the split's start; blank lines count as lines, not as rows.
        offset: of the row's first byte, from the split's start; null where rows have no bytes.
        raw: the row's own text.
        data: the parsed object; None when ``error`` says why there is none.
        typed: whether the row comes from a table with one type for all rows; see ``null_fields``.
    """

    line: int
    offset: int | None
    raw: bytes
    data: Row | None
    error: tuple[str, str] | None = None
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """What a reader yields: some records, and how many lines they span.

    Attributes:
        damage: what ended the file too early, where only the rows before it are kept.
    """

    records: list[Record]
    lines: int
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Some rows of a file that was not read as a whole.

    Attributes:
        records: in file order. Where a row's number is unknown, ``line`` is -1; ``offset`` counts
            from the file's start.
        where: which rows they are, in words.
        rows: rows of the file; an estimate unless ``exact``.
    """

    records: list[Record]
    where: str
    rows: int
    exact: bool


class Reader(Protocol):
    """One container format."""

    name: str
    suffixes: tuple[str, ...]

    def splits(self, path: str) -> list[Split]:
        """Cut the file into pieces that depend on its bytes alone.

        Raises:
            ContainerError: the file is not what its name says.
        """
        ...

    def read(self, split: Split) -> Iterator[Lines]:
        """Yield the split's rows in order; a bad row is a record with an error.

        Raises:
            ContainerError: the container is damaged.
            SurroundingsError: the bytes are not those that were planned over.
        """
        ...

    def glimpse(self, source: str | FileVersion, rows: int, salvage: bool = False) -> Glimpse:
        """About so many rows from all over a file, or of the version of it that a build reads, in a
        time that does not grow with it; ``salvage`` keeps those before a damage.

        Raises:
            ContainerError: the container is damaged where it was looked at.
        """
        ...


@dataclass(slots=True)
class Message:
    """One turn. Not frozen: there are hundreds of thousands of them a second.

    Attributes:
        content: the text; None only beside tool calls.
        fields: whatever else the template may print (``tool_calls``, ``name``), as written.
        trained: None leaves it to ``--train-on``; True or False is the row's own flag.
        weight: of a trained turn's tokens in the loss, where the row gives one that is neither 0
            nor 1: positive and finite as float32.
    """

    role: str
    content: str | None
    fields: Mapping[str, Any] | None = None
    trained: bool | None = None
    weight: float | None = None


@dataclass(slots=True)
class Conversation:
    """One SFT example before rendering."""

    messages: list[Message]
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One RM example: two whole conversations with the same prompt in front."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    margin: float | None = None
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class StepChain:
    """One PRM example.

    Attributes:
        problem: the question.
        steps: the text of each step.
        labels: a rating per step from 0 (bad) to 1 (good); None is unlabelled.
        pieces: the row's own text between its step tags, where it has one: the text before each
            tag and, last, what follows the last tag.
    """

    problem: str
    steps: list[str]
    labels: list[float | None]
    pieces: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """One SFT example that is token ids already.

    Attributes:
        labels: one per id, unshifted; -100 where nothing is trained.
    """

    ids: list[int]
    labels: list[int]


@dataclass(frozen=True, slots=True)
class Refused:
    """A sequence of a row that cannot be used, beside others that can: counted, never left out.

    Attributes:
        code, detail: as those of a RowError.
    """

    code: str
    detail: str


Example: TypeAlias = Conversation | Pair | StepChain | Tokens | Refused


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What a format may be told; the names are those of the command line."""

    columns: Mapping[str, str] = field(default_factory=dict)
    neutral: str = "null"
    prompt_separator: str = "Step 1:"
    step_tag: str | None = None
    already_templated: bool = False
    reasoning_in: str = "template"
    system: str | None = None
    null_fields: str | None = None


class Format(Protocol):
    """One record format: which rows have it, and what they say.

    Attributes:
        kinds: of the examples that it gives, by name (``stages.kinds``).
        fans_out: whether one row can become several sequences (then all get ``#k``).
        columns: what a row may say, and the columns that it may say it in, the usual one first.
            ``read`` reads no others; ``--map`` takes these names.
    """

    name: str
    kinds: tuple[str, ...]
    fans_out: bool
    columns: Columns

    def matches(self, row: Row) -> str | None:
        """Why this row looks like the format, in words; None when it does not."""
        ...

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        """Turn a row into examples; what it says and no example has in it is a ``Refused``.

        A column that is read ends in an example: ``row[name]`` and ``row.get(name)`` count as
        reading (see ``watched``), and every other column is reported as not read.

        Raises:
            RowError: the row cannot be used.
        """
        ...


@runtime_checkable
class Varied(Protocol):
    """A format whose rows can be read in more than one way, the same for the whole file.

    Attributes:
        variants: the format once for each way, all under the one name.
    """

    variants: Mapping[str, Format]

    def settle(self, rows: Sequence[Row]) -> tuple[str, str]:
        """The variant that some rows of a file show ("" for the format itself), and why.

        Raises:
            UndecidedError: they show none.
        """
        ...


@runtime_checkable
class Doubtful(Protocol):
    """A format whose evidence can leave a doubt that only the user can settle."""

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        """What else the rows could mean, and the flag that settles it; None when nothing else.

        Args:
            columns: those that ``--map`` named by hand; they are meant.
        """
        ...


@runtime_checkable
class Texts(Protocol):
    """A format with prompts that are texts, which may turn out to carry a chat template.

    Attributes:
        prompts: the columns that hold such a text.
    """

    prompts: tuple[str, ...]


@runtime_checkable
class TokenRows(Protocol):
    """A format whose rows are token ids, which are neither rendered nor encoded."""

    token_ids: bool


@runtime_checkable
class ExchangeRows(Protocol):
    """A format whose rows may be a question and an answer and nothing else.

    Attributes:
        exchange: the names of the question's column, and of the answer's.
    """

    exchange: tuple[tuple[str, ...], tuple[str, ...]]


@runtime_checkable
class NamedOnly(Protocol):
    """A format that is recognised but read only when ``--format`` names it.

    Attributes:
        because: why, in words.
    """

    because: str


class Stage(Protocol):
    """A pure function over batches: adds columns, never drops, adds or reorders rows.

    A row that cannot go on gets its reject columns filled; the spine takes it out.
    """

    @property
    def name(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def writes(self) -> tuple[str, ...]: ...

    def __call__(self, batch: Batch) -> Batch: ...
