"""Supervised fine-tuning: conversations whose assistant turns are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages import kinds

if TYPE_CHECKING:
    from pipeline.inputs.stage_tools import Tools
    from stages.contract import Stage


class _Sft:
    name = "sft"
    kind = kinds.load(kinds.CONVERSATION)
    help = "Supervised fine-tuning: conversations whose assistant turns are trained."
    options = ("train_on", "reasoning", "reasoning_in", "thinking", "stop_text")
    layouts = ("packed", "ragged", "padded")
    with_steps = False
    stored = ("folded", "loss_weights")
    kept = ("input_ids", "labels", "loss_weights")

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.validate import Validate
        from stages.chat_template.render import Render
        from stages.tokens.encode import Encode

        return (
            Render(
                tools.renderer,
                system=tools.config.source.system,
                mask_reasoning=tools.config.source.reasoning == "mask",
            ),
            Encode(tools.segment_encoder),
            Validate(tools.context),
        )


TASK = _Sft()
