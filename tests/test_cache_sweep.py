"""What the cache keeps: no flipped byte reaches a build, and a model is proved once."""

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, WIDE, files_of, noted, own_cache, silent

from pipeline import processes, remote, run_build
from pipeline.inputs import proved
from pipeline.inputs.recipe import resolve_recipe
from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from pipeline.shards import part
from stages import encoders, errors
from stages.tokenizers import builtin, probes, profiles

NAME = "qwen2-1.5b"
ROWS: list[object] = [{"question": f"q{i} <|im_end|>", "answer": f"a{i}"} for i in range(6)]
ROWS[2:2] = [{"question": "no answer"}, "no object", {"question": "x", "answer": "y" * 400}]


def _config(tmp_path: Path, output: str, **options: object) -> Config:
    data = tmp_path / "data.jsonl"
    data.write_text("\n\n".join(json.dumps(row) for row in ROWS), "utf-8")
    fixed: dict[str, Any] = {"cache_dir": tmp_path / "cache", "max_reject": 1.0, "workers": 1}
    given = {**fixed, "max_length": 64, **options}
    return Config.of("sft", (str(data),), NAME, tmp_path / output, **given)


def _flipped(content: bytes, at: int, mask: int) -> bytes:
    return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


def _part(tmp_path: Path, cache_dir: Path) -> part.Work:
    """The one part of an input, made."""
    own_cache(tmp_path / "cache", cache_dir)
    config = _config(tmp_path, "out")
    inputs = scan(config)
    recipe = resolve_recipe(config, inputs)
    (work,) = part.plan_parts(recipe, [(inputs[0].splits[0], 0, recipe.formats[0])])
    part.make(recipe, work)
    return work


def test_a_build_over_a_damaged_cache_is_the_clean_build(tmp_path, tokenizer_json, cache_dir):
    """A part with a flipped byte in any of its files is none. The build has the bytes that it had,
    and the cache is whole again: with a flipped byte of a report, or of any file."""
    work, chance = _part(tmp_path, cache_dir), random.Random(11)
    for path in (work.path, work.files.rejects, work.files.report):
        content = path.read_bytes()
        for at in range(0, len(content), 1 if WIDE else 16):
            path.write_bytes(_flipped(content, at, chance.randrange(1, 256)))
            assert part.finished(work) is None, f"byte {at} of {path.name}"
        path.write_bytes(content)
    run_build.build(_config(tmp_path, "clean"), silent)
    clean = files_of(tmp_path / "clean")
    files = {p: p.read_bytes() for p in (tmp_path / "cache" / "parts").rglob("*") if p.is_file()}
    assert len(files) == 4
    places = [(path, at) for path, content in files.items() for at in range(len(content))]
    report = [place for place in places if place[0].suffix == ".json"]
    for among in (report, places) * (80 if WIDE else 1):
        path, at = chance.choice(among)
        path.write_bytes(_flipped(files[path], at, chance.randrange(1, 256)))
        run_build.build(_config(tmp_path, "built"), silent)
        assert files_of(tmp_path / "built") == clean, f"byte {at} of {path.name}"
        shutil.rmtree(tmp_path / "built")
        assert {each: each.read_bytes() for each in files} == files


def test_no_flipped_byte_of_a_fetched_copy_is_used(tmp_path):
    """Nor of the note beside it: such a copy is fetched again."""
    folder = tmp_path / "copy"
    path = remote.keep(folder, "rows.jsonl", lambda to: to.write_bytes(b'{"a": 1}\n' * 9) and None)
    assert remote.intact_copy(folder) == path
    for file in (path, folder / "copy.json"):
        content = file.read_bytes()
        for at in range(len(content)):
            for mask in (1, 0x20):
                file.write_bytes(_flipped(content, at, mask))
                assert remote.intact_copy(folder) is None, f"byte {at} of {file.name}"
        file.write_bytes(content)
    assert remote.intact_copy(folder) == path


