"""The manifest's ``model``: names and ids of its tokens, and hashes of the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stages.json_record import OPTIONAL, JsonRecord
from stages.tokenizers.claims import Repair


@dataclass(frozen=True, slots=True)
class PairRecord(JsonRecord):
    """How an encoder's two texts are framed, and which positions it has.

    Attributes:
        before, between, after: special tokens before the prompt, between prompt and answer, and
            after the answer.
        token_types: the answer's tokens are of type 1.
        position_offset: position of the first token.
        positions: tokens that the model has positions for.
        read_at: ``first``, where the reward is read.
    """

    before: tuple[str, ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    token_types: bool
    position_offset: int
    positions: int
    read_at: str


@dataclass(frozen=True, slots=True)
class ModelRecord(JsonRecord):
    """The model that a build is for.

    Attributes:
        revision: the hub's commit; None where the tokenizer comes from elsewhere.
        step_token, good_token, bad_token: None in other tasks than prm, as are their ids.
        vocab_size: ids of the tokenizer; ``embedding_size``: rows of the model's embedding.
        pair: None for decoders.
        added_tokens: ids of the tokens that the user registered, by text.
    """

    name: str
    revision: str | None
    tokenizer_sha256: str
    chat_template_sha256: str
    eos_token: str
    eos_token_id: int
    end_of_turn: str
    end_of_turn_id: int
    pad_token: str
    pad_token_id: int
    padding_side: str
    bos_policy: str
    step_token: str | None
    step_token_id: int | None
    good_token: str | None
    good_token_id: int | None
    bad_token: str | None
    bad_token_id: int | None
    vocab_size: int
    embedding_size: int
    date_string: str
    is_base: bool
    family: str
    pair: PairRecord | None = field(default=None, metadata=OPTIONAL)
    added_tokens: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)
    repairs: tuple[Repair, ...] = field(default=(), metadata=OPTIONAL)
