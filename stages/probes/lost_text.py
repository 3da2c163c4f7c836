"""Texts come back from their ids, up to what the tokenizer declares; no encoding is random."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probes, ProbeSubject
from stages.tokenizers.survival import loss

PROBES = Probes(TOKENS)

_PLAIN = "The answer is 42, and I know it."
_OTHERS = ("x = [1]\n\tif x: y()", "Naïve café", "你好，世界", "привет", "مرحبا", "👍🏽 ok")


@PROBES.add(
    fails="the tokenizer does not keep text as it is: {detail}",
    remedy="Correct its tokenizer.json (normalizer, vocabulary, unknown token, byte fallback, "
    "decoder, dropout), or give the model that it was made for.",
)
def all_text_survives(subject: ProbeSubject) -> str:
    """Texts come back from their ids, up to what the tokenizer declares that it changes."""
    for name in ("dropout", "alpha"):  # of BPE, and of a unigram model that samples
        if value := getattr(subject.tokenizer.model, name, None):
            raise BrokenError(detail=f"{name} = {value} gives one text other ids each time")
    lost = loss(subject.model, _PLAIN)
    if lost:
        raise BrokenError(detail=lost)
    others = [seen for text in _OTHERS if (seen := loss(subject.model, text))]
    lossy = f"; {others[0]}" if others else ""
    return f"{1 + len(_OTHERS) - len(others)} of {1 + len(_OTHERS)} texts come back{lossy}"
