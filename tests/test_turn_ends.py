"""What ends a turn: the token that the template puts there or next, at which a server stops."""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from rows import turns
from small_tokenizers import at_declared_ids, template_folder
from support import few, files_of, raised, read_manifest, read_rows, rows_to, sweep, table
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from transformers import AutoTokenizer

from pipeline.builds import limits, summary
from pipeline.builds.build import Build
from stages.chat_template import template, turn_ends
from stages.errors import ModelError, PipelineError
from stages.tokenizers import builtin, directory, hub, probes, profiles
from stages.tokenizers.resolve import Overrides, resolve

# Prints <|return|> behind the last answer, <|end|> behind an earlier one, and <|call|> behind a
# call; and the reasoning of a turn until an answer follows.
RETURNS: str = table("programs.toml")["returns"]
# Prints nothing behind a turn: the model stops where the next one opens.
OPENS: str = table("programs.toml")["opens"]
CHAT = turns(("user", "Hi"), ("assistant", "Yo"), ("user", "Hm ok"), ("assistant", "Fine"))


def looked_up(*words: str, **fields: str) -> list[dict[str, Any]]:
    """Calls of a tool, their results, an answer, and another after another question."""
    outputs = [turn_ends.result(f"a {word} fruit", n) for n, word in enumerate(words)]
    answered = [turn_ends.answers("It is sour.", **fields), turn_ends.asks("And then?")]
    called = [turn_ends.asks("What is it?"), turn_ends.calls(*words, **fields), *outputs]
    return [*called, *answered, turn_ends.answers("Nothing.", **fields)]


def trained_runs(build: Path) -> list[tuple[str, str]]:
    """The texts of every trained run and of the example that it stands in."""
    tokenizer = Tokenizer.from_file(str(build / "tokenizer" / "tokenizer.json"))
    runs = []
    for row in load_from_disk(build)["train"]:
        whole = tokenizer.decode(row["input_ids"], skip_special_tokens=False)
        for trained, ids in itertools.groupby(row["labels"], key=lambda label: label >= 0):
            if trained:
                runs.append((whole, tokenizer.decode(list(ids), skip_special_tokens=False)))
    return runs


def ends(runs: list[str]) -> list[str]:
    """The last token of each trained run."""
    return ["<" + run.rpartition("<")[2] for run in runs]


@pytest.mark.parametrize(
    ("source", "fields", "wanted"),
    [
        (RETURNS, {}, ["<|call|>", "<|return|>", "<|return|>"]),
        (RETURNS, {"thinking": "Well."}, ["<|call|>", "<|return|>", "<|return|>"]),
        (OPENS, {}, ["<|observation|>", "<|user|>", "<|user|>"]),
    ],
    ids=["returns", "returns_reasoning", "opens"],
)
def test_each_trained_turn_ends_in_its_own_token(source, fields, wanted, make, tmp_path):
    """All turns are trained; the tokens are stops of the model, and none is printed twice."""
    model = template_folder(tmp_path / "model", source)
    row = {"messages": looked_up("quince", **fields), "tools": turn_ends.TOOLS}
    build = make("sft", rows_to(tmp_path / "data.jsonl", row), model=f"{model}/", layout="ragged")
    runs = trained_runs(build)
    assert ends([trained for _, trained in runs]) == wanted
    serving = json.loads((build / "serving.json").read_bytes())
    assert serving["stop_strings"][:2] == [wanted[1], wanted[0]]
    assert read_manifest(build)["model"]["end_of_call"] == wanted[0]
    stops = serving["stop_token_ids"]
    said = summary.summary(limits.Built(Build.open(build), fresh=True))
    (told,) = [line for line in said if line.startswith("template  ")]
    ids = f"{wanted[1]} = {stops[0]}, those of calls in {wanted[0]} = {stops[1]}"
    assert told.endswith(f"; turns end in {ids}")
    assert serving["engines"]["transformers"]["GenerationConfig"]["eos_token_id"] == stops
    generation = json.loads((build / "tokenizer" / "generation_config.json").read_bytes())
    assert generation["eos_token_id"] == stops
    for whole, trained in runs:
        assert whole.count(trained) == 1
        assert not any(f"{end}{end}" in whole for end in wanted)
    if fields:  # the prompt of the answer has the reasoning of the call, as a server feeds it
        assert [whole.count("Well.") for whole, _ in runs] == [1, 2, 2]


