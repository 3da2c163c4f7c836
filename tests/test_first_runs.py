"""Files as people bring them: the first command builds, or prints the command that does."""

import csv
import gzip
import io
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from support import ROOT, table

THINGS = ("kettle", "bicycle", "lamp", "ladder", "teapot", "lantern", "pillow", "hammer")


def _answers() -> bytes:
    """A table of a spreadsheet; the eighth answer is empty."""
    out = io.StringIO(newline="")
    cells = csv.writer(out)
    cells.writerow(["Instruction", "Response", "Reviewed by"])
    for n in range(24):
        answer = f"1. Dust the {THINGS[n % 8]}.\n2. Wipe it {n} times."
        ask = f'How do I clean a "{THINGS[n % 8]}" in room {n}?'
        cells.writerow([ask, "" if n == 7 else answer, "Mia" if n % 3 else ""])
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def _chats() -> bytes:
    """An array of conversations with a system turn and a tool's turn."""
    rows = []
    for n in range(20):
        said = [
            ("system", "You look prices up."),
            ("human", f"What do {n + 2} {THINGS[n % 8]}s cost?"),
            ("gpt", f'price("{THINGS[n % 8]}")'),
            ("tool", json.dumps({"price": n + 3})),
            ("gpt", f"They cost {(n + 2) * (n + 3)}."),
        ]
        turns = [{"from": who, "value": text} for who, text in said]
        rows.append({"id": f"chat_{n}", "conversations": turns})
    return json.dumps(rows, indent=2).encode()


def _feedback(n: int) -> dict[str, Any]:
    scores = (8.5, 4.0, 2.0, 8.5 if n == 5 else 7.0)
    texts = ("Oil it twice a year.", "It needs nothing.", "I do not know.", "Keep it dry.")
    return {
        "source": "home_care",
        "instruction": f"How do I look after a {THINGS[n % 8]} in winter {2000 + n}?",
        "models": list("abcd"),
        "completions": [
            {"model": model, "response": text, "overall_score": score, "critique": "Say more."}
            for model, text, score in zip("abcd", texts, scores, strict=True)
        ],
    }


def _checked(n: int) -> dict[str, Any]:
    steps = [f"We add {n} and 11.", f"That is {n + 11}.", f"The answer is {n + 11 + (n % 3 == 0)}"]
    ratings = [1, 1, int(n % 3 != 0)]
    return {"problem": f"What is {n} + 11?", "steps": steps, "ratings": ratings}


def _pytanie(n: int) -> dict[str, Any]:
    asked = f"Do czego służy {n} kluczy?"
    return {"nr": n, "pytanie": asked, "odpowiedz": f"Do {n} drzwi, mówią w Łodzi."}


def _lines(row: Callable[[int], dict[str, Any]], count: int) -> bytes:
    return "".join(json.dumps(row(n), ensure_ascii=False) + "\n" for n in range(count)).encode()


CASES = table("first_runs.toml")
FILES: dict[str, Callable[[], bytes]] = {
    "answers.csv": _answers,
    "chats.json": _chats,
    "feedback.jsonl": lambda: _lines(_feedback, 20),
    "checked.jsonl": lambda: _lines(_checked, 20),
    "pytania.jsonl.gz": lambda: gzip.compress(_lines(_pytanie, 24)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_corrected_command_is_enough(name, pipeline, tmp_path):
    """The page's commands, what they print, and the whole build."""
    task, reading = CASES[name]["task"], CASES[name]["reading"]
    page = (ROOT / "docs" / "first_runs.md").read_text("utf-8")
    (tmp_path / name).write_bytes(FILES[name]())
    out = name.split(".")[0]
    first = f"pipeline run {task} --model qwen2-1.5b {name} -o {out}"
    assert f"\n{first}\n" in page
    ran = pipeline(*shlex.split(first)[1:])
    stops = name == "pytania.jsonl.gz"
    assert ran.status == (3 if stops else 0), ran.err
    if stops:
        printed = re.findall(r"^Run:\n  (pipeline .*)$", ran.err, re.M)
        assert len(printed) == 1
        assert f"  {printed[0]}\n" in page
        ran = pipeline(*shlex.split(printed[0])[1:]).ended()
    rows, used, kept = CASES[name]["counts"]
    assert f"format    {reading} (" in ran.err
    whole = rf"({used} used|\d+ used whole \+ \d+ used in part)"
    assert re.search(rf"^rows +{rows} in = {whole} \+ {rows - used} refused", ran.err, re.M)
    assert f" = {kept} kept + " in ran.err
    seen = pipeline("show", out).ended()
    for text in CASES[name]["shown"]:
        assert text in seen.out
