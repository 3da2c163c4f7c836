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
from support import few, raised, table

from pipeline.options.ways import ways
from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions, Row
from stages.errors import DataError, RowError, UnknownFormatError
from stages.normalize import evidence, finders, lacking, role_columns, role_names, roles
from stages.normalize.role_names import SHAPES
from stages.rows import speakers
from stages.rows.selection import inside, lookup, renamed, rest
from stages.rows.stop_text import turns_of

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
_ASK, _SAY = SAYS["question"], SAYS["answer"]
# Words for a role; every spelling of each is tried, and none of them is the name of a format's own.
WORDS: Mapping[str, Sequence[str]] = dict(table("words_of_roles.jsonl"))
# What stands beside the data and plays no role, with the number of the row for {n}.
BESIDE: Mapping[str, Any] = dict(table("columns_of_nobody.jsonl"))
# The roles of a row of each task, and the formats that may read it.
READ: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "exchange": ("sft", ("question", "answer")),
    "reasoned": ("sft", ("question", "reasoning", "answer")),
    "pair": ("rm", ("question", "chosen", "rejected")),
    "rated": ("prm", ("question", "steps", "ratings")),
    "first_error": ("prm", ("question", "steps", "error")),
}
Columns = Mapping[str, str]


def detect(rows: Sequence[Row], task: str = "sft", columns: Columns | None = None) -> Any:
    """What rows are read as, with columns that were named by hand."""
    mapping = columns or {}
    given_rows = [renamed(row, mapping) for row in rows]
    return evidence.detect(given_rows, kind_of(task), "x.jsonl", FormatOptions(columns=mapping))


def asked(rows: Sequence[Row], task: str = "sft", says: str | None = None) -> DataError:
    """What a file of such rows is asked about."""
    return raised(DataError, detect, rows, task, says=says)


def examples(rows: Sequence[Row], columns: Columns | None = None) -> list[list[Any]]:
    """The examples of each row, which are conversations."""
    found = detect(rows, columns=columns).format
    options = found.told(FormatOptions(columns=dict(columns or {})))
    given_rows = [renamed(renamed(row, columns or {}), found.renamed) for row in rows]
    return [found.read(row, options) for row in given_rows]


def read(rows: Sequence[Row], columns: Columns | None = None) -> list[list[str | None]]:
    """The texts of the turns of each row."""
    return [[turn.content for turn in turns_of(one)] for one in examples(rows, columns)]


def said(reading: str, rows: Sequence[Row], by_hand: Columns | None = None) -> list[str]:
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


def pasted(options: str) -> dict[str, str]:
    """The columns that ``--map`` options name."""
    words = shlex.split(options)
    pairs = [words[at + 1].partition("=") for at, one in enumerate(words) if one == "--map"]
    return {name: column for name, _, column in pairs}


def each(**columns: Any) -> list[Row]:
    """Rows with these columns: a role, what it says in row i, or the same in all."""
    made = {name: SAYS.get(str(one), one) for name, one in columns.items()}
    return [{name: one(i) if callable(one) else one for name, one in made.items()} for i in ROWS]


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
    order = [*names, *rng.sample([*BESIDE], rng.randrange(5))]
    rng.shuffle(order)
    rows: list[Row] = []
    for number in ROWS:
        row: Row = {}
        for one in order:
            head, _, inner = names.get(one, one).rpartition(".")
            beside = json.dumps(BESIDE.get(one)).replace("{n}", str(number))
            value = SAYS[one](number) if one in SAYS else json.loads(beside)
            (row.setdefault(head, {}) if head else row)[inner] = value
        rows.append(row)
    return names, rows


