"""The doctor: every probe over a model, and a doctored tokenizer fails the right one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_tokenizers import SMALL, byte_level, small
from support import Run, table

from pipeline.serving import examine
from stages.chat_template.render import Row
from stages.profile import declare
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles

TEMPLATE = all_profiles()["qwen2-1.5b-instruct"].chat_template
PAD, PAD_ID = "<|endoftext|>", 2
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
        examined = examine.examine_model(folder, task, self._cache, system=system, wide=False)
        return examined.verdicts


@pytest.fixture
def clinic(tmp_path: Path, cache_dir: Path) -> Clinic:
    """The directory is the test's own."""
    return Clinic(tmp_path, cache_dir)


def failed(verdicts: dict[str, probes.ProbeVerdict]) -> dict[str, str]:
    """The sentences of the probes that failed."""
    return {name: v.detail for name, v in verdicts.items() if v.passed is False}


def test_a_sound_directory_passes_every_probe(clinic: Clinic) -> None:
    """Nothing fails, and every probe that concerns it was run."""
    verdicts = clinic()
    assert all(verdict.passed for verdict in verdicts.values())
    # The directory claims no pad id, is of no family, is not an encoder, and promotes nothing.
    assert {probe.name for probe in probes.probes()} - set(verdicts) == SILENT


def test_pad_equal_to_eos(clinic: Clinic) -> None:
    """What the directory declares is judged, not what a build would put in its place."""
    sentences = failed(clinic({"pad_token": "<|im_end|>"}))
    assert list(sentences) == ["pad_is_not_eos"]
    assert "'<|im_end|>' is also the eos or end-of-turn token" in sentences["pad_is_not_eos"]


def test_an_end_of_turn_that_is_none(clinic: Clinic) -> None:
    """A tokenizer that lost the token which its template prints; or has it as one token, but not a
    special one: any user could write it."""

    def lose(document: dict[str, Any]) -> None:
        kept = [t for t in document["added_tokens"] if t["content"] != "<|im_end|>"]
        document["added_tokens"] = kept

    def demote(document: dict[str, Any]) -> None:
        for token in document["added_tokens"]:
            token["special"] = token["content"] != "<|im_end|>"

    verdicts = clinic(None, lose)
    sentence = failed(verdicts)["end_of_turn_is_one_token"]
    assert "end-of-turn token '<|im_end|>' is not one token of the tokenizer" in sentence
    assert verdicts["end_of_turn_is_trained"].passed is None
    assert "so that text could forge it" in failed(clinic(None, demote))["end_of_turn_is_special"]


def test_double_bos(clinic: Clinic) -> None:
    """A template that prints bos twice."""
    changes = {"bos_token": "<|im_start|>", "chat_template": "{{ bos_token }}{{ bos_token }}"}
    changes["chat_template"] += TEMPLATE
    sentence = failed(clinic(changes))["no_double_bos"]
    assert "bos tokens '<|im_start|>' where it must have 1 at its start" in sentence


def test_number_as_pad(clinic: Clinic) -> None:
    """An id in the place of a token."""
    for number in (PAD_ID, str(PAD_ID)):
        sentences = failed(clinic({"pad_token": number}))
        assert list(sentences) == ["pad_is_one_token"]
        assert f"pad token {number!r} is a number" in sentences["pad_is_one_token"]


def test_pad_id_of_another_family(clinic: Clinic) -> None:
    """Llama's pad id in a Qwen model's configuration."""
    sentences = failed(clinic(pad_token_id=128004))
    assert list(sentences) == ["pad_id_is_the_pad_token"]
    assert "config.json says pad_token_id 128004" in sentences["pad_id_is_the_pad_token"]
    assert f"the pad token {PAD!r} is {PAD_ID}" in sentences["pad_id_is_the_pad_token"]
    assert not failed(clinic(pad_token_id=PAD_ID))