# Closes an empty block of reasoning in its prompt, and prints none in an answer; with the keyword
# it asks for reasoning, and prints that of the last answer.
CLOSES: str = table("programs.toml")["closes"]


def test_an_answer_stands_behind_the_block_that_its_prompt_closes(make, tmp_path):
    """As a server feeds it that is told nothing; one with reasoning behind the prompt for that."""
    model = template_folder(tmp_path / "model", CLOSES)
    thought = [CHAT[0], {**CHAT[1], "reasoning_content": "Well."}]
    data = rows_to(tmp_path / "data.jsonl", {"messages": CHAT}, {"messages": thought})
    build = make("sft", data, model=f"{model}/", layout="ragged")
    user, other = "<|user|>Hi<|stop|>", "<|assistant|>Yo<|stop|><|user|>Hm ok<|stop|>"
    prompt = "<|assistant|><|open|><|shut|>"
    assert trained_runs(build) == [
        (f"{user}{prompt}Yo<|stop|>", "Yo<|stop|>"),
        (f"{user}{other}{prompt}Fine<|stop|>", "Fine<|stop|>"),
        (
            f"<|reason|>{user}<|assistant|><|open|>Well.<|shut|>Yo<|stop|>",
            "<|open|>Well.<|shut|>Yo<|stop|>",
        ),
    ]
    counted = read_manifest(build)["inference"]["trained_turns"]
    assert counted == {"thinking": 1, "non_thinking": 2, "other": 0}


@pytest.mark.parametrize("task", ["rm", "prm"])
def test_rewards_are_read_at_the_end_of_the_turn(task, make, tmp_path):
    """Where the template prints nothing behind the answer."""
    model = template_folder(tmp_path / "model", OPENS)
    row: dict[str, Any] = {"prompt": "Why?", "chosen": "So.", "rejected": "No."}
    if task == "prm":
        row = {"prompt": "Why?", "completions": ["So.", "Thus."], "labels": [True, False]}
    build = make(task, rows_to(tmp_path / "data.jsonl", row), model=f"{model}/", layout="ragged")
    (stored,) = load_from_disk(build)["train"]
    sides = ("chosen_ids", "rejected_ids") if task == "rm" else ("input_ids",)
    end = read_manifest(build)["model"]["end_of_turn_id"]
    assert [stored[side][-1] for side in sides] == [end] * len(sides)


def test_a_summary_says_where_reasoning_is_printed(tmp_path):
    """Of the last answer, beside calls alone, or nowhere."""
    beside = RETURNS.replace("{%- if m.thinking and", "{%- if m.thinking and m.tool_calls and")
    for source, said in (
        (RETURNS, "reasoning is printed as thinking, of the last answer alone"),
        (beside, "reasoning is printed as thinking, beside calls alone"),
        (OPENS, "no field of reasoning is printed"),
    ):
        model = resolve(f"{template_folder(tmp_path / said, source)}/", tmp_path, Overrides())
        bound = probes.declare(model.profile, model.tokenizer_json, with_steps=False)
        (probe,) = (one for one in probes.probes() if one.name == "reasoning_survives")
        assert probe.check(probes.ProbeSubject(bound, model.tokenizer_json)) == said


def test_a_turn_that_ends_where_another_role_opens_is_refused(make, tmp_path):
    """A server would stop at no token that stands there."""
    model = template_folder(tmp_path / "model", OPENS)
    told = turns(("user", "Hi"), ("assistant", "Yo"), ("system", "Be kind"), ("assistant", "Fine"))
    data = rows_to(tmp_path / "data.jsonl", {"messages": told}, {"messages": CHAT})
    build = make("sft", data, model=f"{model}/", layout="ragged")
    (refused,) = read_rows(build / "rejects.jsonl")
    assert refused["code"] == "no_end_of_turn"
    assert "turn 2 ends where a turn of the role 'user' opens" in refused["detail"]


def test_the_files_of_a_model_say_where_a_server_stops(tmp_path):
    """All ids of its generation configuration; and which of two tokens behind an answer it is."""
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|note|><|stop|>{% endfor %}"
    source += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    model = template_folder(tmp_path / "model", source)
    profile = resolve(f"{model}/", tmp_path, Overrides()).profile
    assert profile.end_of_turn == "<|stop|>"
    ids = {
        token["content"]: token["id"]
        for token in json.loads((model / "tokenizer.json").read_bytes())["added_tokens"]
    }
    said = {"eos_token_id": [ids["<|note|>"], ids["<|padding|>"]]}
    (model / "generation_config.json").write_text(json.dumps(said))
    profile = resolve(f"{model}/", tmp_path, Overrides()).profile
    assert profile.end_of_turn == "<|note|>"
    assert set(profile.generation_eos) == {"<|note|>", "<|padding|>", "<|endoftext|>"}


