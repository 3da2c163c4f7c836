"""Long conversations: what they cost, and that it changes nothing about what they become; how much
one example per trained turn repeats is counted exactly and told everywhere."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SAMPLES, noted
from test_plan_command import planned
from test_render import MODELS, with_template

from pipeline.builder.plan_page import as_json
from stages import columns, contract, errors, profile
from stages.chat_template import loss_weights, template, trained_spans
from stages.chat_template.render import Renderer, Row
from stages.rows import loss_mask

CALL = (
    '{{"tool_calls": [{{"type": "function", "function": '
    '{{"name": "f", "arguments": {{"n": {}}}}}}}]}}'
)
TOOLS = '[{"type": "function", "function": {"name": "f", "parameters": {}}}]'


def chat(exchanges: int) -> Row:
    """Questions and answers, every answer trained."""
    roles = ["user", "assistant"] * exchanges
    contents: list[str | None] = [f"text {i}" for i in range(len(roles))]
    return Row(roles, contents, [None] * len(roles), [r == "assistant" for r in roles], None)


def agent(steps: int) -> Row:
    """One question and many calls, no two of them alike, then an answer."""
    roles = ["user", *["assistant", "tool"] * steps, "assistant"]
    calls = [r == "assistant" and 0 < i < len(roles) - 1 for i, r in enumerate(roles)]
    contents = [None if call and i % 4 == 1 else f"text {i}" for i, call in enumerate(calls)]
    fields = [CALL.format(i) if call else None for i, call in enumerate(calls)]
    return Row(roles, contents, fields, [r == "assistant" for r in roles], TOOLS)


def split(row: Row) -> list[Row]:
    """One example per trained turn."""
    return [
        Row(row.roles[:n], row.contents[:n], row.fields[:n], [False] * (n - 1) + [True], row.tools)
        for n, trained in enumerate(row.trained, 1)
        if trained
    ]


class Meter:
    """Counts the turns that templates print."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._turns = noted(patch, template.Template, "render", lambda _, turns, *__: len(turns))

    def of(self, model: profile.TargetModel, rows: list[Row], history: str = "rendered") -> int:
        """Turns that are printed for some rows by a renderer that has seen none."""
        renderer, before = Renderer(model, history=history), len(self._turns)
        for row in rows:
            renderer(row)
        return sum(self._turns[before:])


@pytest.fixture
def meter(monkeypatch) -> Meter:
    """A meter that is running."""
    return Meter(monkeypatch)


@pytest.mark.parametrize("make", [chat, agent])
@pytest.mark.parametrize(
    ("family", "history"),
    [("qwen2.5", "rendered"), ("qwen3-2507", "rendered"), ("qwen3", "appended")],
)
def test_twice_the_turns_cost_twice(meter, family, history, make):
    """One example of all turns: what is rendered grows with their number, and with no more."""
    once, twice = (meter.of(MODELS[family], [make(n)], history) for n in (30, 60))
    assert twice < 2.5 * once
    assert twice < (120 if history == "appended" else 60) * 2 * 60


@pytest.mark.parametrize("make", [chat, agent])
def test_one_example_per_turn_costs_what_it_writes(meter, make):
    """What is rendered is a small multiple of the turns in all examples together."""
    rows = split(make(40))
    written = sum(len(row.roles) for row in rows)
    most = 3 if make is chat else 8  # rows with calls are proved with and without each
    assert meter.of(MODELS["qwen3"], rows) < most * written


KINDS = st.sampled_from(["ask", "ask", "steps", "again", "empty"])


def talk(kinds: list[str], system: bool) -> Row:
    """A conversation of exchanges of several kinds."""
    roles, empty = ["system"] * system, [False] * system
    fields: list[str | None] = [None] * system

    def say(role: str, field: str | None = None, nothing: bool = False) -> None:
        roles.append(role)
        fields.append(field)
        empty.append(nothing)

    for number, kind in enumerate(kinds):
        say("user", nothing=kind == "empty")
        for step in range(number % 4 + 1 if kind == "steps" else 0):
            say("assistant", CALL.format(step), nothing=step % 2 == 0)
            say("tool")
        if kind == "again":
            say("user")
        say("assistant")
    contents = ["" if gone else f"text {i}" for i, gone in enumerate(empty)]
    return Row(roles, [*contents], fields, [r == "assistant" for r in roles], TOOLS)


@settings(max_examples=5)
@given(st.lists(KINDS, min_size=24, max_size=40), st.booleans(), st.sampled_from(sorted(MODELS)))
def test_excerpts_give_what_whole_conversations_give(kinds, system, family):
    """Texts, what is trained, and refusals are those of a proof on all turns before."""
    row = talk(kinds, system)
    for one in split(row)[-3:] if MODELS[family].profile.one_example_per_turn else [row]:
        found = outcome(MODELS[family], one)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(template.Excerpts, "of", lambda self, index: None)
            patch.setattr(trained_spans, "MOST_PRINTED", 1 << 30)
            assert outcome(MODELS[family], one) == found


