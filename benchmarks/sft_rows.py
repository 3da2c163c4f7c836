"""The SFT build beside ``datasets.map`` with ``apply_chat_template``, one core each.

    python benchmarks/sft_rows.py [--rows 100000] [--data train.jsonl]

Whole processes: both read the same JSONL and write tokenized rows to disk, each in a process of
its own that is pinned to one core; start-up, reading, writing and (ours only) labels, packing,
parity sample and validation are included. The rows are those of ``--data`` (question and answer
columns; GSM8K's training set where POSTTRAIN_CASES points to it, else the sample's word problems),
repeated with every number redrawn, so that no cache of repeated text flatters either. The tokenizer
is in the cache for both. Prints seconds and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = "qwen2-1.5b"

PEER = """
import sys
from datasets import disable_caching, load_dataset
from transformers import AutoTokenizer
disable_caching()
source, folder, tokenizer = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(tokenizer)
def encode(row):
    messages = [{"role": "user", "content": row["question"]},
                {"role": "assistant", "content": row["answer"]}]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
    return {"input_ids": ids}
rows = load_dataset("json", data_files=source, split="train", cache_dir=folder + "/cache")
rows.map(encode, remove_columns=rows.column_names).save_to_disk(folder + "/rows")
"""


def seed_rows(path: Path | None) -> list[dict[str, str]]:
    """Rows to grow from."""
    if path is None and os.environ.get("POSTTRAIN_CASES"):
        path = Path(os.environ["POSTTRAIN_CASES"]) / "sft" / "gsm8k_train" / "train.jsonl"
    if path is not None and path.is_file():
        return [json.loads(line) for line in path.open("rb")]
    sample = Path(__file__).parent.parent / "sample_data" / "sft" / "word_problems.jsonl"
    return [json.loads(line) for line in sample.open("rb")]


def grow(seeds: list[dict[str, str]], count: int, path: Path) -> None:
    """Write ``count`` rows with every number redrawn."""
    draw = random.Random(0)

    def redrawn(match: re.Match[str]) -> str:
        return str(draw.randrange(10 ** len(match.group())))

    with path.open("w") as file:
        for i in range(count):
            row = seeds[i % len(seeds)]
            if i >= len(seeds):
                row = {key: re.sub(r"\d+", redrawn, value) for key, value in row.items()}
            file.write(json.dumps(row) + "\n")


def seconds(command: list[str], core: int, **variables: str) -> float:
    """Wall time of a process pinned to one core."""
    environment = {
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        **variables,
    }
    started = time.perf_counter()
    subprocess.run(
        command,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    return time.perf_counter() - started


def main() -> None:
    """Grow, time both, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs of ours")
    options = parser.parse_args()
    core = min(os.sched_getaffinity(0))
    program = str(Path(sys.executable).parent / "pipeline")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "rows.jsonl"
        grow(seed_rows(options.data), options.rows, source)
        cache = {"XDG_CACHE_HOME": str(folder / "cache")}
        warm = [program, "run", "sft", "--model", MODEL, "--dry-run", str(source)]
        seconds(warm, core, **cache)
        ours = []
        for turn in range(options.repeat):
            build = folder / f"build{turn}"
            parts = folder / f"parts{turn}"  # no part of an earlier run is found again
            os.makedirs(parts)
            os.symlink(folder / "cache" / "posttrain-pipeline" / "tokenizers", parts / "tokenizers")
            command = [program, "run", "sft", "--model", MODEL, str(source), "-o", str(build)]
            ours.append(seconds([*command, "--workers", "1", "--cache-dir", str(parts)], core))
        tokenizer = str(folder / "build0" / "tokenizer")
        peer = seconds([sys.executable, "-c", PEER, str(source), str(folder), tokenizer], core)
    best = min(ours)
    print(f"rows                {options.rows}")
    print(f"pipeline run sft    {best:8.2f} s  {options.rows / best:10.0f} rows/s")
    print(f"datasets.map        {peer:8.2f} s  {options.rows / peer:10.0f} rows/s")
    print(f"ratio               {peer / best:8.1f} x")


if __name__ == "__main__":
    main()
