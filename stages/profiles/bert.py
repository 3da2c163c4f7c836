"""BERT, as a reward model: ``[CLS]prompt[SEP]answer[SEP]``, the answer of token type 1."""

from stages.models.profile import PairFraming
from stages.profiles._encoder import encoder

_PAIR = PairFraming(("[CLS]",), ("[SEP]",), ("[SEP]",), token_types=True)

_IDS = (("[PAD]", 0), ("[UNK]", 100), ("[CLS]", 101), ("[SEP]", 102), ("[MASK]", 103))

PROFILES = tuple(
    encoder(
        f"bert-{name}",
        "[PAD]",
        _PAIR,
        model_ids=(f"google-bert/bert-{name}", f"bert-{name}"),
        vocab_size=vocab_size,
        embedding_size=vocab_size,
        context_length=512,
        unk_token="[UNK]",
        token_ids=_IDS,
    )
    for name, vocab_size in (
        ("base-uncased", 30522),
        ("large-uncased", 30522),
        ("base-cased", 28996),
        ("large-cased", 28996),
        ("base-chinese", 21128),
        ("base-multilingual-cased", 119547),
    )
)
