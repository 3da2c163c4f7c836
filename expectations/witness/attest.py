"""What was drawn, beside what the shards have: every difference is named by its row and its law."""

import json
import operator
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from expectations.witness import raw, said, stored
from expectations.witness.pairs import PAIRS
from expectations.witness.printed import BrokenError
from expectations.witness.raw import Row, UnreadError
from expectations.witness.steps import STEPS
from expectations.witness.talks import TALKS
from expectations.witness.tokens import IGNORED, Published

_FORMATS = {"sft": TALKS, "rm": PAIRS, "prm": STEPS}
# What rows of a shape that is not known make of a reader.
_STRANGE = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_CONDITION = re.compile(r"\s*([\w.\-]+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")
_COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass
class Statement:
    """What the witness has found.

    Attributes:
        rows: drawn and stored, or left out and looked at; ``read``: of these, compared.
        unread: how many rows were not, by the reason.
        found: differences: the id of the row, and a sentence.
    """

    rows: int = 0
    read: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    found: list[tuple[str, str]] = field(default_factory=list)


def attest(case: dict[str, Any]) -> Statement:
    """Compare drawn rows with what the shards have of them.

    Args:
        case: ``folder``, ``task``, ``shards``, ``inputs`` (``name``, ``path``, ``format``,
            ``words``, ``parts``), ``model`` (words), ``merged_cuts`` that were counted, ``every``,
            ``whole``: every row is stored, refused, or does not meet a condition.
    """
    lines = stored.drawn(case)
    examples: dict[str, dict[int, list[tuple[str, Any]]]] = {name: {} for name in lines}
    for name, columns in stored.examples(case, lines):
        source, line, _ = stored.place_of(name)
        examples[source].setdefault(line, []).append((name, columns))
    published = Published(str(Path(case["folder"]) / "tokenizer"), case["model"])
    statement = Statement()
    refused = _refused(case)
    for one in case["inputs"]:
        own = examples[one["name"]]
        words = {**one["words"], "printed": published.printed}
        try:
            rows = raw.rows(one["path"], {*lines[one["name"]], *own}, one["words"])
        except (UnreadError, OSError, ValueError) as error:
            reason = str(error) if isinstance(error, UnreadError) else "an input that is not here"
            statement.unread[reason] += len(own)
            statement.rows += len(own)
            continue
        reading = _Reading(case["task"], one["format"], words, published)
        for line in sorted(own):
            _hear(statement, reading, f"{one['name']}:{line}", rows.get(line), own[line])
        for line in sorted({*lines[one["name"]]} - {*own}) if case["whole"] else ():
            if line in rows and (one["name"], line) not in refused:
                statement.rows += 1
                _miss(statement, f"{one['name']}:{line}", rows[line], words)
    if published.merged > case["merged_cuts"]:
        text = f"merged_cuts is {case['merged_cuts']}, and rows that were drawn have more"
        statement.found.append(("manifest.json", text))
    return statement


def _refused(case: dict[str, Any]) -> set[tuple[str, int]]:
    with (Path(case["folder"]) / "rejects.jsonl").open(encoding="utf-8") as file:
        return {(one["source"], one["line"]) for one in map(json.loads, file)}


@dataclass(frozen=True)
class _Reading:
    """How rows of one input are read."""

    task: str
    format: str
    words: dict[str, Any]
    published: Published

    def expected(self, row: Row) -> list[dict[str, Any] | BrokenError | None]:
        """The columns of all examples of a row; None or why for those that must be refused."""
        if self.words["already_templated"]:
            raise UnreadError("texts that carry a template")
        if self.words["null_fields"]:
            raise UnreadError("nulls inside of tools and calls")
        found = []
        for name, view in said.views(row, self.format, self.words):
            read = _FORMATS[self.task].get(name)
            if read is None:
                raise UnreadError(f"the format {name}")
            try:
                found.append(read(view))
                if view.named.keys() - view.asked:
                    raise UnreadError("a column under a name that is not read here")
            except (UnreadError, *_STRANGE) as error:
                failed = error
        if not found:
            raise failed
        if len(found) > 1:
            raise UnreadError("a row that fits several formats")
        every: list[dict[str, Any] | BrokenError | None] = []
        for one in found[0]:
            every += [None] if one is None else self.published.expected(one, self.words)
        return every


