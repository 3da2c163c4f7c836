"""An appended history: earlier answers stay as they were sampled, and the rest is as it was."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import template_folder
from support import few, read_manifest, rows_to, table
from test_plan_command import planned
from test_render import seen, spans
from test_turn_ends import _vendors
from test_turns import CALL, TOOLS, outcome
from tokenizers import Tokenizer

from pipeline.builder.plan_page import as_json, as_text
from pipeline.options.config import Config
from stages import errors
from stages.chat_template.appended import APPENDED
from stages.chat_template.render import Renderer, Row, template_of
from stages.profile import ModelProfile, TargetModel, declare
from stages.tokenizers.profiles import all_profiles
from stages.tokenizers.resolve import Overrides, resolve

DECODERS = {p.chat_template: p for p in all_profiles().values() if p.pair is None}


def declared(profile: ModelProfile) -> TargetModel:
    """A model without a tokenizer: its tokens have numbers of their own."""
    own = {profile.end_of_turn, profile.eos_token, profile.bos_token, *profile.promoted}
    named = {*own, *dict(profile.token_ids)} - {None}
    controls = {str(name): index for index, name in enumerate(sorted(map(str, named)))}
    return TargetModel(profile, b"", controls, 0, 0, 9, -1, -1, -1, 99, {})


EVERY = {profile.name: declared(profile) for profile in DECODERS.values()}
REWRITING = sorted(n for n, model in EVERY.items() if model.profile.one_example_per_turn)
KEEPING = sorted(EVERY.keys() - {*REWRITING})
THOUGHT = "<think>\nHm {}.\n</think>\n\n"


def row_of(turns: list[tuple[str, str | None, Any]], tools: str | None, last: bool = False) -> Row:
    """A conversation as columns: every answer is trained, or the last turn alone."""
    roles = [role for role, _, _ in turns]
    fields = [json.dumps(more) if more else None for _, _, more in turns]
    flags = [role == "assistant" for role in roles]
    flags = [False] * (len(roles) - 1) + [True] if last else flags
    return Row(roles, [content for _, content, _ in turns], fields, flags, tools)


def dialogue(kinds: list[str], system: bool, ends: bool) -> list[tuple[str, str | None, Any]]:
    """A dialogue: of each kind one exchange.

    Args:
        ends: with an answer; else with a question that has none.
    """
    said: list[tuple[str, str | None, Any]] = [("system", "Be brief.", None)] * system
    for number, kind in enumerate(kinds):
        said.append(("user", f" question {number}\n", None))
        if kind == "call":
            call = json.loads(CALL.format(number))
            call["tool_calls"][0]["id"] = name = f"call{number:05}"
            said.append(("assistant", None, call))
            said.append(("tool", f"result {number}", {"name": "f", "tool_call_id": name}))
        thought = THOUGHT.format(number) if kind == "thought" else ""
        said.append(("assistant", f"{thought}answer {number}", None))
    return said if ends else [*said, ("user", "and now?", None)]


def answers_of(said: list[tuple[str, str | None, Any]]) -> list[int]:
    """Which turns are answers."""
    return [i for i, (role, _, _) in enumerate(said) if role == "assistant"]


def appended(model: TargetModel, row: Row) -> Any:
    """The segments with an appended history, or why there are none."""
    try:
        return Renderer(model, history=APPENDED)(row)
    except errors.RowError as error:
        return (error.code, error.detail)


def rewriting(model: TargetModel) -> TargetModel:
    """The model as one whose template rewrites earlier answers."""
    return replace(model, profile=replace(model.profile, one_example_per_turn=True))


KINDS = st.lists(st.sampled_from(["plain", "thought", "call"]), min_size=1, max_size=5)


@pytest.mark.parametrize("name", few(KEEPING, 4))
@settings(max_examples=8)
@given(kinds=KINDS, system=st.booleans(), ends=st.booleans())
def test_a_template_that_rewrites_nothing_appends_what_it_renders(name, kinds, system, ends):
    """Byte for byte, and the same is trained; refused are the same rows."""
    row = row_of(dialogue(kinds, system, ends), TOOLS if "call" in kinds else None)
    assert appended(rewriting(EVERY[name]), row) == outcome(EVERY[name], row)


@pytest.mark.parametrize("name", few(REWRITING, 2))
@settings(max_examples=8)
@given(kinds=KINDS, system=st.booleans(), ends=st.booleans())
def test_every_answer_stays_as_it_was_sampled(name, kinds, system, ends):
    """What is trained of each is what its own example trains where the history is rendered, and
    what stands before an answer stands there whatever follows."""
    said, tools = dialogue(kinds, system, ends), TOOLS if "call" in kinds else None
    row, model = row_of(said, tools), EVERY[name]
    answers = answers_of(said)
    texts, segments, *_ = appended(model, row)
    if isinstance(texts, str):  # the code of a refusal
        refused = "nothing can be appended to turn" in segments and name.startswith("mi")
        alike = [outcome(model, row_of(said[: i + 1], tools, last=True)) for i in answers]
        assert (refused and (system or tools)) or any(isinstance(x[0], str) for x in alike)
        return
    for i, (_, text) in zip(answers, spans(texts, segments), strict=True):
        own, flags, _ = Renderer(model)(row_of(said[: i + 1], tools, last=True))
        assert [text] == [span for _, span in spans(own, flags)]
    template, parsed = template_of(model, APPENDED), json.loads(tools) if tools else None
    whole, end = "".join(texts), model.profile.end_of_turn
    for i in answers:
        upto = template.render(seen(row)[: i + 1], parsed)
        assert whole.startswith(upto[: upto.rfind(end) + len(end)])
    first = seen(row)[: answers[0]]
    prompts = [one.render(first, parsed, True) for one in (template, template_of(model))]
    assert prompts[0] == prompts[1]


OPENED = "{% if m.reasoning_content and loop.last %}({{ m.reasoning_content }}){% endif %}"
PROMPT = "{% endfor %}{% if add_generation_prompt %}"
# By its own token, which is another one once turns follow; and by the opener of the next turn.
CLOSED = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>" + OPENED + "{{ m.content }}"
    "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}"
    + PROMPT + "<|start|>assistant<|message|>{% endif %}"
)  # fmt: skip
FOLLOWED = (
    "{% for m in messages %}<|{{ m.role }}|>" + OPENED + "{{ m.content }}"
    + PROMPT + "<|assistant|>{% endif %}"
)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "end", "printed"),
    [(CLOSED, "<|return|>", "<|start|>{}<|message|>{}{}"), (FOLLOWED, "<|user|>", "<|{}|>{}{}")],
)
def test_an_answer_ends_in_the_token_at_which_it_was_sampled(source, end, printed):
    """Whatever the template prints there later, and whether the token is its own or the next
    turn's; no token of the two turns is there twice."""
    said: list[tuple[str, str | None, Any]] = [
        turn
        for n in range(3)
        for turn in (
            ("user", f"q{n}", None),
            ("assistant", f"a{n}", {"reasoning_content": f"t{n}"}),
        )
    ]
    base = EVERY[next(name for name in KEEPING if name.startswith("qwen2-"))]
    profile = replace(base.profile, chat_template=source, end_of_turn=end)
    controls = ["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|user|>", "<|assistant|>"]
    numbered = dict(zip(controls, range(6), strict=True))
    model = rewriting(replace(base, profile=profile, controls=numbered))
    texts, kinds, path = appended(model, row_of(said, None))
    assert path == "compiled"
    asked = "<|end|>" if source is CLOSED else ""
    expected = ""
    for n in range(3):
        turn = printed.format("user", f"q{n}", asked)
        expected += turn if expected == "" or source is CLOSED else turn.removeprefix(end)
        expected += printed.format("assistant", f"(t{n})a{n}", end)
    assert "".join(texts) == expected
    assert [text for _, text in spans(texts, kinds)] == [f"(t{n})a{n}{end}" for n in range(3)]


