"""Detection: one reading with its evidence, or the choices and the flag that picks one; what is
offered for rows that no format fits rests on a sign, and is never a guess."""

import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import raised, table

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Conversation, FormatOptions, Pair, Record, Refused, Row
from stages.errors import DataError, RowError, UsageError
from stages.formats import _inside
from stages.normalize import evidence, lacking
from stages.normalize.mixture import detect_mixture
from stages.normalize.stage import Normalize
from stages.rows import examples as made_of
from stages.rows.selection import renamed

MESSAGES: Row = {
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
}
ALPACA: Row = {"instruction": "q", "input": "", "output": "a"}


def test_nothing_is_guessed() -> None:
    """Where rows do not show what is meant, the message gives the choices and their flags.

    Whatever ``--format`` it offers can be chosen for the task; others, and variants that do not
    exist, cannot.
    """
    for one in table("open_readings.jsonl"):
        caught = raised(DataError, evidence.detect, one["rows"], kind_of(one["task"]), "x.jsonl")
        assert one["what"] in caught.what, one["name"]
        assert all(flag in caught.remedy for flag in one["flags"]), one["name"]
        for name in re.findall(r"--format (\S+?)[.;,]?(?:\s|$)", caught.remedy):
            assert formats.choose(name, kind_of(one["task"])).name == name.partition("/")[0]
    with pytest.raises(UsageError, match="2-based") as refused:
        formats.choose("indexed_pair/2-based", kind_of("rm"))
    assert "1-based" in refused.value.remedy
    raised(UsageError, formats.choose, "openai/x", kind_of("sft"))


def test_a_stray_row_is_left_to_the_door() -> None:
    """One row of another shape is refused by name; more than one in a hundred stop the build."""
    mixed = [
        ([MESSAGES, ALPACA], True),
        ([MESSAGES] * 150 + [ALPACA] * 2, True),
        ([MESSAGES] * 300 + [ALPACA], False),
        ([MESSAGES, ALPACA] * 5, True),
        ([MESSAGES] * 5 + [{"id": 1}], False),
        ([MESSAGES] * 5 + [ALPACA] * 4 + [{"id": 1}], True),
    ]
    for number, (rows, change) in enumerate(mixed):
        found = evidence.detect(rows, kind_of("sft"), "x.jsonl")
        assert set(found.change or ()) == ({"openai", "alpaca"} if change else set()), number


def test_nothing_is_taken_without_a_sign() -> None:
    """Turns, and names that ask and answer, are read where they say it in every row; where more
    than one would do, where nobody answers, or where a column is there to check answers, nothing
    is."""
    for one in table("signs.jsonl"):
        rows = [one["row"]]
        if one["reading"]:
            assert evidence.detect(rows, kind_of("sft"), "x").reading == one["reading"], one
        else:
            raised(DataError, evidence.detect, rows, kind_of("sft"), "x.jsonl")
        raised(DataError, evidence.detect, rows, kind_of("rm"), "x.jsonl")
    both_ways = lacking.offer([{"left": "q", "right": "a", "n": 3}], kind_of("sft"))
    assert "--map prompt=COLUMN --map completion=COLUMN" in both_ways
    assert lacking.offer([{"left": "q", "right": "a"}, {"left": "q"}], kind_of("sft")) == ""


@pytest.mark.parametrize(
    "worse",
    "rejected rejected_response loser dispreferred failed failed_response hallucinated".split(),
)
@pytest.mark.parametrize("beside", [{"prompt": "What is {}?"}, {"left": "It is {}."}, {}])
def test_no_command_trains_a_rejected_answer(worse, beside) -> None:
    """Nor a failed one, where no other is there, for whatever stands beside it."""
    rows = [
        {**{k: v.format(n) for k, v in beside.items()}, worse: f"I would not say that of {n}."}
        for n in range(12)
    ]
    error = raised(DataError, evidence.detect, rows, kind_of("sft"), "x.jsonl")
    assert worse not in error.remedy
    assert lacking.offer(rows, kind_of("sft")) == ""


@given(st.dictionaries(st.text("abxy_", min_size=1), st.text(max_size=3) | st.integers()))
def test_what_is_offered_names_columns_of_the_rows(row: dict[str, Any]) -> None:
    """Whatever the columns are called."""
    for word in shlex.split(lacking.offer([row], kind_of("sft"))) if row else []:
        name, sign, column = word.partition("=")
        if sign:
            assert name in ("prompt", "completion", "messages", "text")
            assert column.rstrip(",.?") in {*row, "COLUMN"}


