"""Answers that teach something broken are refused, by the same name for every family."""

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import SMALL, small
from support import raised, table
from test_render import declared

from pipeline.shards.chain import split_off
from pipeline.tasks import kind_of
from stages import contract, formats, profile
from stages.chat_template import reasoning
from stages.chat_template.render import Render, Renderer, Row
from stages.chat_template.segments import CONTROL, TRAINED
from stages.errors import RowError
from stages.normalize.stage import Normalize
from stages.rows import stop_text
from stages.tokenizers import probes, profiles
from stages.tokens.outline_tokens import segments_of

FAMILIES = (
    *("qwen2.5-0.5b-instruct", "qwen3-0.6b", "gemma-2-2b-it", "phi-4"),
    *("llama-3.1-8b-instruct", "mistral-nemo-instruct-2407"),
)
U = {"role": "user", "content": "2 + 2?"}
THOUGHT = "<think>\nadd them\n</think>\n\n"


@functools.cache
def rendering(name: str) -> profile.TargetModel:
    """A family's model as far as rendering needs one."""
    return probes.bind(*small(name), with_steps=False) if name in SMALL else declared(name)


def door(
    task: str, name: str, model: profile.TargetModel | None = None, **options: Any
) -> Normalize:
    """Normalize as a build of the model has it."""
    stop = options.pop("stop_text", stop_text.REJECT)
    by_turn = bool(model and model.profile.one_example_per_turn and task == "sft")
    allowed = contract.FormatOptions(already_templated=True)
    return Normalize(
        kind_of(task), formats.load(name), allowed, turn_by_turn=by_turn, stop_text=stop, **options
    )


def rows_of(normalize: Normalize, *rows: contract.Row) -> list[dict[str, Any]]:
    """What normalize makes of rows."""
    records = [contract.Record(i, 0, b"", row) for i, row in enumerate(rows)]
    return list(normalize(records).to_pylist())


def trained(model: profile.TargetModel, *turns: contract.Row, **row: Any) -> list[str]:
    """What is trained of each example of a row; the code where it is refused."""
    kind = "openai" if turns else "prompt_completion"
    given = {"messages": list(turns)} if turns else row
    batch = door("sft", kind, model)([contract.Record(0, 0, b"", given)])
    batch, refused = split_off(batch)
    said = [str(code) for code in refused["reject_code"].to_pylist()] if refused else []
    if not batch.num_rows:
        return said
    made = Render(Renderer(model))(batch)
    codes = made["reject_code"].to_pylist()
    for code, segments in zip(codes, segments_of(made, "").to_pylist(), strict=True):
        texts = [s["text"] for s in segments if s["kind"] & TRAINED]
        said.append(code or "".join(texts))
    return said


def says(content: str | None, **fields: Any) -> contract.Row:
    """An assistant's turn."""
    return {"role": "assistant", "content": content, **fields}


CUT = ("<think>\nadd th", "\n<think>add", "Sure.\n<think>\nadd", "<think>a</think>b\n<think>c")


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_cut_off_in_its_reasoning_is_refused(name):
    """Under the default policy, wherever it stands; a turn that is not trained is context."""
    model = rendering(name)
    for content in CUT:
        assert trained(model, U, says(content)) == ["unclosed_reasoning"]
        assert trained(model, U, says("4"), U, says(content)) == ["unclosed_reasoning"]
        (code,) = rows_of(door("sft", "query_response"), {"question": "q", "answer": content})
        assert code["reject_code"] == "unclosed_reasoning"
    context = {**says(CUT[0]), "train": False}
    assert "unclosed_reasoning" not in trained(model, U, context, U, says("4"))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_that_opens_reasoning_is_closed_by_the_answer(name):
    """The block is the answer's, in the form of the family; one that nothing closes is refused."""
    model = rendering(name)
    prompt = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    wanted = trained(model, U, says(f"{THOUGHT}4"))
    assert wanted[0].count("</think>") == 1
    for opened in ("<think>\n", "<think>"):
        for answer in ("add them\n</think>\n\n4", "\nadd them\n</think>\n\n4"):
            rest = answer.removeprefix("\n") if opened.endswith("\n") else f"\n{answer.lstrip()}"
            made = trained(model, prompt=prompt + opened, completion=rest)
            assert made == wanted
    again = trained(model, prompt=f"{prompt}<think>\n", completion=f"{THOUGHT}4")
    assert again == wanted  # the answer repeats the opening
    for answer in ("4", "add th"):
        cut = trained(model, prompt=f"{prompt}<think>\n", completion=answer)
        assert cut == ["unclosed_reasoning"]
    # An empty block says that there is no reasoning, as a row without any says by itself.
    made = trained(model, prompt=f"{prompt}<think>\n\n</think>\n\n", completion="4")
    assert made == trained(model, U, says("4"))


