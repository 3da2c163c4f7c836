"""Columns play the roles of a format by names and values: any spelling, order and company of them
is read at once or asked about with every way, and what is used says the same as its options."""

import contextlib
import itertools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import few, table

from pipeline.options.ways import ways
from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Conversation, FormatOptions, Row
from stages.errors import DataError, RowError
from stages.formats import _parts
from stages.normalize import evidence, finders, lacking, role_columns, role_names, roles
from stages.normalize.role_names import SHAPES
from stages.rows import signals
from stages.rows.selection import inside, lookup, renamed, rest
from stages.rows.unread import turns_of

ROWS = range(12)
# What each role says in row number i; every text differs from row to row.
SAYS: Mapping[str, Callable[[int], Any]] = {
    "question": lambda i: f"What is {i} and {i * 7} together, in words?",
    "answer": lambda i: f"We add {i} to {i * 7}, digit by digit, and so it is {i * 8}.",
    "reasoning": lambda i: f"First I look at {i}. Then at {i * 7}. Nothing is carried over.",
    "chosen": lambda i: f"It is {i * 8}, since both are added.",
    "rejected": lambda i: f"Nobody can know that of {i}.",
    "steps": lambda i: [f"Take {i}.", f"Add {i * 7}.", "Write it down."],
    "ratings": lambda i: [1, i % 2, 0],
    "error": lambda i: None if i % 3 == 1 else i % 3,
    "choice": lambda i: "ab"[i % 2],
}
# Words for a role; every spelling of each is tried, and none of them is the name of a format's own.
WORDS: Mapping[str, Sequence[str]] = dict(table("words_of_roles.jsonl"))
# What stands beside the data and plays no role.
BESIDE: Mapping[str, Callable[[int], Any]] = {
    "uuid": lambda i: f"8c{i}-ff",
    "question_id": lambda i: f"q/{i}",
    "source_dataset": lambda i: "gsm",
    "tags": lambda i: ["maths", f"t{i}"],
    "response_token_count": lambda i: 20 + i,
    "answer_model": lambda i: f"m-{i}",
    "expected_answer": lambda i: str(i * 8),
    "prompt_category": lambda i: f"c{i}",
    "metadata": lambda i: {"question": f"old {i}", "answer": f"old answer {i}"},
    "difficulty": lambda i: i / 10,
}
# The roles of a row of each task, and the formats that may read it.
READ: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "exchange": ("sft", ("question", "answer")),
    "reasoned": ("sft", ("question", "reasoning", "answer")),
    "pair": ("rm", ("question", "chosen", "rejected")),
    "rated": ("prm", ("question", "steps", "ratings")),
    "first_error": ("prm", ("question", "steps", "error")),
}


def spelled(word: str, way: int) -> str:
    """A name in one of the ways in which people write it."""
    pieces = word.split("_")
    ways = (
        "_".join(piece.capitalize() for piece in pieces),
        "".join(piece.capitalize() for piece in pieces),
        pieces[0] + "".join(piece.capitalize() for piece in pieces[1:]),
        word.upper(),
        " ".join(piece.capitalize() for piece in pieces),
        f"{word}_1",
        f"r1_{word}",
    )
    return ways[way % len(ways)]


def made(parts: Sequence[str], rng: Random) -> tuple[dict[str, str], list[Row]]:
    """The column of each role, and rows that have these and others, in any order."""
    ways = {role: rng.randrange(7) for role in parts}
    words = {role: rng.choice(WORDS[role]) for role in parts}
    if "chosen" in parts:  # two sides of one thing are written alike
        ways["rejected"] = ways["chosen"]
        words["rejected"] = WORDS["rejected"][WORDS["chosen"].index(words["chosen"])]
    names = {role: spelled(words[role], ways[role]) for role in parts}
    if rng.random() < 0.2:
        names = {role: f"data.{name}" for role, name in names.items()}
    beside = rng.sample([*BESIDE], rng.randrange(5))
    order = [*names, *beside]
    rng.shuffle(order)
    rows: list[Row] = []
    for number in ROWS:
        row: Row = {}
        for one in order:
            head, _, inner = names.get(one, one).rpartition(".")
            value = (SAYS.get(one) or BESIDE[one])(number)
            (row.setdefault(head, {}) if head else row)[inner] = value
        rows.append(row)
    return names, rows


def said(reading: str, rows: Sequence[Row], by_hand: Mapping[str, str] | None = None) -> list[str]:
    """What a reading makes of raw rows: its examples, or why there is none."""
    form = formats.load(reading)
    options = form.told(FormatOptions(columns=dict(by_hand or {})))
    found = []
    for row in rows:
        try:
            found.append(repr(form.read(renamed(row, options.columns), options)))
        except RowError as error:
            found.append(error.code)
    return found


