"""Rows that are read, rendered and encoded as columns, by outlines, come out as one by one."""

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import come_out_the_same, normalizing, records
from small_tokenizers import small
from support import table

from pipeline.shards.chain import through
from stages import encoders, formats, kinds, profile
from stages.chat_template.render import Render, Renderer
from stages.chat_template.render_steps import RenderSteps
from stages.contract import Batch, Example, FormatOptions, Row, Stage
from stages.normalize.stage import Normalize
from stages.rows import stop_text
from stages.rows.selection import Selection
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles
from stages.tokens.encode import Encode, EncodePair, EncodeSteps
from stages.tokens.folded_labels import Mark
from stages.tokens.outline_tokens import segments_of
from stages.tokens.segment_encoder import SegmentEncoder

FEW = settings(max_examples=30)
ODD = table("odd_texts.toml")
texts: st.SearchStrategy[Any] = (
    st.sampled_from(ODD["pairs"][:4])
    | st.sampled_from(ODD["pairs"])
    | st.lists(st.sampled_from(ODD["columnar"]), max_size=4).map("".join)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
)
odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 5, True, 0.5, [], {}, [[]], [1], "[]", ["x"]]
)
CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": None}}}]}
PART = [{"type": "text", "text": "p"}]
USER, ASSISTANT = ("user", "human"), ("assistant", "gpt")
SPELLINGS = (("role", "content"), ("from", "value"))


@st.composite
def turns(draw: st.DrawFn, first: int, spelled: tuple[str, str] | None = None) -> Any:
    """Turns that mostly alternate, begun by the user (0) or by the assistant (1)."""
    who, said = spelled or draw(st.sampled_from(SPELLINGS))
    made: list[Any] = [
        {who: (USER, ASSISTANT)[number % 2][who == "from"], said: draw(texts)}
        for number in range(first, first + draw(st.integers(1, 5)))
    ]
    if first == 0 and draw(st.booleans()):
        made.insert(0, {who: "system", said: "s"})
    more = [{"weight": 1}, {"weight": 0.5}, {"weight": 0}, {"name": "n"}, CALL]
    more += [{said: None}, {said: 5}, {said: PART}, {who: "tool"}, {who: "User"}, {who: ""}]
    for at, turn in enumerate(made):
        change = draw(st.integers(0, 30))
        if change == 0:
            turn |= draw(st.sampled_from(more))
        elif change == 1:
            made[at] = dict(reversed(turn.items()))
    return made


opening = st.sampled_from([0, 0, 0, 1]).flatmap(turns)
_VALUES = [(name, value) for name, some in table("columns_beside.jsonl") for value in some]
_TEXTS = st.sampled_from(["input", "query", "context", "question", "response", "prompt"])
beside = st.lists(
    st.sampled_from(_VALUES) | st.tuples(_TEXTS, texts | odd | st.sampled_from(["", " "])),
    max_size=2,
).map(dict)