@pytest.mark.parametrize("name", FAMILIES)
def test_reasoning_with_nothing_behind_it_is_an_empty_answer(name):
    """In each place and in every row of one outline; a call of a tool, or a turn that is not
    trained, may stand alone with its reasoning."""
    model = rendering(name)
    alone = THOUGHT.strip()
    for content in (alone, THOUGHT, f"\n{alone} ", "<think></think>", f"{alone}\n{alone}"):
        assert trained(model, U, says(content)) == ["empty_answer"]
        assert trained(model, U, says("4"), U, says(content)) == ["empty_answer"]
        assert trained(model, prompt="q", completion=content) == ["empty_answer"]
        parts = [{"type": "text", "text": content}]
        assert trained(model, U, {"role": "assistant", "content": parts}) == ["empty_answer"]
        context = {**says(content), "train": False}
        assert "empty_answer" not in trained(model, U, context, U, says("4"))
    prompt = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert trained(model, prompt=prompt, completion="add them\n</think>\n") == ["empty_answer"]
    query = door("sft", "query_response", model)
    rows = [{"question": "q", "answer": text} for text in ("a", "b", alone, f"{alone}4")]
    codes = [one["reject_code"] for one in rows_of(query, *rows)]
    assert codes == [None, None, "empty_answer", None]
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    (made,) = rows_of(door("sft", "openai"), {"messages": [U, says(alone, tool_calls=[call])]})
    assert made["reject_code"] is None
    placed = door("sft", "openai", reasoning=None)  # --reasoning-in think
    (made,) = rows_of(placed, {"messages": [U, says("", reasoning_content="add them")]})
    assert made["reject_code"] == "empty_answer"


def test_reasoning_in_a_field_is_the_block_that_a_prompt_opened():
    """For a family that prints such a field, the three spellings are one example."""
    model = rendering("qwen3-0.6b")
    prompt = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    field = trained(model, U, says("4", reasoning_content="add them"))
    assert field == trained(model, prompt=prompt, completion="add them\n</think>\n\n4")
    assert field == [f"{THOUGHT}4<|im_end|>"]


@given(st.lists(st.sampled_from(["<think>", "</think>", "\n", "a", " "]), max_size=8))
def test_reasoning_is_open_exactly_where_a_line_opens_it_last(parts):
    """Against a reading by lines of what stands behind the last end."""
    text = "".join(parts)
    behind = text.rpartition("</think>")
    lines = behind[2].split("\n")
    opened = any(line.lstrip().startswith("<think>") for line in lines[bool(behind[1]) :])
    assert stop_text.opens_reasoning(text) == opened


def test_every_flag_of_a_turn_that_goes_on_is_in_a_file():
    """Each with values that refuse the turn and others: see ``tables/files_read.jsonl``."""
    files = [one for one in table("files_read.jsonl") if "it goes on" in one["law"]]
    turns = [turn for one in files for row in one["rows"] for turn in row.get("messages", ())]
    assert {*stop_text.FLAGS} <= {key for turn in turns for key in turn}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_conversation_that_begins_with_the_assistant_is_refused(name):
    """One rule for every family and both tasks, and another name where nobody asks at all."""
    model = rendering(name)
    system = {"role": "system", "content": "s"}
    for before in ((says("hello"),), (system, says("hello")), (says("a"), says("b"))):
        assert trained(model, *before, U, says("4")) == ["begins_with_assistant"]
        pair = {"prompt": [*before, U], "chosen": "4", "rejected": "5"}
        (made,) = rows_of(door("rm", "preference"), pair)
        assert made["reject_code"] == "begins_with_assistant"
        assert "begins with an assistant turn" in made["reject_detail"]
    assert trained(model, says("hello")) == ["no_user_turn"]
    assert trained(model, system, says("hello")) == ["no_user_turn"]


def test_stop_text_is_refused_kept_or_taken_off():
    """In a text, a turn, either side of a pair and the last step; what stands before it stays."""
    for stop, behind in itertools.product(stop_text.STOPS, ("", " \n")):
        said = f"five {stop}{behind}"
        shapes: tuple[tuple[str, str, contract.Row], ...] = (
            ("sft", "openai", {"messages": [U, says(said)]}),
            ("sft", "openai", {"messages": [U, says(said), U, says("six")]}),
            ("sft", "query_response", {"question": "q", "answer": said}),
            ("sft", "text", {"text": said}),
            ("rm", "preference", {"prompt": "q", "chosen": said, "rejected": "six"}),
            ("rm", "preference", {"prompt": "q", "chosen": "six", "rejected": said}),
            ("prm", "stepwise", {"prompt": "q", "completions": [said], "labels": [True]}),
        )
        for task, name, row in shapes:
            (refused,) = rows_of(door(task, name), row)
            assert refused["reject_code"] == "stop_text", row
            assert "--stop-text strip" in refused["reject_detail"]
            (kept,) = rows_of(door(task, name, stop_text="keep"), row)
            assert "stop_text_kept" in kept["note"], row
            (stripped,) = rows_of(door(task, name, stop_text="strip"), row)
            assert stripped["note"] == "stop_text_stripped", row
            assert stop in str(kept)
            assert stop not in str(stripped)
            assert "five" in str(stripped)


