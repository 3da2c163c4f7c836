"""Every family: our ids are those of the template and the Hugging Face tokenizer, for any row."""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conversations import Speech, conversations
from encoding import encoded, encoding, vocabulary_of
from rows import normalizing
from support import table
from transformers import AutoTokenizer

from pipeline.serving.serving import write_tokenizer
from stages import columns, profile
from stages.chat_template.segments import controls_pattern
from stages.tokenizers import probes, profiles

TABLE = table("families.toml")
FAMILIES = {
    name: Speech(**{**one, "forgeries": TABLE["forgeries"][one["forgeries"]]})
    for name, one in TABLE["speech"].items()
}
_DISTILLED: dict[str, str] = TABLE["distilled"]
# Where no package carries a family's tokenizer, one with its tokens stands in; not the vendor's.
_LLAMA = profiles.all_profiles()["llama-3.1-8b"].ranks
STAND_INS = {
    "deepseek-r1-distill-llama-8b": replace(
        _LLAMA,
        sha256="709191b3ddf7b35c6dbfa57385db754aa6e663c2ec9b9b6998046e6f0d1e8560",
        of_vendor=False,
        added_tokens=tuple(
            profile.AddedToken(
                _DISTILLED.get(token.content, token.content),
                special=token.content not in list(_DISTILLED)[2:],
            )
            for token in _LLAMA.added_tokens
        ),
    )
}


@dataclass(frozen=True)
class Family:
    """A bound model, and its emitted tokenizer as a trainer loads it."""

    model: profile.TargetModel
    tokenizer: Any

    def template(self, messages: list[Any], tools: Any, **variables: Any) -> list[int]:
        """What ``apply_chat_template`` gives, on the profile's date."""
        found = self.tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=True, return_dict=False,
            date_string="26 Jul 2024", **variables,
        )  # fmt: skip
        return list(found)


@functools.lru_cache(maxsize=1)
def family(name: str, cache: Path, folder: Path) -> Family:
    """One at a time: their tokenizers are large."""
    profile = profiles.all_profiles()[name]
    profile = replace(profile, ranks=profile.ranks or STAND_INS[name])
    model = probes.bind(profile, vocabulary_of(profile, cache), with_steps=False)
    target = folder / name
    if not target.is_dir():
        write_tokenizer(target, model)
    return Family(model, AutoTokenizer.from_pretrained(target))


@dataclass(frozen=True)
class Made:
    """One example of a row, as a build makes it."""

    messages: list[dict[str, Any]]  # up to its last trained turn
    tools: Any
    ids: list[int]
    labels: list[int]
    merged: int
    path: str

    @property
    def starts(self) -> list[int]:
        """Where each run of trained tokens starts."""
        trained = [label != columns.IGNORED for label in self.labels]
        return [i for i, (a, b) in enumerate(itertools.pairwise([False, *trained])) if b > a]


def make(found: Family, rows: list[dict[str, Any]], refused: Counter[str]) -> Iterator[Made]:
    """Rows through normalize, the template and the encoder."""
    model = found.model
    by_turn = model.profile.one_example_per_turn
    door = normalizing("sft", "openai", "assistant", by_turn)
    copies = json.loads(json.dumps(rows))
    for row in encoded(door, encoding("sft", model), copies).to_pylist():
        if row["reject_code"] is not None:
            refused[f"{row['reject_code']}: {row['reject_detail']}"] += 1
            continue
        source = rows[row["line"]]
        messages = source["messages"]
        if by_turn:
            turns = [i for i, turn in enumerate(messages) if turn["role"] == "assistant"]
            messages = messages[: turns[row["sequence"]] + 1]
        yield Made(
            messages, source["tools"], row["input_ids"], row["labels"], row["merged_cuts"],
            row["rendered"],
        )  # fmt: skip


def _require_prompts(found: Family, made: Made) -> None:
    """Each trained run begins with exactly the ids that inference would feed."""
    variants = [dict(variant) for variant in found.model.profile.template_variants]
    asked = [i for i, turn in enumerate(made.messages) if turn["role"] == "assistant"]
    if found.model.profile.one_example_per_turn:
        asked = asked[-1:]
    starts = made.starts
    assert len(starts) == len(asked)
    pairs = list(zip(starts, asked, strict=True))
    for start, turn in pairs[:1] if made.merged else pairs:
        prompts = [
            found.template(made.messages[:turn], made.tools, add_generation_prompt=True, **variant)
            for variant in variants
        ]
        assert made.ids[:start] in prompts


def _require_unforged(found: Family, made: Made) -> None:
    """Control text in a content adds no control token."""
    controls = found.model.controls
    hide = controls_pattern(controls)
    plain = json.loads(json.dumps(made.messages))
    for turn in plain:
        turn["content"] = turn["content"] and hide.sub("x", turn["content"])
    wanted = [i for i in found.template(plain, made.tools) if i in controls.values()]
    assert [i for i in made.ids if i in controls.values()] == wanted


def judge(found: Family, seed: int, count: int) -> Counter[str]:
    """Check a family's law over seeded conversations; returns what was counted."""
    hide = controls_pattern(found.model.controls)
    counted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    rows = list(conversations(seed, count, FAMILIES[found.model.profile.name]))
    for made in make(found, rows, refused):
        counted[made.path] += 1
        if any(hide.search(turn["content"] or "") for turn in made.messages):
            counted["forged"] += 1
            _require_unforged(found, made)
            continue
        whole = found.template(made.messages, made.tools)
        if made.merged:
            counted["merged"] += 1
            assert found.tokenizer.decode(made.ids) == found.tokenizer.decode(whole)
        else:
            counted["equal"] += 1
            assert made.ids == whole
        _require_prompts(found, made)
    assert all(reason.startswith("control_text") for reason in refused), refused
    counted["refused"] = refused.total()
    return counted


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Where the families' tokenizers are written."""
    return tmp_path_factory.mktemp("families")


def test_ids_are_those_of_the_template_and_the_tokenizer(cache_dir, folder):
    """Equal ids, but where the tokenizer merges across a cut and where control text is forged."""
    counted = judge(family("qwen2.5-7b-instruct", cache_dir, folder), 1, 14)
    assert counted["equal"] >= 6
    assert counted["forged"] + counted["refused"]


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_ids_over_many_conversations(name, cache_dir, folder):
    """The same over 600 conversations; every kind of row occurs."""
    counted = judge(family(name, cache_dir, folder), 2, 600)
    print(name, dict(counted))  # noqa: T201 (shown with -s)
    assert counted["equal"] > 300
    assert counted["forged"] + counted["refused"] > 50
    assert counted["compiled"]
