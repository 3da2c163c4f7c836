"""Rows that are normalized, rendered and encoded as columns come out as one by one."""

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
from pipeline.tasks import kind_of
from stages import encoders, formats, profile
from stages.chat_template.render import Render, Renderer
from stages.chat_template.render_steps import RenderSteps
from stages.contract import Batch, FormatOptions, Row, Stage
from stages.normalize.stage import Normalize
from stages.rows import carried, stop_text
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles
from stages.tokens.encode import Encode, EncodePair, EncodeSteps
from stages.tokens.folded_labels import Mark
from stages.tokens.outline_tokens import segments_of
from stages.tokens.segment_encoder import SegmentEncoder

FEW = settings(max_examples=30)
BITS = table("odd_texts.toml")["columnar"]
texts = (
    st.lists(st.sampled_from(BITS), max_size=4).map("".join)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
    | st.sampled_from(["What is 2+2?", "### Response:", "USER: x ASSISTANT: y"])
)
CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": None}}}]}
ODD_VALUES = texts | st.none() | st.integers(0, 2) | st.booleans() | st.sampled_from([[], {}])
MORE: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from([1, None, {}]),
    "meta": st.sampled_from([{}, [CALL], CALL, {"a": 1}]),
    "system": st.sampled_from(["", " ", "s"]),
    "history": st.sampled_from([[], [["a", "b"]]]),
    "tools": st.sampled_from([None, [], [{"type": "function", "function": {"name": "f"}}]]),
    "score": st.sampled_from([None, 1, "x"]),
    "loss_mask": st.sampled_from([None, [1]]),
    "mask": st.sampled_from([None, "", "gpt"]),
    "input": texts | st.none(),
    "question": st.sampled_from(["", " "]),
    **dict.fromkeys(("query", "context", "response", "prompt", "label", "weight"), ODD_VALUES),
}
_SPEAKERS = st.sampled_from(("user", "assistant", "human", "gpt", "system", "User", "tool", ""))
_SYSTEMS = st.sampled_from([None, "", " Be brief. ", "</think>", "<|im_end|>"])


@st.composite
def _turn(draw: st.DrawFn, speaker: str, role: str, said: str) -> Any:
    turn: dict[str, Any] = {role: speaker, said: draw(texts)}
    odd = draw(st.integers(0, 40))
    if odd == 0:
        turn[role] = draw(_SPEAKERS)
    elif odd == 1:
        turn[said] = draw(st.sampled_from([None, 5, [{"type": "text", "text": "p"}]]))
    elif odd == 2:
        turn |= draw(st.sampled_from([{"weight": 0.5}, {"weight": 0}, {"name": "n"}, CALL]))
    return dict(reversed(turn.items())) if odd == 3 else turn


@st.composite
def _dialogue(draw: st.DrawFn, spelling: tuple[str, str, str, str]) -> Any:
    odd = draw(st.integers(0, 20))
    if odd == 0:
        return draw(st.sampled_from([None, [], "x", [1], [[]], {}]))
    user, assistant, role, said = spelling
    speakers = ["system"] * (odd > 14) + [user, assistant] * draw(st.integers(1, 3))
    if odd == 1:
        speakers = speakers[:-1]
    return [draw(_turn(speaker, role, said)) for speaker in speakers]


def _rows(name: str) -> st.SearchStrategy[Row]:
    own: dict[str, st.SearchStrategy[Any]]
    if name == "openai":
        own = {"messages": _dialogue(("user", "assistant", "role", "content"))}
    elif name == "sharegpt":
        own = {"conversations": _dialogue(("human", "gpt", "from", "value"))}
    else:
        odd: st.SearchStrategy[Any] = st.none() | st.just([]) | st.just(3)
        names = {"alpaca": ("instruction", "output"), "prompt_completion": ("prompt", "completion")}
        own = dict.fromkeys(names.get(name, ("question", "answer")), texts | texts | texts | odd)
    others = {key: value for key, value in MORE.items() if key not in own}
    plain = st.fixed_dictionaries(own)
    return plain | plain | st.fixed_dictionaries(own, optional=others)


NAMES = ("openai", "sharegpt", "alpaca", "prompt_completion", "query_response")
tables = st.sampled_from(NAMES).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(_rows(name) | st.none(), max_size=9))
)


@settings(FEW, max_examples=100)
@given(
    tables,
    st.sampled_from(["assistant", "last", "all"]),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.sampled_from([None, "drop", "keep"]),
)
def test_marks_stand_for_every_text_that_a_format_passes_on(table, train_on, stops, typed, nulls):
    """Rows that are read again by their outlines come out as they did when they were read alone."""
    name, rows = table
    options = FormatOptions(null_fields=nulls)
    normalize = Normalize(kind_of("sft"), formats.load(name), options, train_on, stop_text=stops)
    come_out_the_same(normalize, rows, typed)


def test_nulls_of_a_typed_table_are_asked_about_in_unread_columns():
    row = {"prompt": "q", "completion": "a", "meta": [CALL]}
    normalize = normalizing("sft", "prompt_completion")
    assert normalize(records([row], typed=True)).column("reject_code").to_pylist() == [
        "null_fields"
    ]
    assert normalize(records([row])).column("reject_code").to_pylist() == [None]


FAMILIES = ("gemma-3-1b-it", "smollm2-1.7b-instruct", "phi-4")


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
    """What stages make of a batch by column, which is what they make of it row by row."""
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


