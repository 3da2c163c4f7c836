"""RoBERTa, as a reward model: ``<s>prompt</s></s>answer</s>``, no token types.

Its positions start behind the pad id, at 2, so 512 of the 514 can be used.
"""

from stages.models.profile import PairFraming
from stages.profiles._encoder import encoder

_PAIR = PairFraming(("<s>",), ("</s>", "</s>"), ("</s>",), position_offset=2)

PROFILES = tuple(
    encoder(
        name,
        "<pad>",
        _PAIR,
        model_ids=(hub_id, name),
        vocab_size=50265,
        embedding_size=50265,
        context_length=512,
        bos_token="<s>",
        unk_token="<unk>",
        token_ids=(("<s>", 0), ("<pad>", 1), ("</s>", 2), ("<unk>", 3), ("<mask>", 50264)),
    )
    for name, hub_id in (
        ("roberta-base", "FacebookAI/roberta-base"),
        ("roberta-large", "FacebookAI/roberta-large"),
        ("distilroberta-base", "distilbert/distilroberta-base"),
    )
)
