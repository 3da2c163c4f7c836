"""Process reward models: solutions whose steps are rated at a marker after each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages import kinds

if TYPE_CHECKING:
    from pipeline.inputs.stage_tools import Tools
    from stages.contract import Stage


class _Prm:
    name = "prm"
    kind = kinds.load(kinds.STEPS)
    help = "Process reward models: solutions whose steps are rated."
    options = ("neutral", "prm_template", "prompt_separator", "step_tag")
    layouts = ("packed", "ragged", "padded")
    with_steps = True
    kept = ("input_ids", "labels", "step_positions", "step_labels")
    stored = ("folded", "step_positions", "step_labels")

    def stages(self, tools: Tools) -> tuple[Stage, ...]:
        from expectations.validate import Validate
        from stages.chat_template.render_steps import RenderSteps
        from stages.tokens.encode import EncodeSteps
        from stages.tokens.insert_step_tokens import Mark

        raw = tools.config.parts.prm_template == "raw"
        return (
            RenderSteps(tools.renderer, raw, tools.config.source.system),
            Mark(tools.model),
            EncodeSteps(tools.model, tools.segment_encoder),
            Validate(tools.context),
        )


TASK = _Prm()
