"""Questions of evaluations are found in rows: exactly, whatever their case, spaces and digits."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stages import kinds
from stages.columns import schema
from stages.overlap import said, words
from stages.overlap.evaluations import Items, Questions
from stages.overlap.search import Index, Overlap

SIZE = 4
WORD = st.sampled_from("a b c d e ff gg".split())
TEXT = st.lists(WORD, max_size=24).map(" ".join)
LETTERS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
ANY = st.text(max_size=40)
FULL_WIDTH = {ord(str(n)): chr(0xFF10 + n) for n in range(10)}
ARABIC = {ord(str(n)): chr(0x0660 + n) for n in range(10)}


def _index(questions: Sequence[str | None], size: int = 8) -> Index:
    read = Questions("question", tuple(range(1, len(questions) + 1)), tuple(questions))
    return Index(Items.of([read]), size)


def _found(index: Index, *texts: str) -> dict[int, list[Overlap]]:
    """What each text shares, as a row of its own."""
    return index.overlaps(texts, np.arange(len(texts)))


@st.composite
def disguised(draw: st.DrawFn, text: str) -> str:
    """The same text in another case, with other spaces, signs, accents and digits."""
    pieces = []
    for character in text:
        way = draw(st.integers(0, 6))
        if character == " ":
            pieces.append(
                draw(st.sampled_from([" ", "  ", "\t", "\n", ", ", "! ", "\u3000", " (", ""]))
            )
        elif character.isdigit():
            tables: tuple[dict[int, str], ...] = ({}, FULL_WIDTH, ARABIC)
            pieces.append(character.translate(tables[way % 3]))
        elif way == 1:
            pieces.append(unicodedata.normalize("NFC", character + "\u0301"))
        else:
            pieces.append(character.swapcase() if way % 2 else character)
    return "".join(pieces)


QUESTION = (
    st.lists(LETTERS, min_size=8, max_size=20)
    .map(" ".join)
    .filter(lambda text: len(text.replace(" ", "")) >= 16)
)


@given(QUESTION.flatmap(lambda text: st.tuples(st.just(text), disguised(text))), ANY, ANY)
def test_a_disguise_leaves_a_hit_a_hit(both: tuple[str, str], before: str, after: str) -> None:
    """Case, spaces, punctuation, accents and digits of other scripts change nothing, nor does what
    stands around it."""
    question, disguise = both
    (overlap,) = _found(_index([question]), f"{before}. {disguise} .{after}")[0]
    assert (overlap.share, overlap.contained) == (1.0, True)


@given(ANY)
def test_plain_words_of_ascii_are_those_of_other_texts(text: str) -> None:
    """There are two ways to make them, and they agree."""
    bare = "".join(one for one in text if one.isascii())
    assert words.plain(f"{bare} é").split() == [*words.plain(bare).split(), b"e"]


UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen".split()
)
UNITS += "fifteen sixteen seventeen eighteen nineteen".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def _spelled(number: int, joint: str) -> str:
    """A number in words."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        rest = f"-{UNITS[number % 10]}" if number % 10 else ""
        return f"{TENS[number // 10]}{rest}"
    size, word = next(
        (n, w) for n, w in ((10**6, "million"), (1000, "thousand"), (100, "hundred")) if number >= n
    )
    rest = f"{joint}{_spelled(number % size, joint)}" if number % size else ""
    return f"{_spelled(number // size, joint)} {word}{rest}"


@given(st.integers(0, 999_999), st.sampled_from([" ", " and "]))
def test_numbers_in_words_are_digits(number: int, joint: str) -> None:
    """In the words of a text, and where signs count."""
    text = f"there were {_spelled(number, joint)} of them"
    assert words.plain(text).split() == f"there were {number} of them".encode().split()
    assert words.plain(text.title()).split() == words.plain(f"There were {number} of them").split()


