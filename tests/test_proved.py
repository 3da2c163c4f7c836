"""A model that was proved is not proved again; whatever was not proved is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES

from pipeline import processes
from pipeline.inputs import proved
from pipeline.inputs.proved import fast_encoder, find_model
from pipeline.job import Job
from pipeline.options.config import Config
from stages import encoders, probes
from stages.errors import ModelError

DATA = str(SAMPLES / "sft" / "word_problems.jsonl")


@pytest.fixture
def config(tmp_path: Path, cache_dir: Path) -> Config:
    """With a cache in which nothing is proved yet."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache_dir / "tokenizers").mkdir(parents=True, exist_ok=True)
    (cache / "tokenizers").symlink_to(cache_dir / "tokenizers")
    return Config.of("sft", (DATA,), "qwen2-1.5b", tmp_path / "out", cache_dir=cache)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of probes that are run, and the encoders that are compared, from now on."""
    kinds: list[str] = []
    require, choose = probes.require, encoders.choose

    def requiring(subject: Any, kind: str) -> Any:
        kinds.append(kind)
        return require(subject, kind)

    monkeypatch.setattr(probes, "require", requiring)
    monkeypatch.setattr(encoders, "choose", lambda data: kinds.append("encoder") or choose(data))
    return kinds


def test_a_model_is_proved_once(config: Config, asked: list[str]) -> None:
    """And it is the same model, down to the order of what its probes saw."""
    first = find_model(config)
    assert asked == ["tokens", "template"]
    second = find_model(config)
    assert asked == ["tokens", "template"]
    assert first == second
    assert list(first[1].probes.items()) == list(second[1].probes.items())
    assert len(first[1].probes) > 10


@pytest.mark.parametrize(
    "changed",
    [{"system": "Be kind."}, {"train_on": "last"}, {"date": "2020-01-01"}, {"task": "prm"}],
)
def test_another_subject_is_proved(
    changed: dict[str, str], config: Config, asked: list[str]
) -> None:
    """Whatever a probe looks at is part of the key."""
    find_model(config)
    asked.clear()
    find_model(config.but(**changed))
    assert asked == ["tokens", "template"]


def test_other_code_or_another_library_proves_again(
    config: Config, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict holds for the code and the libraries that gave it."""
    find_model(config)
    for owner, name in ((proved, "code_version"), (encoders, "version_of")):
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: "another")
            find_model(config)
        assert asked == ["tokens", "template"]


@pytest.mark.parametrize("damage", ["", "{}", "null", "other"])
def test_a_damaged_verdict_is_none(damage: str, config: Config, asked: list[str]) -> None:
    """Neither is one that was copied from another model's, seal and all."""
    find_model(config)
    (kept,) = (config.run.cache_dir / "proved").iterdir()
    if damage == "other":
        find_model(config.but(system="Be kind."))
        (other,) = {*(config.run.cache_dir / "proved").iterdir()} - {kept}
        kept.write_bytes(other.read_bytes())
    else:
        kept.write_text(damage)
    asked.clear()
    find_model(config)
    assert asked == ["tokens", "template"]


def test_a_model_that_fails_is_not_kept(config: Config, asked: list[str]) -> None:
    """It fails each time, with the same words."""
    broken = config.but(chat_template="{{ messages[0].content }}")
    for _ in range(2):
        asked.clear()
        with pytest.raises(ModelError):
            find_model(broken)
        assert asked
    assert not (config.run.cache_dir / "proved").exists()


def test_encoders_are_compared_once(config: Config, asked: list[str]) -> None:
    """Then neither is loaded to know which one a build takes."""
    content = find_model(config)[1].tokenizer_json
    asked.clear()
    names = [fast_encoder(config.run.cache_dir, content) for _ in range(2)]
    assert names == ["fastokens", "fastokens"]
    assert asked == ["encoder"]


def test_encoders_are_compared_where_workers_come_from(
    config: Config, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have both loaded by then, so this process loads neither."""
    content = find_model(config)[1].tokenizer_json
    asked.clear()
    calls: list[str] = []

    def copied(
        function: Any, shared: Any, items: Any, workers: int, job: Job
    ) -> Iterator[tuple[int, Any]]:
        there = pickle.loads(pickle.dumps(shared))  # it goes to another process
        there.load()
        calls.extend(asked)
        for at, item in enumerate(items):
            yield at, function(there, item)

    monkeypatch.setattr(processes, "copied", copied)
    assert fast_encoder(config.run.cache_dir, content) == "fastokens"
    assert (calls, asked) == ([], ["encoder"])


def test_a_cache_that_takes_no_verdict_stops_no_model(config: Config, asked: list[str]) -> None:
    """It is proved each time; the file that could not be written cannot be removed either."""
    config.run.cache_dir.mkdir(parents=True, exist_ok=True)
    (config.run.cache_dir / "proved").write_text("a file, not a folder")
    for _ in range(2):
        asked.clear()
        find_model(config)
        assert asked == ["tokens", "template"]
