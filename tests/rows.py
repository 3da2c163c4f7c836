"""Rows of every format, a line each: what they say, and why others are refused.

``tests/corpus/rows_read.jsonl`` has the reading that a row is detected as among all formats of its
task, and its examples; ``rows_refused.jsonl`` the code that it is refused with, and words of the
reason. A turn is ``[role, text]``, and behind it what else it says. The ``built`` ones are also
built.

``rows_whole.jsonl`` has one row of each format that can be read, which says nothing but what its
format reads; ``rows_unusable.jsonl`` rows that are recognised to be refused.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.tasks import kind_of
from stages import contract, formats
from stages.formats import _inside
from stages.normalize.stage import Normalize

_CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Case:
    """One row; ``reading``: the format, or a variant of one."""

    reading: str
    task: str
    row: contract.Row
    examples: list[contract.Example]
    code: str
    words: str
    built: bool


def _turns(said: list[list[Any]]) -> list[contract.Message]:
    return [contract.Message(role, text, **(more[0] if more else {})) for role, text, *more in said]


def _example(told: dict[str, Any]) -> contract.Example:
    if "turns" in told:
        return contract.Conversation(_turns(told.pop("turns")), **told)
    if "chosen" in told:
        sides = [_turns(told.pop(name)) for name in ("prompt", "chosen", "rejected")]
        return contract.Pair(*sides, **told)
    if "refused" in told:
        return contract.Refused(told["refused"], told["detail"])
    return contract.StepChain(**told)


def _cases(name: str) -> dict[str, Case]:
    found = {}
    for line in (_CORPUS / name).read_text("utf-8").splitlines():
        told = json.loads(line)
        examples = [_example(one) for one in told.get("examples", ())]
        more = (told.get("code", ""), told.get("words", ""), "built" in told)
        assert told["name"] not in found
        found[told["name"]] = Case(told["format"], told["task"], told["row"], examples, *more)
    return found


def turns(*pairs: tuple[str, Any]) -> list[contract.Row]:
    """Turns in the spelling of ``messages``."""
    return [{"role": role, "content": content} for role, content in pairs]


READ = _cases("rows_read.jsonl")
REFUSED = _cases("rows_refused.jsonl")
WHOLE = _cases("rows_whole.jsonl")
UNUSABLE = _cases("rows_unusable.jsonl")


def normalizing(task: str, name: str, *more: Any, **options: Any) -> Normalize:
    """What a task normalizes rows of a format with, as a build does that was given no options."""
    return Normalize(kind_of(task), formats.load(name), contract.FormatOptions(), *more, **options)


def unfolded(name: str, row: Any, options: contract.FormatOptions) -> list[Any]:
    """A row's examples, with the turns inside of its texts, as a build reads it."""
    return _inside.settled(formats.load(name).read(row, options), row, options)


def records(rows: list[Any], typed: bool = False) -> list[contract.Record]:
    """Rows as a reader gives them, on lines with gaps; None is one that could not be parsed."""
    bad = ("bad_json", "no object")
    return [
        contract.Record(3 * at, None, b"", row, None if row is not None else bad, typed)
        for at, row in enumerate(rows)
    ]


def come_out_the_same(normalize: Normalize, rows: list[Any], typed: bool = False) -> list[bool]:
    """Require that rows come out alike alone and by outlines; which of them have an outline."""
    normalize.restart()
    alone = normalize._one_by_one(records(copy.deepcopy(rows), typed))
    counted = (normalize.tally.rows, normalize.tally.bytes)
    normalize.restart()
    for _ in range(2):  # the first row of each outline is read alone too
        normalize(records(copy.deepcopy(rows), typed))
    normalize.restart()
    batch = normalize(records(copy.deepcopy(rows), typed))
    batch.validate(full=True)
    assert batch.schema.equals(alone.schema)
    assert repr(batch.to_pylist()) == repr(alone.to_pylist())  # 0.0 and -0.0 are not the same
    assert counted == (normalize.tally.rows, normalize.tally.bytes)
    outlines = normalize._outlines
    found = None if outlines is None else outlines.batch(records(rows, typed))
    return [at in (found[0] if found else ()) for at in range(len(rows))]