# Files in a few rows, and what becomes of each: ``law`` is what it shows; ``reads`` the reading
# that is detected, ``named`` the one that is given, ``settles`` the variant that it is settled as;
# ``says`` what each row says, or the code and words of its refusal, ``unread`` what is left;
# ``asks`` and ``offers`` are of the message, where the file is asked about.
EMPTY = {"reads": "", "named": "", "settles": None, "options": {}, "says": [], "unread": []}
EMPTY |= {"evidence": "", "asks": None, "offers": []}
FILES = [SimpleNamespace(**{**EMPTY, **one}) for one in table("files_read.jsonl")]


def told(example: Any) -> Any:
    """An example in a few words: its turns, both answers and the margin, or its rated steps."""
    if isinstance(example, Refused):
        return f"{example.code}: {example.detail}"
    if isinstance(example, Conversation):
        signs = {None: ":", True: "!", False: "-"}
        return [f"{one.role}{signs[one.trained]} {one.content}" for one in example.messages]
    if isinstance(example, Pair):
        return [example.chosen[-1].content, example.rejected[-1].content, example.margin]
    chain = made_of.chain(example)
    system = [] if chain.system is None else [chain.system]
    return [*system, chain.problem, chain.steps, chain.labels]


def _agrees(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and isinstance(found, str):
        code, _, words = wanted.partition(": ")
        return found.startswith(f"{code}: ") and words in found
    return bool(found == wanted)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.law)
def test_a_file_is_read_as_its_law_says(file) -> None:
    """At once, or as it is named; asked about with options; each row read, refused or named."""
    told_ = FormatOptions(**file.options)
    kind, raw = kind_of(file.task), FormatOptions(already_templated=told_.already_templated)
    if file.asks is not None:
        asked = raised(DataError, evidence.detect, file.rows, kind, "x.jsonl", raw)
        assert file.asks in asked.what
        assert all(one in asked.remedy for one in file.offers), asked.remedy
    if file.reads:
        found = evidence.detect(file.rows, kind, "x.jsonl", raw)
        assert found.reading == file.reads
        assert file.evidence in found.evidence
    if file.settles is not None:
        assert formats.load(file.named).settle(file.rows, told_)[0] == file.settles
    if not file.named and not file.reads:
        return
    stage = Normalize(kind, formats.load(file.named or file.reads), told_)
    rows = [renamed(row, stage.options.columns) for row in file.rows]
    batch = stage([Record(at, 0, b"", row) for at, row in enumerate(file.rows)]).to_pylist()
    assert sorted(stage.tally.rows) == file.unread
    for at, (row, wanted) in enumerate(zip(rows, file.says, strict=bool(file.says))):
        if isinstance(wanted, str):
            made = [f"{one['reject_code']}: {one['reject_detail']}" for one in batch]
            assert _agrees(made[at], wanted), made[at]
            continue
        examples = _inside.settled(stage.format.read(row, stage.options), row, stage.options)
        found = [*map(told, examples)]
        assert len(found) == len(wanted)
        assert all(map(_agrees, found, wanted)), found


def openai_row(number: int) -> Row:
    """A row of openai."""
    said = [("user", f"hi {number}"), ("assistant", f"hello {number}")]
    return {"messages": [{"role": role, "content": text} for role, text in said], "id": number}


def asked(number: int) -> Row:
    """A row of query_response."""
    return {"question": f"q {number}", "answer": f"a {number}", "level": "easy"}


MIXED = [asked(n) if n % 3 else openai_row(n) for n in range(60)]


def test_a_row_of_two_formats_is_refused_by_name() -> None:
    """A few alone, many with the file; so is a row of none."""
    both = asked(1) | openai_row(1)
    kind = kind_of("sft")
    with pytest.raises(DataError, match=r"3 of 63 sampled rows read as openai .* query_response"):
        detect_mixture([*MIXED, *[both] * 3], kind, "x.jsonl")
    found = detect_mixture([*MIXED * 3, both, {"other": 1}], kind, "x.jsonl")
    mixture = formats.load(found.reading)
    for row, code in ((both, "ambiguous_format"), ({"other": 1}, "no_format")):
        assert mixture.matches(row) is None
        caught = raised(RowError, mixture.read, row, FormatOptions())
        assert caught.code == code
    assert detect_mixture([asked(n) for n in range(9)], kind, "x.jsonl") is None


def test_what_is_no_mixture() -> None:
    """Ratings up to the first error and ratings of all steps mean other labels; ``--format`` names
    one format."""
    first = {"problem": "p", "steps": ["a", "b"], "label": 1, "final_answer_correct": False}
    every = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}
    with pytest.raises(DataError, match="files of their own"):
        detect_mixture([first, every] * 9, kind_of("prm"), "x.jsonl")
    raised(UsageError, formats.choose, "openai+alpaca", kind_of("sft"), says="names one format")