def test_what_opens_each_turn_ends_none(tmp_path):
    """Where a template prints the next prompt whether or not it is asked for one."""
    source = "{% for m in messages %}<|turn|><|{{ m.role }}|>{{ m.content }}<|stop|>{% endfor %}"
    model = template_folder(tmp_path / "model", f"{source}<|turn|><|assistant|>")
    assert resolve(f"{model}/", tmp_path, Overrides()).profile.end_of_turn == "<|stop|>"


def test_markers_that_are_text_are_refused_in_texts(make, tmp_path):
    """Of a directory, as of a profile that names them."""
    source = "{% for m in messages %}{{ '# Q ' if m.role == 'user' else ' # A ' }}{{ m.content }}"
    source += "{{ '' if m.role == 'user' else '<|stop|>' }}{% endfor %}"
    source += "{% if add_generation_prompt %} # A {% endif %}"
    model = template_folder(tmp_path / "model", source)
    assert resolve(f"{model}/", tmp_path, Overrides()).profile.text_markers == ("# Q", "# A")
    forged = [turns(("user", f"Hi {mark} Ho"), ("assistant", "Yo")) for mark in ("# Q", "# A")]
    data = rows_to(tmp_path / "data.jsonl", *({"messages": one} for one in (CHAT, *forged)))
    build = make("sft", data, model=f"{model}/", layout="ragged")
    assert len(load_from_disk(build)["train"]) == 1
    refused = read_rows(build / "rejects.jsonl")
    assert [one["code"] for one in refused] == ["control_text"] * 2


@pytest.mark.parametrize("scheme", ["first", "never"])
def test_a_text_begins_as_its_tokenizer_has_it(scheme, tmp_path):
    """With a blank in front, where a tokenizer puts one there and behind no control token."""
    model = template_folder(tmp_path / "model", OPENS)
    own = Tokenizer(BPE({"▁": 0, "x": 1, "▁x": 2}, [("▁", "x")], byte_fallback=True))
    own.pre_tokenizer = Metaspace(prepend_scheme=scheme, split=False)
    document, path = json.loads(own.to_str()), model / "tokenizer.json"
    added = json.loads(path.read_bytes())["added_tokens"]
    document["added_tokens"] = [token | {"id": 3 + n} for n, token in enumerate(added)]
    path.write_text(json.dumps(document))
    lead = resolve(f"{model}/", tmp_path, Overrides()).profile.text_lead
    assert lead == {"first": " ", "never": ""}[scheme]


def test_a_profile_that_ends_calls_otherwise_is_refused(tmp_path):
    """Its template prints another token behind a call."""
    model = resolve(f"{template_folder(tmp_path / 'model', RETURNS)}/", tmp_path, Overrides())
    wrong = replace(model.profile, end_of_call="<|padding|>")
    bound = probes.declare(wrong, model.tokenizer_json, with_steps=False)
    subject = probes.ProbeSubject(bound, model.tokenizer_json)
    says = "end_of_call is .*, and the template does not end turn 2"
    raised(PipelineError, probes.require, subject, probes.TEMPLATE, says=says)


@pytest.mark.parametrize("files", [False, True], ids=["listed", "files"])
def test_a_template_for_tools_prints_rows_with_tools(files, tmp_path):
    """As transformers chooses it, whether the templates are listed or files."""
    folder = template_folder(tmp_path / "model", OPENS)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_bytes())
    sources = {"tool_use": OPENS, "default": f"Plainly.\n\n{OPENS}\n"}
    config["chat_template"] = [{"name": n, "template": t} for n, t in sources.items()]
    if files:
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text(sources["tool_use"])
        (folder / "chat_template.jinja").write_text(sources["default"])
        del config["chat_template"]
    path.write_text(json.dumps(config))
    own = template.Template(directory.template_source(folder, config), "2026-01-01").render
    theirs = AutoTokenizer.from_pretrained(folder).apply_chat_template
    for told, tools in ((CHAT, None), (looked_up("quince"), turn_ends.TOOLS), (CHAT, [])):
        for asked in (False, True):
            given = {"tools": tools, "add_generation_prompt": asked}
            assert own(told, **given) == theirs(told, tokenize=False, **given)


