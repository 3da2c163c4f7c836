"""The compared programs: ours, and those that make training rows in other ways."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workplace import MAX_LENGTH, PEERS, Workplace, build, training_python

_FOLDER = Path(__file__).parent
OURS = "pipeline"
_CHATS = {"sft": "messages", "rm": "pair", "prm": "steps"}


@dataclass(frozen=True, slots=True)
class Program:
    """One way from rows to training rows.

    Attributes:
        what: one line for the page.
        shapes: by task, the shape of the rows that it reads.
        script: in this folder; "" for ours.
        peers: by task, the folder of the release that it runs, where it has one of its own.
    """

    what: str
    shapes: Mapping[str, str]
    script: str = ""
    peers: Mapping[str, str] | None = None

    def missing(self, task: str) -> str:
        """Why it cannot run here; "" where it can."""
        if task not in self.shapes:
            return f"has no {task}"
        if self.peers is None:
            return ""
        if not training_python().exists():
            return "there is no .venv-training (make test-parity makes it)"
        folder = PEERS / self.peers[task]
        return (
            "" if folder.is_dir() else f"{folder.name} is not installed (make test-parity does it)"
        )

    def command(
        self, place: Workplace, task: str, text: str, count: int, folder: Path, turn: int
    ) -> tuple[list[str], dict[str, str]]:
        """What to run, and with which variables.

        Args:
            folder: keeps what the program caches; ``turn``: 0 for the first run in this folder.
        """
        source = place.rows(text, self.shapes[task], count)
        if not self.script:
            return build(task, source, folder / f"out{turn}", place.cache(folder)), {}
        python, variables = Path(sys.executable), {"HF_HOME": str(folder / "home")}
        words = [task, source, folder / "cache", place.tokenizer()]
        if self.peers is not None:
            python = training_python()
            variables["PYTHONPATH"] = str(PEERS / self.peers[task])
            words.append(Path(MAX_LENGTH))
        return [str(python), str(_FOLDER / self.script), *map(str, words)], variables


PROGRAMS: dict[str, Program] = {
    OURS: Program("`pipeline run`: ids, labels, packs, all checks, report", _CHATS),
    "datasets": Program(
        "`datasets.map` around `apply_chat_template(tokenize=True)`: ids alone",
        _CHATS,
        "datasets_map.py",
    ),
    "trl": Program(
        "TRL 1.16.0's trainers (PRM: 1.13.0's) with their defaults: SFT rows are packed, and "
        "every token is trained",
        _CHATS,
        "trl_prepare.py",
        {"sft": "trl-1.16.0", "rm": "trl-1.16.0", "prm": "trl-1.13.0"},
    ),
    "trl-completion": Program(
        "TRL 1.16.0 given prompts and completions: packed, and answers alone are trained, as ours",
        {"sft": "completion"},
        "trl_prepare.py",
        {"sft": "trl-1.16.0"},
    ),
    "axolotl": Program(
        "axolotl 0.19.0's preprocessing: ids and labels; it packs while it trains",
        {"sft": "messages"},
        "axolotl_preprocess.py",
        {"sft": "axolotl-0.19.0"},
    ),
    "llamafactory": Program(
        "LLaMA-Factory 0.9.5's preparation: ids, labels, and SFT packs inside blocks of 1,000 rows",
        {"sft": "messages", "rm": "single_turns"},
        "llamafactory_dataset.py",
        {"sft": "llamafactory-0.9.5", "rm": "llamafactory-0.9.5"},
    ),
}