@pytest.mark.parametrize("name", READ)
@given(rng=st.randoms(use_true_random=False))
def test_columns_of_any_spelling_and_company_are_read_at_once(name, rng):
    """The evidence says which column plays which role; every role's column, and no other, is read,
    and the options of the same candidate, pasted, read the same."""
    task, parts = READ[name]
    names, rows = made(parts, rng)
    found = detect(rows, task)
    assert {*found.format.renamed.values()} == {*names.values()}, found
    assert all(f"{column} as " in found.evidence for column in names.values())
    made_of = said(found.reading, rows)
    for number in ROWS:
        shown = [SAYS[role](number) for role in parts if role not in ("ratings", "error")]
        texts = [text for one in shown for text in (one if isinstance(one, list) else [one])]
        assert all(text in made_of[number] for text in texts), (found, number)
    (candidate,) = roles.find(rows, kind_of(task), {})
    by_hand = pasted(candidate.options)
    assert said(detect(rows, task, by_hand).reading, rows, by_hand) == made_of


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
            detect(both)
            continue
        offered = [
            dict(value.split("=", 1) for _, value in way) for way in ways(asked(both).remedy)
        ]
        assert {name for way in offered for name in way.values()} == {*names.values(), other}
        for way in offered:
            detect(both, columns=way)


# Turns, under any names.


@pytest.mark.parametrize("stems", [("user", "assistant"), ("Question", "Answer"), ("q", "a")])
def test_a_numbered_family_is_the_turns_of_one_conversation(stems):
    """Where some rows have more of it, none of their turns is lost."""
    names = [
        (f"{stem}_{n}", says, n)
        for n in range(1, 4)
        for stem, says in zip(stems, (_ASK, _SAY), strict=True)
    ]
    rows = [{name: f(i + n) if n <= 1 + i % 3 else None for name, f, n in names} for i in ROWS]
    assert read(rows) == [[text for text in row.values() if text] for row in rows]


NAMED: list[tuple[str, tuple[Any, Any]]] = [*map(tuple, table("named_turns.jsonl"))]


@pytest.mark.parametrize(("who", "names"), few(NAMED, 3))
@pytest.mark.parametrize("what", few(["text", "msg", "utterance", "body", "content"], 2))
@pytest.mark.parametrize("numbered", ["", "{}", "turn_{}", "lists"])
def test_turns_are_read_whatever_their_keys_are_called(who, names, what, numbered):
    """Who speaks is said by a name, by what is true of a bot, or inside of an object; the turns are
    a list, an object whose keys count them, or one with a list for each of their keys."""
    told = [[_ASK(i), _SAY(i)] * (1 + i % 2) for i in ROWS]
    rows: list[Row] = []
    for texts in told:
        turns = [{who: names[at % 2], "at": at, what: text} for at, text in enumerate(texts)]
        counted = {numbered.format(at): turn for at, turn in enumerate(turns, 1)}
        lists = {key: [turn[key] for turn in turns] for key in turns[0]}
        rows.append({"log": {"": turns, "lists": lists}.get(numbered, counted)})
    assert read(rows) == told
    roles = [turn.role for turn in turns_of(examples(rows)[1])]
    assert roles == ["user", "assistant"] * 2


@pytest.mark.parametrize("column", ["dialog", "data"])
def test_texts_in_turn_are_turns(column):
    """Under any name."""
    rows = [{"id": i, column: [_ASK(i), _SAY(i)] * (1 + i % 2)} for i in ROWS]
    assert read(rows) == [row[column] for row in rows]


@pytest.mark.parametrize("name", ["loss_mask", "turn_weights", "weights", "trainable"])
def test_weights_of_turns_in_a_list_are_those_of_the_turns(name):
    """A list that is as long as the turns; a list that is not is refused."""
    rows = [{"dialog": [*_turns(i), *_turns(i + 1)], name: [0, i % 2, 0, 1]} for i in ROWS]
    found = detect(rows).format
    for i, made in enumerate(examples(rows)):
        assert [turn.trained for turn in turns_of(made)] == [False, i % 2 == 1, False, True]
    with pytest.raises(RowError, match="as long as the turns"):
        found.read(renamed({**rows[0], name: [0, 1]}, found.renamed), FormatOptions())


# Questions and answers, by what they say.