def test_numbers_in_words_are_found_without_spaces() -> None:
    """Where no word can be told from another; and as digits where one can."""
    question = "Betty has twenty-one boxes and two of them are open. How many of them are closed?"
    index = _index([question, "What is two and two?", "Two times thirty is how much?"])
    texts = [
        question.replace(" ", "").upper(),
        question.replace("twenty-one", "21").replace("two", "2").replace(" ", ""),
        question.replace("twenty-one", "21").replace("two", "2"),
        "Whatistwoandtwo",
        "what is 2 and 2",
        "2 times 30 is how much?",
    ]
    found = _found(index, *texts)
    contained = {row: [one.item for one in some if one.contained] for row, some in found.items()}
    assert contained == {0: [0], 1: [0], 2: [0], 3: [1], 4: [1], 5: [2]}
    assert found[0][0].said == texts[0]


def test_words_that_are_no_numbers_stay() -> None:
    """Parts of other words, and numbers side by side."""
    assert (
        words.plain("someone often weighs a tone").split() == b"someone often weighs a tone".split()
    )
    assert words.plain("two three, twenty forty").split() == b"2 3 20 40".split()


@given(ANY)
def test_each_letter_has_a_place_in_its_text(text: str) -> None:
    """Where an excerpt begins follows from it."""
    ungrouped = text.replace(",", "")
    assert words.letters_before(ungrouped)[-1] == len(words.solid(words.plain(ungrouped)))


def _share(question: str, text: str) -> float:
    """The share by its definition."""
    asked, there = question.split(), text.split()
    runs = {tuple(there[i : i + SIZE]) for i in range(len(there) - SIZE + 1)}
    starts = [i for i in range(len(asked) - SIZE + 1) if tuple(asked[i : i + SIZE]) in runs]
    covered = {place for start in starts for place in range(start, start + SIZE)}
    return len(covered) / len(asked) if asked else 0.0


@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(TEXT, min_size=1, max_size=6))
def test_shares_are_what_they_are_by_definition(questions: list[str], texts: list[str]) -> None:
    """And so a row without a shared run is no hit."""
    found = _found(_index(questions, SIZE), *texts)
    for row, text in enumerate(texts):
        shares = {one.item: one for one in found.get(row, [])}
        for item, question in enumerate(questions):
            long = len(question.split()) >= SIZE
            letters = question.replace(" ", "")
            if long and not (len(letters) >= 16 and letters in text.replace(" ", "")):
                assert (shares[item].share if item in shares else 0.0) == _share(question, text)
            elif long:
                assert shares[item].contained


@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(TEXT, min_size=2, max_size=6), st.randoms())
def test_the_order_of_rows_does_not_matter(
    questions: list[str], texts: list[str], random: np.random.Generator
) -> None:
    """Each row has what it has alone."""
    index = _index(questions, SIZE)
    order = list(range(len(texts)))
    random.shuffle(order)  # type: ignore[arg-type]
    found, shuffled = _found(index, *texts), _found(index, *(texts[i] for i in order))
    assert {row: found[order[row]] for row in shuffled} == shuffled
    assert {row: _found(index, texts[row]).get(0, []) for row in found} == found


def test_short_questions_are_found_whole() -> None:
    """In a longer text, too, where words begin and end, with the signs between numbers."""
    index = _index(
        ["What is the capital of France?", "What is 2 + 2?", "2-1=?", "法国的首都是哪里"]
    )
    asks = {
        "what is the CAPITAL of france": 0,
        "Answer in one word. What is the capital of France? Thanks!": 0,
        "what is 2+2": 1,
        "2 - 1": 2,
        "What is two + two?": 1,
        "请问：法国的首都是哪里？": 3,
    }
    innocent = [
        "What is the capital of Francescotown?",
        "What is 22?",
        "what is 2-2?",
        "21",
        "So, what is 2 + 2?",  # less than ANCHOR bytes: only as a turn of its own
        "法国的首都",
    ]
    found = _found(index, *asks, *innocent)
    assert {row: [one.item for one in some] for row, some in found.items()} == {
        row: [item] for row, item in enumerate(asks.values())
    }


