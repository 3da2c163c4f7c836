"""The nouns that every file of this package speaks.

A row travels ``bytes -> Split -> Record -> Normalize -> Stage ... -> part``. A reader cuts a file
into splits and a split into records; a format turns a record into examples; from there on rows
are columns of a batch, and stages add columns to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # commands name tasks and kinds, and import nothing heavy for it
    import pyarrow as pa

    from stages.files.file_version import FileVersion


Batch: TypeAlias = "pa.RecordBatch"
Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, tuple[str, ...]]  # what a row may say, and where it says it


BARE = "text"  # the role of a text without turns, which no template renders


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one file: the unit of work, of retry and of caching.

    Attributes:
        path: the file, as it can be opened.
        start, stop: the piece, in the reader's own unit (bytes, row groups); a line belongs to
            the split that holds its first byte.
        sha256: of the bytes that it is made of, so that a part can be named by its content and an
            input that changes during a build is noticed; empty until they are read.
        reader: the reader's name.
        piece: which piece, where the bytes are those of the whole file.
        salvage: rows before a damage are kept, and the damage is told, instead of refusing all.
        version: the bytes that it may be read from; a reader from elsewhere may leave it out.
        lines: lines in it, where they were counted when the bytes were hashed.
        around: of a piece of a compressed file, of which ``start`` and ``stop`` count the text: the
            bytes of text before and behind it in what it is read from.
    """

    path: str
    start: int
    stop: int
    sha256: str
    reader: str
    piece: int = 0
    salvage: bool = False
    version: "FileVersion | None" = field(default=None, repr=False)
    lines: int | None = None
    around: tuple[int, int] | None = None

    @property
    def place(self) -> str:
        """Which of the rows in its bytes are its own."""
        return f"{self.piece}" if self.around is None else f"{self.piece} {self.around}"

    @property
    def size(self) -> int:
        """Bytes of the file that it is made of; 0 where they are not known."""
        pieces = () if self.version is None else self.version.pieces
        return sum(piece.stop - piece.start for piece in pieces)


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
        records: the rows; blank lines are none.
        damage: what ended the file too early, where only the rows before it are kept.
        size: bytes of these lines, decompressed; 0 where a reader does not know.
    """

    records: Sequence[Record]
    lines: int
    damage: str | None = None
    size: int = 0

    @property
    def by_line(self) -> Mapping[int, Record]:
        """The records by the number of their line."""
        return {record.line: record for record in self.records}


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Some rows of a file that was not read as a whole.

    Attributes:
        records: in file order. Where a row's number is unknown, ``line`` is -1; ``offset`` counts
            from the file's start.
        where: which rows they are, in words.
        rows: rows of the file; an estimate unless ``exact``.
        key: of the object that wraps the rows in the file; empty where they stand alone.
    """

    records: list[Record]
    where: str
    rows: int
    exact: bool
    key: str = ""


class Reader(Protocol):
    """One container format."""

    @property
    def name(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

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

    def glimpse(self, source: "str | FileVersion", rows: int, salvage: bool = False) -> Glimpse:
        """About so many rows from all over a file, or of the version of it that a build reads, in a
        time that does not grow with it; ``salvage`` keeps those before a damage.

        Raises:
            ContainerError: the container is damaged where it was looked at.
        """
        ...


class Cutter(Protocol):
    """A reader whose splits are hashed by whoever reads them. Those of this package are."""

    def cut(self, version: "FileVersion") -> list[Split]:
        """The splits of a version of a file, as ``splits`` has them, but without ``sha256`` and
        ``lines``; little is read.

        Raises:
            ContainerError: the file is not what its name says.
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

    def seen(self) -> dict[str, Any]:
        """The turn as a template gets it: without keys that are null, as transformers gives it."""
        turn = {"role": self.role, "content": self.content, **(self.fields or {})}
        return {key: value for key, value in turn.items() if value is not None}


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
        system: the row's own system text.
    """

    problem: str
    steps: list[str]
    labels: list[float | None]
    pieces: list[str] | None = None
    system: str | None = None


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
    null_fields: str | None = None


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
