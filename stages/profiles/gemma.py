"""Gemma 2 and 3: ``<bos>`` printed by the template, an assistant called model, texts trimmed.

The vendor's eos is ``<eos>``, which its template never prints; turns end in ``<end_of_turn>``, and
so does generation. There are no spare embedding rows: PRM markers are three unused tokens.
"""

from __future__ import annotations

from stages.models.profile import ModelProfile, StepTokens
from stages.profiles import template

_STEPS = StepTokens("<unused0>", "<unused1>", "<unused2>")
_NAMED = (("<pad>", 0), ("<eos>", 1), ("<bos>", 2), ("<unk>", 3))
_GEMMA2 = (*_NAMED, ("<start_of_turn>", 106), ("<end_of_turn>", 107))
_GEMMA3 = (*_NAMED, ("<start_of_turn>", 105), ("<end_of_turn>", 106))


def _gemma(
    name: str,
    source: str,
    ids: tuple[tuple[str, int], ...],
    rows: tuple[int, int],
    context: int,
    tuned: bool,
) -> ModelProfile:
    return ModelProfile(
        name=name,
        model_ids=(f"google/{name}",),
        chat_template=template(source),
        end_of_turn="<end_of_turn>",
        eos_token="<end_of_turn>",
        pad_token="<pad>",
        generation_eos=("<end_of_turn>", "<eos>"),
        vocab_size=rows[0],
        embedding_size=rows[1],
        context_length=context,
        is_base=not tuned,
        bos_policy="template",
        bos_token="<bos>",
        unk_token="<unk>",
        token_ids=ids,
        step_tokens=_STEPS,
        promoted=tuple(_STEPS),
    )


PROFILES = (
    *(
        _gemma(
            f"gemma-2-{size}{kind}",
            source="gemma2",
            ids=_GEMMA2,
            rows=(256000, 256000),
            context=8192,
            tuned=bool(kind),
        )
        for size in ("2b", "9b", "27b")
        for kind in ("", "-it")
    ),
    *(
        _gemma(
            f"gemma-3-{size}-{kind}",
            source="gemma3",
            ids=_GEMMA3,
            rows=(262144, rows),
            context=context,
            tuned=kind == "it",
        )
        for size, rows, context in (
            ("270m", 262144, 32768),
            ("1b", 262144, 32768),
            ("4b", 262208, 131072),
            ("12b", 262208, 131072),
            ("27b", 262208, 131072),
        )
        for kind in ("pt", "it")
    ),
)