@pytest.mark.parametrize("name", ["dialogue", "story", "source", "article"])
@pytest.mark.parametrize("answer", ["summary", "target"])
@pytest.mark.parametrize("beside", [{}, {"prompt": "t_0", "task": "gsm8k"}])
def test_what_is_answered_is_seen_by_its_values(name, answer, beside):
    """A text that differs from row to row, in front of the answer, whatever it is called, where
    what is called a question is no more than a name."""
    rows = each(**{name: "question", answer: "answer", **beside})
    assert read(rows) == [[row[name], row[answer]] for row in rows]


@pytest.mark.parametrize("name", ["contexts", "passages", "documents"])
@pytest.mark.parametrize("question", ["Frage", "user_request"])
def test_passages_stand_behind_the_question(name, question):
    """A list of them is one text, with a blank line between them."""
    passages = [[SAYS["chosen"](i), SAYS["reasoning"](i)] for i in ROWS]
    rows = each(**{name: passages.__getitem__, question: "question", "Antwort": "answer"})
    assert read(rows) == [
        ["\n\n".join([row[question], *row[name]]), row["Antwort"]] for row in rows
    ]


@pytest.mark.parametrize("task", ["sft", "rm"])
def test_a_title_and_its_text_are_asked_together(task):
    """Rows without a text ask what the title does."""
    answers = {"reply": "answer"} if task == "sft" else {"liked": "chosen", "disliked": "rejected"}
    text = [f"I wonder about {i}." if i % 2 else "" for i in ROWS]
    rows = each(post_title="question", selftext=text.__getitem__, **answers)
    for i, example in enumerate(said(detect(rows, task).reading, rows)):
        assert _ASK(i) in example
        assert (f"I wonder about {i}." in example) == (i % 2 == 1)


@pytest.mark.parametrize("short", ["answer", "correct_answer", "label_answer", "target"])
@pytest.mark.parametrize("long", ["solution", "generated_solution", "R1_Response", "output_text"])
def test_a_reference_is_what_a_longer_answer_ends_with(short, long):
    """It is no answer beside that one, and the only answer alone."""
    rows = each(
        problem="question",
        **{short: lambda i: str(i * 8), long: lambda i: f"Both are added, and so it is {i * 8}."},
    )
    found = said(detect(rows).reading, rows)
    assert all(row[long] in one for row, one in zip(rows, found, strict=True))
    detect([{"problem": row["problem"], short: row[short]} for row in rows])


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
    remedy = asked(rows).remedy
    if lacking:
        (way,) = ways(remedy)
        columns = dict(value.split("=", 1) for _, value in way)
        wanted = [[row["dressed"] or row["plain"], row["completion"]] for row in rows]
        assert read(rows, columns) == wanted


@pytest.mark.parametrize("names", [("question", "answer"), ("Ask", "Reply"), ("prompt", "output")])
@pytest.mark.parametrize("several", range(3))
@pytest.mark.parametrize("asked_plainly", [True, False])
def test_lists_in_texts_are_asked_about_before_they_are_read(names, several, asked_plainly):
    """What is inside is read, of several answers the first, or all of them as JSON."""
    told = [[_ASK(i), _SAY(i)] for i in ROWS]
    rows = [
        {
            names[0]: question if asked_plainly else json.dumps([question]),
            names[1]: json.dumps([answer, *[f"Or else {answer}"] * (several and (i % several))]),
        }
        for i, (question, answer) in enumerate(told)
    ]
    way, *others = ways(asked(rows).remedy)
    columns = dict(value.split("=", 1) for _, value in way)
    assert len(others) == any("[first]" in path for path in columns.values())
    assert read(rows, columns) == told


@pytest.mark.parametrize("share", [1, 3])
def test_an_input_that_is_a_json_list_belongs_to_its_instruction(share: int) -> None:
    """It is printed as it stands, however many rows have one."""
    lists = ["" if i % share else json.dumps([_SAY(i), _SAY(i + 1)]) for i in ROWS]
    rows = each(instruction="question", input=lists.__getitem__, output="answer")
    assert detect(rows).reading == "alpaca"


