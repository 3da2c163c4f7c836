"""Where measurements happen: generated rows, scratch folders, other programs' environments."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import process, rows

ROOT = Path(__file__).parent.parent
MODEL = "qwen2-1.5b"
MAX_LENGTH = "4096"
_TRAINING = ROOT / ".venv-training"
PEERS = Path(os.environ.get("POSTTRAIN_PEERS", _TRAINING / "peers"))
# What some programs want to know of a model before they read any data.
MODEL_CONFIG = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 152064,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32768,
}


def program() -> Path:
    """The command ``pipeline`` of this environment."""
    return Path(sys.executable).parent / "pipeline"


def training_python() -> Path:
    """The interpreter with torch, in which the trainers run."""
    return _TRAINING / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Workplace:
    """A scratch folder, and what all measurements share.

    Attributes:
        core: the only core that a compared program may use; None for all.
    """

    folder: Path
    core: int | None

    def rows(self, text: str, shape: str, count: int) -> Path:
        """A file of generated rows, made at the first call."""
        (self.folder / "rows").mkdir(parents=True, exist_ok=True)
        path = self.folder / "rows" / f"{text}-{shape}-{count}.jsonl"
        return rows.write(path, text, shape, count)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder of its own, gone afterwards."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def cache(self, folder: Path) -> Path:
        """A cache directory of ours with tokenizers in it and no part."""
        made = folder / "cache"
        if not made.exists():
            self.tokenizer()
            made.mkdir(parents=True)
            for kept in (self.folder / "prepared").iterdir():
                if kept.name != "parts":
                    copy = shutil.copytree if kept.is_dir() else shutil.copy2
                    copy(kept, made / kept.name)
        return made

    def tokenizer(self) -> Path:
        """The model's tokenizer as a build writes it, with a tiny configuration beside it."""
        made = self.folder / "tokenizer"
        if not made.exists():
            with self.scratch() as folder:
                source, out = self.rows("english", "messages", 100), folder / "out"
                command = build("sft", source, out, self.folder / "prepared")
                process.run(command, folder)
                shutil.copytree(out / "tokenizer", made)
            (made / "config.json").write_text(json.dumps(MODEL_CONFIG))
        return made


def build(task: str, source: Path, out: Path, cache: Path, *more: str) -> list[str]:
    """The command of a build with one worker."""
    words = [program(), "run", task, source, "--model", MODEL, "-o", out, "--cache-dir", cache]
    return [*map(str, words), "--max-length", MAX_LENGTH, "--workers", "1", "--quiet", *more]
