"""The options of decontamination: evaluation files, and how rows are compared with them."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.options import many_values, paths
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash
from stages.normalize.overlap import Evaluation, Likeness, Search

if TYPE_CHECKING:
    from pipeline.options.build_options import PlanOptions

# A manifest has the hashes of users' files alone, and no row is compared again from it.
NOT_READ_BACK = (
    "expectations",
    *("decontaminate", "overlap_words", "overlap_share", "overlap_in"),
    *("near_dedup", "near_words", "near_in"),
)
_NAME = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Written:
    """An argument: ``gsm8k=evals/gsm8k.jsonl#question``, where all but the path may be missing."""

    name: str
    path: str
    column: str | None

    @classmethod
    def of(cls, argument: str, folder: str = "") -> _Written:
        """Args: folder: that paths count from."""
        name, path = "", argument
        named = _NAME.fullmatch(argument)
        if named and not os.path.lexists(os.path.join(folder, argument)):
            name, path = named.groups()
        column = None
        if "#" in path and not os.path.lexists(os.path.join(folder, path)):
            path, _, column = path.rpartition("#")
        return cls(name, path, column or None)

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        return f"{name}{self.path}{'#' + self.column if self.column else ''}"


class EvaluationFiles(many_values.Texts):
    """Evaluation files: paths and globs, each with a name or a column where one is given."""

    called = "a list of paths of evaluation files"

    def anchored(self, value: Any, folder: str) -> Any:
        return paths.each(self.loosened(value), lambda one: _anchored(one, folder))

    def settled(self, value: Any) -> Any:
        """Raises UsageError where a file is not there, or where two have one name."""
        files = tuple(file for argument in value for file in _files(argument))
        names = Counter(file.name for file in files)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise UsageError(
                f"--decontaminate has two files that are called {twice}.",
                "Give each a name: --decontaminate NAME=FILE.",
            )
        return files


def _anchored(argument: str, folder: str) -> str:
    written = _Written.of(argument, folder)
    path = os.path.expanduser(written.path)
    under = path if os.path.isabs(path) else os.path.join(glob.escape(folder), path)
    there = os.path.join(folder, path)
    chosen = there if os.path.lexists(there) else under
    return str(_Written(written.name, chosen, written.column))


def _files(argument: str) -> Iterator[Evaluation]:
    """Each file that an argument stands for; without a name it has that of the file."""
    written = _Written.of(argument)
    path = os.path.expanduser(written.path)
    found = [path] if os.path.isfile(file_hash.required(path)) else []
    if not found and glob.has_magic(path):
        found = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
    if not found:
        raise UsageError(f"There is no evaluation file {path}.", "Check the path.")
    for one in found:
        stem = Path(one).name.partition(".")[0]
        of_several = f"{written.name}/{stem}".lstrip("/")
        name = of_several if len(found) > 1 else written.name or stem
        yield Evaluation(name, one, _sha256(one), written.column)


def _sha256(path: str) -> str:
    try:
        return file_hash.sha256(path)
    except OSError as error:
        raise SurroundingsError(f"{path} cannot be read: {error}.", "Check its rights.") from error


def recorded(files: tuple[Evaluation, ...]) -> list[dict[str, str | None]]:
    """Evaluation files without their folders, as a manifest's options have them."""
    return [
        {"name": one.name, "file": Path(one.path).name, "sha256": one.sha256, "column": one.column}
        for one in files
    ]


def search_of(plan: PlanOptions) -> Search | None:
    """The evaluations that rows are searched for; None without any."""
    if not plan.decontaminate:
        return None
    return Search(plan.decontaminate, plan.overlap_words, plan.overlap_in == "row")


def likeness_of(plan: PlanOptions) -> Likeness | None:
    """How rows are compared with each other; None where they are not."""
    if not plan.near_dedup:
        return None
    return Likeness(plan.near_words, plan.near_in == "row", sides=bool(plan.test_size or plan.test))


def columns_of(plan: PlanOptions) -> tuple[str, ...]:
    """The columns of parts that rows are compared by."""
    searched = ("overlaps",) if plan.decontaminate else ()
    likeness = likeness_of(plan)
    return searched + (tuple(name for name, _ in likeness.columns) if likeness else ())


def for_parts(plan: PlanOptions) -> dict[str, object]:
    """What parts depend on of it, ready for JSON.

    Raises:
        UsageError: the library that makes signatures is not installed.
    """
    found: dict[str, object] = {}
    search, likeness = search_of(plan), likeness_of(plan)
    if search is not None:
        found["overlaps"] = search.content
    if likeness is not None:
        from stages.normalize import signatures  # which imports the library

        columns = [list(one) for one in likeness.columns]
        found["likeness"] = [likeness.size, columns, signatures.version()]
    return found


def require_fitting(plan: PlanOptions) -> None:
    """The options of a plan go together.

    Raises:
        UsageError: one would do nothing.
    """
    if not plan.decontaminate and (
        (plan.overlap_words, plan.overlap_share, plan.overlap_in) != (8, 0.5, "question")
    ):
        raise UsageError(
            "--overlap-words, --overlap-share and --overlap-in are for --decontaminate.",
            "Name evaluation files with it, or leave them out.",
        )
    if not plan.near_dedup and (plan.near_words, plan.near_in) != (5, "row"):
        raise UsageError(
            "--near-words and --near-in are for --near-dedup.", "Give it, or leave them out."
        )
    if plan.near_dedup and not 0.3 <= plan.near_dedup <= 1:
        raise UsageError(
            f"--near-dedup {plan.near_dedup:g} is below 0.3, where rows with little in common "
            "count as near-duplicates.",
            "Give 0.8, say.",
        )