@given(
    st.text(st.sampled_from("ab <>|/s\n"), max_size=12),
    st.lists(st.sampled_from([*stop_text.STOPS, " ", "\n"]), max_size=4),
)
def test_taking_stop_text_off_leaves_what_stood_before_it(said, behind):
    """Nothing is left to take off, nothing but stops and blanks went, and clean text stays."""
    text = said + "".join(behind)
    left = stop_text.stripped(text)
    assert stop_text.ending_stop(left) is None
    assert text.startswith(left)
    gone = text[len(left) :]
    for stop in stop_text.STOPS:
        gone = gone.replace(stop, "")
    assert not gone.strip()
    assert (left == text) == (stop_text.ending_stop(text) is None)


def test_what_is_no_stop_text_and_what_is_nothing_else():
    """HTML ends a struck word the way that Llama 2 ends a turn. Where nothing but stop text is
    taken off, nothing is left to learn. A new family's end of turn is stop text in all rows."""
    assert stop_text.ending_stop("not <s>this</s>") is None
    assert stop_text.ending_stop("<s>a</s> b</s>") == "</s>"
    row = {"question": "q", "answer": "<|im_end|>"}
    (made,) = rows_of(door("sft", "query_response", stop_text="strip"), row)
    assert made["reject_code"] == "empty_answer"
    for one in profiles.all_profiles().values():
        if one.pair is None:
            assert {one.end_of_turn, *one.generation_eos} <= set(stop_text.STOPS)


def test_a_side_of_several_answers_in_a_row_is_noted():
    """On either side of a pair, as in a conversation."""
    for answers in (1, 2, 3):
        several = [says(f"part {i}") for i in range(answers)]
        for chosen, rejected in itertools.permutations([several, [says("no")]]):
            row = {"prompt": [U], "chosen": chosen, "rejected": rejected}
            (made,) = rows_of(door("rm", "preference"), row)
            assert made["reject_code"] is None
            assert made["note"] == ("repeated_role" if answers > 1 else None)


# Reasoning of answers is trained, taken out, or context only, wherever the row keeps it.


def _masked(texts: list[str], kinds: bytes) -> tuple[list[str], bytes, str]:
    """A rendering whose reasoning is context: the same text; and what is trained of it."""
    found = reasoning.untrain(texts, kinds)
    assert "".join(found[0]) == "".join(texts)
    pairs = zip(*found, strict=True)
    return *found, "".join(text for text, kind in pairs if kind & TRAINED)


def test_strip_takes_fields_and_blocks():
    """In a field, in the text, or both; calls and users' texts stay."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        fields = [{name: "add them", "tool_calls": [1]}, None, None, {name: "add them"}, None, None]
        texts = ["4", f"\n{THOUGHT}4", f"4 {THOUGHT}", None, "add\n</think>\n\n4", "</think>4"]
        turns = [contract.Message("user", f"{THOUGHT}why?")]
        turns += [contract.Message("assistant", *one) for one in zip(texts, fields, strict=True)]
        reasoning.strip(turns)
        said = [f"{THOUGHT}why?", "4", "4", f"4 {THOUGHT}", None, "4", "4"]
        assert [turn.content for turn in turns] == said
        assert [turn.fields for turn in turns] == [None, {"tool_calls": [1]}, *[None] * 5]


def test_a_block_without_an_end_is_refused():
    """Whether the answer has begun cannot be told."""
    for text in ("<think>\nadd them", "close it with </think> here"):
        caught = raised(RowError, reasoning.strip, [contract.Message("assistant", text)])
        assert caught.code == "unclosed_reasoning"
    with pytest.raises(RowError, match="has no </think>"):
        reasoning.untrain(["<think>\nadd", "<|im_end|>"], bytes([TRAINED, CONTROL | TRAINED]))


@pytest.mark.parametrize("content", [f"{THOUGHT}4", "4", f"{THOUGHT}4 </think> 5", "a <think> b"])
def test_mask_changes_no_text_and_trains_the_answer(content, model):
    """The segments join to the same text; what is trained is the answer and its end of turn."""
    roles = ["user", "assistant"] * 2
    flags = [role == "assistant" for role in roles]
    row = Row(roles, ["2 + 2?", content, "again", "4"], [None] * 4, flags, None)
    texts, kinds, said = _masked(*Renderer(model)(row)[:2])
    assert said == f"{content.removeprefix(THOUGHT)}<|im_end|>4<|im_end|>"
    assert reasoning.untrain(texts, kinds) == (texts, kinds)


def test_reasoning_that_the_prompt_opened_is_masked():
    """Where the generation prompt ends in an opened block, the answer goes on inside it; tokenizers
    that register the block's marks have them as segments of their own."""
    texts = ["assistant\n<think>\n", "add them\n</think>\n\n4", "<|im_end|>"]
    assert _masked(texts, bytes([0, TRAINED, TRAINED | CONTROL]))[2] == "4<|im_end|>"
    texts, control = ["<think>", "add", "</think>", "\n\n4", "<|im_end|>"], TRAINED | CONTROL
    found, kinds, said = _masked(texts, bytes([control, TRAINED, control, TRAINED, control]))
    assert found == ["<think>", "add", "</think>", "\n\n", "4", "<|im_end|>"]
    assert [bool(kind & CONTROL) for kind in kinds] == [True, False, True, False, False, True]
    assert said == "4<|im_end|>"