def _came_of(batch: Batch, stages: list[Stage], prefixes: tuple[str, ...] = ("",)) -> Any:
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
    tables,
    st.sampled_from(FAMILIES),
    st.sampled_from(["assistant", "last", "all"]),
    _SYSTEMS,
    st.sampled_from([(1 << 20, "reject"), (60, "reject"), (60, "trim-turns")]),
)
def test_shapes_are_rendered_and_encoded_as_rows_are(table, family, train_on, system, limit):
    name, rows = table
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
    rows = [
        {"messages": [{"role": r, "content": c} for r, c in zip(itertools.cycle(turns), said)]}
        for turns, said in (
            (("user", "assistant"), ("q", "a")),
            (("user", "assistant"), ("[INST]", "a")),
            (("system", "user", "assistant"), ("s", "q", "a")),
        )
    ]
    batch = normalizing("sft", "openai")(records(rows))
    _, _, gone, _ = _same_both_ways(
        model, batch, (99, "reject"), lambda made: [Render(renderer, system=system), Encode(made)]
    )
    refused = {line for _, some in gone for line in some.column("line").to_pylist()}
    assert refused == ({0, 3} if system == "[INST] x" else {3})


_QUESTIONS = st.sampled_from(["q", "What is 2+2?", "r"]) | texts


@st.composite
def _pair(draw: st.DrawFn) -> Any:
    """A prompt of one question or more, and two answers; now and then something else."""
    asked = draw(_dialogue(("user", "assistant", "role", "content"))) if draw(st.booleans()) else []
    if not isinstance(asked, list) or draw(st.booleans()):
        asked = []
    return {
        "prompt": [*asked, {"role": "user", "content": draw(_QUESTIONS)}],
        "chosen": [{"role": "assistant", "content": draw(texts)}],
        "rejected": [{"role": "assistant", "content": draw(texts)}],
    }


@FEW
@given(
    st.lists(_pair() | st.none(), max_size=7),
    st.sampled_from(FAMILIES),
    _SYSTEMS,
    st.sampled_from([(1 << 20, "reject"), (40, "reject")]),
)
def test_pairs_are_rendered_and_encoded_as_one_by_one(rows, family, system, limit):
    """Both sides, whose prompt is encoded once."""
    batch = normalizing("rm", "preference")(records(rows))
    sides = ("chosen_", "rejected_")

    def stages(segments: SegmentEncoder) -> list[Stage]:
        renderer = _renderer(family, "assistant")
        render = [Render(renderer, side, ends_with_turn=True, system=system) for side in sides]
        return [*render, EncodePair(segments)]

    _same_both_ways(_small(family), batch, limit, stages, sides)


STEP_FAMILIES = (*FAMILIES, "phi-3-mini-4k")
problems = texts | st.sampled_from(["", "q", " padded "])
steps = st.lists(
    texts | st.sampled_from(["x", "", "[INST]", "a</think>b", "\n"]), min_size=1, max_size=4
)
step_ratings = st.sampled_from([0.0, 1.0, 0.25, 0.75, 0.5, None])


@st.composite
def _chain(draw: st.DrawFn) -> Any:
    """A problem, its steps, a tail, and ratings; None where normalize refused the row."""
    if draw(st.integers(0, 9)) == 0:
        return None
    said = draw(steps)
    rated = draw(st.lists(step_ratings, min_size=len(said), max_size=len(said)))
    return draw(problems), said, draw(st.sampled_from([None, "", "\n"])), rated


def _chains(rows: list[Any]) -> Batch:
    """Rows of steps as normalize leaves them."""
    return carried.batch_of(
        [*range(len(rows))],
        [-1] * len(rows),
        refused={at: ("bad_json", "x") for at, row in enumerate(rows) if row is None},
        own_columns={
            "problem": [row and row[0] for row in rows],
            "system": [None] * len(rows),
            "steps": [row[1] if row else [] for row in rows],
            "tail": [row and row[2] for row in rows],
            "step_labels": [row[3] if row else [] for row in rows],
        },
    )


@pytest.mark.slow
@settings(FEW, max_examples=150)
@given(
    st.lists(_chain(), max_size=7),
    st.sampled_from(STEP_FAMILIES),
    st.booleans(),
    _SYSTEMS | st.just("[INST] x"),
    st.sampled_from([(1 << 20, "reject"), (30, "reject"), (30, "trim-steps"), (60, "trim-steps")]),
)
def test_steps_are_rendered_and_encoded_as_one_by_one(rows, family, raw, system, limit):
    model, renderer = _small(family, True), _renderer(family, "assistant", True)

    def stages(segments: SegmentEncoder) -> list[Stage]:
        return [RenderSteps(renderer, raw, system), Mark(model), EncodeSteps(model, segments)]

    _same_both_ways(model, _chains(rows), limit, stages)


@pytest.mark.parametrize("family", STEP_FAMILIES)
def test_rows_of_steps_have_outlines(family):
    """The fast way is taken, also by rows between others and by rows of other lengths."""
    rows = [
        ("q", ["x"], None, [1.0]),
        ("q", [""], None, [1.0]),
        ("q", ["x", "y"], None, [0.0, 1.0]),
    ]
    render = RenderSteps(_renderer(family, "assistant", True))
    made, _ = through(_chains(rows), [render, Mark(_small(family, True))])
    assert made.column("line").to_pylist() == [0, 2]
    assert made.column("outline").is_valid().to_pylist() == [True, True]
