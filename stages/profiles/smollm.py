"""SmolLM2: ChatML, with a system text of its own where it was tuned.

It has no spare embedding rows: PRM markers are tokens of its notebook data.
"""

from stages.models.profile import ModelProfile, StepTokens
from stages.profiles import template

PROFILES = tuple(
    ModelProfile(
        name=f"smollm2-{size.lower()}{kind.lower()}",
        model_ids=(f"HuggingFaceTB/SmolLM2-{size}{kind}",),
        chat_template=template("smollm2" if kind else "chatml"),
        end_of_turn="<|im_end|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        generation_eos=("<|im_end|>", "<|endoftext|>"),
        vocab_size=49152,
        embedding_size=49152,
        context_length=8192,
        is_base=not kind,
        token_ids=(("<|endoftext|>", 0), ("<|im_start|>", 1), ("<|im_end|>", 2)),
        step_tokens=StepTokens("<jupyter_start>", "<jupyter_text>", "<jupyter_code>"),
    )
    for size in ("135M", "360M", "1.7B")
    for kind in ("", "-Instruct")
)
