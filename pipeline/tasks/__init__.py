"""One task per file: each provides TASK."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from expectations.contract import Context
from pipeline.config import Config
from stages import catalog
from stages.contract import Stage
from stages.encode import SegmentEncoder
from stages.encoders import Encoder
from stages.profile import TargetModel
from stages.render import Renderer


@dataclass(frozen=True, slots=True)
class Tools:
    """What a task's stages are made from."""

    config: Config
    model: TargetModel
    encoder: Encoder

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.model.profile.family

    @property
    def renderer(self) -> Renderer:
        return Renderer(self.model, self.config.train_on)

    @property
    def segment_encoder(self) -> SegmentEncoder:
        config = self.config
        return SegmentEncoder(self.model, self.encoder, config.longest_example, config.too_long)

    @property
    def context(self) -> Context:
        return Context(self.config.task, "ragged", self.config.longest_example, self.model)


class Task(Protocol):
    """One kind of training data.

    Attributes:
        layouts: those it can be stored in, the default first.
        with_steps: whether the tokenizer gets the step tokens.
        stored: columns that a part keeps.
        kept: columns that training rows are made from.
    """

    name: str
    layouts: tuple[str, ...]
    with_steps: bool
    stored: tuple[str, ...]
    kept: tuple[str, ...]

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        """What a batch goes through after normalize."""
        ...


def load(name: str) -> Task:
    """The task of this name."""
    task: Task = catalog.load(__name__, name, "TASK")
    return task