def outcome(model: profile.TargetModel, row: Row) -> Any:
    """The segments, or why there are none."""
    try:
        return Renderer(model)(row)
    except errors.RowError as error:
        return (error.code, error.detail)


def with_body(body: str, opening: str = "") -> profile.TargetModel:
    """A model whose template prints each message, and a generation prompt, in a way of its own."""
    return with_template(
        "{% for m in messages %}" + body + "{% endfor %}"
        "{% if add_generation_prompt %}" + opening + "<|im_start|>assistant\n{% endif %}"
    )


TURN = "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}"


def test_a_template_that_changes_what_is_far_behind_is_refused():
    """A turn that looks otherwise once twenty have followed is not what inference feeds, and a kind
    of turn that first stands late in a conversation is proved there."""
    model = with_body("{{ 'old ' if loop.revindex > 20 }}" + TURN)
    assert outcome(model, chat(10))[2] == "compiled"
    assert outcome(model, chat(60))[0] == "not_prefix_stable"
    model = with_body("{{ 'old ' if m.role == 'tool' and loop.revindex > 2 }}" + TURN)
    row = chat(60)
    row.roles[90] = "tool"
    row.shape = row._own_shape()
    assert outcome(model, row)[0] == "not_prefix_stable"


def test_a_template_that_counts_turns_is_proved_on_all_of_them(meter, monkeypatch):
    """Where excerpts show other text the whole conversation decides, up to a limit with a name."""
    model = with_body("{{ loop.index ~ ' ' }}" + TURN, "{{ (messages | length + 1) ~ ' ' }}")
    texts, _, path = outcome(model, chat(40))
    assert path == "compiled"
    assert "80 " in "".join(texts)
    monkeypatch.setattr(trained_spans, "MOST_PRINTED", 1000)
    code, detail = outcome(model, chat(40))
    assert code == "too_many_turns"
    assert "1,000" in detail
    assert "--train-on last" in detail
    assert outcome(MODELS["qwen2.5"], chat(40))[2] == "compiled"


def test_a_conversation_that_would_be_split_into_too_much_is_refused_by_name(monkeypatch):
    """The limit counts what all examples repeat; one example of the same turns is no split."""
    messages = [
        contract.Message(role, "x" * 36, trained=role == "assistant")
        for _ in range(10)
        for role in ("user", "assistant")
    ]
    monkeypatch.setattr(loss_mask, "MOST_SPLIT", 100 * 110)  # 2 + 4 + ... + 20 turns of 100
    assert len(loss_mask.turn_by_turn(contract.Conversation(messages))) == 10
    monkeypatch.setattr(loss_mask, "MOST_SPLIT", 100 * 110 - 1)
    with pytest.raises(errors.RowError, match="--train-on last") as refused:
        loss_mask.turn_by_turn(contract.Conversation(messages))
    assert refused.value.code == "too_many_turns"
    last = [*(replace(m, trained=False) for m in messages[:-1]), messages[-1]]
    assert len(loss_mask.turn_by_turn(contract.Conversation(last))) == 1


def batch(rows: list[list[list[int]]]) -> pa.RecordBatch:
    """Rows of conversations of examples, each given as its number of turns."""
    found = [
        {
            "line": number,
            "messages": [
                {"role": "user", "content": f"{conversation} {i}", "trained": i == size - 1}
                for i in range(size)
            ],
            "length": 10 * size + 1,
        }
        for number, row in enumerate(rows)
        for conversation, sizes in enumerate(row)
        for size in sizes
    ]
    types = {"line": pa.int64(), "messages": columns.MESSAGES, "length": pa.int64()}
    return pa.RecordBatch.from_pylist(found, pa.schema(types))


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True).map(sorted)


@settings(max_examples=40)
@given(st.lists(st.lists(SIZES, min_size=1, max_size=3), max_size=6))
def test_conversations_of_several_examples_are_counted(rows):
    """Also where a row holds several conversations, and none where each is one example."""
    several = [sizes for row in rows for sizes in row if len(sizes) > 1]
    assert loss_weights.count(batch(rows)) == {
        "conversations": len(several),
        "examples": sum(map(len, several)),
        "tokens": sum(10 * size + 1 for sizes in several for size in sizes),
        "tokens_if_whole": sum(10 * sizes[-1] + 1 for sizes in several),
    }


def test_a_plan_of_pairs_counts_the_tokens_of_both_sides(cache_dir):
    """What is trained is a share of all tokens, so never above all of them."""
    found = planned(cache_dir, "rm", SAMPLES / "rm" / "pairs.jsonl")
    both = sum(
        len(ids)
        for _, row in found.sampled.shown
        for ids in (row["chosen_ids"], row["rejected_ids"])
    )
    share = as_json(found)["lengths"]["trained_share"]
    assert found.sampled.tokens > found.sampled.lengths.sum() > 0
    assert found.sampled.tokens >= both
    assert share == round(int(found.sampled.trained.sum()) / found.sampled.tokens, 4)
    assert 0 < share < 1
