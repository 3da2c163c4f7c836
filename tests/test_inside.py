"""What stands inside of texts and as data: read alike for every spelling, task, side and place."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from support import raised, table

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Conversation, Example, FormatOptions, Message, Pair, Row, StepChain
from stages.errors import AskError, DataError, RowError
from stages.formats import _inside
from stages.normalize.evidence import detect
from stages.normalize.survey import survey
from stages.rows import stop_text
from stages.rows.dialects import DIALOGUE
from stages.rows.selection import Selection

FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
OTHER = {"name": "time", "parameters": {"type": "object", "properties": {}}}
WRAPPED = [{"type": "function", "function": one} for one in (FUNCTION, OTHER)]
LISTS: list[list[Any]] = [[FUNCTION], [FUNCTION, OTHER], WRAPPED]
SPELLINGS = {
    "a list": lambda tools: tools,
    "the JSON of the list": json.dumps,
    "a list of JSON texts": lambda tools: [*map(json.dumps, tools)],
    "JSON texts one after another": lambda tools: "\n\n".join(
        json.dumps(t, indent=1) for t in tools
    ),
    "JSON texts with commas": lambda tools: ", ".join(map(json.dumps, tools)),
    "an object with the list": lambda tools: {"tools": tools},
    "the JSON of that object": lambda tools: json.dumps({"functions": tools}),
    "a list in a list": lambda tools: [{"functionDeclarations": tools}],
    "a list of the JSON of the list": lambda tools: [json.dumps(tools)],
}
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
# Rows of every shape that has tools: the place of the tools is left open.
ROWS: dict[str, tuple[str, Row]] = dict(table("rows_with_tools.jsonl"))


def read(task: str, row: Row, **options: Any) -> list[Example]:
    """A row as a build reads it, after its file was recognised."""
    told = FormatOptions(**options)
    found = detect([row] * 3, kind_of(task), "x.jsonl", told)
    return _inside.settled(formats.load(found.reading).read(row, told), row, told)


def read_as(reading: str, row: Row, **options: Any) -> list[Example]:
    """A row as a build reads it that was told how."""
    told = FormatOptions(**options)
    return _inside.settled(formats.load(reading).read(row, told), row, told)


def tools_of(example: Example) -> Any:
    """The tools of a conversation or a pair."""
    return example.tools


@pytest.mark.parametrize("shape", ROWS)
def test_tools_are_the_same_list_in_every_spelling_and_place(shape):
    """In either column and as a key of the first turn."""
    task, row = ROWS[shape]
    for tools, spell, name in itertools.product(LISTS, SPELLINGS.values(), ("tools", "functions")):
        assert [tools_of(one) for one in read(task, {**row, name: spell(tools)})] == [tools]
    one = {**row, "tools": FUNCTION}
    assert [tools_of(example) for example in read(task, one)] == [[FUNCTION]]
    assert tools_of(read(task, {**row, "tools": json.dumps(FUNCTION)})[0]) == [FUNCTION]
    for nothing in (None, "", [], "[]", {"tools": []}):
        assert not tools_of(read(task, {**row, "tools": nothing})[0])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_tools_beside_a_turn_are_those_of_its_conversation(spelling):
    """The key of a system turn says what a column would; two that differ are refused."""
    system = {"role": "system", "content": "s", "functions": SPELLINGS[spelling](WRAPPED)}
    row: Row = {"messages": [system, *TURNS]}
    [example] = read("sft", row)
    assert example == Conversation(
        [Message("system", "s"), Message("user", "q"), Message("assistant", "a")], WRAPPED
    )
    assert tools_of(read("sft", {**row, "tools": WRAPPED})[0]) == WRAPPED
    raised(RowError, read_as, "openai", {**row, "tools": [OTHER]}, says="different tools")


LISTED = [
    f"You can call these.\n<tools>\n{json.dumps(FUNCTION)}\n</tools>",
    f"You have access to the following functions: {json.dumps([FUNCTION])}",
    "You have access to the following tools:\n- weather(city): the weather",
    f"Tools: {[FUNCTION]}",
]


@pytest.mark.parametrize(("shape", "text"), [*itertools.product(ROWS, LISTED)])
def test_tools_in_the_system_text_and_in_a_column_are_asked_about(shape, text):
    """Both ways on build; a system text that only speaks of a tool asks nothing."""
    task, row = ROWS[shape]
    beside = {**row, "system": text, "tools": [FUNCTION]}
    error = raised(DataError, read, task, beside, says="print them twice")
    assert "--ignore tools" in error.remedy
    assert "--map tools=tools" in error.remedy
    assert tools_of(read(task, beside, columns={"tools": "tools"})[0]) == [FUNCTION]
    del beside["tools"]
    assert tools_of(read(task, beside)[0]) is None
    spoken = {**row, "system": "Use weather where you can.", "tools": [FUNCTION]}
    assert tools_of(read(task, spoken)[0]) == [FUNCTION]


CALL = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
MARKS = ["tool_response", "function_response", "tool_result", "tool_output", "function_results"]


def called(*results: str, text: str = "") -> list[Row]:
    """Turns with a call and its results."""
    return [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": text, "tool_calls": [CALL]},
        *({"role": "tool", "content": said} for said in results),
        {"role": "assistant", "content": "a"},
    ]


def placed(turns: list[Row]) -> list[tuple[str, Row]]:
    """Rows that have these turns in every place that turns may have."""
    other = [*turns[:-1], {"role": "assistant", "content": "b"}]
    return [
        ("sft", {"messages": turns}),
        ("sft", {"prompt": turns[:-1], "completion": [turns[-1]]}),
        ("sft", {"question": turns[:-1], "answer": "a"}),
        ("rm", {"chosen": turns, "rejected": other}),
        ("rm", {"prompt": turns[:-1], "chosen": "a", "rejected": "b"}),
    ]


def texts(example: Example, role: str) -> list[str | None]:
    """What somebody says."""
    turns = example.messages if isinstance(example, Conversation) else example.prompt
    return [turn.content for turn in turns if turn.role == role]


@pytest.mark.parametrize("mark", MARKS)
def test_marks_around_results_of_tools_are_asked_about(mark):
    """With the option, each result is a turn without them; other texts with such words stay."""
    one, two = (f"<{mark}>\n{said}\n</{mark}>" for said in ("sun", "rain"))
    for task, row in placed(called(f"{one}\n{two}")):
        error = raised(DataError, read, task, row, says="tool's result already stands")
        assert "--already-templated" in error.remedy
        [example] = read(task, row, already_templated=True)
        assert texts(example, "tool") == ["sun", "rain"]
    for said in (f"see {one}", f"{one} and more", "sun", f"<{mark}>sun"):
        for task, row in placed(called(said)):
            assert texts(read(task, row)[0], "tool") == [said]


def test_calls_in_the_text_and_as_data_are_asked_about():
    """With the option the data is read, where both have as many calls."""
    written = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    for task, row in placed(called("sun", text=f"I look.\n{written}")):
        raised(DataError, read, task, row, says="both in <tool_call> and as data")
        [example] = read(task, row, already_templated=True)
        assert texts(example, "assistant")[0] == "I look."
    twice = {"messages": called("sun", text=written * 2)}
    with pytest.raises(RowError, match="writes 2 tool calls out and has 1"):
        read_as("openai", twice, already_templated=True)
    raised(AskError, read_as, "openai", twice)


ROWS_OF_STEPS: list[Row] = table("rows_of_steps.jsonl")


@pytest.mark.parametrize("row", ROWS_OF_STEPS)
def test_rated_steps_keep_the_rows_own_system_text(row):
    """In a column, or as the first turn, for every shape of rated steps."""
    plain = read("prm", row)
    assert all(isinstance(one, StepChain) and one.system is None for one in plain)
    behind = [replace(one, system="Be brief.") for one in plain if isinstance(one, StepChain)]
    for name in ("system", "system_prompt"):
        assert read("prm", {**row, name: "Be brief."}) == behind
        assert read("prm", {**row, name: ""}) == plain
    if "messages" in row:
        system = {"role": "system", "content": "Be brief."}
        assert read("prm", {**row, "messages": [system, *row["messages"]]}) == behind


ASKED, SAID = "What is 2 + 2?", "It is 4."


def chatml(*turns: tuple[str, str], opened: bool = False) -> str:
    """Turns as ChatML writes them."""
    text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)
    return text + "<|im_start|>assistant\n" * opened


SYSTEM, QUESTION, ANSWER = ("system", "Be exact."), ("user", ASKED), ("assistant", SAID)
PROMPTS = [chatml(SYSTEM, QUESTION, opened=True), chatml(SYSTEM, QUESTION), chatml(QUESTION)]
ANSWERS = [chatml(ANSWER), chatml(QUESTION, ANSWER), f"{SAID}<|im_end|>\n", SAID]


def read_or_code(task: str, row: Row) -> list[Example] | str:
    """What a row becomes where templates are read, or the code that it is refused with."""
    try:
        return read(task, row, already_templated=True)
    except RowError as refused:
        return refused.code


def rows_of(question: str, answer: str) -> list[tuple[str, Row]]:
    """Rows with these texts in every place for a question and its answer."""
    texts = {'"QUESTION"': json.dumps(question), '"ANSWER"': json.dumps(answer)}
    rows = []
    for task, row in table("places_of_texts.jsonl"):
        spelled = json.dumps(row)
        for word, text in texts.items():
            spelled = spelled.replace(word, text)
        rows.append((task, json.loads(spelled)))
    return rows


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (question, answer)
        for question in (*PROMPTS, ASKED)
        for answer in ANSWERS
        if question != ASKED or answer in ANSWERS[:2]
    ],
)
def test_templates_are_asked_about_in_every_place_and_read_there(question, answer):
    """In questions, answers, sides and turns alike: the same turns come out of all of them."""
    system = [Message(*SYSTEM)] if "system" in question else []
    for task, row in rows_of(question, answer):
        error = raised(DataError, read, task, row, says="template")
        assert "--already-templated" in error.remedy
        found = read_or_code(task, row)
        if isinstance(found, str):  # a side that is whole beside one that is not
            assert found in ("bad_column", "prompt_differs"), row
            continue
        [example] = found
        told = [*system, Message(*QUESTION), Message(*ANSWER)]
        if isinstance(example, Pair):
            assert [*example.prompt, *example.chosen] == told, row
            assert example.rejected == [Message("assistant", "It is 5.")]
        else:
            assert example == Conversation(told), row


def test_an_option_that_changes_nothing_says_so():
    """In the evidence, with the rows that were looked at; where it changes some, how many."""
    for task, row in ROWS.values():
        found = detect([row] * 3, kind_of(task), "x.jsonl", FormatOptions(already_templated=True))
        assert "--already-templated changes nothing in 3 sampled rows" in found.evidence
    for task, row in rows_of(ASKED, chatml(ANSWER))[:3]:
        found = detect([row] * 3, kind_of(task), "x.jsonl", FormatOptions(already_templated=True))
        assert "already templated in 3 of 3 sampled rows" in found.evidence


COLONS = (":", "：")
GAPS = ("\n", "\n\n")
HEADS = ("", "### ", "**")


def talk(who: tuple[str, str], colon: str, gap: str, head: str, last: str) -> str:
    """Two exchanges in one text, of which the last answer is given."""
    said = zip((*who, *who), ("One?", "1, as I\nsaid.", "Two?", last), strict=True)
    close = "**" if head == "**" else ""
    return gap.join(f"{head}{name}{colon}{close} {text}".rstrip() for name, text in said)


@pytest.mark.parametrize("who", table("speakers_in_texts.jsonl"))
def test_dialogues_in_one_text_are_read_in_every_place(who):
    """Pairs of them at once; in a question, a text or a turn where the option allows it."""
    turns = [
        Message("user", "One?"),
        Message("assistant", "1, as I\nsaid."),
        Message("user", "Two?"),
    ]
    right, wrong = Message("assistant", "2"), Message("assistant", "3")
    answer = {"role": "assistant", "content": "2"}
    for colon, gap, head in itertools.product(COLONS, GAPS, HEADS):
        whole, other, open_ = (talk(who, colon, gap, head, last) for last in ("2", "3", ""))
        places: list[tuple[str, Row]] = [
            ("sft", {"text": whole}),
            ("sft", {"prompt": open_, "completion": "2"}),
            ("sft", {"question": open_, "answer": "2"}),
            ("sft", {"instruction": open_, "output": "2"}),
            ("sft", {"messages": [{"role": "user", "content": open_}, answer]}),
        ]
        for task, row in places:
            raised(DataError, read, task, row, says="chat template")
            assert read(task, row, already_templated=True) == [Conversation([*turns, right])], row
        for row in (
            {"chosen": whole, "rejected": other},
            {"prompt": open_, "chosen": "2", "rejected": "3"},
        ):
            if stop_text.dialect_of(whole) != DIALOGUE:
                continue  # a template of its own, which pairs are asked about too
            assert read("rm", row) == [Pair(turns, [right], [wrong])], row


def test_a_dialogue_that_is_asked_for_or_asked_about_is_content():
    """An answer may be one, and a question may hold one that has its last answer."""
    said = "User: One?\nBot: 1"
    for task, row in rows_of("Write a dialogue.", said):
        [example] = read(task, row)
        turns = example.messages if isinstance(example, Conversation) else example.chosen
        assert turns[-1] == Message("assistant", said)
    for task, row in rows_of(said, "a"):
        assert texts(read(task, row)[0], "user") == [said]


BEGINNINGS = ("prefix", "answer_prefix", "initial_reason_steps", "PartialResponse", "prefill")


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_beginning_of_an_answer_is_asked_about_for_every_task(name):
    """In pairs as in answers; an empty one, and one that the answer repeats, asks nothing."""
    for shape, (task, row) in ROWS.items():
        kind = kind_of(task)
        reading = formats.load(detect([row] * 3, kind, "x.jsonl").reading)
        told = FormatOptions()
        for value in ("Let me see. 2 + 2", ["First,", "then"], "", None, "a", 3):
            rows = [{**row, name: value}] * 3
            asked = survey(rows, reading, kind, told, Selection()).asked
            assert asked == ({name} if value not in ("", None, "a", 3) else set()), (shape, value)


def test_two_questions_about_texts_are_one_message():
    """With commands that answer both; what they give asks nothing more."""
    said = "<tool_response>\nsun\n</tool_response>"
    system = {"role": "system", "content": f"<tools>{json.dumps(FUNCTION)}</tools>"}
    row: Row = {"messages": [system, *called(said)], "tools": [FUNCTION]}
    error = raised(DataError, read, "sft", row, says="tool's result")
    assert "print them twice" in error.what
    assert error.remedy == (
        "Add --already-templated --ignore tools, or --already-templated --map tools=tools."
    )
    both = {"already_templated": True, "columns": {"tools": "tools"}}
    assert tools_of(read("sft", row, **both)[0]) == [FUNCTION]
    del row["tools"]
    assert texts(read("sft", row, already_templated=True)[0], "tool") == ["sun"]
