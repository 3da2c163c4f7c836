"""Options by phase: each is one field of one phase, and enters the hashes that its phase feeds."""

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import NAME
from support import table
from test_recipe import RIGHT, recipe_with, write_recipe

from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.options import build_options, command_line, overlaps, recipe, recipe_model
from pipeline.options.config import PHASE_OF, PHASES, Config, from_record
from pipeline.options.many_values import UNLESS_DEFAULT
from posttrain_pipeline.api import config_of
from stages.errors import UsageError

OF_ANOTHER_MODEL = "thinking"  # whose tokenizer takes seconds to make
# Another value of what every recipe has.
OTHER = {"task": '"prm"', "data": '["elsewhere.jsonl"]', "model": '"elsewhere"'}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all recipes, so that those which are alike are equal."""
    return tmp_path_factory.mktemp("recipes")


def _given(key: str, folder: Path, cache_dir: Path) -> tuple[Config, Config]:
    """The build of a recipe without a key, and with it."""
    texts = [recipe_with(key, RIGHT[key] if key in OTHER else None)]
    texts += [recipe_with(key, OTHER.get(key, RIGHT[key]))]
    if key == OF_ANOTHER_MODEL:
        texts = [text.replace(NAME, "qwen3-8b") for text in texts]
    flags = {} if key == "cache-dir" else {"cache_dir": cache_dir}
    (without,), (given,) = (
        recipe.builds_of(write_recipe(folder, text), flags=flags, trust=True) for text in texts
    )
    return without, given


def _config(tmp_path: Path, cache_dir: Path, **options: Any) -> Config:
    given = {"task": "sft", "model": NAME, "output": tmp_path / "out", **options}
    return Config.of(data=("data.jsonl",), cache_dir=cache_dir, **given)


def _bound(one: Config, other: Config) -> bool:
    """Whether what is searched for, compared or encoded in rows differs by more than its option."""
    return any(
        of(one) != of(other)
        for of in (
            lambda config: config.plan.longest_example,
            lambda config: config.groups,  # rows are split, or no longer
            lambda config: config.carried,  # parts have what is compared
            lambda config: (overlaps.search_of(config.plan), overlaps.likeness_of(config.plan)),
        )
    )


RECIPES: dict[str, Recipe] = {}


def _resolved(config: Config) -> Recipe:
    """The recipe of one of the few configurations that all others are compared with."""
    key = str(config.for_build) + config.parts.model
    if key not in RECIPES:
        RECIPES[key] = resolve_recipe(config, [])
    return RECIPES[key]


def test_each_option_is_one_field() -> None:
    """The command line, a recipe and a call have each field of each phase once."""

    @command_line.with_options(command_line.BUILD)
    def command(**given: Any) -> None:
        """Takes the options of every build."""

    options = [option.name for option in click.command()(command).params]
    reached = Counter([*options, "task", "data"])
    assert reached == Counter(one.name for phase in PHASES.values() for one in fields(phase))
    assert set(reached.values()) == {1}
    with pytest.raises(TypeError, match="no option 'layuot'"):
        Config.of("sft", ("x.jsonl",), NAME, Path("out"), layuot="ragged")


# Data and model count as what they name, another task is another set of options, and another end
# of turn or cache needs another template or tokenizer.
UNRESOLVED = ("task", "data", "model", "eos", "cache-dir")


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[pytest.mark.slow] if key == OF_ANOTHER_MODEL else [])
        for key in RIGHT
    ],
)
def test_an_option_changes_the_hashes_of_its_phase(key: str, folder: Path, cache_dir: Path) -> None:
    """One changed option changes what is recorded for parts, for the build, for both or neither;
    and the same of a recipe's two hashes, which have the model's profile in them."""
    base, changed = _given(key, folder, cache_dir)
    phase = PHASE_OF[recipe_model.keys(build_options.OPTIONS)[key].name]
    assert changed != base
    spelled = key in ("data", "model")  # recorded as the hash of what they name
    assert (changed.for_build != base.for_build) == (phase != "run" and not spelled)
    if key == "test":  # whose files are a source of their own
        return
    feeds_parts = phase in ("source", "parts") and not spelled
    bound = phase == "plan" and _bound(base, changed)
    assert (changed.for_parts != base.for_parts) == (feeds_parts or bound)
    if key not in UNRESOLVED:
        one, two = _resolved(base), resolve_recipe(changed, [])
        assert (one.fingerprint != two.fingerprint) == (phase != "run")
        parts = [recipe.part_fingerprint(recipe.config.source.format) for recipe in (one, two)]
        assert (parts[0] != parts[1]) == (feeds_parts or _bound(one.config, two.config))


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


@pytest.mark.parametrize(("task", "options", "says"), table("refusals.toml")["options"])
def test_what_does_not_go(task: str, options: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Each phase checks its own options, and the whole what two phases must agree on."""
    with pytest.raises(UsageError, match=says):
        _config(tmp_path, tmp_path, task=task, **options)
