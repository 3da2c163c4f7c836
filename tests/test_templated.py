"""Texts that already carry a chat template: their turns are read, and templated once; prompts that
the shipped templates print are known as templated, wherever they were cut."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rows import normalizing, unfolded
from support import table

from expectations.witness import talks
from expectations.witness.raw import UnreadError
from stages import errors
from stages.chat_template import turn_ends
from stages.chat_template.template import Template
from stages.contract import Conversation, FormatOptions, Message, Record, Row
from stages.formats import _inside
from stages.profile import ModelProfile
from stages.rows import carried, stop_text
from stages.tokenizers.profiles import all_profiles

Said = list[tuple[str, str]]

ASKED: Said = [("user", "one\ntwo"), ("assistant", "three"), ("user", "four")]
TALK: Said = [("system", "Be exact."), *ASKED, ("assistant", "five")]


DIALECTS = table("dialects.toml")


def write(name: str, said: Said) -> str:
    """Turns in a dialect, as far as it has them."""
    dialect = DIALECTS[name]
    text, inside = dialect.get("first", ""), ""
    for role, content in said:
        if role == "system":
            inside = dialect.get("inside", "").format(content)
            text += dialect.get("system", "").format(content)
        else:
            text, inside = text + dialect[role].format(inside + content), ""
    return text


def wanted(said: Said, name: str = "ChatML") -> list[Message]:
    """The turns that a dialect can hold."""
    with_system = {"system", "inside"} & DIALECTS[name].keys()
    return [Message(role, text) for role, text in said if with_system or role != "system"]


def test_a_templated_text_gives_back_its_turns():
    """Cut into prompt and answer anywhere a trainer would, or whole, the turns are the same."""
    for name, dialect in DIALECTS.items():
        turns = wanted(TALK, name)
        found = stop_text.read(write(name, TALK))
        assert found is not None, name
        assert (found[0].name, found[1].messages) == (name, turns)
        asked = write(name, TALK[:-1])
        for opened in (asked + dialect["opening"], asked):
            prompt = stop_text.read(opened)
            assert prompt is not None, name
            for answer in ("five", *(f"five{closer}" for closer in prompt[0].closers)):
                assert stop_text.answered(*prompt, answer) == turns, name


ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately "
    "completes the request.\n\n### Instruction:\n{}\n\n### Response:\n"
)
ALPACA_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n"
)
ALLOWED = FormatOptions(already_templated=True)


def test_an_alpaca_prompt_is_the_alpaca_row_that_it_was_made_from():
    """With and without an input, and wherever the prompt was cut."""
    for row, prompt in (
        ({"instruction": "Add.", "output": " 3 "}, ALPACA.format("Add.")),
        (
            {"instruction": "Add.", "input": "1\n\n2", "output": "3"},
            ALPACA_INPUT.format("Add.", "1\n\n2"),
        ),
    ):
        plain = unfolded("alpaca", row, FormatOptions())
        for ending in ("", "\n"):
            cut: Row = {"prompt": prompt.rstrip() + ending, "response": row["output"]}
            assert unfolded("query_response", cut, ALLOWED) == plain


WORDS = st.text(st.sampled_from("ab \n.<|#:é好"), max_size=12)


@given(
    said=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3),
    system=st.none() | WORDS,
    name=st.sampled_from(["ChatML", "Llama 3", "Gemma", "Zephyr or Phi", "Harmony"]),
)
def test_contents_between_two_markers_come_back_exactly(said, system, name):
    """Whatever stands in the turns: no blank is lost, and nothing that looks like a marker."""
    talk: Said = [] if system is None else [("system", system)]
    for asked, answered in said:
        talk += [("user", asked), ("assistant", answered)]
    found = stop_text.read(write(name, talk))
    assert found[1].messages == wanted(talk)
    prompt = stop_text.read(write(name, talk[:-1]) + DIALECTS[name]["opening"])
    assert stop_text.answered(*prompt, talk[-1][1]) == wanted(talk)


@given(
    said=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3),
    system=st.none() | WORDS,
    name=st.sampled_from(sorted(DIALECTS)),
    cut=st.integers(0, 400),
    answer=WORDS,
    end=st.sampled_from(["", "<|im_end|>", "</s>", "<|eot_id|>\n", "</s> </s>", "\n"]),
    opened=st.booleans(),
)
@example([("a", "b")], None, "Llama 4", 47, "\n\nb", "", True)
@example([("a", ""), ("b", "")], "s", "Llama 2 or Mistral", 400, "", "</s>", False)
def test_the_witness_reads_the_same_turns_or_none(said, system, name, cut, answer, end, opened):
    """Whole or cut anywhere, as a question, an answer or alone; where the build refuses one, the
    witness may say anything, since nothing is stored."""
    talk: Said = [] if system is None else [("system", system)]
    for pair in said:
        talk += zip(("user", "assistant"), pair, strict=True)
    whole = write(name, talk) + end
    if opened:
        whole = write(name, talk[:-1]) + DIALECTS[name]["opening"]
    for text in (
        whole,
        whole[:cut],
        ALPACA.format(whole)[: cut or None],
        ALPACA_INPUT.format(*said[0]),
    ):
        for turns in (
            [Message("user", text), Message("assistant", answer + end)],
            [Message("user", said[-1][0]), Message("assistant", text)],
        ):
            own = [{"role": turn.role, "content": turn.content} for turn in turns]
            with suppress(UnreadError, errors.RowError):
                wanted = _inside.unfolded(turns, ALLOWED)
                found, _ = talks.unfolded(own, [None, None])
                assert [(x["role"], x["content"]) for x in found] == [
                    (turn.role, turn.content) for turn in wanted
                ]
        with suppress(UnreadError, errors.RowError):
            alone = stop_text.read(text)
            inside = talks.inside(text)
            assert (alone and [(x.role, x.content) for x in alone[1].messages]) == (
                inside and [(x["role"], x["content"]) for x in inside[0]]
            )


UNREAD = {"DeepSeek", "Harmony", "Human/Assistant", "Llama 2 or Mistral", "NeMo", "Vicuna"}


@pytest.mark.parametrize("name", sorted({*DIALECTS} - UNREAD))
def test_the_witness_reads_what_templates_write(name: str) -> None:
    """Most of them, as a question with its answer and as a whole text."""
    turns = [{"role": one.role, "content": one.content} for one in wanted(TALK, name)]
    found = talks.inside(write(name, TALK))
    assert found[0] == turns
    asked = {"role": "user", "content": write(name, TALK[:-1]) + DIALECTS[name]["opening"]}
    assert talks.unfolded([asked, turns[-1]], [None, 0.5]) == (
        turns,
        [*[None] * 4, 0.5][-len(turns) :],
    )


def test_an_empty_system_text_is_no_turn():
    """As NeMo's template prints one where a row has none."""
    talk: Said = [("system", ""), ("user", "q")]
    found = stop_text.read(write("NeMo", talk) + DIALECTS["NeMo"]["opening"])
    assert stop_text.answered(*found, "a\n<extra_id_1>") == wanted([talk[1], ("assistant", "a")])


