"""The last words of a build: what it came to, what it lost, and the commands that go on from it."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support import SAMPLES, Make, Run, in_shell, silent, write_rows

import posttrain_pipeline as pp
from pipeline.builder import launch
from pipeline.builds import summary as summaries
from pipeline.builds.limits import Built
from pipeline.builds.summary import fitted, summary
from pipeline.manifest.manifest import Manifest
from pipeline.options.recipe import builds_of
from pipeline.run_build import build

DATA = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b")


def _said(err: str) -> dict[str, list[str]]:
    """The lines of a summary by their label; those without one belong to the one before."""
    found: dict[str, list[str]] = {}
    label = ""
    for line in err.splitlines():
        label = line[:9].strip() or label
        found.setdefault(label, []).append(line[10:])
    return found


def test_equal_examples_are_kept_only_if_nothing_left_them_out(
    tmp_path: Path, cache_dir: Path
) -> None:
    """A budget of 5 uses no 8 equal examples."""
    rows = [{"question": f"q{at % 24}", "answer": f"a{at % 24}"} for at in range(32)]
    write_rows(tmp_path / "a.jsonl", rows)
    said = []
    for budget in (32, 5):
        (tmp_path / "r.toml").write_text(
            'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nkeep = 0\n'
            f'[[source]]\nname = "a"\ndata = "a.jsonl"\nrows = {budget}\n'
        )
        (config,) = builds_of(tmp_path / "r.toml")
        said.append("\n".join(summary(build(config.but(cache_dir=cache_dir, workers=1), silent))))
    assert "8 equal examples kept (see --dedup)" in said[0]
    assert "8 equal examples found, before 27 examples were left out (see --dedup)" in said[1]
    assert "kept (see" not in said[1]


def test_a_build_says_what_it_came_to_and_lost(pipeline: Run, tmp_path: Path) -> None:
    """Counts with separators, each loss with its number, codes under a heading of their own."""
    good = [{"question": f"How much is {n}?", "answer": str(n)} for n in range(1200)]
    bad = [{"question": "q", "answer": ""}] * 3 + [{"question": None, "answer": "a"}] * 2
    lossy = write_rows(tmp_path / "rows.jsonl", [*good, *bad, *good[:4]])
    ran = pipeline("run", "sft", lossy, *MODEL, "-o", "out", "--dedup").ended()
    said = _said(ran.err)
    assert said["rows"] == ["1,209 in = 1,200 used + 5 refused + 4 duplicates"]
    assert said["lost"][0] == "9 of 1,209 rows (0.7%)"
    assert said["lost"][1].startswith("5 refused, by the codes below; every one is in rejects.jso")
    assert said["lost"][2].startswith("4 equal to an earlier example")
    head, *codes = said["refused"]
    assert head.endswith("pipeline explain CODE")
    assert all(": " in line for line in codes)  # the fix
    assert [line.split()[0] for line in codes] == ["3", "2"]
    assert {"rows/s", "tokens/s"} <= set(re.findall(r"\w+/s", said["time"][0]))
    assert "% " in said["tokens"][0].replace("%)", "% ")
    assert said["report"] == ["out/report.html"]
    assert ran.err.splitlines()[-1].endswith("MODEL_DIR")


def test_tokens_that_are_cut_off_are_counted(pipeline: Run, tmp_path: Path) -> None:
    """Where rows that are too long are trimmed, the number is that of the manifest."""
    turns = [("user", "How much is one and one?"), ("assistant", "It is two. " * 9)] * 3
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [{"role": r, "content": t} for r, t in turns]}) + "\n")
    trimmed = ("--max-length", "128", "--too-long", "trim-turns")
    ran = pipeline("run", "sft", path, *MODEL, "-o", "out", *trimmed).ended()
    cut = pp.Build.open(tmp_path / "out").manifest.tokens.truncated
    assert cut > 0
    assert any(line.startswith(f"{cut:,} tokens cut off (") for line in _said(ran.err)["warning"])


def test_an_equal_build_says_less(pipeline: Run, tmp_path: Path) -> None:
    """What it is, what it holds, and the same commands."""
    command = ("run", "sft", DATA, *MODEL, "-o", "out", "--for", "trl")
    first, again = (_said(pipeline(*command).err) for _ in range(2))
    for label in ("rows", "tokens", "report", "load", "look", "train"):
        assert first[label] == again[label], label
    assert {"time", "format", "packs"} <= first.keys()
    assert not {"time", "format", "packs"} & again.keys()
    assert again["train"] == ["sh out/launch/trl.sh MODEL_DIR"]


@pytest.mark.slow
def test_the_commands_can_be_pasted(make: Make, tmp_path: Path) -> None:
    """Into a shell, as they are printed at any width, whatever the folder is called."""
    name = "it's a \"long\" folder's name"
    manifest = pp.open(make("sft", DATA, name)).manifest
    for columns in (40, 1 << 20):
        lines = launch.lines(Path(name), manifest, columns)
        text = "\n".join(line[10:] if line[:1].strip() else line for line in lines)
        load, *_ = text.split("\npipeline show")
        assert "num_rows" in in_shell(load, tmp_path).ended().out
        joined = text.replace("\\\n", " ")
        assert ["pipeline", "show", name] in [shlex.split(line) for line in joined.split("\n")]


def test_an_export_of_a_version_goes_beside_the_versions(
    built: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not among them, where nothing lists it."""
    manifest = pp.open(built("sft", DATA)).manifest
    for output, beside in (("r", "r-trl"), ("a/r", "a/r-trl"), (".", "../work-trl")):
        (tmp_path / "work" / output).mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(tmp_path / "work")
        (Path(output) / "history.jsonl").touch()
        lines = launch.lines(Path(output, manifest.build_id), manifest, 1 << 20)
        (line,) = [line for line in lines if "export trl" in line]
        assert Path(shlex.split(line)[-1]).resolve() == Path(beside).resolve()


