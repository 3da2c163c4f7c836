"""What the museum shares: builds made by the command line, and its table of figures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from failures import sums

from pipeline.executors import keep_freed

keep_freed()  # logits over a real vocabulary come and go by the hundred megabytes

_FIGURES: list[tuple[str, str, str]] = []


@pytest.fixture
def figure() -> Callable[[str, object, object], None]:
    """Note what was measured: its name, with the naive preparation, and with ours."""

    def note(name: str, naive: object, ours: object) -> None:
        _FIGURES.append((name, str(naive), str(ours)))

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table that the documentation quotes."""
    if _FIGURES:
        terminalreporter.section("figures")
        for row in [("what", "naive", "ours"), ("---", "---", "---"), *_FIGURES]:
            terminalreporter.write_line("| " + " | ".join(row) + " |")


@pytest.fixture
def build(pipeline, tmp_path) -> Callable[..., Path]:
    """Build rows; returns the build's folder. The task is what its name begins with."""

    def run(name: str, rows: Sequence[dict[str, Any]], *options: object) -> Path:
        task = name.partition("-")[0]
        data = sums.write(list(rows), tmp_path / f"{name}-data.jsonl")
        folder = tmp_path / f"{name}-build"
        pipeline("run", task, data, "-o", folder, "--quiet", "--max-reject", 0, *options).ended()
        return folder

    return run