def test_other_texts_are_content():
    """A marker inside a text, or one that opens no turns, makes it no templated text. Only an
    assistant's header may stand bare at the end."""
    for text in table("untemplated.jsonl"):
        assert stop_text.read(text) is None, text


PROMPTED = write("Harmony", TALK[1:2]) + DIALECTS["Harmony"]["opening"]

# One profile for each template that is shipped.
BY_SOURCE = {p.chat_template: p for p in all_profiles().values() if p.pair is None}
PROFILES = {profile.name: profile for profile in BY_SOURCE.values()}
PRINTED = [{"role": role, "content": text} for role, text in ASKED]


def template(profile: ModelProfile) -> Template:
    """The family's template with its tokens."""
    tokens = {"eos_token": profile.eos_token, "pad_token": profile.pad_token}
    bos = {"bos_token": profile.bos_token} if profile.bos_token else {}
    return Template(profile.chat_template, profile.date_string, **tokens, **bos)


def said(messages: list[Message]) -> list[tuple[str, str]]:
    """Roles and contents, without the system text that a template brings."""
    return [(m.role, m.content or "") for m in messages if m.role != "system"]


def cuts(profile: ModelProfile) -> list[str]:
    """A family's prompt as programs hand it on: whole, stripped, cut at its last header."""
    whole = template(profile).render(PRINTED, None, add_generation_prompt=True)
    bare = template(profile).render(PRINTED, None)
    found = {whole, whole.rstrip(), whole.rstrip("\n"), bare}
    if whole.rstrip() != whole and not whole.rstrip().endswith("<think>"):
        found.add(f"{whole.rstrip()} ")
    found.add(re.sub(r"(<think>\s*)+\Z", "", whole))
    # Right behind the role's name, where a separator follows it.
    found.add(re.sub(r"(<\|im_sep\|>|\n)\Z", "", whole))
    # With or without the token that begins every text.
    return sorted(found | {text.removeprefix(profile.bos_token or "") for text in found})


