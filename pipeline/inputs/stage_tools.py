"""What the stages of a task are made from."""

from dataclasses import dataclass

from expectations.contract import STREAM, Context
from pipeline.options.config import Config
from stages import encoders, kinds, profile
from stages.chat_template.render import Renderer
from stages.tokens.segment_encoder import SegmentEncoder


@dataclass(frozen=True, slots=True)
class Tools:
    """What a task's stages are made from."""

    config: Config
    kind: kinds.Kind
    model: profile.TargetModel
    encoder: encoders.Encoder

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.model.profile.family

    @property
    def renderer(self) -> Renderer:
        return Renderer(self.model, self.config.source.train_on, self.config.parts.history)

    @property
    def segment_encoder(self) -> SegmentEncoder:
        config = self.config
        return SegmentEncoder(
            model=self.model,
            encoder=self.encoder,
            max_length=config.plan.longest_example,
            policy=config.parts.too_long,
        )

    @property
    def context(self) -> Context:
        return Context(
            kind=self.kind,
            layout=STREAM,
            max_length=self.config.plan.longest_example,
            model=self.model,
        )
