"""A mixture of three real sources with everything that chooses examples, built twice."""

import os
from collections import Counter
from pathlib import Path

import pytest
from datasets import load_from_disk
from support import ROOT, Run, own_cache, read_manifest, read_rows, write_rows

FATES = "used rejected duplicates filtered contaminated near_duplicates left_out".split()
PLANTED = 20  # exact copies, and as many that differ in case, digits and spaces
FULL_WIDTH = {ord(str(n)): chr(0xFF10 + n) for n in range(10)}
RECIPE = (ROOT / "tests" / "tables" / "mixture.toml").read_text("utf-8")


def _evaluation(path: Path, cases: Path) -> list[int]:
    """Questions of math rows, half of them in other words' clothes; the lines of these rows."""
    rows = read_rows(cases / "sft" / "gsm8k_train" / "train.jsonl")
    lines = list(range(100, 100 + 7 * 2 * PLANTED, 7))
    questions = [rows[line]["question"] for line in lines]
    for number in range(PLANTED, 2 * PLANTED):
        dressed = questions[number].upper().translate(FULL_WIDTH)
        questions[number] = dressed.replace(" ", "  ")
    write_rows(path, [{"question": question} for question in questions])
    return [line + 1 for line in lines]


def _bytes(folder: Path) -> dict[str, bytes]:
    """All that the manifest vouches for, and the manifest."""
    files = ["manifest.json", *read_manifest(folder)["files"]]
    return {name: (folder / name).read_bytes() for name in files}


@pytest.mark.slow
@pytest.mark.cases
def test_a_mixture_of_real_sources(
    pipeline: Run, tmp_path: Path, cases: Path, cache_dir: Path
) -> None:
    held = tmp_path / "held.jsonl"
    planted = _evaluation(held, cases)
    recipe = tmp_path / "mix.toml"
    recipe.write_text(RECIPE.format(held=held, cases=cases))
    for name, workers in (("one", "1"), ("two", "2")):
        cache = own_cache(tmp_path / f"cache-{name}", cache_dir)
        options = ("-o", tmp_path / name, "--workers", workers, "--cache-dir", cache)
        pipeline("build", recipe, *options).ended()
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "two")

    manifest = read_manifest(tmp_path / "one")
    math, alpaca, dolly = manifest["sources"]
    assert 200_000 * 0.99 < math["splits"]["train"]["trained"] <= 200_000
    for source, share in ((alpaca, 0.2), (dolly, 0.3)):
        assert source["short"] or abs(source["share"] - share) < 0.01
    rows = manifest["rows"]
    assert rows["in"] == sum(rows[fate] for fate in FATES)
    assert min(rows["filtered"], rows["duplicates"], rows["left_out"]) > 0

    # Every planted question is found, and only questions that are alike.
    found = {row["id"] for row in read_rows(tmp_path / "one" / "contaminated.jsonl")}
    assert {f"train.jsonl:{line}" for line in planted} <= found
    assert rows["contaminated"] == len(found) < len(planted) + 5

    stored = load_from_disk(str(tmp_path / "one"))
    names = {
        side: Counter(name for pack in stored[side]["row_ids"] for name in pack)
        for side in ("train", "test")
    }
    assert not names["train"].keys() & names["test"].keys()
    assert not found & (names["train"].keys() | names["test"].keys())
    assert pipeline("check", tmp_path / "one").status == 0

    # A tenth more of one budget encodes nothing, and keeps what was in.
    parts = sorted(os.listdir(tmp_path / "cache-one" / "parts"))
    pipeline(
        *("build", recipe, "-o", tmp_path / "more", "--cache-dir", tmp_path / "cache-one"),
        *("--set", "source.math.trained-tokens=220k"),
    ).ended()
    assert sorted(os.listdir(tmp_path / "cache-one" / "parts")) == parts
    more = load_from_disk(str(tmp_path / "more"))
    for side, before in names.items():
        after = Counter(name for pack in more[side]["row_ids"] for name in pack)
        assert not {one for one in before if one.startswith("train.jsonl")} - after.keys()