def test_step_tokens_outside_the_embedding(clinic: Clinic) -> None:
    """A model without spare rows can be tuned, but has no place for step tokens."""
    assert f"outside the model's {SIZE}" in failed(clinic(vocab_size=SIZE))["ids_inside_embedding"]
    assert not failed(clinic(vocab_size=SIZE, task="sft"))


@pytest.mark.slow
def test_a_step_token_that_ordinary_text_holds(tokenizer_json: bytes) -> None:
    """A tokenizer that already reads a plain word as the step token disagrees with the stock."""
    profile = all_profiles()["qwen2-1.5b"]
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
def test_templates_that_ruin_a_run(clinic: Clinic, template: str, name: str, words: str) -> None:
    """A template is judged by what it prints, over several turns."""
    verdicts = clinic({"chat_template": template})
    assert any(words in sentence for sentence in failed(verdicts).values())
    assert verdicts[name].passed is not True


_TURNS = """\
{%- for m in messages -%}
{%- if loop.previtem and loop.previtem.role == m.role -%}{{ between }}
{%- else -%}<|im_start|>{{ m.role }}{{ '\n' }}{%- endif -%}
{{- thought -}}
{{ m.content }}
{%- if loop.last or loop.nextitem.role != m.role -%}<|im_end|>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant{{ '\n' }}{%- endif -%}
"""
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
def test_what_a_template_does_is_said_in_one_line(
    between: str, thought: str, words: tuple[str, ...], clinic: Clinic
) -> None:
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


def test_reasoning_that_is_printed_and_not_trained_is_lost() -> None:
    """It would stand in the prompt."""
    (probe,) = (one for one in probes.probes() if one.name == "reasoning_survives")
    profile, content = small("smollm2-1.7b-instruct")
    own = replace(profile, chat_template=_printing("'/'", _THOUGHT))
    model = declare(own, content, with_steps=False)
    assert probe.check(probes.ProbeSubject(model, content))
    with pytest.raises(probes.BrokenError, match="is not trained"):
        probe.check(Untrained(model, content))


def test_a_system_text_that_the_template_loses(clinic: Clinic) -> None:
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


def test_the_command_prints_a_table_and_its_status(clinic: Clinic, pipeline: Run) -> None:
    """0 and the stop contract for a sound model; 2, the sentence and no contract for another."""
    ran = pipeline("doctor", "--model", "qwen2-1.5b", "--stop", "<search>").ended()
    assert all(probe.name in ran.out for probe in probes.probes() if probe.name not in SILENT)
    assert "'<search>': use the string; it is written as 3 tokens" in ran.out
    folder = clinic.directory({"pad_token": "<|im_end|>"})
    ran = pipeline("doctor", "--model", folder, "--json").refused(2, "1 of")
    assert (ran.told["passed"], ran.told["serving"]) == (False, None)
    assert ran.told["probes"]["pad_is_not_eos"]["passed"] is False


@pytest.mark.parametrize("name", sorted(SMALL))
def test_families_without_a_vocabulary_are_sound(name: str) -> None:
    """Their templates and tokens, on small tokenizers in their way."""
    profile, content = small(name)
    model = declare(profile, content, with_steps=False)
    assert not failed(probes.examine(probes.ProbeSubject(model, content, wide=True)))


def _distinct() -> list[str]:
    """One of the profiles that differ in nothing but names and the length of a context."""
    found: dict[str, str] = {}
    for name, profile in sorted(all_profiles().items()):
        if profile.ranks:
            alike = replace(profile, name="", model_ids=(), context_length=0)
            found.setdefault(repr(alike), name)
    return list(found.values())


@pytest.mark.sweep(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", _distinct())
def test_every_profile_is_sound(name: str, cache_dir: Path) -> None:
    """Every probe of every profile whose tokenizer can be had."""
    assert not failed(examine.examine_model(name, "prm", cache_dir, fetch=True).verdicts)
