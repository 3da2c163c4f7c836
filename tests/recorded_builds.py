"""Records one build of each task by this version, which every later version must open.

``make release`` writes ``tests/builds/VERSION.tar.xz``: the builds, their inputs and a small model,
so that all of it can be judged again. That of a published version is never written anew.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from small_tokenizers import template_folder
from support import ROOT, SAMPLES

from pipeline import __version__
from stages.tokenizers.profiles import all_profiles

ARCHIVES = ROOT / "tests" / "builds"
BUILDS = {
    "sft": ("chat.jsonl", "packed", "transformers"),
    "rm": ("pairs.jsonl", "ragged", "trl"),
    "prm": ("stepwise.jsonl", "padded", "openrlhf"),
}  # task: its sample file, the layout, and a trainer that takes it


def record(target: Path) -> None:
    """Build each task with a small tokenizer, and pack all of it."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "builds")
        template_folder(folder / "model", all_profiles()["qwen2-1.5b"].chat_template)
        for task, (data, layout, _) in BUILDS.items():
            shutil.copy(SAMPLES / task / data, folder)
            given = ["--model", "./model", "--layout", layout, "--max-reject", "0.5", "-o", task]
            subprocess.run(
                [sys.executable, "-m", "pipeline", "run", task, data, *given],
                cwd=folder,
                env={**os.environ, "XDG_CACHE_HOME": str(Path(made, "cache"))},
                check=True,
            )
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    record(ARCHIVES / f"{__version__}.tar.xz")