def test_nothing_breaks_inside_a_word(built: Make) -> None:
    """Every word of the wide summary is one of the narrow summary, and lines fit."""
    lines = summary(Built(pp.open(built("sft", DATA)), fresh=True))
    for columns in (40, 60, 80):
        narrow = fitted(lines[:-1], columns)  # the report's path is long
        assert " ".join(narrow).split() == " ".join(lines[:-1]).split()
        assert all(len(line) <= columns or len(line.split()) <= 2 for line in narrow), narrow


def _losing(manifest: Manifest, **counts: int) -> Manifest:
    by_code = {f"code_{n}": n for n in range(1, 9)}
    lost = sum(counts.values())
    rows = replace(manifest.rows, in_=100_000, used=100_000 - lost, rejected_by_code=by_code)
    return replace(manifest, rows=replace(rows, **counts))


def test_every_loss_has_its_line_and_codes_their_fix(built: Make) -> None:
    """The most frequent codes first; long fixes are said by their first sentence."""
    manifest = pp.open(built("sft", DATA)).manifest
    counts = {"rejected": 36, "duplicates": 2, "filtered": 1500, "near_duplicates": 4}
    lost = _losing(manifest, **counts, contaminated=5, left_out=6)
    fixes = {"code_8": "Do this.", "code_7": f"Do that. {'And more. ' * 20}"}
    said = summaries.said("losses", lost, lambda code: fixes.get(code, ""))
    assert said[0] == "lost      1,553 of 100,000 rows (1.6%)"
    assert [line.split()[0] for line in said[1:7]] == ["36", "2", "1,500", "5", "4", "6"]
    assert said[8:11] == [
        "          8 code_8: Do this.",
        "          7 code_7: Do that.",
        "          6 code_6",
    ]
    assert said[-1] == "          and 2 more codes (see rejects.jsonl)"
    assert summaries.said("losses", _losing(manifest, rejected=36), summaries.no_fix)[0].endswith(
        "(less than 0.1%)"
    )


def test_several_builds_end_in_a_line_each(pipeline: Run, tmp_path: Path) -> None:
    """What each holds, or why it is not there."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("not a build")
    head = f'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "{DATA}"\n'
    (tmp_path / "r.toml").write_text(f'{head}[[build]]\noutput = "a"\n[[build]]\noutput = "b"\n')
    ran = pipeline("build", "r.toml").ended(2)
    one, two = ran.err.splitlines()[-2:]
    assert one.startswith("built     a: ")
    assert one.endswith(" tokens")
    assert two.startswith("failed    b: ")
