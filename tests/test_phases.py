"""The phases of a build, called apart: other processes go on from records that were stored."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import NAME
from support import SAMPLES, Run, files_of, flip, run_python, silent

from pipeline.builder.build import (
    Prepared,
    assemble,
    build,
    finish,
    join,
    make_parts,
    make_shards,
    missing,
    plan,
    prepare,
)
from pipeline.builder.judge import Judge
from pipeline.builder.planning import REFERENCE
from pipeline.inputs import declared, recipe
from pipeline.options.config import Config
from pipeline.shards import gather, part
from pipeline.shards import plan as laid
from stages.errors import DataError, ParityError, PipelineError, UsageError

DATA = [
    str(SAMPLES / "sft" / name)
    for name in ("chat.jsonl", "turn_weights.jsonl", "word_problems.jsonl", "zh_dialogues.jsonl")
]
OPTIONS = {"dedup": True, "shuffle": True, "seed": 5, "test_size": 0.2, "max_length": 2048}

START = """
import pickle
from pathlib import Path
from pipeline.builder.build import finish, join, make_parts, make_shards, plan, prepare
from posttrain_pipeline.api import config_of

def silent(what, done, total):
    return

def stored(name):
    return pickle.loads(Path(name).read_bytes())

def store(name, record):
    Path(name).write_bytes(pickle.dumps(record))
"""


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
    at_once = {"output": tmp_path / "at_once", "cache_dir": tmp_path / "another"}
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "tokenizers").symlink_to(tmp_path / "cache" / "tokenizers")
    build(config.but(**at_once), silent)
    files = files_of(tmp_path / "at_once")
    assert len(files) > 12
    assert files_of(tmp_path / "out") == files


@pytest.mark.slow
def test_four_processes_make_the_build_of_one(pipeline: Run, tmp_path: Path, cache: Path) -> None:
    """One prepares, two make half of the parts each, a fourth assembles and publishes."""

    def run(code: str) -> None:
        done = run_python(START + code, tmp_path, HF_HUB_OFFLINE="1")
        assert done.returncode == 0, done.stderr

    table = {"model": NAME, "output": "apart", "cache_dir": str(cache), "workers": 1, **OPTIONS}
    run(f"store('prepared', prepare(config_of('sft', {DATA!r}, {table!r}, 'test')))")
    assert not (cache / "parts").exists()
    for name, numbers in (("odd", [3, 1]), ("even", [0, 2])):
        before = len(list(cache.rglob("*.arrow")))
        run(f"store({name!r}, make_parts(stored('prepared'), silent, {numbers}))")
        assert len(list(cache.rglob("*.arrow"))) == before + 2
    assert not (tmp_path / "apart").exists()
    run(
        "made = join([stored('odd'), stored('even')])\n"
        "prepared = stored('prepared')\n"
        "assert make_shards(prepared, plan(prepared, made), silent, [0]) == 1"
    )
    assert len(list((cache / "builds").rglob("*.arrow"))) == 1
    run("finish(stored('prepared'), join([stored('odd'), stored('even')]), silent)")
    options = [word for name in ("seed", "test_size", "max_length") for word in _given(name)]
    pipeline(
        "run", "sft", *DATA, "--model", NAME, "-o", "one", "--dedup", "--shuffle", *options
    ).ended()
    one = files_of(tmp_path / "one")
    assert len(one) > 12
    assert files_of(tmp_path / "apart") == one
    assert not (cache / "builds").exists()
    record = json.loads((tmp_path / "apart" / "run.json").read_bytes())
    assert record["seconds"] > 0
    assert [path.name for path in tmp_path.glob(".apart*")] == []


def _given(name: str) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", str(OPTIONS[name])


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
    """Two ranks make some of the shards, one twice; the build makes the others, and is the same."""
    config = config.but(**OPTIONS, layout="ragged")
    prepared = prepare(config)
    made = make_parts(prepared, silent)
    planned = _stored(plan(prepared, made))
    every = list(range(planned.n_shards))
    assert len(every) > 4
    mine, others = every[1::3], every[2::3]
    assert make_shards(prepared, planned, silent, mine) == len(mine)
    assert make_shards(_stored(prepared), _stored(planned), silent, [*mine[:1], *others]) == len(
        others
    )
    assert len(many_shards) == len(mine) + len(others)
    many_shards.clear()
    finish(prepared, made, silent)
    assert len(many_shards) == len(every[0::3])
    assert not (config.run.cache_dir / "builds").exists()
    build(config.but(output=tmp_path / "at_once"), silent)
    assert files_of(tmp_path / "at_once") == files_of(tmp_path / "out")


def test_a_shard_that_is_not_as_it_was_made_is_made_again(
    config: Config, tmp_path: Path, many_shards: list[str]
) -> None:
    """Whatever happens to the workspace, the build is the same."""
    config = config.but(layout="ragged")
    prepared = prepare(config)
    made = make_parts(prepared, silent)
    planned = plan(prepared, made)
    assert make_shards(prepared, planned, silent) == planned.n_shards > 5
    many_shards.clear()
    workspace = config.run.cache_dir / "builds" / prepared.build_id
    _, damaged, gone, cut_off, forgotten, *_ = sorted(workspace.glob("*.arrow"))
    flip(damaged)
    gone.unlink()
    cut_off.write_bytes(cut_off.read_bytes()[:-100])
    sha256 = forgotten.stem.partition(".")[2]
    (config.run.cache_dir / "shards" / sha256[:2] / f"{sha256}.json").unlink()
    finish(prepared, made, silent)
    assert len(many_shards) == 4
    build(config.but(output=tmp_path / "at_once"), silent)
    assert files_of(tmp_path / "at_once") == files_of(tmp_path / "out")


@pytest.mark.slow
def test_one_difference_turns_all_processes_to_the_reference(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Parts of the fast encoder are not mixed with the reference's, whoever made them."""
    monkeypatch.setattr(recipe, "FAST_FROM", 0)
    prepared = prepare(config)
    assert prepared.recipe.backend != REFERENCE
    fast = make_parts(prepared, silent, [0, 1])
    assert fast.backend == prepared.recipe.backend
    make = part.make

    def differs(recipe: Any, work: Any) -> Any:
        if recipe.backend != REFERENCE:
            raise ParityError("zh_dialogues.jsonl:1: input_ids")
        return make(recipe, work)

    monkeypatch.setattr(part, "make", differs)
    slow = make_parts(prepared, silent, [2, 3])
    joined = join([fast, slow])
    assert (slow.backend, joined.backend, sorted(joined.reports)) == (REFERENCE, REFERENCE, [2, 3])
    assert missing(prepared, joined) == [0, 1]
    with pytest.raises(UsageError, match=f"2 of 4 parts .* splits 0, 1. .*{REFERENCE}"):
        finish(prepared, joined, silent)
    rest = make_parts(prepared.encoded_by(joined.backend), silent, missing(prepared, joined))
    finish(prepared, join([fast, slow, rest]), silent)
    apart = files_of(tmp_path / "out")
    assert json.loads(apart["manifest.json"])["encoder"]["backend"] == REFERENCE
    build(config.but(output=tmp_path / "at_once"), silent)
    assert files_of(tmp_path / "at_once") == apart


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
    for phase in (
        lambda: make_parts(prepared, silent),
        lambda: plan(prepared, made),
        lambda: make_shards(prepared, planned, silent),
        lambda: finish(prepared, made, silent),
    ):
        with pytest.raises(UsageError, match="prepared by another version"):
            phase()