def with_others(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[Any]:
    """Rows with columns beside their own, and rows that could not be parsed."""
    others = st.just({}) | st.just({}) | beside
    return st.none() | st.tuples(rows, others).map(lambda both: {**both[1], **both[0]})


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A format of conversations and its rows; now and then one has something else in a column."""
    columns: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "openai": {"messages": turns(0, SPELLINGS[0])},
        "sharegpt": {"conversations": turns(0, SPELLINGS[1])},
        "alpaca": {"instruction": texts, "output": texts},
        "prompt_completion": {"prompt": texts, "completion": texts},
        "query_response": {"question": texts, "answer": texts},
    }
    name = draw(st.sampled_from([*columns]))
    rows = draw(st.lists(with_others(st.fixed_dictionaries(columns[name])), max_size=9))
    if rows and rows[-1] and draw(st.booleans()):
        rows[-1][draw(st.sampled_from([*columns[name]]))] = draw(odd)
    return name, rows


@st.composite
def sides(draw: st.DrawFn) -> dict[str, Any]:
    """A pair: two texts, turns or single turns behind a prompt, or two whole conversations."""
    shape = draw(st.sampled_from(["texts", "turns", "turn", "whole"]))
    names = st.sampled_from(["prompt", "question", "conversations", "messages"])
    name, row = draw(names), {}
    if shape == "whole":
        start = draw(opening)
        row = {side: [*start, *draw(turns(len(start) % 2))] for side in ("chosen", "rejected")}
        if draw(st.booleans()):
            row["prompt"] = draw(st.just(start) | st.sampled_from(start).map(_said) | texts)
    else:
        own = {"texts": texts, "turns": turns(1), "turn": turns(1).map(lambda made: made[0])}[shape]
        row = {"chosen": draw(own), "rejected": draw(own), name: draw(opening | texts)}
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | texts)
    return row


def _said(turn: dict[str, Any]) -> Any:
    return turn.get("content", turn.get("value"))


labels: st.SearchStrategy[Any] = st.sampled_from([True, False, 1, 0, 0.25, 0.75, None]) | (
    st.sampled_from([1.0, -0.0, "+", "-", " + ", 2, "x", [], float("nan"), float("inf")])
)
steps: st.SearchStrategy[Any] = st.sampled_from(
    ["x", "y z", "z", "\nw ", " x", "x\n", "\nx ", "\n\nx", "  \tx\r\n", "\u3000x", "x </s>", ""]
)


@st.composite
def lists(draw: st.DrawFn, least: int = 0) -> dict[str, Any]:
    """A problem, a list of steps and a list of ratings."""
    own = draw(st.lists(steps | texts, min_size=least, max_size=4))
    rated = draw(st.lists(labels, min_size=len(own), max_size=len(own)))
    row = {"prompt": draw(texts), "completions": own, "labels": rated}
    if draw(st.integers(0, 9)) == 0:
        row["scores"] = draw(st.just(rated) | st.lists(labels, max_size=3))
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | st.lists(labels | steps, max_size=3))
    return row


def normalize(name: str, options: FormatOptions | None = None, *more: Any, **given: Any) -> Any:
    """Normalize for rows of a format, for the task that reads it."""
    kind = kinds.load(formats.load(name).kinds[0])
    return Normalize(kind, formats.load(name), options or FormatOptions(), *more, **given)


# Marks stand for every text that a format passes on.


@settings(FEW, max_examples=100)
@given(
    conversations(),
    st.sampled_from(["assistant", "last", "all"]),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.sampled_from([None, "drop", "keep"]),
)
def test_conversations_come_out_as_they_did_alone(found, train_on, stops, typed, nulls):
    name, rows = found
    options = FormatOptions(null_fields=nulls)
    come_out_the_same(normalize(name, options, train_on, stop_text=stops), rows, typed)


@settings(max_examples=50)
@given(
    st.lists(with_others(sides()), max_size=6),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.sampled_from(table("outline_maps.jsonl")) | st.just({}),
    st.sets(st.sampled_from(["margin", "system", "tools", "context", "prompt", "question"])),
)
def test_pairs_come_out_as_they_did_alone(rows, stops, typed, named, ignored):
    """Also with columns that are named and left out."""
    selection, options = Selection(ignore=tuple(sorted(ignored))), FormatOptions(columns=named)
    one = normalize("preference", options, selection=selection, stop_text=stops)
    come_out_the_same(one, rows, typed)


@given(
    st.lists(with_others(lists()), max_size=6),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.sampled_from(["stepwise", "stepwise/signed"]),
)
def test_steps_come_out_as_they_did_alone(rows, stops, raw, reading):
    come_out_the_same(normalize(reading, stop_text=stops, raw=raw), rows)


def test_nulls_of_a_typed_table_are_asked_about_in_unread_columns():
    rows, one = [{"prompt": "q", "completion": "a", "meta": [CALL]}], normalize("prompt_completion")
    for typed, code in ((True, "null_fields"), (False, None)):
        assert one(records(rows, typed=typed)).column("reject_code").to_pylist() == [code]


def test_a_key_of_many_objects_is_left_out_of_one_row():
    """Beside keys that are taken from inside of the same objects."""
    parts = [{"say": f"step {k}", "ok": k % 2, "seen": k + 1} for k in range(3)]
    rows = [{"prompt": f"Q{n}", "parts": parts} for n in range(4)]
    named = {"completions": "parts[].say", "labels": "parts[].ok"}
    assert any(come_out_the_same(normalize("stepwise", FormatOptions(columns=named)), rows))


COMMON = [(one["format"], one["row"]) for one in table("outlined_rows.jsonl")]


@pytest.mark.parametrize(("name", "row"), COMMON)
def test_common_rows_have_an_outline_beside_others(name, row):
    """Rows that are read alone leave none of their neighbours to it."""
    rows: list[Any] = [{**row, "id": number} for number in range(16)]
    rows[7], rows[12] = None, {**rows[12], "history": [["q", "a"]]}
    one = normalize(name)
    assert come_out_the_same(one, rows) == [at not in (7, 12) for at in range(16)]
    for odd_value in ("<think> x", 5, [], "<|im_start|>user\nx"):
        rows = [row] * 16
        rows[9] = {**row, [*row][-1]: odd_value}
        assert come_out_the_same(one, rows)[:9] == [True] * 9


def talk(*said: str) -> list[dict[str, str]]:
    """Turns of a user and an assistant."""
    return [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(said)]


def test_sides_that_begin_with_one_answer_come_out_the_same_in_every_order():
    """Whole conversations and answers behind a prompt; alone in a batch."""
    one = normalize("preference")
    codes = set()
    for chosen, rejected in itertools.product(["ara", "bra"], itertools.product("ab", "rs", "ab")):
        for sizes in itertools.product((1, 3), repeat=2):
            said = [
                tuple(side[:size]) for side, size in zip((chosen, rejected), sizes, strict=True)
            ]
            whole = [talk("q", *side) for side in said]
            for row in (
                {"chosen": whole[0], "rejected": whole[1]},
                {"prompt": "q", "chosen": whole[0][1:], "rejected": whole[1][1:]},
            ):
                come_out_the_same(one, [row])
                [found] = one(records([row])).column("reject_code").to_pylist()
                two = said[0][0] == said[1][0] and said[0][1:2] != said[1][1:2]
                same = "identical_pair" if said[0] == said[1] else None
                assert found == ("questions_differ" if two else same)
                codes.add(found)
    assert codes == {None, "questions_differ", "identical_pair"}


@pytest.mark.parametrize("name", ["preference", "prompt_completion", "openai"])
def test_a_format_that_reads_rows_anew_says_anew_what_it_passes_on(name):
    base: Any = type(formats.load(name))

    class Own(base):
        name = "own"

        def read(self, row: Row, options: FormatOptions) -> list[Example]:
            raise AssertionError

    assert not Own.passes_on
    assert type("Same", (base,), {"name": "own"}).passes_on == base.passes_on != ()


def test_a_kind_derived_from_another_says_anew_that_it_passes_texts_on():
    """What it overrides may look into them."""
    own = type("OwnPairs", (kinds.Pairs,), {"name": "own_pairs", "__doc__": "Changes pairs."})
    assert kinds.Pairs.passes_on
    assert Normalize(own(), formats.load("preference"), FormatOptions())._outlines is None


# What stages make of a batch by column is what they make of it row by row.

FAMILIES = ("gemma-3-1b-it", "smollm2-1.7b-instruct", "phi-4")
STEP_FAMILIES = (*FAMILIES, "phi-3-mini-4k")
SYSTEMS = st.sampled_from([None, "", " Be brief. ", "</think>", "<|im_end|>"])


@functools.cache
def _small(name: str, with_steps: bool = False) -> profile.TargetModel:
    return probes.bind(*small(name), with_steps=with_steps)


@functools.cache
def _renderer(name: str, train_on: str, with_steps: bool = False) -> Renderer:
    return Renderer(_small(name, with_steps), train_on)


def _same_both_ways(
    model: profile.TargetModel,
    batch: Batch,
    limit: tuple[int, str],
    make: Callable[[SegmentEncoder], list[Stage]],
    prefixes: tuple[str, ...] = ("",),
) -> Any:
    encoder = encoders.load(encoders.choose(model.tokenizer_json), model.tokenizer_json)
    results = []
    for columnar in (True, False):
        segments = SegmentEncoder(model, encoder, *limit)
        stages = make(segments)
        if not columnar:
            segments.outlines = None
            for one in stages:
                if isinstance(one, Render):
                    vars(one)["_shapes"] = lambda batch, column: []
                elif isinstance(one, RenderSteps):
                    vars(one)["_program"] = lambda: None
        results.append(_came_of(batch, stages, prefixes))
    assert results[0] == results[1]
    return results[0]


def _came_of(batch: Batch, stages: list[Stage], prefixes: tuple[str, ...]) -> Any:
    """What some stages make of a batch, but for the way in which they do."""
    made, gone = through(batch, stages)
    ways = [f"{one}{name}" for one in prefixes for name in ("outline", "texts", "segments")]
    kept = made.drop_columns([*ways, "encoded"])
    refused = [(one.stage, one.rows.select(["line", "reject_code"])) for one in gone]
    details = [one.rows.column("reject_detail").to_pylist() for one in gone]
    segments = [segments_of(made, one).to_pylist() for one in prefixes]
    return (repr(kept.to_pylist()), segments, refused, details)


@FEW
@given(
    conversations(),
    st.sampled_from(FAMILIES),
    st.sampled_from(["assistant", "last", "all"]),
    SYSTEMS,
    st.sampled_from([(1 << 20, "reject"), (60, "reject"), (60, "trim-turns")]),
)
def test_shapes_are_rendered_and_encoded_as_rows_are(found, family, train_on, system, limit):
    name, rows = found
    batch = normalizing("sft", name, train_on)(records(rows))
    renderer = _renderer(family, train_on)
    _same_both_ways(
        _small(family), batch, limit, lambda made: [Render(renderer, system=system), Encode(made)]
    )


@pytest.mark.parametrize("system", [None, "[INST] x", "Be brief."])
def test_a_system_text_with_a_turn_marker_is_refused_in_every_row(system):
    model = _small("smollm2-1.7b-instruct")
    renderer = Renderer(model)
    renderer._markers = all_profiles()["mistral-7b-instruct-v0.1"].text_markers
    renderer.marker = re.compile("|".join(map(re.escape, renderer._markers)))
    own = [{"role": "system", "content": "s"}, *talk("q", "a")]
    rows = [{"messages": said} for said in (talk("q", "a"), talk("[INST]", "a"), own)]
    batch = normalizing("sft", "openai")(records(rows))
    _, _, gone, _ = _same_both_ways(
        model, batch, (99, "reject"), lambda made: [Render(renderer, system=system), Encode(made)]
    )
    refused = {line for _, some in gone for line in some.column("line").to_pylist()}
    assert refused == ({0, 3} if system == "[INST] x" else {3})


@FEW
@given(
    st.lists(sides() | st.none(), max_size=7),
    st.sampled_from(FAMILIES),
    SYSTEMS,
    st.sampled_from([(1 << 20, "reject"), (40, "reject")]),
)
def test_pairs_are_rendered_and_encoded_as_one_by_one(rows, family, system, limit):
    """Both sides, whose prompt is encoded once."""
    batch = normalizing("rm", "preference")(records(rows))
    prefixes = ("chosen_", "rejected_")

    def stages(segments: SegmentEncoder) -> list[Stage]:
        renderer = _renderer(family, "assistant")
        render = [Render(renderer, one, ends_with_turn=True, system=system) for one in prefixes]
        return [*render, EncodePair(segments)]

    _same_both_ways(_small(family), batch, limit, stages, prefixes)


@pytest.mark.slow
@settings(FEW, max_examples=150)
@given(
    st.lists(lists(1) | st.none(), max_size=7),
    st.sampled_from(STEP_FAMILIES),
    st.booleans(),
    SYSTEMS | st.just("[INST] x"),
    st.sampled_from([(1 << 20, "reject"), (30, "reject"), (30, "trim-steps"), (60, "trim-steps")]),
)
def test_steps_are_rendered_and_encoded_as_one_by_one(rows, family, raw, system, limit):
    model, renderer = _small(family, True), _renderer(family, "assistant", True)

    def stages(segments: SegmentEncoder) -> list[Stage]:
        return [RenderSteps(renderer, raw, system), Mark(model), EncodeSteps(model, segments)]

    batch = normalizing("prm", "stepwise", raw=raw)(records(rows))
    _same_both_ways(model, batch, limit, stages)


@pytest.mark.parametrize("family", STEP_FAMILIES)
def test_rows_of_steps_have_outlines(family):
    """The fast way is taken, also by rows between others and by rows of other lengths."""
    each = [["x"], [""], ["x", "y"]]
    rows = [{"prompt": "q", "completions": own, "labels": [1] * len(own)} for own in each]
    batch = normalizing("prm", "stepwise")(records(rows))
    render = RenderSteps(_renderer(family, "assistant", True))
    made, _ = through(batch, [render, Mark(_small(family, True))])
    assert made.column("line").to_pylist() == [0, 6]
    assert made.column("outline").is_valid().to_pylist() == [True, True]