@pytest.mark.parametrize("name", READ)
@settings(max_examples=60)
@given(rng=st.randoms(use_true_random=False))
def test_columns_of_any_spelling_and_company_are_read_at_once(name, rng):
    """The evidence says which column plays which role; every role's column, and no other, is read,
    and the options of the same candidate, pasted, read the same."""
    task, parts = READ[name]
    names, rows = made(parts, rng)
    kind = kind_of(task)
    found = evidence.detect(rows, kind, "x.jsonl")
    form = found.format
    assert {*form.renamed.values()} == {*names.values()}, found
    assert all(f"{column} as " in found.evidence for column in names.values())
    examples = said(found.reading, rows)
    for number in ROWS:
        shown = [SAYS[role](number) for role in parts if role not in ("ratings", "error")]
        texts = [text for one in shown for text in (one if isinstance(one, list) else [one])]
        assert all(text in examples[number] for text in texts), (found, number)
    (candidate,) = roles.find(rows, kind, {})
    by_hand = pasted(candidate.options)
    given_rows = [renamed(row, by_hand) for row in rows]
    again = evidence.detect(given_rows, kind, "x.jsonl", columns=by_hand).reading
    assert said(again, rows, by_hand) == examples


def pasted(options: str) -> dict[str, str]:
    """The columns that ``--map`` options name."""
    words = shlex.split(options)
    pairs = [words[at + 1].partition("=") for at, one in enumerate(words) if one == "--map"]
    return {name: column for name, _, column in pairs}


@settings(max_examples=40)
@given(rng=st.randoms(use_true_random=False), role=st.sampled_from(["question", "answer"]))
def test_two_columns_of_one_role_are_asked_about_with_both(rng, role):
    """Each way that the question offers is read; where both say the same nothing is asked."""
    names, rows = made(("question", "answer"), rng)
    where = names[role].rpartition(".")[0]
    other = f"{where}.other_{WORDS[role][0]}" if where else f"other_{WORDS[role][0]}"
    for differs in (True, False):
        both = json.loads(json.dumps(rows))
        for number, row in enumerate(both):
            text = lookup(row, names[role])
            (row[where] if where else row)[other.rpartition(".")[2]] = (
                f"{text} Or not {number}?" if differs else text
            )
        if not differs:
            evidence.detect(both, kind_of("sft"), "x.jsonl")
            continue
        with pytest.raises(DataError) as asked:
            evidence.detect(both, kind_of("sft"), "x.jsonl")
        ways = [
            pasted(way) for way in asked.value.remedy[len("Say which with ") : -1].split(", or ")
        ]
        assert {column for way in ways for column in way.values()} == {*names.values(), other}
        for way in ways:
            given_rows = [renamed(row, way) for row in both]
            evidence.detect(given_rows, kind_of("sft"), "x.jsonl", columns=way)


@pytest.mark.parametrize("stems", [("user", "assistant"), ("Question", "Answer"), ("q", "a")])
def test_a_numbered_family_is_the_turns_of_one_conversation(stems):
    """Where some rows have more of it, none of their turns is lost."""
    asked, answered = stems

    def row(i: int, turns: int) -> Row:
        said = {
            f"{asked}_{n}": SAYS["question"](i + n) if n <= turns else None for n in range(1, 4)
        }
        told = {
            f"{answered}_{n}": SAYS["answer"](i + n) if n <= turns else None for n in range(1, 4)
        }
        return {**said, **told}

    rows = [row(i, 1 + i % 3) for i in ROWS]
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    for i, one in zip(ROWS, rows, strict=True):
        (example,) = found.read(renamed(one, found.renamed), FormatOptions())
        assert len(list(turns_of([example]))) == 2 * (1 + i % 3)


SPOKEN = {
    "a list of texts": ("dialog", lambda said: said),
    "two more names for it": ("data", lambda said: said),
    "turns with text": (
        "trajectory",
        lambda said: [
            {"role": ("user", "ai")[at % 2], "text": text, "seen": None}
            for at, text in enumerate(said)
        ],
    ),
}


NAMED: list[tuple[str, tuple[Any, Any]]] = [*map(tuple, table("named_turns.jsonl"))]


@pytest.mark.parametrize(("who", "names"), few(NAMED, 3))
@pytest.mark.parametrize("what", few(["text", "msg", "utterance", "body", "content"], 2))
@pytest.mark.parametrize("numbered", ["", "{}", "turn_{}", "lists"])
def test_turns_are_read_whatever_their_keys_are_called(who, names, what, numbered):
    """Who speaks is said by a name, by what is true of a bot, or inside of an object; the turns are
    a list, an object whose keys count them, or one with a list for each of their keys."""
    said = [[SAYS["question"](i), SAYS["answer"](i)] * (1 + i % 2) for i in ROWS]
    rows: list[Row] = []
    for texts in said:
        turns = [{who: names[at % 2], "at": at, what: text} for at, text in enumerate(texts)]
        counted = {numbered.format(at): turn for at, turn in enumerate(turns, 1)}
        lists = {key: [turn[key] for turn in turns] for key in turns[0]}
        rows.append({"log": {"": turns, "lists": lists}.get(numbered, counted)})
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    assert _read(rows) == said
    (example,) = found.read(renamed(rows[1], found.renamed), FormatOptions())
    assert [turn.role for turn in turns_of([example])] == ["user", "assistant"] * 2


