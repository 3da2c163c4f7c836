"""Options by phase: each is one field of one phase, and enters the hashes that its phase feeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import NAME

from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.options import overlaps
from pipeline.options.command_line import BUILD, with_options
from pipeline.options.config import PHASE_OF, PHASES, Config, PlanOptions, from_record
from pipeline.options.phases import UNLESS_DEFAULT
from posttrain_pipeline.api import config_of
from stages.errors import UsageError
from stages.overlap.settings import Evaluation
from stages.tokenizers.profiles import all_profiles

# Another value of each option, where one example cannot be made up from its type; with it come the
# options without which it would be refused.
OTHER: dict[str, Any] = {
    "data": ("elsewhere.jsonl",),
    "format": "chat_messages",
    "map": {"prompt": "question"},
    "where": ("score>=4",),
    "null_fields": "drop",
    "delimiter": ";",
    "quoting": "none",
    "cells": {"messages": "json"},
    "train_on": "last",
    "neutral": "good",
    "stop_text": "keep",
    "reasoning_in": "think",
    "reasoning": "strip",
    "task": "prm",
    "too_long": "trim-turns",
    "eos": "<|im_end|>",
    "date": "2024-02-29",
    "chat_template": all_profiles()[NAME].chat_template + "{# mine #}",
    "prm_template": "raw",
    "thinking": "on",
    "layout": "ragged",
    "trainer": "trl",
    "padding_side": "right",
    "pad_to": "max-length",
    "pack_within": "part",
    "filter": ("language = 'en'",),
    "dedup_keep": "highest:score",
    "total": 1000,
    "tolerance": {"shortcuts.fail": 1.0},
    "expectations": (("mine.json", "[]"),),
    "max_reject": 0.5,
    "empty": "warn",
    "drift": {"rows": 0.1},
    "test_size": 0.25,
    "group_by": "topic",
    "decontaminate": (Evaluation("other", "e.jsonl", "0" * 64),),
    "overlap_share": 0.25,
    "overlap_in": "row",
    "near_dedup": 0.75,
    "near_words": 3,
    "near_in": "question",
    "cache_dir": Path("cache"),
    "output": Path("other"),
    "data_docs": Path("docs"),
    "engine": "elsewhere",
}
EVALS = (Evaluation("evals", "e.jsonl", "1" * 64),)
BASE: dict[str, dict[str, Any]] = {  # what a build says beside, so that the option has a meaning
    "neutral": {"task": "prm"},
    "prm_template": {"task": "prm"},
    "prompt_separator": {"task": "prm"},
    "step_tag": {"task": "prm"},
    "thinking": {"model": "qwen3-8b"},
    "group_by": {"test_size": 0.1},
    "dedup_keep": {"dedup": True},
    "overlap_words": {"decontaminate": EVALS},
    "overlap_share": {"decontaminate": EVALS},
    "overlap_in": {"decontaminate": EVALS},
    "near_words": {"near_dedup": 0.5},
    "near_in": {"near_dedup": 0.5},
    "ray_address": {"engine": "ray"},
}


def other(name: str, value: Any) -> Any:
    """A value that differs from an option's own."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + (64 if value > 64 or not value else 1)
    return (*value, "<x>") if isinstance(value, tuple) else "<x>"


def _config(tmp_path: Path, cache_dir: Path, **options: Any) -> Config:
    given = {"task": "sft", "model": NAME, "output": tmp_path / "out", **options}
    return Config.of(data=("data.jsonl",), cache_dir=cache_dir, **given)


def _compared(plan: PlanOptions) -> object:
    """What rows are searched for, and how they are compared with each other."""
    return overlaps.search_of(plan), overlaps.likeness_of(plan)


RECIPES: dict[str, Recipe] = {}


def _resolved(config: Config) -> Recipe:
    """The recipe of one of the few configurations that all others are compared with."""
    key = str(config.for_build) + config.parts.model
    if key not in RECIPES:
        RECIPES[key] = resolve_recipe(config, [])
    return RECIPES[key]


def test_each_option_is_one_field() -> None:
    """The command line, a recipe and a call have each field of each phase once."""

    @with_options(BUILD)
    def command(**given: Any) -> None:
        """Takes the options of every build."""

    options = [option.name for option in click.command()(command).params]
    reached = Counter([*options, "task", "data"])
    assert reached == Counter(one.name for phase in PHASES.values() for one in fields(phase))
    assert set(reached.values()) == {1}
    with pytest.raises(TypeError, match="no option 'layuot'"):
        Config.of("sft", ("x.jsonl",), NAME, Path("out"), layuot="ragged")


@pytest.mark.parametrize("name", sorted(PHASE_OF))
def test_an_option_is_recorded_by_its_phase(name: str, tmp_path: Path) -> None:
    """One changed option changes what is recorded for parts, for the build, for both or neither."""
    base = _config(tmp_path, tmp_path, **BASE.get(name, {}))
    value = getattr(getattr(base, PHASE_OF[name]), name)
    changed = base.but(**{name: other(name, value)})
    assert changed != base
    phase = PHASE_OF[name]
    spelled = name in ("data", "model", "test")  # recorded as the hash of what they name
    assert (changed.for_build != base.for_build) == (phase != "run" and not spelled)
    bound = changed.plan.longest_example != base.plan.longest_example
    bound |= changed.groups != base.groups and phase == "plan"  # rows are split, or no longer
    bound |= changed.carried != base.carried and phase == "plan"  # parts have what is compared
    bound |= _compared(changed.plan) != _compared(base.plan)
    assert (changed.for_parts != base.for_parts) == (
        (phase in ("source", "parts") and not spelled) or bound
    )
    assert not bound or phase == "plan"


