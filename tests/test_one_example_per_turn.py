"""Models whose template wants one example per trained turn, where a row is not a plain dialogue."""

import contextlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from rows import turns
from small_tokenizers import at_declared_ids
from support import files_of, rows_to
from tokenizers import Tokenizer

from stages.chat_template import turn_ends
from stages.errors import ModelError
from stages.tokenizers import builtin, hub, probes, profiles

ASKED = {"model": "qwen3-8b", "layout": "ragged"}
CHAT = turns(("user", "Hi there"), ("assistant", "Yo"), ("user", "Hm ok"), ("assistant", "Fine"))


def trained(build: Path) -> list[tuple[str, str]]:
    """Each stored row: its text, and the text of its trained tokens."""
    tokenizer = Tokenizer.from_file(str(build / "tokenizer" / "tokenizer.json"))

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    rows = load_from_disk(build)["train"]
    return [(text(row["input_ids"]), text([i for i in row["labels"] if i >= 0])) for row in rows]


def test_texts_without_turns_are_one_example_each(make, tmp_path):
    """A text has no turns to make examples of, and is trained whole."""
    data = rows_to(tmp_path / "data.jsonl", {"text": "One text."}, {"text": "Two texts, say."})
    assert [whole for whole, _ in trained(make("sft", data, **ASKED))] == [
        "One text.<|im_end|>",
        "Two texts, say.<|im_end|>",
    ]


def test_training_on_all_trains_every_turn_of_the_text(make, tmp_path):
    """The row stays one example: split, it would leave out the users' turns before an answer."""
    data = rows_to(tmp_path / "data.jsonl", *({"messages": CHAT[:size]} for size in (2, 4)))
    found = trained(make("sft", data, train_on="all", **ASKED))
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
_DAILY = (("qwen3-8b", "sft"),)
_SAMPLED = (pytest.mark.slow, pytest.mark.sweep(12))


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


@pytest.mark.parametrize(
    ("name", "task"), [pytest.param(*o, marks=() if o in _DAILY else _SAMPLED) for o in _EVERY]
)
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