@pytest.mark.parametrize("name", SPOKEN)
def test_turns_are_read_in_every_shape(name):
    """As texts in turn, and with their text under another key than ``content``."""
    column, shaped = SPOKEN[name]
    said = [[SAYS["question"](i), SAYS["answer"](i)] * (1 + i % 2) for i in ROWS]
    rows = [{"id": i, column: shaped(texts)} for i, texts in zip(ROWS, said, strict=True)]
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    for texts, row in zip(said, rows, strict=True):
        (example,) = found.read(renamed(row, found.renamed), FormatOptions())
        assert [turn.content for turn in turns_of([example])] == texts


def _read(rows: Sequence[Row]) -> list[list[str | None]]:
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    options = found.told(FormatOptions())
    read = [found.read(renamed(row, found.renamed), options) for row in rows]
    return [[turn.content for turn in turns_of(examples)] for examples in read]


@pytest.mark.parametrize("name", ["dialogue", "story", "source", "article"])
@pytest.mark.parametrize("answer", ["summary", "target"])
@pytest.mark.parametrize("beside", [{}, {"prompt": "t_0", "task": "gsm8k"}])
def test_what_is_answered_is_seen_by_its_values(name, answer, beside):
    """A text that differs from row to row, in front of the answer, whatever it is called, where
    what is called a question is no more than a name."""
    rows = [{name: SAYS["question"](i), answer: SAYS["answer"](i), **beside} for i in ROWS]
    assert _read(rows) == [[row[name], row[answer]] for row in rows]


@pytest.mark.parametrize("name", ["contexts", "passages", "documents"])
@pytest.mark.parametrize("question", ["Frage", "user_request"])
def test_passages_stand_behind_the_question(name, question):
    """A list of them is one text, with a blank line between them."""
    rows = [
        {
            name: [SAYS["chosen"](i), SAYS["reasoning"](i)],
            question: SAYS["question"](i),
            "Antwort": SAYS["answer"](i),
        }
        for i in ROWS
    ]
    asked = ["\n\n".join([row[question], *row[name]]) for row in rows]
    assert _read(rows) == [[one, row["Antwort"]] for one, row in zip(asked, rows, strict=True)]


@pytest.mark.parametrize("name", ["loss_mask", "turn_weights", "weights", "trainable"])
def test_weights_of_turns_in_a_list_are_those_of_the_turns(name):
    """A list that is as long as the turns; a list that is not is refused."""
    rows = [
        {
            "dialog": [
                {"role": role, "content": SAYS[says](i + n)}
                for n in range(2)
                for role, says in (("user", "question"), ("assistant", "answer"))
            ],
            name: [0, i % 2, 0, 1],
        }
        for i in ROWS
    ]
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    for i, row in zip(ROWS, rows, strict=True):
        (example,) = found.read(renamed(row, found.renamed), FormatOptions())
        assert [turn.trained for turn in turns_of([example])] == [False, i % 2 == 1, False, True]
    with pytest.raises(RowError, match="as long as the turns"):
        found.read(renamed({**rows[0], name: [0, 1]}, found.renamed), FormatOptions())


@pytest.mark.parametrize("task", ["sft", "rm"])
def test_a_title_and_its_text_are_asked_together(task):
    """Rows without a text ask what the title does."""
    rows = [
        {
            "post_title": SAYS["question"](i),
            "selftext": f"I wonder about {i}." if i % 2 else "",
            **({"reply": SAYS["answer"](i)} if task == "sft" else {}),
            **(
                {"liked": SAYS["chosen"](i), "disliked": SAYS["rejected"](i)}
                if task == "rm"
                else {}
            ),
        }
        for i in ROWS
    ]
    found = evidence.detect(rows, kind_of(task), "x.jsonl")
    for i, example in enumerate(said(found.reading, rows)):
        assert SAYS["question"](i) in example
        assert (f"I wonder about {i}." in example) == (i % 2 == 1)


REFERENCES = ("answer", "correct_answer", "label_answer", "target")


@pytest.mark.parametrize("short", REFERENCES)
@pytest.mark.parametrize("long", ["solution", "generated_solution", "R1_Response", "output_text"])
def test_a_reference_is_what_a_longer_answer_ends_with(short, long):
    """It is no answer beside that one, and the only answer alone."""
    texts = [f"Both are added with care, and so the sum is {i * 8}." for i in ROWS]
    asks = SAYS["question"]
    rows = [{"problem": asks(i), short: str(i * 8), long: texts[i]} for i in ROWS]
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl")
    assert all(text in one for text, one in zip(texts, said(found.reading, rows), strict=True))
    alone = [{"problem": row["problem"], short: row[short]} for row in rows]
    evidence.detect(alone, kind_of("sft"), "x.jsonl")


