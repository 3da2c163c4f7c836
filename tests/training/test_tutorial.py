"""The tutorial, as its reader runs it: every command and program, in order, with its result."""

import os
import re
import shlex
import sys
from pathlib import Path

from support import ROOT, started

PAGE = ROOT / "docs" / "tutorial.md"


def test_every_block_runs_and_the_loss_falls(tmp_path, cache_home):
    """In a folder with what a checkout has; the trained model then rates the first row rightly."""
    for name in ("sample_data", "examples"):
        os.symlink(ROOT / name, tmp_path / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(cache_home)}
    said: list[str] = []
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    assert len(blocks) >= 6
    for language, block in blocks:
        commands = [["python", "-c", block]] if language == "python" else []
        commands += [shlex.split(line) for line in block.splitlines() if language == "sh" and line]
        said += [started(*one, folder=tmp_path, env=variables).ended().out for one in commands]
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", "".join(said))]
    assert losses[0] < 1
    assert losses[-1] < losses[0] / 4
    scores = re.findall(r"^([\d.]+) of 1.00, rated ([\d.]+)$", said[-1], re.MULTILINE)
    assert scores
    assert all(abs(float(score) - float(rated)) < 0.5 for score, rated in scores)
