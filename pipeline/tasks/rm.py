"""Reward models: pairs of answers to one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages import kinds

if TYPE_CHECKING:
    from pipeline.inputs.stage_tools import Tools
    from stages.contract import Batch, Stage


class _RenderPair:
    """Renders both sides, each up to its last end of turn, where the reward is read."""

    name = "render"
    reads = ("chosen_messages", "rejected_messages", "tools")
    writes = (
        *("chosen_outline", "chosen_texts", "chosen_segments"),
        *("rejected_outline", "rejected_texts", "rejected_segments"),
        "rendered",
    )

    def __init__(self, tools: Tools) -> None:
        from stages.chat_template.render import Render

        system = tools.config.source.system
        self._sides = [
            Render(tools.renderer, prefix, ends_with_turn=True, system=system)
            for prefix in ("chosen_", "rejected_")
        ]

    def __call__(self, batch: Batch) -> Batch:
        for side in self._sides:
            batch = side(batch)
        return batch


class Rm:
    """Pairs whose sides end where the reward is read."""

    name = "rm"
    kind = kinds.load(kinds.PAIR)
    help = "Reward models: pairs of answers to one prompt."
    options = ("reasoning", "reasoning_in", "thinking", "stop_text")
    layouts: tuple[str, ...] = ("ragged", "padded")
    with_steps = False
    kept = ("chosen_ids", "rejected_ids", "prompt_length", "margin")
    stored = kept

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.validate import Validate
        from stages.chat_template.render_pair import PairRenderer, RenderTexts
        from stages.tokens.encode import EncodePair

        render: Stage = _RenderPair(tools)
        if tools.family == "encoder":
            render = RenderTexts(PairRenderer(tools.model), tools.config.source.system)
        return (render, EncodePair(tools.segment_encoder), Validate(tools.context))


TASK = Rm()