def sided(shape: str, i: int) -> Row:
    """Two answers of which row i prefers the first, the second or none, in one of many shapes."""
    texts = [f"The first says {i}.", f"The second says {i}."]
    wins = [int(i % 3 == side) for side in range(3)]
    scores = [float(i % 3 != 1), float(i % 3 != 0)]
    row: Row = {"user_query": SAYS["question"](i), "id": i}
    if shape == "one-hot":
        flags = zip(("winner_model_a", "winner_model_b", "winner_tie"), wins, strict=True)
        return {**row, "reply_a": texts[0], "reply_b": texts[1], **dict(flags)}
    if shape == "texts of one-hot":
        flags = zip(("left_wins", "right_wins", "tie_wins"), map(str, wins), strict=True)
        return {**row, "left_reply": texts[0], "right_reply": texts[1], **dict(flags)}
    if shape == "objects":
        both = ({"text": t, "score": s} for t, s in zip(texts, scores, strict=True))
        return {**row, **dict(zip("ab", both, strict=True))}
    if shape == "letters":
        word = "abt"[wins.index(1)].replace("t", "tie")
        return {**row, "left_reply": texts[0], "right_reply": texts[1], "judge": {"winner": word}}
    if shape == "lists":
        return {**row, "model_replies": texts, "judge_scores": scores}
    said_so = [{"said": t, "judge_score": s} for t, s in zip(texts, scores, strict=True)]
    return {**row, "model_replies": said_so}


SIDED = ("one-hot", "texts of one-hot", "objects", "letters", "lists", "list of objects")


@pytest.mark.parametrize("shape", SIDED)
def test_the_better_of_two_is_found_wherever_the_row_says_it(shape):
    """At any depth, and in one column for each side; a tie is refused as one."""
    rows = [sided(shape, i) for i in ROWS]
    found = evidence.detect(rows, kind_of("rm"), "x.jsonl")
    for i, example in enumerate(said(found.reading, rows)):
        if i % 3 == 2:
            assert "tie" in example, (shape, example)
            continue
        chosen = example.partition("chosen=")[2]
        first, second = f"The first says {i}.", f"The second says {i}."
        assert (chosen.index(first) < chosen.index(second)) == (i % 3 == 0), (shape, example)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), min_size=1, max_size=4))
def test_a_reading_keeps_any_names(columns):
    """Signs that a reading itself has among them."""
    columns = {name: column or "x" for name, column in columns.items() if name}
    reading = formats.reading_of("indexed_pair", "1-based", columns)
    assert dict(formats.load(reading).renamed) == columns
    assert formats.load(reading).name == "indexed_pair"
    assert formats.AND not in reading


TREES = st.recursive(
    st.integers(1, 9),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
        | st.lists(
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1), min_size=1, max_size=3
        )
    ),
    max_leaves=12,
)


def leaves(value: Any) -> list[int]:
    """Every number in a value."""
    if isinstance(value, int):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [one for item in items for one in leaves(item)]


def paths(value: Any, before: str) -> list[str]:
    """Every path into a value, keys of all objects of a list among them."""
    if isinstance(value, dict):
        return [
            p
            for key, one in value.items()
            for p in (f"{before}.{key}", *paths(one, f"{before}.{key}"))
        ]
    if isinstance(value, list):
        return list(dict.fromkeys(p for one in value for p in paths(one, f"{before}[]")))
    return []


@given(TREES, st.data())
def test_what_is_taken_from_inside_and_what_is_left_are_all(tree, data):
    """Whatever path is read, it and the rest are the column, and nothing twice."""
    row = {"column": tree}
    able = [path for path in paths(tree, "column") if lookup(row, path) is not None]
    if not able:
        return
    path = data.draw(st.sampled_from(able))
    left = [one for _, value in rest("column", tree, [path]) for one in leaves(value)]
    taken = [one for one in _flat(lookup(row, path)) if one is not None]
    assert sorted([*left, *taken]) == sorted(leaves(tree)), path


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [one for item in items for one in _flat(item)]
    return [value]


def test_two_paths_are_a_list_and_both_are_read():
    """``a.text,b.text`` is the texts of both sides; a column of that name goes before."""
    row: Row = {"a": {"text": "x", "n": 1}, "b": {"text": "y"}, "c,d": "z", "c": 1, "d": 2}
    assert lookup(row, "a.text,b.text") == ["x", "y"]
    assert lookup(row, "a.none,b.none") is None
    assert lookup(row, "c,d") == "z"
    assert renamed(row, {"sides": "c,a.text"})["sides"] == [1, "x"]
    assert "c" not in renamed(row, {"sides": "c,a.text"})
    assert [*rest("a", row["a"], inside({"sides": "a.text,b.text"}))] == [("a.n", 1)]