# Of the others, data, model and test count as what they name, another task is another set of
# options, and another end of turn or cache needs another template or tokenizer.
RESOLVED = sorted(set(PHASE_OF) - {"task", "data", "model", "test", "eos", "cache_dir"})


@pytest.mark.parametrize("name", RESOLVED)
def test_an_option_changes_the_hashes_that_its_phase_feeds(
    name: str, tmp_path: Path, cache_dir: Path
) -> None:
    """The same of a recipe's two hashes, which have the model's profile in them."""
    base = _config(tmp_path, cache_dir, **BASE.get(name, {}))
    changed = base.but(**{name: other(name, getattr(getattr(base, PHASE_OF[name]), name))})
    one, two = _resolved(base), resolve_recipe(changed, [])
    phase = PHASE_OF[name]
    assert (one.fingerprint != two.fingerprint) == (phase != "run")
    bound = one.config.plan.longest_example != two.config.plan.longest_example
    bound |= one.config.groups != two.config.groups or one.config.carried != two.config.carried
    bound |= _compared(one.config.plan) != _compared(two.config.plan)
    parts = [recipe.part_fingerprint(recipe.config.source.format) for recipe in (one, two)]
    assert (parts[0] != parts[1]) == (phase in ("source", "parts") or bound)


@pytest.mark.parametrize(
    ("options", "longest"),
    [
        ({"max_length": 512}, 512),
        ({"layout": "padded", "pad_to": "64"}, 64),
        ({"layout": "ragged", "pad_to": "64"}, 4096),
    ],
)
def test_the_longest_example_is_a_part_s_too(
    options: dict[str, Any], longest: int, tmp_path: Path
) -> None:
    """The one thing of the plan that decides what is encoded."""
    assert _config(tmp_path, tmp_path, **options).for_parts["longest_example"] == longest


def test_a_manifest_keeps_the_order_of_its_options(tmp_path: Path) -> None:
    """Files that were written have the options in this order, and equal builds are equal bytes."""
    names = list(_config(tmp_path, tmp_path).for_build)
    assert names[:8] == "task format map ignore where null_fields layout trainer".split()
    first = names.index("expectations") + 1
    assert names[first - 6 : first] == "tolerance dedup test_size shuffle seed expectations".split()
    later = "group_by pack_within total empty title license origin"
    assert names[first:] == later.split()
    every = [one for phase in PHASES.values() for one in fields(phase)]
    where_given = {one.name for one in every if one.metadata.get(UNLESS_DEFAULT)}
    others = {n for n in PHASE_OF if PHASE_OF[n] != "run"} - {"data", "model", "test"}
    assert set(names) == others - where_given


def test_recorded_options_are_read_back(tmp_path: Path) -> None:
    """What a manifest holds gives the same options, whatever a newer version wrote beside."""
    given = {"map": {"prompt": "q"}, "where": ["a=1", "b=2"], "dedup": True, "stop": ["x"]}
    config = config_of("sft", "data.jsonl", {"model": NAME, "output": str(tmp_path), **given}, "t")
    recorded = {**config.for_build, "task": "sft", "of_a_newer_version": 1}
    again = Config.of(data=("data.jsonl",), model=NAME, output=tmp_path, **from_record(recorded))
    assert again.for_build == config.for_build
    assert (again.source, again.parts, again.plan, again.judge) == (
        config.source,
        config.parts,
        config.plan,
        config.judge,
    )


@pytest.mark.parametrize(
    ("task", "options", "says"),
    [
        ("sft", {"max_length": 7}, "--max-length 7 is too small"),
        ("sft", {"pad_to": "wide"}, "--pad-to must be a width"),
        ("sft", {"too_long": "trim-steps"}, "--too-long trim-steps is not for sft"),
        ("rm", {"train_on": "all"}, "--train-on all is not for rm"),
        ("rm", {"reasoning": "mask"}, "--reasoning mask is not for rm"),
        ("sft", {"reasoning": "mask", "train_on": "all"}, "not for --train-on all"),
        ("prm", {"thinking": "on"}, "--thinking is not for prm"),
        ("sft", {"stop": ("",)}, "--stop is empty"),
        ("sft", {"max_reject": 2.0}, "--max-reject must be between"),
        ("sft", {"test_size": float("nan")}, "--test-size must be a share"),
        ("sft", {"test_size": 100.0}, "--test-size must be a share"),
        ("sft", {"group_by": "topic"}, "--group-by is for builds with a test split"),
        ("sft", {"group_by": "", "test_size": 0.1}, "--group-by is empty"),
    ],
)
def test_what_does_not_go_is_refused(
    task: str, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    """Each phase checks its own options, and the whole what two phases must agree on."""
    with pytest.raises(UsageError, match=says):
        _config(tmp_path, tmp_path, task=task, **options)
