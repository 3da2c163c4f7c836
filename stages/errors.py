"""The errors of this project.

    PipelineError                 what happened and where, and what to do about it
    |-- UsageError      exit 2    an option, a recipe or an input path is wrong
    |   `-- ModelError            the model is unknown, or does not fit its tokenizer
    |-- DataError       exit 3    the data was refused
    |   |-- ContainerError        a file is damaged as a whole
    |   |-- UnknownFormatError    no record format fits the rows of a file
    |   `-- ExpectationError      what was written breaks a critical expectation
    |       `-- OwnLawError exit 1  one of ours: a bug of this program
    |-- ReadingError    exit 1    a second reading of the input differs: a bug of this program
    |-- IrregularError  exit 2    where a file must be, there is a pipe, a device or a folder
    |-- GateError       exit 4    the gate could not judge
    `-- SurroundingsError exit 5  disk, lock, permission, or an input that changed meanwhile

    RowError                      one row cannot be used; becomes a line of rejects.jsonl
    `-- AskError                  it could be used in several ways; an option must say which
    UndecidedError                a file's rows do not show what one of its columns means
    ParityError                   the fast encoder disagreed with the reference; the build starts
                                  over without it

All are picklable (workers raise them): their arguments are the constructor's.
"""

import errno
from collections.abc import Iterable, Mapping
from typing import Any


class PipelineError(Exception):
    """One sentence on what and where, one on what to do.

    Attributes:
        figures: the numbers that the sentences speak of, as JSON has them, for programs.
    """

    exit_code = 1

    def __init__(
        self, what: str, remedy: str = "", figures: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy
        self.figures = dict(figures or {})

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".rstrip()


class UsageError(PipelineError, ValueError):
    """An option, a recipe or an input path is wrong."""

    exit_code = 2


class ModelError(UsageError):
    """The model is unknown, or a check of its template or tokenizer fails."""


class DataError(PipelineError, ValueError):
    """The data was refused."""

    exit_code = 3


class ContainerError(DataError):
    """A file is damaged as a whole, so that none of its rows can be trusted."""


class UnknownFormatError(DataError):
    """No record format fits the rows of a file."""


class ExpectationError(DataError):
    """What was written breaks a critical expectation."""


class OwnLawError(ExpectationError):
    """What this program wrote breaks an invariant of its own: a bug, whatever the data is."""

    exit_code = 1


class ReadingError(PipelineError):
    """A row or a file, read a second time in another way, differs from the build."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy or "Nothing was published; please report it with the recipe.")


class GateError(PipelineError, RuntimeError):
    """The gate could not judge."""

    exit_code = 4


class SurroundingsError(PipelineError, OSError):
    """The machine did not let the build finish."""

    exit_code = 5


# What the system says of the file that is there, or not there, and not of itself.
_OF_THE_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP)


def require_reading(error: BaseException) -> None:
    """What reading a file raised is about the file: it is missing, or damaged.

    Raises:
        SurroundingsError: it is about the machine: a permission, a failing disk.
    """
    if isinstance(error, SurroundingsError):
        raise error
    if isinstance(error, IrregularError):
        return
    if isinstance(error, PermissionError):
        raise no_permission(error.filename or error) from error
    if getattr(error, "errno", None) not in _OF_THE_FILE:
        raise SurroundingsError(f"{error}.", "Check the disk.") from error


def no_permission(path: object) -> SurroundingsError:
    """The system lets nobody of this name read, or write, there."""
    what = f"You have no permission for {path}."
    return SurroundingsError(
        what, "Change its permissions, or those of its folder, or name another place."
    )


class IrregularError(PipelineError, OSError):
    """Where a regular file must be, there is something else."""

    exit_code = 2
    strerror = "it is not a regular file"


class RowError(Exception):
    """One row cannot be used.

    Attributes:
        code: a stable word, counted in the manifest.
        detail: what is wrong with this row.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class AskError(RowError):
    """A row that could be used in more than one way.

    Attributes:
        remedy: the options to choose from.
    """

    def __init__(self, code: str, detail: str, remedy: str) -> None:
        super().__init__(code, detail)
        self.args = (code, detail, remedy)
        self.remedy = remedy


class UndecidedError(Exception):
    """The rows do not show what a column means.

    Attributes:
        what: the column and what it could mean.
        choices: the variants to choose from; none where the rows must say more.
    """

    def __init__(self, what: str, choices: tuple[str, ...]) -> None:
        super().__init__(what, choices)
        self.what = what
        self.choices = choices


class ParityError(Exception):
    """The fast encoder gave other ids than the reference tokenizer on a row of this build."""


# How many there are of something, in words.


def counted(count: int, noun: str) -> str:
    """``1 row``, ``1,200 rows``.

    Args:
        noun: the singular of a regular noun, or words that end in one: ``sampled row``.
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def were(count: int) -> str:
    """The verb for that many of a larger number: ``1 of 17 rows was``, ``3 of 17 rows were``."""
    return "was" if count == 1 else "were"


def did_you_mean(name: str, known: Iterable[str], rest: str = "", most: int = 3) -> str:
    """A question after the nearest names, where some are near, and then what is said anyway."""
    import difflib  # only where something is wrong

    near = difflib.get_close_matches(name, list(known), most, 0.6)
    return f"Did you mean {' or '.join(near)}? {rest}".rstrip() if near else rest