def test_no_two_names_are_offered_as_question_and_answer_beside_what_is_said():
    """Most of the text stands in a column that nothing can read."""
    logs = [[{"who": f"u{n}", "line": _SAY(n)}, {"who": "b", "line": "Thanks."}] for n in ROWS]
    rows = each(
        channel=lambda n: f"help {n % 3}", started=lambda n: f"thread {n}", log=logs.__getitem__
    )
    assert "completion" not in asked(rows).remedy.partition("--format")[0]


@pytest.mark.parametrize("word", few(["task", "instruction", "question_type_words"], 2))
def test_what_a_task_is_called_is_not_what_is_asked(word: str) -> None:
    """Beside a column that differs from row to row, few texts that come again are no question,
    whatever they are called and however long they are."""
    kinds = ["summing up two numbers", "writing out a sum"]
    rows = each(
        **{word: lambda i: kinds[i % 2], "prompt": "question", "b": int, "answer": "answer"}
    )
    assert role_columns.columns_of(rows, answers_alone=True).questions == ["prompt"]
    named = each(**{word: lambda i: "sum" if i % 2 else "count", "answer": "answer"})
    assert role_columns.columns_of(named, answers_alone=True).questions == []


@given(
    st.lists(st.sampled_from("ABCDE"), min_size=3, max_size=8), st.sampled_from(["{}", "User {}"])
)
def test_a_dialogue_is_no_answer(who: list[str], name: str) -> None:
    """Lines that begin with the names of several speakers are no answer; those that begin with
    other words are."""
    spoken = "\n".join(f"{name.format(one)}: I said {n}." for n, one in enumerate(who))
    several = 1 < len({*who}) < len(who) and name != "{}"
    assert speakers.is_dialogue(spoken) == several
    assert not speakers.is_dialogue(f"It is so.\n{spoken}") or not several
    rows = each(prompt="question", response=spoken)
    answers = [] if several else ["response"]
    assert role_columns.columns_of(rows, answers_alone=True).answers == answers


def test_a_guess_reads_most_of_what_is_said() -> None:
    """Columns of which only the values say what they are are no reading where most is left out."""
    rows = each(Ask="question", zzz="answer")
    assert [one.guessed for one in roles.find(rows, kind_of("sft"), {})] == [True]
    more = [{**row, "yyy_id": f"{_SAY(i)} " * 5} for i, row in enumerate(rows)]
    assert len(roles.find(more, kind_of("sft"), {})) == 1
    source = [{**row, "src": f"{_SAY(i)} {i} " * 5} for i, row in enumerate(rows)]
    assert not [one for one in roles.find(source, kind_of("sft"), {}) if one.guessed]