def test_a_part_of_a_name_means_a_word_that_it_begins():
    """Three letters are enough; what names something about a column is not that column."""
    for word in (
        "question",
        "answer",
        "reasoning",
        "steps",
        "rationale",
        "instruction",
        "response",
    ):
        role = role_names.role_of(word)
        assert role
        for cut in range(4, len(word)):
            assert role_names.role_of(word[:cut]) == role, word[:cut]
        assert role_names.role_of(f"{word}_id") == ""
        assert role_names.role_of(f"is_{word}_valid") == ""


@pytest.mark.parametrize("lacking", [True, False])
def test_of_two_texts_before_an_answer_none_is_taken_for_the_question(lacking):
    """Neither name says that it is asked: also where some rows have only one of them."""
    rows = [
        {
            "plain": f"How do I keep plant {n} alive in a dark room?",
            "dressed": "" if lacking and n % 2 else f"You are gardener {n}. Tell me about it.",
            "completion": f"Give plant {n} some light, and water it once a week.",
        }
        for n in range(20)
    ]
    with pytest.raises(DataError) as caught:
        evidence.detect(rows, kind_of("sft"), "rows.jsonl")
    if lacking:
        (way,) = ways(caught.value.remedy)
        given = dict(value.split("=", 1) for _, value in way)
        found = evidence.detect(
            [renamed(row, given) for row in rows], kind_of("sft"), "rows.jsonl", columns=given
        )
        for row in rows:
            options = FormatOptions(columns=given)
            (example,) = found.format.read(renamed(row, given), options)
            said = [turn.content for turn in turns_of([example])]
            assert said == [row["dressed"] or row["plain"], row["completion"]]


def test_every_role_of_a_format_has_a_finder():
    """A role that no function finds would be an error at the first file that needs it."""
    held = role_columns.columns_of([{"x": 0.5}], answers_alone=True)
    for shape in itertools.chain.from_iterable(SHAPES.values()):
        for role in {*shape.needs.values(), *shape.may.values()}:
            one_of_two = role.startswith(("chosen ", "rejected ", "first a", "first t", "second "))
            assert (finders.couples if one_of_two else finders.able)(held, role) == []


def test_no_two_names_are_offered_as_question_and_answer_beside_what_is_said():
    """Most of the text stands in a column that nothing can read."""
    rows = [
        {
            "channel": f"help {n % 3}",
            "started": f"thread {n}",
            "log": [{"who": f"u{n}", "line": SAYS["answer"](n)}, {"who": "b", "line": "Thanks."}],
        }
        for n in ROWS
    ]
    with pytest.raises(DataError) as caught:
        evidence.detect(rows, kind_of("sft"), "rows.jsonl")
    assert "completion" not in caught.value.remedy.partition("--format")[0]


@pytest.mark.parametrize("ours", ["gpt", "model_a", "deepseek"])
@pytest.mark.parametrize("theirs", ["llama", "model_b", "2"])
def test_reasoning_is_that_of_its_own_answer(ours: str, theirs: str) -> None:
    """Of two models with reasoning and an answer each there are two readings, not four."""
    rows = [
        {"question": SAYS["question"](i)}
        | {f"{name}_rationale": f"{name}: {SAYS['reasoning'](i)}" for name in (ours, theirs)}
        | {f"{name}_answer": f"{name}: {SAYS['answer'](i)}" for name in (ours, theirs)}
        for i in ROWS
    ]
    found = roles.find(rows, kind_of("sft"), {}, "message_thinking")
    assert {(one.renamed["message_thinking"], one.renamed["message_content"]) for one in found} == {
        (f"{name}_rationale", f"{name}_answer") for name in (ours, theirs)
    }


