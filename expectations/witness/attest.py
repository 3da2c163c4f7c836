"""What was drawn, beside what the shards have: every difference is named by its row and its law."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from expectations.witness import choices, raw, said, stored
from expectations.witness.laws import asked, notes, question, ungreeted
from expectations.witness.pairs import PAIRS, unfolded
from expectations.witness.printed import BrokenError
from expectations.witness.ranks import ranked
from expectations.witness.raw import Row, UnreadError
from expectations.witness.steps import STEPS
from expectations.witness.talks import TALKS
from expectations.witness.tokens import Published
from expectations.witness.trees import CHAINS

MARKED = "template_text"  # the note of a text with a template's markers
MULTIPLE = 8  # of which a padded width is one
_FORMATS = {"sft": TALKS, "rm": {**PAIRS, "ranked": ranked}, "prm": {**STEPS, **CHAINS}}
# What rows of a shape that is not known make of a reader.
_STRANGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration)


LONG, TIE = "too_long", "tie"
# Why rows are refused, where the row itself shows whether that is so.
_SEEN = {
    *("no_user_turn", "begins_with_assistant", "no_answer", "nothing_trained", "no_problem"),
    *("no_steps", "empty_step", "nothing_labelled", LONG, TIE),
    *("no_turns", "unknown_role", "no_prompt", "bad_margin", "unrated_answer"),
    *("unclosed_reasoning", "empty_question"),
}


@dataclass
class Statement:
    """What the witness has found.

    Attributes:
        rows: drawn and stored, or left out and looked at; ``read``: of these, compared.
        noted: rows by what the manifest notes of them.
        unread: how many rows were not, by the reason.
        asked: the hash of what each row asks.
        found: differences: the id of the row, and a sentence; ``unlike``: the parts in which the
            tokenizer differs from its file, as its class loads it, where there are some.
    """

    rows: int = 0
    read: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    asked: dict[str, str] = field(default_factory=dict)
    found: list[tuple[str, str]] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)

    def leave(self, reason: str, rows: int) -> None:
        """Count rows that are not read."""
        self.unread[reason] += rows
        self.rows += rows


def attest(case: dict[str, Any]) -> Statement:
    """Compare drawn rows with what the shards have of them.

    Args:
        case: ``folder``, ``task``, ``shards``, ``inputs`` (``name``, ``path``, ``format``,
            ``words``, ``parts``), ``model`` (words), ``merged_cuts`` and ``truncated`` tokens
            that were counted, ``every``, ``noted``: how many rows have each note that is known,
            ``asked``: no question is on both sides of the split, ``whole``: every row is stored,
            refused, or does not meet a condition, ``fitted``: rows are padded to the longest,
            ``evaluations``: whose questions none asks, ``keep``: which of equal rows stays; empty
            where all do.
    """
    lines, pads = stored.drawn(case), []
    examples: dict[str, dict[int, list[tuple[str, Any]]]] = {name: {} for name in lines}
    for name, columns in stored.examples(case, lines):
        source, line, _ = stored.place_of(name)
        pads.append(columns.get("pads", 0))
        examples[source].setdefault(line, []).append((name, columns))
    published = Published(str(Path(case["folder"]) / "tokenizer"), case["model"])
    statement, refused = Statement(), _refused(case)
    equal = choices.Equal(case["keep"], stored.all_drawn(case))
    sides = choices.Sides({one["name"] for one in case["inputs"] if one.get("test")})
    asking = choices.evaluations(case["evaluations"])
    for number, one in enumerate(case["inputs"]):
        own = examples[one["name"]]
        words = {**one["words"], "printed": published.printed}
        try:
            rows = raw.rows(one["path"], {*lines[one["name"]], *own}, one["words"])
        except (UnreadError, OSError, ValueError, pa.ArrowNotImplementedError) as error:
            known = isinstance(error, UnreadError)
            statement.leave(str(error) if known else "an input that cannot be read", len(own))
            continue
        reading = _Reading(case["task"], one["format"], words, published)
        for line in sorted(own):
            name, row = f"{one['name']}:{line}", rows.get(line)
            for made in _hear(statement, reading, name, row, own[line]):
                equal.add(made, row or {}, (number, line), name, True)
            what = _note_question(statement, published, asking, name) * case["asked"]
            sides.add(row or {}, words["group_by"], what, name, own[line])
        for line in sorted({*lines[one["name"]]} - {*own}):
            if (row := rows.get(line)) is None:
                continue
            name, why = f"{one['name']}:{line}", refused.get((one["name"], line))
            for made in _rest(statement, reading, name, row, why, case):
                equal.add(made, row, (number, line), name, False)
    statement.found += [*equal.found(), *sides.found]
    statement.found += _of_build(statement, published, case, min(pads, default=0))
    if statement.found:
        statement.unlike = published.unlike()
    return statement


def _note_question(
    statement: Statement, published: Published, asking: choices.Asking, name: str
) -> str:
    """What a row that is stored asks; no evaluation may ask it."""
    what = question(published.asked)
    if what:
        statement.asked[name] = hashlib.sha256(what.encode()).hexdigest()
    alone = published.asked if len(published.asked) == 1 else ()
    for same in filter(None, (asking.get(choices.words_of(text)) for text in alone if asking)):
        statement.found.append((name, f"decontaminate: it asks: {same:.60}"))
    return what


def _of_build(
    statement: Statement, published: Published, case: dict[str, Any], pads: int
) -> Iterator[tuple[str, str]]:
    """What is not said of the build as a whole, or otherwise."""
    counted = {"merged_cuts": published.merged, "truncated": published.truncated}
    told = {name: case[name] for name in counted} | case["noted"]
    for name, count in {**counted, **statement.noted}.items():
        if count > told.get(name, count):
            text = f"{name} is {told[name]}, and rows that were drawn have more"
            yield "manifest.json", text
    exact = published.exact and stored.all_drawn(case) and not statement.unread
    if exact and case["truncated"] > published.truncated:
        text = f"truncated is {case['truncated']}, and all rows have {published.truncated}"
        yield "manifest.json", text
    if case["fitted"] and pads >= MULTIPLE:
        yield "padding", f"{pads} or more tokens in every row"
    yield from choices.understated(case["folder"])
    positions = published.tokenizer.model_max_length
    if positions != case["model"]["positions"]:
        text = f"model_max_length is {positions}, and the model has {case['model']['positions']}"
        yield "tokenizer/tokenizer_config.json", text


def _refused(case: dict[str, Any]) -> dict[tuple[str, int], set[str]]:
    """Why each refused row is refused, by input and line."""
    found: dict[tuple[str, int], set[str]] = {}
    with (Path(case["folder"]) / "rejects.jsonl").open(encoding="utf-8") as file:
        for one in map(json.loads, file):
            found.setdefault((one["source"], one["line"]), set()).add(one["code"])
    return found


@dataclass(frozen=True)
class _Reading:
    """How rows of one input are read."""

    task: str
    format: str
    words: dict[str, Any]
    published: Published

    def expected(self, row: Row) -> list[dict[str, Any] | BrokenError | None]:
        """The columns of all examples of a row; None or why for those that must be refused."""
        found = []
        for name, view in said.views(row, self.format, self.words):
            read = _FORMATS[self.task].get(name)
            if read is None:
                raise UnreadError(f"the format {name}")
            try:
                made = read(view)
                found.append([*map(unfolded, made)] if self.words["already_templated"] else made)
                if view.named.keys() - view.asked:
                    raise UnreadError("a column under a name that is not read here")
            except (UnreadError, *_STRANGE) as error:
                failed = error
        if not found:
            raise failed
        if len(found) > 1:
            raise UnreadError("a row that fits several formats")
        if self.words["greeting"] == "drop":
            found[0] = [*map(ungreeted, found[0])]
        every: list[dict[str, Any] | BrokenError | None] = []
        asks = [asked(one) for one in found[0] if one is not None]
        questions = dict(zip(map(question, asks), asks, strict=True))
        for one in found[0]:
            every += [None] if one is None else self.published.expected(one, self.words)
        self.published.asked = questions.popitem()[1] if len(questions) == 1 else ()
        if len(every) == 1:
            self.published.notes |= notes(found[0][0])
        return every


def _hear(
    statement: Statement, reading: _Reading, name: str, row: Row | None, own: list[tuple[str, Any]]
) -> list[dict[str, Any]]:
    """Compare the examples of a row; returns the only one where it has no other."""
    statement.rows += 1
    if row is None:
        statement.found.append((name, "the shards have it, and its file has no such row"))
        return []
    published = reading.published
    before = published.merged, published.truncated
    expected = _expected(statement, reading, row)
    if False in choices.judged(row, reading.words, expected):
        statement.found.append((name, "where: it is stored, and does not meet the condition"))
    if expected is None:
        published.merged, published.truncated = before
        return []
    statement.noted.update(published.notes)
    # The text of an option is no row's.
    statement.noted[MARKED] += published.marked and not reading.words["system"]
    statement.read += 1
    published.exact &= len(expected) == len(own) == 1
    if len(expected) != len(own):
        published.merged, published.truncated = before
    if published.trims:  # cuts of what is not stored do not count
        published.merged = before[0]
    for one, columns in own:
        number = stored.place_of(one)[2]
        at = number or 0
        alone = number is not None or len(expected) == 1
        wanted = expected[at] if at < len(expected) and alone else None
        if isinstance(wanted, dict):
            statement.found += [(one, what) for what in stored.differences(wanted, columns)]
        else:
            others = f"examples: it is stored, and the row says {len(expected)} others"
            statement.found.append((one, str(wanted or others)))
    return [one for one in expected if isinstance(one, dict)] if len(expected) == 1 else []


def _expected(
    statement: Statement, reading: _Reading, row: Row
) -> list[dict[str, Any] | BrokenError | None] | None:
    """The columns of all examples of a row; None where it is not read, which is counted."""
    published = reading.published
    published.marked, published.asked, published.notes = False, (), set()
    try:
        return reading.expected(row)
    except UnreadError as error:
        statement.unread[str(error)] += 1
    except _STRANGE as error:
        statement.unread[f"a shape that is not known ({type(error).__name__})"] += 1
    return None


def _rest(
    statement: Statement,
    reading: _Reading,
    name: str,
    row: Row,
    why: set[str] | None,
    case: dict[str, Any],
) -> list[dict[str, Any]]:
    """A row that is not stored; returns its only example, where another one must be."""
    reading.published.exact &= bool(why)
    if why:
        _doubt(statement, reading, name, row, why)
    elif case["whole"] or case["keep"]:
        return _miss(statement, reading, name, row, case["keep"])
    return []


def _miss(
    statement: Statement, reading: _Reading, name: str, row: Row, keep: str
) -> list[dict[str, Any]]:
    """A row that is neither stored nor refused: it does not meet a condition, or equals another.

    Returns:
        Its only example, where another one must be stored.
    """
    statement.rows += 1
    words, published = reading.words, reading.published
    before, expected = (published.merged, published.truncated), None
    if keep or choices.by_figures(words):
        expected = _expected(statement, reading, row)
    published.merged, published.truncated = before
    told = choices.judged(row, words, expected)
    met = {*told} <= {True}
    if not met:
        by = choices.leaves_out(told, words)
        statement.noted[f"filter {by}"] += 1
        statement.noted[f"null filter {by}"] += choices.is_null(row, words, expected, by)
    if not keep or not met:
        statement.read += 1
        if met:
            what = "rows: it is neither stored nor refused"
            what = "where: it meets the condition, and is not stored" if told else what
            statement.found.append((name, what))
        return []
    statement.read += expected is not None
    alone = expected is not None and len(expected) == 1
    return [one for one in expected or () if isinstance(one, dict)] if alone else []


def _doubt(statement: Statement, reading: _Reading, name: str, row: Row, codes: set[str]) -> None:
    """A row that is refused, for what can be seen here: it must be so."""
    published = reading.published
    of_cells = {"bad_json"} if raw.are_plain(row, reading.words["container"]) else set()
    if not codes <= _SEEN | of_cells or (LONG in codes and published.trims):
        return
    if "unclosed_reasoning" in codes and reading.words["reasoning"] != "keep":
        return  # then it may be that of any turn
    statement.rows += 1
    before = published.merged, published.truncated
    expected = _expected(statement, reading, row)
    published.merged, published.truncated = before
    statement.read += expected is not None
    every = [one for one in expected or () if isinstance(one, dict)]
    sizes = [len(ids) for one in every for law, ids in one.items() if law.endswith("_ids")]
    fits = max(sizes, default=0) <= published.words["limit"]
    sure = (fits or LONG not in codes) and (TIE not in codes or not any(map(_has_margin, every)))
    if every and len(every) == len(expected or ()) and sure:
        statement.found.append((name, f"refused: {' and '.join(sorted(codes))}, which it is not"))


def _has_margin(made: dict[str, Any]) -> bool:
    """Whether two numbers, which may be equal, say which side is better."""
    return made.get("margin") is not None