def _hear(
    statement: Statement, reading: _Reading, name: str, row: Row | None, own: list[tuple[str, Any]]
) -> None:
    """Compare the examples of a row."""
    statement.rows += 1
    if row is None:
        statement.found.append((name, "the shards have it, and its file has no such row"))
        return
    if not _meets(row, reading.words):
        statement.found.append((name, "where: it is stored, and does not meet the condition"))
    published, merged = reading.published, reading.published.merged
    try:
        expected = reading.expected(row)
    except UnreadError as error:
        published.merged = merged
        statement.unread[str(error)] += 1
        return
    except _STRANGE as error:
        published.merged = merged
        statement.unread[f"a shape that is not known ({type(error).__name__})"] += 1
        return
    statement.read += 1
    if len(expected) != len(own) or published.trims:  # cuts of what is not stored do not count
        published.merged = merged
    for one, columns in own:
        number = stored.place_of(one)[2]
        at = number or 0
        alone = number is not None or len(expected) == 1
        wanted = expected[at] if at < len(expected) and alone else None
        if isinstance(wanted, dict):
            statement.found += [(one, what) for what in _differences(wanted, columns)]
        else:
            others = f"examples: it is stored, and the row says {len(expected)} others"
            statement.found.append((one, str(wanted or others)))


def _differences(expected: dict[str, Any], columns: dict[str, Any]) -> Iterator[str]:
    """What of an example is not as it must be, law by law."""
    for law, wanted in expected.items():
        there = columns.get(law)
        if law == "loss_weights":
            wanted = [float(np.float32(one)) for one in wanted]
            if there is None:
                there = [float(label != IGNORED) for label in columns["labels"]]
        elif law in ("step_labels", "margin"):
            several = wanted if isinstance(wanted, list) else [wanted]
            several = [one if one is None else float(np.float32(one)) for one in several]
            wanted = several if isinstance(wanted, list) else several[0]
        if there == wanted:
            continue
        if not isinstance(wanted, list) or not isinstance(there, list):
            yield f"{law} is {there}, and the row says {wanted}"
            continue
        both = enumerate(zip(there, wanted, strict=False))
        at = next((i for i, (a, b) in both if a != b), None)
        if at is None:
            yield f"{law} has {len(there)} values, and the row says {len(wanted)}"
        else:
            yield f"{law}[{at}] is {there[at]}, and the row says {wanted[at]}"


# Rows that are not stored.


def _miss(statement: Statement, name: str, row: Row, words: dict[str, Any]) -> None:
    """A row that is neither stored nor refused must not meet a condition."""
    statement.read += 1
    if words["where"] and _meets(row, words, unknown=False):
        statement.found.append((name, "where: it meets the condition, and is not stored"))
    elif not words["where"]:
        statement.found.append((name, "rows: it is neither stored nor refused"))


def _meets(row: Row, words: dict[str, Any], unknown: bool = True) -> bool:
    """Whether a row meets all conditions; ``unknown``: what is said of one that is not read."""
    for condition in words["where"]:
        match = _CONDITION.fullmatch(condition)
        if match is None:
            return unknown
        path, sign, told = match.groups()
        value: Any = row
        for key in path.split(".") if path not in row else [path]:
            value = value.get(key) if isinstance(value, dict) else None
        try:
            wanted = json.loads(told)
        except ValueError:
            wanted = told
        if isinstance(wanted, bool) or isinstance(value, bool) or value is None:
            if sign not in ("=", "!=") or value is None or type(value) is not type(wanted):
                return unknown
        elif isinstance(value, str) != isinstance(wanted, str):
            return unknown
        if not _COMPARED[sign](value, wanted):
            return False
    return True