@pytest.mark.parametrize("name", ["tools", "apis", "toolbox"])
def test_tools_are_read_as_they_are_declared(name: str) -> None:
    """With what is around each function, whatever their list is called."""
    schema = {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": schema}]
    ((made,), *_) = examples(each(dialogue=_turns, **{name: tools}))
    assert made.tools == tools


# Pairs and steps.


@pytest.mark.parametrize("path", ["winner", "labels.human_verdict", "judge", "gpt_preference"])
@pytest.mark.parametrize("names", [("response_1", "response_2"), ("answer_ours", "answer_theirs")])
def test_a_text_that_names_an_answer_is_a_verdict(path: str, names: tuple[str, str]) -> None:
    """Under the name of a verdict, also beside numbers that would order the two."""
    outer, _, inner = path.partition(".")
    rows = each(**dict(zip(names, ("chosen", "rejected"), strict=True)), prompt="question")
    for i, row in enumerate(rows):
        row[outer] = {inner: names[i % 2]} if inner else names[i % 2]
        row |= {f"{one}_score": (i * 3 + at) % 5 for at, one in enumerate(names)}
    found = roles.find(rows, kind_of("rm"), {})
    assert path in [one.renamed.get("winner") for one in found]


@pytest.mark.parametrize("word", ["worse", "loser", "rejected_by_judge", "more_toxic", "longer"])
def test_what_names_the_worse_answer_is_no_verdict(word: str) -> None:
    """It is read only where the user says so: nothing says that the better one is named."""
    sides = {"answer_a": "chosen", "answer_b": "rejected"}
    asked(each(prompt="question", **sides, **{word: lambda i: f"answer_{'ab'[i % 2]}"}), "rm")


def test_a_few_flags_leave_open_what_an_index_counts_from() -> None:
    """As all of them do."""
    rows = each(
        prompt="question", response_0="chosen", response_1="rejected", label=lambda i: i % 2
    )
    assert detect(rows, "rm").reading.endswith("0-based")
    asked([*rows[:-1], {**rows[-1], "label": True}], "rm", "yes or no")


@pytest.mark.parametrize("end", ["So the answer is {}.", "Thus \\boxed{{{}}}.", "#### {}"])
def test_whole_attempts_are_no_steps(end: str) -> None:
    """Texts that each come to an answer are asked about; steps are read, however they begin."""
    rows = each(prompt="question", completions="steps", labels=[1, 0, 1])
    alike = [{**row, "completions": [f"We look at it: {n}." for n in range(3)]} for row in rows]
    assert detect(rows, "prm").reading == detect(alike, "prm").reading == "stepwise"
    tried = [{**row, "completions": [f"{n}: {end.format(n)}" for n in range(3)]} for row in rows]
    assert not ways(asked(tried, "prm", "is a whole attempt").remedy)


# Rows of one thing, by what each row is, with the names of what they share.
PIECES: Mapping[str, tuple[str, Callable[[int], Row]]] = {
    "turn": ("sft", lambda i: {"role": ["user", "assistant"][i % 2], "text": _SAY(i)}),
    "step": ("prm", lambda i: {"question": _ASK(i // 4), "step": f"Add {i} to it."}),
    "answer": ("rm", lambda i: {"prompt": _ASK(i // 4), "reply": _SAY(i)}),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("shared", ["conversation_id", "sampleId", "thread-id", "uuid"])
@pytest.mark.parametrize("place", few(["turn_index", "step_idx", "no"], 1))
def test_rows_that_are_pieces_of_one_example_are_told_so(piece, shared, place):
    """No command is offered that would read each of them as a whole."""
    task, made = PIECES[piece]
    rows = [{shared: f"c{i // 4}", place: i % 4, "score": i % 5, **made(i)} for i in range(24)]
    error = asked(rows, task)
    assert f"each row is one {piece}" in error.what
    assert not ways(error.remedy)
    if piece == "step":
        assert not isinstance(error, UnknownFormatError)  # which other tasks are asked about


@pytest.mark.parametrize("number", ["utterance_idx", "turn_id", "messageNo"])
def test_rows_that_number_turns_are_pieces(number: str) -> None:
    """A guess is none where another column numbers the turns of each conversation."""
    rows = each(**{number: lambda i: i % 3}, scene="question", x="answer")
    several = [{"conv_id": f"c{i // 3}", **row} for i, row in enumerate(rows)]
    found = lacking.in_pieces(several, kind_of("sft"))
    assert "conv_id" in found[0]
    alone = [{"conv_id": f"c{i}", **row} for i, row in enumerate(rows)]
    assert lacking.in_pieces(alone, kind_of("sft")) is None


# Rows under names of nobody's format, each with another way to say it.
NAMELESS: Mapping[str, tuple[str, Callable[[int], Sequence[Any]]]] = {
    "Frage Antwort": ("sft", lambda i: (_ASK(i), _SAY(i))),
    "user_query model_reply": ("sft", lambda i: (_ASK(i), _SAY(i))),
    "id convo": ("sft", lambda i: (f"x{i}", _turns(i))),
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


def _turns(i: int, who: str = "role", what: str = "content") -> list[dict[str, Any]]:
    return [{who: "user", what: _ASK(i)}, {who: "assistant", what: _SAY(i)}]


def _steps(i: int) -> list[str]:
    return [f"Step {n} adds {i} to what was found." for n in range(3)]


_PLAIN = st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-1, 1) | st.text(max_size=9)
_NESTED = st.recursive(
    _PLAIN,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text("ab"), one),
    max_leaves=4,
)


@pytest.mark.parametrize("names", NAMELESS)
@settings(max_examples=12)
@given(odd=_NESTED, column=st.integers(0, 3), at=st.sets(st.integers(0, 39), max_size=3))
def test_rows_of_another_kind_hide_no_reading(names, odd, column, at):
    """The file is read as it is without them; each of these is read so too, or refused."""
    task, made = NAMELESS[names]
    rows: list[Row] = [dict(zip(names.split(), made(i), strict=True)) for i in range(40)]
    whole = detect(rows, task)
    name = [*rows[0]][column % len(rows[0])]
    if type(odd) is type(rows[0][name]) or {type(odd), type(rows[0][name])} <= {int, float}:
        odd = [{"a": [odd]}]
    rows = [{**row, name: odd} if i in at else row for i, row in enumerate(rows)]
    found = detect(rows, task)
    assert found.reading == whole.reading
    for row in rows:
        with contextlib.suppress(RowError, AttributeError, LookupError, TypeError, ValueError):
            given_row = renamed(row, found.format.renamed)
            assert found.format.read(given_row, found.format.told(FormatOptions()))


# Names and paths.


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
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return [one for item in items for one in leaves(item)]
    return [] if value is None else [value]


def paths(value: Any, before: str) -> list[str]:
    """Every path into a value, to one item of a list and to keys of all its objects among them."""
    if not isinstance(value, dict | list):
        return []
    listed = isinstance(value, list)
    inner = [
        (f"{before}.{key}", one) for key, one in (enumerate(value) if listed else value.items())
    ]
    of_all = {path: None for one in value for path in paths(one, f"{before}[]")} if listed else {}
    return [*of_all, *(path for p, one in inner for path in (p, *paths(one, p)))]


@given(TREES, st.data())
def test_what_is_taken_from_inside_and_what_is_left_are_all(tree, data):
    """Whatever path is read, it and the rest are the column, and nothing twice."""
    row = {"column": tree}
    able = [path for path in paths(tree, "column") if lookup(row, path) is not None]
    if not able:
        return
    path = data.draw(st.sampled_from(able))
    left = [*rest("column", tree, [path])]
    assert all(lookup(row, other) == value for other, value in left if "[]" not in other)
    taken = leaves([*(value for _, value in left), lookup(row, path)])
    assert sorted(taken) == sorted(leaves(tree)), path


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
    for word in "question answer reasoning steps rationale instruction response".split():
        role = role_names.role_of(word)
        assert role
        for cut in range(4, len(word)):
            assert role_names.role_of(word[:cut]) == role, word[:cut]
        assert role_names.role_of(f"{word}_id") == role_names.role_of(f"is_{word}_valid") == ""


def test_every_role_of_a_format_has_a_finder():
    """A role that no function finds would be an error at the first file that needs it."""
    held = role_columns.columns_of([{"x": 0.5}], answers_alone=True)
    for shape in itertools.chain.from_iterable(SHAPES.values()):
        for role in {*shape.needs.values(), *shape.may.values()}:
            one_of_two = role.startswith(("chosen ", "rejected ", "first a", "first t", "second "))
            assert (finders.couples if one_of_two else finders.able)(held, role) == []


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
    last = {**turns[1], "thought": "since", "reasoning_content": "other"}
    row = renamed({"messages": [turns[0], last]}, options.columns)
    with pytest.raises(RowError, match="reasoning"):
        formats.load("openai").read(row, options)
