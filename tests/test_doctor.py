"""The doctor: every probe over a model, and a doctored tokenizer fails the right one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_tokenizers import SMALL, byte_level, small
from support import raised, sweep, table

from pipeline.serving import examine
from stages.chat_template.render import Row
from stages.profile import declare
from stages.tokenizers import probes, profiles

TEMPLATE = profiles.all_profiles()["qwen2-1.5b-instruct"].chat_template
PAD = "<|endoftext|>"
TOKENIZER = byte_level(["<|im_start|>", "<|im_end|>", PAD])
SIZE = TOKENIZER.get_vocab_size()

SILENT = {
    "pad_id_is_the_pad_token",
    "ids_are_the_familys",
    "pair_framing_is_the_tokenizers",
    "pair_turns_cannot_be_forged",
    "promoted_markers_are_one_token",
}


class Clinic:
    """Makes model directories with a small tokenizer that has Qwen2's tokens, and examines them."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self._folder, self._cache = folder, cache

    def directory(
        self,
        config: dict[str, Any] | None = None,
        edit: Callable[[dict[str, Any]], None] | None = None,
        **model: object,
    ) -> str:
        """The address of a sound directory but for what is changed."""
        document = json.loads(TOKENIZER.to_str())
        if edit:
            edit(document)
        usual = {"eos_token": "<|im_end|>", "pad_token": PAD, "chat_template": TEMPLATE}
        files = {
            "tokenizer.json": document,
            "tokenizer_config.json": usual | (config or {}),
            "config.json": {"vocab_size": SIZE + 100, **model},
        }
        for name, content in files.items():
            (self._folder / name).write_text(json.dumps(content), "utf-8")
        return f"{self._folder}/"

    def __call__(
        self, *changes: Any, task: str = "prm", system: str | None = None, **model: Any
    ) -> dict[str, probes.ProbeVerdict]:
        folder = self.directory(*changes, **model)
        return examine.examine_model(folder, task, self._cache, system=system, wide=False).verdicts


@pytest.fixture
def clinic(tmp_path, cache_dir) -> Clinic:
    """The directory is the test's own."""
    return Clinic(tmp_path, cache_dir)


def failed(verdicts: dict[str, probes.ProbeVerdict]) -> dict[str, str]:
    """The sentences of the probes that failed."""
    return {name: v.detail for name, v in verdicts.items() if v.passed is False}


def test_a_sound_directory_passes_every_probe(clinic):
    """Nothing fails, and every probe that concerns it was run."""
    verdicts = clinic()
    assert all(verdict.passed for verdict in verdicts.values())
    # The directory claims no pad id, is of no family, is not an encoder, and promotes nothing.
    assert {probe.name for probe in probes.probes()} - set(verdicts) == SILENT


def _lose(document: dict[str, Any]) -> None:
    tokens = document["added_tokens"]
    document["added_tokens"] = [t for t in tokens if t["content"] != "<|im_end|>"]


def _demote(document: dict[str, Any]) -> None:
    for token in document["added_tokens"]:
        token["special"] = token["content"] != "<|im_end|>"


# What is changed, and what is said by the probes that fail; ``others`` may fail, too.
EMPTY = {"config": None, "tokens": "", "model": {}, "task": "prm", "others": False, "unasked": ()}
_WORDS = {"TEMPLATE": json.dumps(TEMPLATE)[1:-1], '"SIZE"': str(SIZE), "SIZE": str(SIZE)}
DOCTORED = json.dumps(table("doctored.toml"))
for _word, _text in _WORDS.items():
    DOCTORED = DOCTORED.replace(_word, _text)


@pytest.mark.parametrize("one", json.loads(DOCTORED).values(), ids=table("doctored.toml"))
def test_what_is_wrong_with_a_directory_is_said_by_its_probe(one, clinic):
    """What it declares is judged, not what a build would put in its place."""
    told = SimpleNamespace(**{**EMPTY, **one})
    change = {"lost": _lose, "plain": _demote, "": None}[told.tokens]
    verdicts = clinic(told.config, change, task=told.task, **told.model)
    found = failed(verdicts)
    assert told.others or found.keys() == told.failed.keys()
    assert all(words in found[probe] for probe, words in told.failed.items()), found
    assert all(verdicts[probe].passed is None for probe in told.unasked)


@pytest.mark.slow
def test_a_step_token_that_ordinary_text_holds(tokenizer_json):
    """A tokenizer that already reads a plain word as the step token disagrees with the stock."""
    profile = profiles.all_profiles()["qwen2-1.5b"]
    document = json.loads(tokenizer_json)
    flags = dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)
    document["added_tokens"].append({"id": 151646, "content": "Step 2", **flags})
    doctored = declare(profile, json.dumps(document).encode(), with_steps=False)
    for wide in (False, True):
        subject = probes.ProbeSubject(doctored, tokenizer_json, wide=wide)
        verdict = probes.examine(subject, [probes.TOKENS])["added_tokens_agree_with_stock"]
        assert verdict.passed is not wide
    assert "'Step 2: 3 + 4 = 7. +\\n' gives" in verdict.detail