def test_numbers_are_the_same_however_their_thousands_are_written() -> None:
    """In runs too, where a part of the question is missing."""
    question = "a town of 1,000 people has 25 streets and each of them is 2,500 metres long today"
    row = "there is a town of 1000 people has 25 streets and each of them is 2500 metres"
    (overlap,) = _found(_index([question]), row)[0]
    assert overlap.share == 15 / 17
    assert not overlap.contained
    assert overlap.match == question.replace(",", "").removesuffix(" long today")


def test_the_instruction_of_an_evaluation_is_no_part_of_its_questions() -> None:
    """Rows with the same instruction, but other questions, are innocent."""
    begin = "Read the question and answer with the letter of the right choice and nothing else."
    topics = [f"t{n} u{n} v{n} w{n} x{n} y{n} z{n} r{n} s{n}" for n in range(30)]
    index = _index([f"{begin} {topic}" for topic in topics])
    found = _found(index, f"{begin} quite another thing", f"{begin} {topics[3]}", topics[4])
    assert max(one.share for one in found.get(0, [])) < 0.5 if 0 in found else True
    assert [one.item for one in found[1] if one.share > 0.5] == [3]
    assert [one.item for one in found[2] if one.share > 0.5] == [4]


def test_what_is_compared_of_a_conversation() -> None:
    """The turns that are no answers; all of them where it has no others."""
    roles = [["system", "user", "assistant"], ["assistant"], []]
    turns = [[{"role": role, "content": f"{role}?"} for role in own] for own in roles]
    batch = pa.RecordBatch.from_pydict({"messages": turns}, schema=schema(["messages"]))
    own = kinds.load("conversation")
    texts, rows = said.texts(batch, own, whole=False)
    assert (list(texts), rows.tolist()) == (["system?", "user?", "assistant?"], [0, 0, 1])
    texts, rows = said.texts(batch.slice(1), own, whole=True)
    assert (list(texts), rows.tolist()) == (["assistant?"], [0])


def test_calls_of_tools_are_compared_where_all_of_a_row_is() -> None:
    """Rows that differ in their tools alone are not alike."""
    call = {"role": "assistant", "content": None, "fields": '{"tool_calls": []}'}
    turns = [[{"role": "user", "content": "U"}, call], [{"role": "user", "content": "V"}]]
    batch = pa.RecordBatch.from_pydict(
        {"messages": turns, "tools": ["T", None]}, schema=schema(["messages", "tools"])
    )
    own = kinds.load("conversation")
    texts, rows = said.texts(batch, own, whole=True)
    assert list(texts) == ["U", "", '{"tool_calls": []}', "T", "V", ""]
    assert rows.tolist() == [0, 0, 0, 0, 1, 1]
    assert list(said.texts(batch, own, whole=False)[0]) == ["U", "V"]


def test_what_is_compared_of_pairs_and_steps() -> None:
    """Both answers, and the steps, only where all of a row is."""
    turn = {"role": "user", "content": "U"}
    answers = [{**turn, "role": "assistant", "content": one} for one in ("A", "B")]
    pair = pa.RecordBatch.from_pydict(
        {"chosen_messages": [[turn, answers[0]]], "rejected_messages": [[turn, answers[1]]]},
        schema=schema(["chosen_messages", "rejected_messages"]),
    )
    own = kinds.load("pair")
    assert said.texts(pair, own, whole=False)[0] == ["U"]
    assert said.texts(pair, own, whole=True)[0] == ["U", "A", "U", "B"]
    steps = pa.RecordBatch.from_pydict(
        {"problem": ["P", None], "steps": [["1", "2"], []]}, schema=schema(["problem", "steps"])
    )
    own = kinds.load("steps")
    assert said.texts(steps, own, whole=False)[0] == ["P", ""]
    assert list(said.texts(steps, own, whole=True)[0]) == ["P", "1", "2", ""]