# Rows of one thing, by what each row is, with the names of what they share.
PIECES: Mapping[str, tuple[str, Callable[[int], Row]]] = {
    "turn": ("sft", lambda i: {"role": ["user", "assistant"][i % 2], "text": SAYS["answer"](i)}),
    "step": ("prm", lambda i: {"question": SAYS["question"](i // 4), "step": f"Add {i} to it."}),
    "answer": ("rm", lambda i: {"prompt": SAYS["question"](i // 4), "reply": SAYS["answer"](i)}),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("shared", ["conversation_id", "sampleId", "thread-id", "uuid"])
@pytest.mark.parametrize("place", few(["turn_index", "step_idx", "no"], 1))
def test_rows_that_are_pieces_of_one_example_are_told_so(
    piece: str, shared: str, place: str
) -> None:
    """No command is offered that would read each of them as a whole."""
    task, made = PIECES[piece]
    rows = [{shared: f"c{i // 4}", place: i % 4, "score": i % 5, **made(i)} for i in range(24)]
    with pytest.raises(DataError) as asked:
        evidence.detect(rows, kind_of(task), "x.jsonl")
    assert f"each row is one {piece}" in asked.value.what
    assert not ways(asked.value.remedy)


@pytest.mark.parametrize("names", [("question", "answer"), ("Ask", "Reply"), ("prompt", "output")])
@pytest.mark.parametrize("several", range(3))
@pytest.mark.parametrize("asked_plainly", [True, False])
def test_lists_in_texts_are_asked_about_before_they_are_read(
    names: tuple[str, str], several: int, asked_plainly: bool
) -> None:
    """What is inside is read, of several answers the first, or all of them as JSON."""
    said = [(SAYS["question"](i), SAYS["answer"](i)) for i in ROWS]
    rows = [
        {
            names[0]: question if asked_plainly else json.dumps([question]),
            names[1]: json.dumps([answer, *[f"Or else {answer}"] * (several and (i % several))]),
        }
        for i, (question, answer) in enumerate(said)
    ]
    with pytest.raises(DataError) as asked:
        evidence.detect(rows, kind_of("sft"), "x.jsonl")
    way, *others = ways(asked.value.remedy)
    columns = dict(value.split("=", 1) for _, value in way)
    assert len(others) == any("[first]" in path for path in columns.values())
    given = [renamed(row, columns) for row in rows]
    found = evidence.detect(given, kind_of("sft"), "x.jsonl", columns=columns).format
    read = [found.read(row, found.told(FormatOptions(columns=columns))) for row in given]
    assert [[turn.content for turn in turns_of(one)] for one in read] == [[*both] for both in said]


@pytest.mark.parametrize("name", ["tools", "apis", "toolbox"])
def test_tools_are_read_as_they_are_declared(name: str) -> None:
    """With what is around each function, whatever their list is called."""
    schema = {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": schema}]
    rows: list[Row] = [{"dialogue": _turns(i, "role", "content"), name: tools} for i in ROWS]
    found = evidence.detect(rows, kind_of("sft"), "x.jsonl").format
    given = renamed(rows[0], found.renamed)
    (read,) = found.read(given, found.told(FormatOptions()))
    assert isinstance(read, Conversation)
    assert read.tools == tools


def _steps(i: int) -> list[str]:
    return [f"Step {n} adds {i} to what was found." for n in range(3)]


_ASK, _SAY = SAYS["question"], SAYS["answer"]
# Rows under names of nobody's format, each with another way to say it.
NAMELESS: Mapping[str, tuple[str, Callable[[int], Sequence[Any]]]] = {
    "Frage Antwort": ("sft", lambda i: (_ASK(i), _SAY(i))),
    "user_query model_reply": ("sft", lambda i: (_ASK(i), _SAY(i))),
    "id convo": ("sft", lambda i: (f"x{i}", _turns(i, "role", "content"))),
    "chat_log": ("sft", lambda i: (_turns(i, "speaker", "text"),)),
    "user_1 assistant_1 user_2 assistant_2": (
        "sft", lambda i: (_ASK(i), _SAY(i), _ASK(i + 9), _SAY(i + 9)),
    ),
    "ask reply_a reply_b winner": ("rm", lambda i: (_ASK(i), _SAY(i), f"No {i}, no.", "ab"[i % 2])),
    "ask good_reply bad_reply": ("rm", lambda i: (_ASK(i), _SAY(i), f"No {i}, not that one.")),
    "question candidates ratings": (
        "rm", lambda i: (_ASK(i), [_SAY(i + n) for n in range(3)], [5, 1, 3]),
    ),
    "Ask chain verdicts": ("prm", lambda i: (_ASK(i), _steps(i), [1, i % 2, 0])),
    "problem solution_steps first_wrong_step": ("prm", lambda i: (_ASK(i), _steps(i), i % 4 - 1)),
    "question process labels": (
        "prm", lambda i: (_ASK(i), "".join(f"{one} ки\n" for one in _steps(i)), [1, 1, 0]),
    ),
}  # fmt: skip


def _turns(i: int, who: str, what: str) -> list[dict[str, Any]]:
    return [{who: "user", what: _ASK(i)}, {who: "assistant", what: _SAY(i)}]


_PLAIN = st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-1, 1) | st.text(max_size=9)
_NESTED = st.recursive(
    _PLAIN,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text("ab"), one),
    max_leaves=4,
)


@pytest.mark.parametrize("names", NAMELESS)
@settings(max_examples=12)
@given(odd=_NESTED, column=st.integers(0, 3), at=st.sets(st.integers(0, 39), max_size=3))
def test_rows_of_another_kind_hide_no_reading(
    names: str, odd: Any, column: int, at: set[int]
) -> None:
    """The file is read as it is without them; each of these is read so too, or refused."""
    task, made = NAMELESS[names]
    rows: list[Row] = [dict(zip(names.split(), made(i), strict=True)) for i in range(40)]
    whole = evidence.detect(rows, kind_of(task), "x.jsonl")
    name = [*rows[0]][column % len(rows[0])]
    if type(odd) is type(rows[0][name]) or {type(odd), type(rows[0][name])} <= {int, float}:
        odd = [{"a": [odd]}]
    rows = [{**row, name: odd} if i in at else row for i, row in enumerate(rows)]
    found = evidence.detect(rows, kind_of(task), "x.jsonl")
    assert found.reading == whole.reading
    read = found.format
    for row in rows:
        with contextlib.suppress(RowError, AttributeError, LookupError, TypeError, ValueError):
            assert read.read(renamed(row, read.renamed), read.told(FormatOptions()))


def test_a_column_of_reasoning_is_that_of_the_last_turn() -> None:
    """It stands before its answer; an answer with reasoning of its own is refused."""
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    own = [turns[0], {**turns[1], "reasoning_content": "why"}]
    format_ = formats.load("openai")
    (made,) = format_.read({"messages": turns, "message_thinking": "since"}, FormatOptions())
    assert [turn.fields for turn in turns_of([made])] == [None, {"reasoning_content": "since"}]
    for messages in (own, turns[:1], [turns[0], {**turns[1], "content": ""}]):
        with pytest.raises(RowError):
            format_.read({"messages": messages, "message_thinking": "since"}, FormatOptions())


@given(st.lists(st.sampled_from([None, "since", "so"]), min_size=1, max_size=4))
def test_reasoning_under_any_key_of_a_turn_is_that_of_the_turn(thoughts: list[str | None]) -> None:
    """A list of it has one for each turn; beside reasoning in the answer it is refused."""
    turns = [
        turn
        for said in thoughts
        for turn in (
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a", "thought": said},
        )
    ]
    options = FormatOptions(columns={"message_thinking": "messages[].thought"})
    row = renamed({"messages": turns}, options.columns)
    (made,) = formats.load("openai").read(row, options)
    said = [(turn.fields or {}).get("reasoning_content") for turn in turns_of([made])]
    assert said[1::2] == thoughts
    for odd in ({"content": "<think>x</think>a"}, {"reasoning_content": "other"}):
        last = {**turns[1], "thought": "since", **odd}
        row = renamed({"messages": [turns[0], last]}, options.columns)
        with pytest.raises(RowError, match="reasoning"):
            formats.load("openai").read(row, options)


@pytest.mark.parametrize("call", [{"name": ""}, {"name": None}, {"name": "f", "twice": True}])
def test_a_call_has_a_name_and_an_id_of_its_own(call: dict[str, Any]) -> None:
    """One without, and two of one id in a turn, are refused."""
    made = {"id": "1", "function": {"name": call["name"], "arguments": {}}}
    with pytest.raises(RowError) as refused:
        _parts.calls_of([made, *[made] * ("twice" in call)], "x")
    assert refused.value.code == "bad_tool_call"


@pytest.mark.parametrize("word", few(["task", "instruction", "question_type_words"], 2))
def test_what_a_task_is_called_is_not_what_is_asked(word: str) -> None:
    """Beside a column that differs from row to row, few texts that come again are no question,
    whatever they are called and however long they are."""
    kinds = ["summing up two numbers", "writing out a sum"]
    rows = [{word: kinds[i % 2], "prompt": SAYS["question"](i), "b": i} for i in ROWS]
    rows = [{**row, "answer": SAYS["answer"](i)} for i, row in enumerate(rows)]
    assert role_columns.columns_of(rows, answers_alone=True).questions == ["prompt"]
    named = [{word: "sum" if i % 2 else "count", "answer": SAYS["answer"](i)} for i in ROWS]
    assert role_columns.columns_of(named, answers_alone=True).questions in ([], [word][:0])


@given(
    st.lists(st.sampled_from("ABCDE"), min_size=3, max_size=8), st.sampled_from(["{}", "User {}"])
)
def test_a_dialogue_is_no_answer(who: list[str], name: str) -> None:
    """Lines that begin with the names of several speakers are no answer; those that begin with
    other words are."""
    spoken = "\n".join(f"{name.format(one)}: I said {n}." for n, one in enumerate(who))
    several = 1 < len({*who}) < len(who) and name != "{}"
    assert signals.is_dialogue(spoken) == several
    assert not signals.is_dialogue(f"It is so.\n{spoken}") or not several
    rows = [{"prompt": SAYS["question"](i), "response": spoken} for i in ROWS]
    assert role_columns.columns_of(rows, answers_alone=True).answers == (
        [] if several else ["response"]
    )


@pytest.mark.parametrize("path", ["winner", "labels.human_verdict", "judge", "gpt_preference"])
@pytest.mark.parametrize("names", [("response_1", "response_2"), ("answer_ours", "answer_theirs")])
def test_a_text_that_names_an_answer_is_a_verdict(path: str, names: tuple[str, str]) -> None:
    """Under the name of a verdict, also beside numbers that would order the two."""
    rows: list[Row] = []
    for i in ROWS:
        said = {names[0]: SAYS["chosen"](i), names[1]: SAYS["rejected"](i)}
        outer, _, inner = path.partition(".")
        told = names[i % 2]
        numbers = {f"{one}_score": (i * 3 + at) % 5 for at, one in enumerate(names)}
        rows.append(
            {"prompt": SAYS["question"](i), **said, outer: {inner: told} if inner else told}
        )
        rows[-1] |= numbers
    found = roles.find(rows, kind_of("rm"), {})
    assert path in [one.renamed.get("winner") for one in found]


@pytest.mark.parametrize("word", ["worse", "loser", "rejected_by_judge", "more_toxic", "longer"])
def test_what_names_the_worse_answer_is_no_verdict(word: str) -> None:
    """It is read only where the user says so: nothing says that the better one is named."""
    rows: list[Row] = []
    for i in ROWS:
        said = {"answer_a": SAYS["chosen"](i), "answer_b": SAYS["rejected"](i)}
        rows.append({"prompt": SAYS["question"](i), **said, word: f"answer_{'ab'[i % 2]}"})
    with pytest.raises(DataError):
        evidence.detect(rows, kind_of("rm"), "x")


@pytest.mark.parametrize("share", [1, 3])
def test_an_input_that_is_a_json_list_belongs_to_its_instruction(share: int) -> None:
    """It is printed as it stands, however many rows have one."""
    rows: list[Row] = [
        {
            "instruction": SAYS["question"](i),
            "input": "" if i % share else json.dumps([SAYS["answer"](i), SAYS["answer"](i + 1)]),
            "output": SAYS["answer"](i),
        }
        for i in ROWS
    ]
    assert evidence.detect(rows, kind_of("sft"), "x").reading == "alpaca"


def test_a_few_flags_leave_open_what_an_index_counts_from() -> None:
    """As all of them do."""
    rows = [
        {"response_0": SAYS["chosen"](i), "response_1": SAYS["rejected"](i), "label": i % 2}
        for i in ROWS
    ]
    rows = [{"prompt": SAYS["question"](i), **row} for i, row in enumerate(rows)]
    assert evidence.detect(rows, kind_of("rm"), "x").reading.endswith("0-based")
    with pytest.raises(DataError, match="yes or no"):
        evidence.detect([*rows[:-1], {**rows[-1], "label": True}], kind_of("rm"), "x")


@pytest.mark.parametrize("end", ["So the answer is {}.", "Thus \\boxed{{{}}}.", "#### {}"])
def test_whole_attempts_are_no_steps(end: str) -> None:
    """Texts that each come to an answer are asked about; steps are read, however they begin."""
    steps = [{"prompt": SAYS["question"](i), "completions": SAYS["steps"](i)} for i in ROWS]
    each = [{**row, "labels": [1, 0, 1]} for row in steps]
    assert evidence.detect(each, kind_of("prm"), "x").reading == "stepwise"
    alike = [{**row, "completions": [f"We look at it: {n}." for n in range(3)]} for row in each]
    assert evidence.detect(alike, kind_of("prm"), "x").reading == "stepwise"
    tried = [{**row, "completions": [f"{n}: {end.format(n)}" for n in range(3)]} for row in each]
    with pytest.raises(DataError, match="is a whole attempt") as asked:
        evidence.detect(tried, kind_of("prm"), "x")
    assert not ways(asked.value.remedy)


def test_calls_in_texts_are_the_calls() -> None:
    """A list of JSON texts is read as the list of what they say."""
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    assert _parts.calls_of([json.dumps(call)], "x") == _parts.calls_of([call], "x")


def test_a_guess_reads_most_of_what_is_said() -> None:
    """Columns of which only the values say what they are are no reading where most is left out."""
    rows = [{"Ask": SAYS["question"](i), "zzz": SAYS["answer"](i)} for i in ROWS]
    assert [one.guessed for one in roles.find(rows, kind_of("sft"), {})] == [True]
    more = [{**row, "yyy_id": f"{SAYS['answer'](i)} " * 5} for i, row in enumerate(rows)]
    assert len(roles.find(more, kind_of("sft"), {})) == 1
    source = [{**row, "src": f"{SAYS['answer'](i)} {i} " * 5} for i, row in enumerate(rows)]
    assert not [one for one in roles.find(source, kind_of("sft"), {}) if one.guessed]


@pytest.mark.parametrize("number", ["utterance_idx", "turn_id", "messageNo"])
def test_rows_that_number_turns_are_pieces(number: str) -> None:
    """A guess is none where another column numbers the turns of each conversation."""
    rows: list[Row] = [
        {
            "conv_id": f"c{i // 3}",
            number: i % 3,
            "scene": SAYS["question"](i),
            "x": SAYS["answer"](i),
        }
        for i in ROWS
    ]
    found = lacking.in_pieces(rows, kind_of("sft"))
    assert found is not None
    assert "conv_id" in found[0]
    assert (
        lacking.in_pieces(
            [{**row, "conv_id": f"c{i}"} for i, row in enumerate(rows)], kind_of("sft")
        )
        is None
    )
