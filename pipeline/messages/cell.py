"""Progress in a notebook: the lines of the phases as one output of the cell, drawn again."""

import importlib
import sys
import time
from typing import Any

from pipeline.messages.painted import table
from pipeline.messages.progress import Follower, Phase

EVERY = 0.2  # seconds between two drawings of a phase that goes on
_WIDTH = 100


def in_notebook() -> bool:
    """Whether this process is a kernel that Jupyter, VS Code or Colab shows outputs of."""
    return "ipykernel" in sys.modules


class Cell(Follower):
    """Draws in the output of the cell that is run; IPython, which runs it, shows it."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._drawn = 0.0

    def changed(self, phase: Phase) -> None:
        """Draw; not every piece of a phase that goes on."""
        now = time.monotonic()
        if phase.ended is None and now - self._drawn < EVERY:
            return
        self._drawn = now
        shown = {"text/plain": "\n".join(table(self.phases, _WIDTH))}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
