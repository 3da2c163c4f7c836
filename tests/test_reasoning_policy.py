"""Reasoning of answers is trained, taken out, or context only, wherever the row keeps it."""

import pytest

from stages.chat_template import reasoning, render
from stages.chat_template.segments import CONTROL, TRAINED
from stages.contract import Message
from stages.errors import RowError

THOUGHT = "<think>\nadd them\n</think>\n\n"


def trained(texts: list[str], kinds: bytes) -> str:
    """What is trained of a rendering."""
    return "".join(text for text, kind in zip(texts, kinds, strict=True) if kind & TRAINED)


def answer(content: str | None, **fields: object) -> Message:
    """An assistant's turn."""
    return Message("assistant", content, fields or None, True)


def test_strip_takes_fields_and_blocks():
    """In a field, in the text, or both; calls and users' texts stay."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        turns = [
            Message("user", f"{THOUGHT}why?"),
            answer("4", **{name: "add them", "tool_calls": [1]}),
            answer(f"\n{THOUGHT}4"),
            answer(f"4 {THOUGHT}"),
            answer(None, **{name: "add them"}),
        ]
        reasoning.strip(turns)
        said = [f"{THOUGHT}why?", "4", "4", f"4 {THOUGHT}", None]
        assert [turn.content for turn in turns] == said
        assert [turn.fields for turn in turns] == [None, {"tool_calls": [1]}, None, None, None]


def test_a_block_without_an_end_is_refused():
    """Whether the answer has begun cannot be told."""
    with pytest.raises(RowError) as caught:
        reasoning.strip([answer("<think>\nadd them")])
    assert caught.value.code == "unclosed_reasoning"
    with pytest.raises(RowError, match="has no </think>"):
        reasoning.untrain(["<think>\nadd", "<|im_end|>"], bytes([TRAINED, CONTROL | TRAINED]))


@pytest.mark.parametrize("content", [f"{THOUGHT}4", "4", f"{THOUGHT}4 </think> 5", "a <think> b"])
def test_mask_changes_no_text_and_trains_the_answer(content, model):
    """The segments join to the same text; what is trained is the answer and its end of turn."""
    turns = [("user", "2 + 2?"), ("assistant", content), ("user", "again"), ("assistant", "4")]
    roles, texts = [r for r, _ in turns], [t for _, t in turns]
    flags = [role == "assistant" for role in roles]
    found = render.Renderer(model)(render.Row(roles, texts, [None] * 4, flags, None))
    masked = reasoning.untrain(found[0], found[1])
    assert "".join(masked[0]) == "".join(found[0])
    said = content.removeprefix(THOUGHT)
    assert trained(*masked) == f"{said}<|im_end|>4<|im_end|>"
    assert reasoning.untrain(*masked) == masked


def test_reasoning_that_the_prompt_opened_is_masked():
    """Where the generation prompt ends in an opened block, the answer goes on inside it."""
    texts = ["assistant\n<think>\n", "add them\n</think>\n\n4", "<|im_end|>"]
    masked = reasoning.untrain(texts, bytes([0, TRAINED, TRAINED | CONTROL]))
    assert "".join(masked[0]) == "".join(texts)
    assert trained(*masked) == "4<|im_end|>"


def test_a_registered_end_of_reasoning_stays_a_token():
    """Tokenizers that register the block's marks have them as segments of their own."""
    texts = ["<think>", "add", "</think>", "\n\n4", "<|im_end|>"]
    control = TRAINED | CONTROL
    masked = reasoning.untrain(texts, bytes([control, TRAINED, control, TRAINED, control]))
    assert masked[0] == ["<think>", "add", "</think>", "\n\n", "4", "<|im_end|>"]
    assert [bool(kind & CONTROL) for kind in masked[1]] == [True, False, True, False, False, True]
    assert trained(*masked) == "4<|im_end|>"
