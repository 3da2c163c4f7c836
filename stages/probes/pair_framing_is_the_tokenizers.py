"""An encoder's two texts are framed as its own tokenizer frames them."""

from __future__ import annotations

from stages.chat_template.render_pair import prove_pair
from stages.probes import PAIR, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str:
    return "; ".join(prove_pair(subject.model).values())


PROBE = Probe(
    name="pair_framing_is_the_tokenizers",
    proves="an encoder's two texts get the special tokens that its own tokenizer adds",
    fails="the special tokens around two texts differ from the tokenizer's",
    remedy="Give the tokenizer that the profile was written for.",
    check=_check,
    kind=PAIR,
)