@pytest.mark.parametrize("name", PROFILES)
def test_a_familys_prompt_is_known_wherever_it_was_cut(name):
    """Its turns come back, and the answer is the whole answer; so do those of the text that it
    prints for training. What it prints around turns are markers, told of in all other rows."""
    profile = PROFILES[name]
    for prompt in cuts(profile):
        found = stop_text.read(prompt)
        assert found is not None, prompt
        opened = prompt.rstrip().endswith("<think>")
        answer = "so\n</think>\n\nfive" if opened else "five"
        for end in ("", profile.end_of_turn, f"{profile.end_of_turn}\n"):
            turns = said(stop_text.answered(*found, answer + end))
            assert turns[:-1] == ASKED
            role, content = turns[-1]
            assert role == "assistant"
            assert content.removeprefix("<think>\n").removeprefix("<think>") == answer
        with pytest.raises(errors.RowError) as caught:
            unfolded("query_response", {"question": prompt, "answer": answer}, FormatOptions())
        assert caught.value.code == "already_templated"
    text = template(profile).render([*PRINTED, {"role": "assistant", "content": "five"}], None)
    for more in ("", "\n"):
        found = stop_text.read(text + more)
        turns = said(found[1].messages)
        assert turns[:-1] == ASKED
        assert turns[-1][1].split("</think>")[-1].strip() == "five"
    text = template(profile).render(PRINTED, None, add_generation_prompt=True)
    printed = set(re.findall(r"<[|｜][^<>\n]+[|｜]>|<\w+_of_turn>|\[/?INST\]", text))
    assert printed
    assert printed <= set(carried.MARKERS)


@given(
    asked=WORDS.filter(str.strip),
    thought=WORDS.filter(str.strip),
    answer=WORDS.filter(str.strip),
    system=st.none() | WORDS.filter(str.strip),
)
def test_reasoning_on_a_channel_of_its_own_is_a_field_of_its_answer(asked, thought, answer, system):
    """In the whole text that gpt-oss prints, and in an answer cut out of it, anywhere."""
    turns = [{"role": "system", "content": system}] if system is not None else []
    turns.append({"role": "user", "content": asked})
    show = template(all_profiles()["gpt-oss-20b"]).render
    told = {"role": "assistant", "content": answer, "reasoning_content": thought}
    whole, prompt = show([*turns, told]), show(turns, None, add_generation_prompt=True)
    (given_,) = unfolded("text", {"text": whole}, ALLOWED)
    expected = [Message(one["role"], one["content"]) for one in turns]
    expected.append(Message("assistant", answer, {"reasoning_content": thought}))
    assert given_ == Conversation(expected)
    rest = whole.removeprefix(prompt)
    for end in ("", "<|return|>", "<|end|>"):
        cut: Row = {"prompt": prompt, "completion": rest.removesuffix("<|return|>") + end}
        assert unfolded("prompt_completion", cut, ALLOWED) == [Conversation(expected)]
        said = [*turns, {"role": "assistant", "content": cut["completion"]}]
        assert unfolded("openai", {"messages": said}, ALLOWED) == [Conversation(expected)]