# What is found of a template is what its profile says.

FOUND = (
    *("end_of_turn", "end_of_call", "one_example_per_turn", "template_variants", "bos_policy"),
    "step_tokens",
)
_PROFILES = profiles.all_profiles()
_OWN = {p.chat_template: p.name for p in reversed(_PROFILES.values()) if p.pair is None}
_DAILY = [profiles.own_family(name)[0].name for name in profiles.own_families()]


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in _DAILY else pytest.mark.slow) for one in _OWN.values()],
)
def test_a_template_is_what_its_profile_says(name, tmp_path):
    """In a directory with a tokenizer of its markers alone, and another name."""
    profile = _PROFILES[name]
    tokens = {key: getattr(profile, key) for key in ("bos_token", "eos_token", "pad_token")}
    own = {key: token for key, token in tokens.items() if token}
    specials = (*profile.promoted, *profile.step_tokens)
    folder = template_folder(tmp_path / "mine", profile.chat_template, specials, **own)
    found = resolve(f"{folder}/", tmp_path, Overrides()).profile
    for key in FOUND:
        assert getattr(found, key) == getattr(profile, key), key


# Templates of vendors, from a package that ships some.


def _vendors() -> Iterator[Path]:
    folder = os.environ.get("POSTTRAIN_TEMPLATES")
    yield from sorted(Path(folder).glob("*.jinja")) if folder else ()


_REFUSED = table("vendor_templates.toml")


@pytest.mark.parametrize("path", few(_vendors(), 2), ids=lambda path: path.stem)
def test_vendors_templates_train_what_inference_emits(path, make, tmp_path):
    """A chat, a dialogue with reasoning and parallel calls, and one without reasoning: each trained
    turn ends in a stop, or the refusal says what the template does."""
    model = template_folder(tmp_path / "model", path.read_text("utf-8"))
    thought = {"reasoning_content": "Well."}
    calls = {"messages": looked_up("quince", "medlar"), "tools": turn_ends.TOOLS}
    thinks = {**calls, "messages": looked_up("quince", "medlar", **thought)}
    data = rows_to(tmp_path / "data.jsonl", {"messages": CHAT}, calls, thinks)
    asked = {"model": f"{model}/", "layout": "ragged", "max_length": 8192}
    refused = _REFUSED.get(path.stem, {})
    if "model" in refused:
        raised(PipelineError, make, "sft", data, **asked, says=refused["model"])
        return
    build = make("sft", data, **asked)
    rejects = read_rows(build / "rejects.jsonl")
    told = {"chat": "data.jsonl:1", "calls": "data.jsonl:2", "thinks": "data.jsonl:3"}
    for name, row in told.items():
        details = [one["detail"] for one in rejects if one["id"].split("#")[0] == row]
        assert bool(details) == (name in refused), details
        assert all(re.search(refused[name], detail) for detail in details)
    stops = json.loads((build / "serving.json").read_bytes())["stop_strings"]
    for _, trained in trained_runs(build):
        assert trained.endswith(tuple(stops))


# Models whose template wants one example per trained turn, where a row is not a plain dialogue.

ASKED = {"model": "qwen3-8b", "layout": "ragged"}


def test_texts_without_turns_are_one_example_each(make, tmp_path):
    """A text has no turns to make examples of, and is trained whole."""
    data = rows_to(tmp_path / "data.jsonl", {"text": "One text."}, {"text": "Two texts, say."})
    assert [whole for whole, _ in trained_runs(make("sft", data, **ASKED))] == [
        "One text.<|im_end|>",
        "Two texts, say.<|im_end|>",
    ]


def test_training_on_all_trains_every_turn_of_the_text(make, tmp_path):
    """The row stays one example: split, it would leave out the users' turns before an answer."""
    data = rows_to(tmp_path / "data.jsonl", *({"messages": CHAT[:size]} for size in (2, 4)))
    found = trained_runs(make("sft", data, train_on="all", **ASKED))
    for size, (whole, labels) in zip((2, 4), found, strict=True):
        assert whole.removeprefix("<|im_start|>").removesuffix("\n") == labels
        assert all(str(turn["content"]) in labels for turn in CHAT[:size])


# A model directory, or a template of one's own, is treated as the profile of that model.