@pytest.mark.slow
def test_a_build_that_is_finished_elsewhere_is_refused_like_any(
    tmp_path: Path, cache: Path
) -> None:
    """The old build stays, and the refused rows are kept."""
    data = tmp_path / "rows.jsonl"
    data.write_bytes(Path(DATA[2]).read_bytes())
    options = {"cache_dir": cache, "workers": 1, "max_reject": 0.0}
    config = Config.of("sft", (str(data),), NAME, tmp_path / "out", **options)
    build(config, silent)
    before = files_of(tmp_path / "out")
    with data.open("ab") as rows:
        rows.write(b'{"question": 1}\n')
    prepared = prepare(config)
    made = make_parts(prepared, silent)
    with pytest.raises(DataError, match=r"1 of .* rows was refused"):
        finish(prepared, made, silent)
    assert files_of(tmp_path / "out") == before
    assert (tmp_path / "out.failed" / "rejects.jsonl").read_text().count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_each_record_can_be_stored(config: Config, tmp_path: Path) -> None:
    """A record that is read back is the record."""

    folder = tmp_path / "staged"
    folder.mkdir()
    prepared: Prepared = _stored(before := prepare(config))
    assert prepared == before
    made = _stored(parts := make_parts(prepared, silent))
    assert made == parts
    judge = Judge(config)
    assembled = _stored(there := assemble(prepared, made, folder, judge=judge, report=silent))
    assert assembled == there
    assert assembled.build.manifest.build_id == prepared.build_id
    assert assembled.verdict.passed
    assert not (folder / "manifest.json").exists()