@pytest.mark.slow
def test_no_flipped_byte_of_a_kept_tokenizer_is_used(tmp_path, tokenizer_json):
    """A seeded sample of its seven million: it is rebuilt, or read, as it was."""
    profile = profiles.all_profiles()[NAME]
    path = tmp_path / "tokenizers" / f"{profile.ranks.sha256}.json"
    path.parent.mkdir()
    chance = random.Random(3)
    for _ in range(5):
        at = chance.randrange(len(tokenizer_json))
        path.write_bytes(_flipped(tokenizer_json, at, chance.randrange(1, 256)))
        assert builtin.kept(profile.ranks, tmp_path) is None
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json


PROBLEMS = str(SAMPLES / "sft" / "word_problems.jsonl")


@pytest.fixture
def config(tmp_path, cache) -> Config:
    """With a cache in which nothing is proved yet."""
    return Config.of("sft", (PROBLEMS,), "qwen2-1.5b", tmp_path / "out", cache_dir=cache)


@pytest.fixture
def proves(monkeypatch) -> Callable[[Config], list[str]]:
    """The kinds of probes that are run to find the model of a build, and the encoders that are
    compared."""
    kinds = noted(monkeypatch, probes, "require", lambda subject, kind: kind)
    noted(monkeypatch, encoders, "choose", lambda data: kinds.append("encoder"))

    def of(config: Config) -> list[str]:
        kinds.clear()
        with suppress(errors.ModelError):
            proved.find_model(config)
        return [*kinds]

    return of


ALL = ["tokens", "template"]


def test_a_model_is_proved_once(config, proves):
    """And it is the same model, down to the order of what its probes saw."""
    _, first = proved.find_model(config)
    assert proves(config) == []
    _, second = proved.find_model(config)
    assert first == second
    assert list(first.probes.items()) == list(second.probes.items())
    assert len(first.probes) > 10


def test_what_is_another_subject_or_other_code_is_proved(config, proves, monkeypatch):
    """Whatever a probe looks at is part of the key, and a verdict holds for the code and the
    libraries that gave it."""
    proves(config)
    changed = {"system": "Be kind.", "train_on": "last", "date": "2020-01-01", "task": "prm"}
    for name, value in changed.items():
        assert proves(config.but(**{name: value})) == ALL, name
    for owner, name in ((proved, "code_version"), (encoders, "version_of")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: "another")
            assert proves(config) == ALL


def test_a_damaged_verdict_is_none(config, proves):
    """Neither is one that was copied from another model's, seal and all."""
    proves(config)
    (kept,) = (config.run.cache_dir / "proved").iterdir()
    proves(config.but(system="Be kind."))
    (other,) = {*(config.run.cache_dir / "proved").iterdir()} - {kept}
    for damage in (b"", b"{}", b"null", other.read_bytes()):
        kept.write_bytes(damage)
        assert proves(config) == ALL, damage


def test_a_model_that_fails_is_not_kept(config, proves):
    """It fails each time."""
    broken = config.but(chat_template="{{ messages[0].content }}")
    assert proves(broken) == proves(broken) != []
    assert not (config.run.cache_dir / "proved").exists()


def test_a_cache_that_takes_no_verdict_stops_no_model(config, proves):
    """It is proved each time; the file that could not be written cannot be removed either."""
    config.run.cache_dir.mkdir(parents=True, exist_ok=True)
    (config.run.cache_dir / "proved").write_text("a file, not a folder")
    assert proves(config) == proves(config) == ALL


def test_encoders_are_compared_in_a_copy(config, monkeypatch):
    """Once: who has encoded has threads, and this process is still to be copied."""
    content = proved.find_model(config)[1].tokenizer_json
    monkeypatch.setattr(processes, "forkable", lambda: True)
    monkeypatch.setattr(encoders, "choose", _not_here(os.getpid(), encoders.choose))
    names = [proved.fast_encoder(config.run.cache_dir, content) for _ in range(2)]
    assert names == ["fastokens", "fastokens"]


def _not_here(process: int, choose: Callable[[bytes], str]) -> Callable[[bytes], str]:
    def elsewhere(content: bytes) -> str:
        assert os.getpid() != process
        return choose(content)

    return elsewhere
