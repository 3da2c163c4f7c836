"""The laws of a build: workers, phases that are called apart, and the chain of stages by hand.

All of them make the same bytes.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import NAME
from support import SAMPLES, Make, Run, few, files_of, flip, own_cache, read_manifest, silent

from pipeline.builder.build import finish
from pipeline.builder.dataset import make_shards
from pipeline.builder.planning import join, make_parts, missing, plan
from pipeline.builder.preparation import prepare
from pipeline.inputs import declared, recipe
from pipeline.options.config import Config
from pipeline.run_build import build
from pipeline.shards import gather, part
from pipeline.shards import plan as laid
from stages.errors import ParityError, PipelineError, UsageError

PRM_CHAIN = ("render", "mark", "encode", "validate")
CHAIN = ("render", "encode", "validate")


SMALL = """
from pipeline.shards import plan
from stages.readers import jsonl
jsonl.SPLIT_BYTES, plan.SHARD_TOKENS = 20_000, 8_000
"""


@pytest.mark.parametrize(("several", "size"), few([("2", 100_000), ("3", 34_000_000)], 1))
def test_any_number_of_workers_gives_the_same_bytes(
    pipeline: Run, cache_dir: Path, tmp_path: Path, several: str, size: int
) -> None:
    """Shards and manifest are byte-identical for 1, 2 and 3 workers, from empty caches; a small
    file has small splits and shards."""
    rows = (SAMPLES / "sft" / "word_problems.jsonl").read_bytes()
    data = tmp_path / "data.jsonl"
    data.write_bytes(rows * (size // len(rows)))
    words = ("run", "sft", "--model", "qwen2-1.5b", data, "--shuffle")
    made = []
    for workers in ("1", several):
        cache = own_cache(tmp_path / f"cache{workers}", cache_dir)
        options = ("--workers", workers, "--cache-dir", cache, "-o", f"out{workers}")
        pipeline(*words, *options, before=SMALL if size < 1_000_000 else "").ended()
        made.append(files_of(tmp_path / f"out{workers}"))
    assert made[0] == made[1]
    assert len(read_manifest(tmp_path / "out1")["splits"]["train"]["shards"]) > 1


@pytest.mark.parametrize(
    ("task", "data", "chain", "layout"),
    few(
        [
            ("prm", "prm/alternatives.jsonl", PRM_CHAIN, ("pack", "packed")),
            ("sft", "sft/chat.jsonl", CHAIN, ("pad", "padded")),
            ("rm", "rm/pairs.jsonl", CHAIN, ("ragged", "ragged")),
        ],
        1,
    ),
)
def test_the_chain_by_hand_gives_the_shards_of_the_run(
    pipeline: Run,
    built: Make,
    tmp_path: Path,
    task: str,
    data: str,
    chain: tuple[str, ...],
    layout: tuple[str, str],
) -> None:
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


def test_until_stops_after_a_stage(pipeline: Run, tmp_path: Path) -> None:
    """--until writes that stage's file, from which the chain can go on."""
    source = SAMPLES / "prm" / "stepwise.jsonl"
    options = ("--model", "qwen2-1.5b", "-o", "here.arrow")
    ran = pipeline("run", "prm", source, *options, "--until", "render").ended()
    assert "1 row refused" in ran.err
    pipeline("stage", "mark", "here.arrow", "-o", "marked.arrow").ended()
    ran = pipeline("stage", "encode", "here.arrow", "-o", "unmarked.arrow")
    assert ran.status == 3
    assert "no rows left" in ran.err


DATA = [
    str(SAMPLES / "sft" / name)
    for name in ("chat.jsonl", "turn_weights.jsonl", "word_problems.jsonl", "zh_dialogues.jsonl")
]
OPTIONS = {"dedup": True, "shuffle": True, "seed": 5, "test_size": 0.2, "max_length": 2048}


@pytest.fixture
def config(tmp_path: Path, cache: Path) -> Config:
    """Four inputs, each one split."""
    return Config.of("sft", tuple(DATA), NAME, tmp_path / "out", cache_dir=cache, workers=1)


def _stored(record: Any) -> Any:
    """The record as another process reads it."""
    return pickle.loads(pickle.dumps(record))


def test_the_phases_make_the_build_of_one_call(config: Config, tmp_path: Path) -> None:
    """Parts in two halves and another order, every record stored between two phases."""
    config = config.but(**OPTIONS)
    prepared = _stored(prepare(config))
    halves = [_stored(make_parts(prepared, silent, numbers)) for numbers in ([3, 1], [0, 2])]
    finish(_stored(prepared), join(halves), silent)
    another = own_cache(tmp_path / "another", config.run.cache_dir)
    build(config.but(output=tmp_path / "at_once", cache_dir=another), silent)
    files = files_of(tmp_path / "at_once")
    assert len(files) > 12
    assert files_of(tmp_path / "out") == files


@pytest.fixture
def many_shards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Shards are small; gives the paths of those that are made."""
    monkeypatch.setattr(laid, "SHARD_TOKENS", 256)
    paths: list[str] = []
    make = gather.make_shard

    def made(shared: Any, shard: Any) -> Any:
        paths.append(shard.path)
        return make(shared, shard)

    monkeypatch.setattr(gather, "make_shard", made)
    return paths


def test_shards_that_others_made_are_taken_over(
    config: Config, tmp_path: Path, many_shards: list[str]
) -> None:
    """Two ranks make some of the shards, one twice; the build makes the others, and those that are
    not as they were made. Whatever happens to the workspace, it is the same build."""
    config = config.but(**OPTIONS, layout="ragged")
    prepared = prepare(config)
    made = make_parts(prepared, silent)
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
    build(config.but(output=tmp_path / "at_once"), silent)
    assert files_of(tmp_path / "at_once") == files_of(tmp_path / "out")


def test_a_difference_of_the_reference_itself_stops_the_build(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no third encoder."""

    def differs(recipe: Any, work: Any) -> Any:
        raise ParityError("chat.jsonl:1: input_ids")

    monkeypatch.setattr(part, "make", differs)
    with pytest.raises(PipelineError, match=r"chat\.jsonl:1: input_ids") as caught:
        make_parts(prepare(config), silent)
    assert caught.value.exit_code == 1


def test_parts_that_are_not_there_as_they_were_made_are_named(
    config: Config, tmp_path: Path
) -> None:
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
def test_both_encoders_make_one_build(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_another_version_makes_no_parts_of_a_stored_build(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        with pytest.raises(UsageError, match="prepared by another version"):
            phase(prepared, *more)