@pytest.mark.parametrize("asks", [turn_ends.calls("quince"), turn_ends.answers("Hm.")])
def test_what_is_read_of_no_text_is_refused_by_name(asks):
    """Tools, calls, their results, and reasoning that no answer follows; with the option too."""
    show = template(all_profiles()["gpt-oss-20b"]).render
    prompt = show([turn_ends.asks("What is it?")], turn_ends.TOOLS, add_generation_prompt=True)
    thought = "<|channel|>analysis<|message|>Hm."
    turns = [turn_ends.asks("What is it?"), asks, turn_ends.result("a fruit")]
    call = show([turns[0], turn_ends.calls("quince")], turn_ends.TOOLS).removeprefix(prompt)
    assert call.startswith(" to=functions.look_up")
    rows: list[Row] = [
        {"text": show([*turns, turn_ends.answers("Sour.")], turn_ends.TOOLS)},
        {"prompt": prompt, "completion": "five"},
        {"prompt": PROMPTED, "completion": thought},
        {"prompt": PROMPTED + thought, "completion": "<|end|>"},
        {"prompt": PROMPTED, "completion": call},
        {"prompt": "What is it?", "completion": call.lstrip()},
    ]
    for row in rows:
        with pytest.raises(errors.RowError, match="give its turns as messages") as caught:
            unfolded("text" if "text" in row else "prompt_completion", row, ALLOWED)
        assert caught.value.code == "already_templated"


HEADERS: dict[str, str] = dict(table("headers.jsonl"))


@given(
    prompt=st.sampled_from(list(HEADERS)),
    kept=st.integers(0, 2),
    moved=st.booleans(),
    answer=st.text(st.sampled_from("ab 好.#"), min_size=1, max_size=8).filter(str.strip),
)
def test_what_a_header_lacks_is_no_part_of_the_answer(prompt, kept, moved, answer):
    """A cut anywhere behind the header gives one example, with the rest of the gap or without."""
    gap = HEADERS[prompt]
    kept = min(kept, len(gap)) if gap.isspace() else 0
    found = stop_text.read(prompt + gap[:kept])
    (asked, made) = stop_text.answered(*found, (gap[kept:] if moved else "") + answer)
    assert (asked.role, (asked.content or "").strip()) == ("user", "q")
    assert made.role == "assistant"
    assert made.content == (answer.strip() if found[0].strips else answer)


def test_markers_of_any_template_are_told_of_from_the_first_row():
    """In every place that text can stand; rows without one are told of nothing."""
    markers = [m for m in carried.MARKERS if m != "</s>"]  # which ends a struck-through word too
    texts = [json.dumps(text)[1:-1] for text in (*markers, "plain", "a < b", "[1]", "### Notes")]
    for shape in table("marked_rows.jsonl"):
        row = json.dumps(shape["row"])
        rows = [json.loads(row.replace("{}", text)) for text in texts]
        records = [Record(i, 0, b"", row) for i, row in enumerate(rows)]
        batch = normalizing(shape["task"], shape["format"])(records)
        assert batch["reject_code"].null_count == len(rows), shape["name"]
        noted = batch["note"].to_pylist()
        assert noted == ["template_text"] * len(markers) + [None] * 4, shape["name"]
        lines = carried.noted(batch)["template_text"]
        assert len(lines) == len(markers)