def test_where_a_turn_cannot_be_printed_alone_the_refusal_says_so():
    """Mistral's template puts the system text into the last question, so an answer stands behind
    another question as soon as the next one follows."""
    row = row_of(dialogue(["plain", "plain"], system=True, ends=True), None)
    model = EVERY[next(name for name in REWRITING if name.startswith("mi"))]
    code, detail = appended(model, row)
    assert code == "not_prefix_stable"
    assert "turn 3: " in detail
    assert "--history rendered" in detail


@pytest.mark.parametrize("path", few(_vendors(), 2), ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", ["plain", "call"])
def test_templates_of_vendors_append_what_was_sampled(path, kind, tmp_path):
    """What a template renders, where it rewrites nothing; else every answer as its own example
    trains it, unless the refusal says that nothing can be appended."""
    folder = template_folder(tmp_path / "model", path.read_text("utf-8"))
    try:
        found = resolve(f"{folder}/", tmp_path, Overrides())
    except errors.ModelError as error:
        pytest.skip(error.what)
    model = declare(found.profile, found.tokenizer_json, with_steps=False)
    said, tools = dialogue([kind] * 3, system=False, ends=True), TOOLS if kind == "call" else None
    said = [(r, c, {**(f or {}), "thinking": "So."} if r == "assistant" else f) for r, c, f in said]
    texts, segments, *_ = appended(rewriting(model), row_of(said, tools))
    if not model.profile.one_example_per_turn:
        assert (
            isinstance(texts, str) or (texts, segments) == outcome(model, row_of(said, tools))[:2]
        )
        return
    own = [outcome(model, row_of(said[: i + 1], tools, last=True)) for i in answers_of(said)]
    if isinstance(texts, str):
        assert texts == "not_prefix_stable" or any(isinstance(one[0], str) for one in own)
        return
    alone = [text for one in own for _, text in spans(one[0], one[1])]
    assert [text for _, text in spans(texts, segments)] == alone


ROWS: list[dict[str, Any]] = table("history_rows.jsonl")


def fed(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> list[int]:
    """What a server that keeps tokens has fed and sampled when a conversation of Qwen3 is over.

    It encodes a piece whenever one comes: a prompt up to where sampling starts, then an answer.
    """
    ids: list[int] = []
    piece = ""
    for turn in messages:
        text = turn["content"]
        if turn["role"] == "user":
            piece += f"<|im_start|>user\n{text}<|im_end|>\n"
            continue
        thinks = text.startswith("<think>")
        piece += "<|im_start|>assistant\n" + ("" if thinks else "<think>\n\n</think>\n\n")
        for one in (piece, f"{text}<|im_end|>"):
            ids += tokenizer.encode(one, add_special_tokens=False).ids
        piece = "\n"
    return [*ids, *tokenizer.encode(piece, add_special_tokens=False).ids]


def test_ids_are_those_that_a_server_has_fed_and_sampled(make, tmp_path, cache_dir):
    """One example a conversation; the manifest, the plan and the commands for it say which."""
    data = rows_to(tmp_path / "data.jsonl", *ROWS)
    asked = {"model": "qwen3-8b", "layout": "ragged", "history": APPENDED}
    build = make("sft", data, **asked)
    tokenizer = Tokenizer.from_file(str(build / "tokenizer" / "tokenizer.json"))
    stored = load_from_disk(str(build))["train"]
    assert stored["input_ids"] == [fed(tokenizer, row["messages"]) for row in ROWS]
    manifest = read_manifest(build)
    assert manifest["tokens"]["history"] == manifest["options"]["history"] == APPENDED
    assert "history is appended" in (build / "report.html").read_text("utf-8")
    plan = planned(cache_dir, "sft", data, **asked)
    assert "\nhistory   appended: " in as_text(plan)
    # The other way, and what it costs.
    rendered = planned(cache_dir, "sft", data, **asked | {"history": "rendered"})
    cost = as_json(rendered)["history"]["cost"]
    assert cost["tokens_if_appended"] == manifest["tokens"]["total"]
    assert cost["tokens"] == rendered.sampled.tokens > manifest["tokens"]["total"]
    assert f"{cost['factor']:.1f} times the tokens of an appended history" in as_text(rendered)


@pytest.mark.parametrize("given", [{"task": "rm"}, {"task": "prm"}, {"train_on": "all"}])
def test_it_is_for_answers_that_are_trained(given):
    """Pairs and steps have one answer each; with all turns trained the template's text is."""
    options: dict[str, Any] = {"task": "sft", "history": APPENDED, **given}
    with pytest.raises(errors.UsageError, match="--history appended is not for"):
        Config.of(data=("x.jsonl",), model="qwen3-8b", output=Path("out"), **options)
