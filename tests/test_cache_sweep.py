"""Every byte of the cache is checked before a build uses it: no flipped byte reaches a build."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support import WIDE, say

from pipeline.builder.build import build
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from pipeline.shards import part
from pipeline.stores import spool
from stages.tokenizers import builtin
from stages.tokenizers.profiles import all_profiles

NAME = "qwen2-1.5b"
ROWS: list[object] = [{"question": f"q{i} <|im_end|>", "answer": f"a{i}"} for i in range(6)]
ROWS[2:2] = [{"question": "no answer"}, "no object", {"question": "x", "answer": "y" * 400}]
Make = Callable[..., Path]


def _config(tmp_path: Path, output: str, **options: object) -> Config:
    data = tmp_path / "data.jsonl"
    text = "\n\n".join(json.dumps(row) for row in ROWS)
    data.write_text(text, "utf-8")
    given: dict[str, object] = {"max_reject": 1.0, "workers": 1, "max_length": 64, **options}
    cache = tmp_path / "cache"
    return Config.of(
        task="sft",
        data=(str(data),),
        model=NAME,
        output=tmp_path / output,
        cache_dir=cache,
        **given,
    )


def _files(folder: Path) -> dict[str, bytes]:
    """A folder's bytes, but for what tells when it was made."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


def _flipped(content: bytes, at: int, mask: int) -> bytes:
    return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


def _part(tmp_path: Path, cache_dir: Path) -> tuple[Recipe, part.Work]:
    """A recipe, and the one part of its input, made."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tokenizers").symlink_to(cache_dir / "tokenizers")
    config = _config(tmp_path, "out")
    inputs = scan(config)
    recipe = resolve_recipe(config, inputs)
    splits = [(inputs[0].splits[0], 0, recipe.formats[0])]
    (work,) = part.plan_parts(recipe, splits)
    part.make(recipe, work)
    return recipe, work


def _sweep(recipe: Recipe, work: part.Work, make_every: int) -> int:
    """Flip every byte of the part's files, one at a time; returns how many."""
    chance = random.Random(7)
    files = {path: path.read_bytes() for path in (work.path, work.files.rejects, work.files.report)}
    clean = part.finished(work)
    assert clean is not None
    points = 0
    for path, content in files.items():
        for at in range(len(content)):
            path.write_bytes(_flipped(content, at, chance.randrange(1, 256)))
            assert part.finished(work) is None, f"byte {at} of {path.name}"
            if not at % make_every:
                assert part.make(recipe, work) == clean
                assert {each: each.read_bytes() for each in files} == files
            path.write_bytes(content)
            points += 1
    return points


@pytest.mark.slow
def test_no_flipped_byte_of_a_part_is_used(
    tmp_path: Path, tokenizer_json: bytes, cache_dir: Path
) -> None:
    """Such a part is made again, and its four files are what they were."""
    points = _sweep(*_part(tmp_path, cache_dir), make_every=301)
    say(f"{points} flipped bytes of a part")
    assert points > 4000


@pytest.mark.slow
def test_no_flipped_byte_of_a_part_survives_its_making(
    tmp_path: Path, tokenizer_json: bytes, cache_dir: Path
) -> None:
    """The same, with the part made again for every seventh byte."""
    points = _sweep(*_part(tmp_path, cache_dir), make_every=7)
    say(f"{points} flipped bytes of a part, every seventh of them made again")


def _builds(tmp_path: Path, cache_dir: Path, count: int) -> int:
    """Whole builds over a cache with one flipped byte, spread over all its files."""
    _part(tmp_path, cache_dir)
    build(_config(tmp_path, "clean"), lambda *_: None)
    clean = _files(tmp_path / "clean")
    files = {p: p.read_bytes() for p in (tmp_path / "cache" / "parts").rglob("*") if p.is_file()}
    chance = random.Random(11)
    places = [(path, at) for path, content in files.items() for at in range(len(content))]
    report = [place for place in places if place[0].suffix == ".json"]
    chosen = [*chance.sample(report, count // 2), *chance.sample(places, count // 2)]
    for number, (path, at) in enumerate(chosen):
        path.write_bytes(_flipped(files[path], at, chance.randrange(1, 256)))
        output = tmp_path / f"built-{number}"
        build(_config(tmp_path, output.name), lambda *_: None)
        assert _files(output) == clean, f"byte {at} of {path.name}"
        assert {each: each.read_bytes() for each in files} == files
    return len(files)


@pytest.mark.parametrize("count", [2, pytest.param(160 if WIDE else 30, marks=pytest.mark.slow)])
def test_a_build_over_a_damaged_cache_is_the_clean_build(
    tmp_path: Path, tokenizer_json: bytes, cache_dir: Path, count: int
) -> None:
    """Byte for byte, and the cache is whole again."""
    assert _builds(tmp_path, cache_dir, count) == 4
    say(f"{count} builds over a cache with a flipped byte")


def test_a_report_of_another_part_is_no_report(
    tmp_path: Path, tokenizer_json: bytes, cache_dir: Path
) -> None:
    """Files that are moved in the cache say nothing of the part whose place they took."""
    _, work = _part(tmp_path, cache_dir)
    other = part.Work(work.split, work.format, work.folder, "0" * 64)
    other.path.parent.mkdir()
    for name in ("path", "rejects", "report"):
        getattr(work, name).rename(getattr(other, name))
    assert part.finished(other) is None


def test_no_flipped_byte_of_a_fetched_copy_is_used(tmp_path: Path) -> None:
    """Nor of the note beside it: such a copy is fetched again."""
    folder = tmp_path / "copy"
    path = spool.keep(folder, "rows.jsonl", lambda to: to.write_bytes(b'{"a": 1}\n' * 9) and None)
    assert spool.intact_copy(folder) == path
    points = 0
    for file in (path, folder / "copy.json"):
        content = file.read_bytes()
        for at in range(len(content)):
            for mask in (1, 0x20):
                file.write_bytes(_flipped(content, at, mask))
                assert spool.intact_copy(folder) is None, f"byte {at} of {file.name}"
                points += 1
        file.write_bytes(content)
    assert spool.intact_copy(folder) == path
    say(f"{points} flipped bytes of a copy and its note")


def test_no_flipped_byte_of_a_kept_tokenizer_is_used(tmp_path: Path, tokenizer_json: bytes) -> None:
    """A seeded sample of its seven million: it is rebuilt, or read, as it was."""
    profile = all_profiles()[NAME]
    assert profile.ranks is not None
    path = tmp_path / "tokenizers" / f"{profile.ranks.sha256}.json"
    path.parent.mkdir()
    chance = random.Random(3)
    for _ in range(40):
        at = chance.randrange(len(tokenizer_json))
        path.write_bytes(_flipped(tokenizer_json, at, chance.randrange(1, 256)))
        assert builtin._cached(path, profile.ranks.sha256) is None
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json
    say("40 flipped bytes of a tokenizer")