PROFILES = profiles.all_profiles()
LOOKED_UP = [
    turn_ends.asks("What is it?"),
    turn_ends.calls("quince", reasoning_content="Hm."),
    turn_ends.result("a fruit"),
    turn_ends.answers("Sour.", reasoning_content="Well."),
]
THOUGHT = "<think>\nHm.\n</think>\n\n"
ROWS: list[dict[str, Any]] = [
    {"messages": CHAT},
    {"messages": [{**turn, "content": THOUGHT * (n % 2) + "Oh."} for n, turn in enumerate(CHAT)]},
    {"messages": [{"role": "system", "content": "Be brief."}, *CHAT]},
    {"messages": LOOKED_UP, "tools": turn_ends.TOOLS},
]
PAIR = {"prompt": "Why?", "chosen": "So.", "rejected": "No."}
STEPS = {"prompt": "Why?", "completions": ["So.", "Thus."], "labels": [True, False]}
TASKS = {"sft": ROWS, "rm": [PAIR], "prm": [STEPS]}
_EVERY = [
    (name, task)
    for name, task in itertools.product(PROFILES, TASKS)
    if task == "rm" or PROFILES[name].pair is None
]


def vocabulary(name: str, cache_dir: Path) -> tuple[bytes, bool]:
    """A profile's tokenizer, and whether it is its own: where no installed package carries that, a
    small one stands in that has its tokens."""
    profile = PROFILES[name]
    if profile.ranks:
        with contextlib.suppress(ModelError):
            return builtin.tokenizer_json(profile, profile.ranks, cache_dir), True
    return at_declared_ids(name), False


def written_out(name: str, folder: Path, cache_dir: Path) -> Path:
    """A profile as its model's directory has it."""
    profile = PROFILES[name]
    content, _ = vocabulary(name, cache_dir)
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(content)
    keys = ("bos_token", "eos_token", "pad_token", "unk_token")
    said = {key: getattr(profile, key) for key in keys}
    said |= {} if profile.pair else {"chat_template": profile.chat_template}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    find = Tokenizer.from_str(content.decode()).token_to_id
    stops = {"eos_token_id": [*map(find, profile.generation_eos)]}
    (folder / "generation_config.json").write_text(json.dumps(stops))
    positions, kind = profile.context_length, {}
    if profile.pair:
        positions += profile.pair.position_offset
        kind = {"model_type": "bert" if profile.pair.token_types else "roberta"}
    sizes = {"vocab_size": profile.embedding_size, "max_position_embeddings": positions}
    (folder / "config.json").write_text(json.dumps({**kind, **sizes}))
    return folder


@sweep(8)
@pytest.mark.parametrize(("name", "task"), _EVERY)
def test_a_directory_builds_what_its_profile_builds(
    name, task, make, tmp_path, cache_dir, monkeypatch
):
    """The same shards, byte for byte, whatever the directory is called; also of a model that is
    given only the template."""
    data = rows_to(tmp_path / "data.jsonl", *TASKS[task])
    folders = [written_out(name, tmp_path / called, cache_dir) for called in (name, "mine")]
    own = PROFILES[name]
    content, real = vocabulary(name, cache_dir)
    if not real:
        monkeypatch.setattr(builtin, "tokenizer_json", lambda *_, **__: content)
        monkeypatch.setattr(hub, "cached", lambda *_: hub.Snapshot(folders[0], "0" * 40))
        monkeypatch.setattr(hub, "_require_file", lambda *_: None)  # whatever its bytes are
    asked: list[dict[str, Any]] = [{"model": name}, *({"model": f"{one}/"} for one in folders)]
    # Another one with the same tokens, and with another template.
    alike = (own.ranks, own.end_of_turn)
    for other in PROFILES.values() if own.ranks else ():
        if (other.ranks, other.end_of_turn) == alike and other.chat_template != own.chat_template:
            asked.append({"model": other.name, "chat_template": own.chat_template})
            break
    built = [
        files_of(make(task, data, f"out{n}", layout="ragged", **one) / "train")
        for n, one in enumerate(asked)
    ]
    shards = [{k: v for k, v in one.items() if k.endswith(".arrow")} for one in built]
    assert shards[0]
    assert all(one == shards[0] for one in shards)


def test_a_profile_that_says_otherwise_is_refused(model):
    """By its sentence, before any row."""
    wrong = replace(model, profile=replace(model.profile, one_example_per_turn=True))
    with pytest.raises(ModelError, match="one_example_per_turn = true, and in its chat template"):
        probes.require(probes.ProbeSubject(wrong, b""), probes.TEMPLATE)
