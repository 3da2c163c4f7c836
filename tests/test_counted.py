"""Counts stand with the right form of their noun, wherever one is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import SAMPLES, Run

from pipeline.report.template import counted as on_a_page
from stages.errors import counted, were

# One of something that is called as if it were many.
_WRONG = re.compile(
    r"(?<![\d.,:/-])1 (?:sampled |equal |trained |more )?(rows|examples|tokens|packs|pairs|steps"
    r"|labels|shards|files|inputs|findings|turns|sequences|probes|duplicates|expectations|conversations)\b(?!/s)"
)


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")]
)
def test_one_is_singular(count: int, words: str) -> None:
    """Nothing and many are not; pages part thousands by a narrow space."""
    assert counted(count, "row") == words
    assert on_a_page(count, "row") == words.replace(",", "\u202f")
    assert were(count) == ("was" if count == 1 else "were")


@pytest.mark.slow
def test_a_build_of_one_row_speaks_of_one_row(pipeline: Run, tmp_path: Path) -> None:
    """In plan, summary, show, check and on the page; so does a build that refuses one of two."""
    lines = (SAMPLES / "sft" / "chat.jsonl").read_text("utf-8").splitlines()
    empty = {"role": "assistant", "content": ""}
    bad = json.dumps({"messages": [{"role": "user", "content": "Hello?"}, empty]})
    (tmp_path / "one.jsonl").write_text(f"{lines[0]}\n", "utf-8")
    (tmp_path / "two.jsonl").write_text(f"{lines[0]}\n{bad}\n", "utf-8")
    said = []
    for name in ("one", "two"):
        data = (f"{name}.jsonl", "--model", "qwen2-1.5b")
        said += [
            pipeline("plan", "--task", "sft", *data),
            pipeline("run", "sft", *data, "-o", name),
        ]
        said += [pipeline("show", name), pipeline("check", name)]
        assert not said[-1].status
        page = (tmp_path / name / "report.html").read_text("utf-8")
        assert not _WRONG.search(re.sub("<[^>]*>", "", page))
    text = "\n".join(one.out + one.err for one in said)
    assert "in 1 of 1 sampled row" in text
    assert "1 of 2 rows" in text
    assert not _WRONG.search(text), _WRONG.search(text)