@pytest.mark.parametrize(
    ("template", "name", "words"),
    table("ruinous_templates.jsonl"),
    ids=["other_prompt", "one_exchange_only", "no_content"],
)
def test_templates_that_ruin_a_run(clinic, template, name, words):
    """A template is judged by what it prints, over several turns."""
    verdicts = clinic({"chat_template": template})
    assert any(words in sentence for sentence in failed(verdicts).values())
    assert verdicts[name].passed is not True


_TURNS: str = table("programs.toml")["turns_of_a_template"]
_THOUGHT = "{%- if m.thinking -%}[{{ m.thinking }}]{%- endif -%}"
_AT_LAST = "{%- if m.thinking and loop.last -%}[{{ m.thinking }}]{%- endif -%}"


@pytest.mark.parametrize(
    ("between", "thought", "words"),
    [
        ("'\n\n'", "", ("alike", "joined", "no field of reasoning")),
        ("'/'", _THOUGHT, ("alike", "apart", "reasoning is printed as thinking;")),
        ("raise_exception('no')", _AT_LAST, ("otherwise", "refused", "of the last answer alone")),
    ],
)
def test_what_a_template_does_is_said_in_one_line(between, thought, words, clinic):
    """Earlier turns, two questions in a row, reasoning, tools, and what ends a turn."""
    verdicts = clinic({"chat_template": _printing(between, thought)}, task="sft")
    assert not failed(verdicts)
    found = probes.of_template({name: one.detail for name, one in verdicts.items()})
    *parts, tools, ends = f"{found};".split("; ")
    assert all(word in f"{part};" for word, part in zip(words, parts, strict=True))
    assert (tools, ends) == ("rows with tools are refused", "turns end in <|im_end|> = 1;")


def _printing(between: str, thought: str) -> str:
    return _TURNS.replace("{{- thought -}}", thought).replace("between", between)


class Untrained(probes.ProbeSubject):
    """A model of whose conversations nothing is trained."""

    def renderer(self, row: Row) -> tuple[list[str], bytes, str]:
        texts, kinds, path = super().renderer(row)
        return texts, bytes(len(kinds)), path


def test_reasoning_that_is_printed_and_not_trained_is_lost():
    """It would stand in the prompt."""
    (probe,) = (one for one in probes.probes() if one.name == "reasoning_survives")
    profile, content = small("smollm2-1.7b-instruct")
    own = replace(profile, chat_template=_printing("'/'", _THOUGHT))
    model = declare(own, content, with_steps=False)
    assert probe.check(probes.ProbeSubject(model, content))
    raised(probes.BrokenError, probe.check, Untrained(model, content), says="is not trained")


def test_a_system_text_that_the_template_loses(clinic):
    """--system is proved before any row: a template without system turns refuses it."""
    template = (
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    verdict = clinic({"chat_template": template}, task="sft")["system_survives"]
    assert verdict.passed is True
    assert "refused" in verdict.detail
    found = failed(clinic({"chat_template": template}, task="sft", system="Be brief."))
    assert "--system cannot be printed" in found["system_survives"]


def test_the_command_prints_a_table_and_its_status(clinic, pipeline):
    """0 and the stop contract for a sound model; 2, the sentence and no contract for another."""
    ran = pipeline("doctor", "--model", "qwen2-1.5b", "--stop", "<search>").ended()
    assert all(probe.name in ran.out for probe in probes.probes() if probe.name not in SILENT)
    assert "'<search>': use the string; it is written as 3 tokens" in ran.out
    folder = clinic.directory({"pad_token": "<|im_end|>"})
    ran = pipeline("doctor", "--model", folder, "--json").refused(2, "1 of")
    assert (ran.told["passed"], ran.told["serving"]) == (False, None)
    assert ran.told["probes"]["pad_is_not_eos"]["passed"] is False


@pytest.mark.parametrize("name", sorted(SMALL))
def test_families_without_a_vocabulary_are_sound(name):
    """Their templates and tokens, on small tokenizers in their way."""
    profile, content = small(name)
    model = declare(profile, content, with_steps=False)
    assert not failed(probes.examine(probes.ProbeSubject(model, content, wide=True)))


def _distinct() -> list[str]:
    """One of the profiles that differ in nothing but names and the length of a context."""
    found: dict[str, str] = {}
    for name, profile in sorted(profiles.all_profiles().items()):
        if profile.ranks:
            alike = replace(profile, name="", model_ids=(), context_length=0)
            found.setdefault(repr(alike), name)
    return list(found.values())


@sweep(5)
@pytest.mark.parametrize("name", _distinct())
def test_every_profile_is_sound(name, cache_dir):
    """Every probe of every profile whose tokenizer can be had."""
    assert not failed(examine.examine_model(name, "prm", cache_dir, fetch=True).verdicts)
