"""What is declared of a model (ModelProfile), and the model after it was checked (TargetModel).

A profile is data. ``bind`` checks it against the tokenizer's bytes: every token that a build needs
must be one id, inside the embedding, and distinct where it must be. A TargetModel has all of these
ids, so no stage has to ask whether there is a pad token.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from stages.encoders import parsed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token outside the vocabulary; ``special`` makes it a control token.

    ``flag_order`` is the order of the flags in the vendor's file, by their initials.
    """

    content: str
    special: bool = True
    flag_order: str = "slrn"  # single_word, lstrip, rstrip, normalized


@dataclass(frozen=True, slots=True)
class RankLayout:
    """How ``tokenizer.json`` is rebuilt from the vocabulary that a package carries.

    Attributes:
        sha256: of the file; a rebuilt file that differs is refused.
        added_tokens: in the order of their ids.
        merges_as_pairs: merges are spelled ``["a", "b"]`` instead of ``"a b"``.
        builder: key of what rebuilds it, see ``stages.tokenizers.builders``.
        carrier: key of the package, see ``stages.tokenizers.builtin``.
        of_vendor: the file is byte for byte the vendor's. Where it is not, its ids are checked
            against the vendor's own encoder.
    """

    sha256: str
    added_tokens: tuple[AddedToken, ...] = ()
    merges_as_pairs: bool = False
    builder: str = "qwen"
    carrier: str = "qwen"
    of_vendor: bool = True


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The special tokens of PRM data: the marker after a step, and its two ratings.

    Tokens that the vocabulary has keep their ids; others take the first free ones.

    Attributes:
        separator: the text between the marker of a step and the next step.
    """

    step: str = "<|step|>"
    good: str = "<|good|>"
    bad: str = "<|bad|>"
    separator: str = "\n"

    def __iter__(self) -> Iterator[str]:
        return iter((self.step, self.good, self.bad))


@dataclass(frozen=True, slots=True)
class PairFraming:
    """The control tokens before, between and after the two texts that an encoder reads.

    Attributes:
        token_types: the second text has token type 1 (BERT); other families have no such input.
        position_offset: position of the first token (RoBERTa: pad id + 1).
    """

    before: tuple[str, ...]
    between: tuple[str, ...]
    after: tuple[str, ...]
    token_types: bool = False
    position_offset: int = 0


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """One model as declared.

    Attributes:
        name: its name for ``--model``.
        model_ids: its names on the hub.
        chat_template: Jinja source.
        end_of_turn: the token that ends an assistant turn: its own, or the one that opens the next
            turn, where the model stops.
        end_of_call: the token that ends a turn of tool calls, where it is another one.
        eos_token: of the emitted tokenizer.
        generation_eos: tokens at which generation stops.
        bos_policy: ``none``; ``template`` where the template prints it once, before all else; or
            ``turns`` where it opens turns.
        vocab_size: of the tokenizer's own vocabulary without added tokens.
        embedding_size: rows of the embedding; all ids must be below it.
        context_length: positions that the model was trained for.
        date_string: the date that ``strftime_now`` prints, instead of today's.
        template_variants: keyword sets of the generation prompt; training starts after the
            longest generation prompt that the rendered example begins with.
        one_example_per_turn: the template prints earlier turns differently once later ones follow.
        ranks: how the tokenizer file is rebuilt; None where it must be found elsewhere.
        is_base: a base model, which was not trained on its chat template.
        token_ids: ids that the family's tokenizer must give; a copy that differs is refused.
        promoted: added tokens that open turns but are not special in the vendor's file; they
            become special, so that text cannot forge them. Ids do not change.
        text_markers: turn markers that are ordinary text; rows whose texts hold one are refused.
        text_lead: what the tokenizer puts before a text at the start of a row.
        file_sha256: of the vendor's ``tokenizer.json`` where it is not rebuilt; None if unknown.
        unk_token: the token of text that the vocabulary cannot spell.
        pair: of encoder families, which read two texts and are trained as reward models only.
        revision: the hub's commit of the files; None for files that are pinned by hash.
        added_tokens: texts that a build registers as ordinary tokens, one id each.
        recurrent: the ``model_type`` of a model with recurrent layers, whose state runs on from one
            document of a pack into the next unless a trainer says where each ends; empty where all
            layers attend.
    """

    name: str
    model_ids: tuple[str, ...]
    chat_template: str
    end_of_turn: str
    eos_token: str
    pad_token: str
    generation_eos: tuple[str, ...]
    vocab_size: int
    embedding_size: int
    context_length: int
    is_base: bool
    padding_side: str = "left"
    bos_policy: str = "none"
    date_string: str = "2024-07-26"
    template_variants: tuple[tuple[tuple[str, object], ...], ...] = ((),)
    one_example_per_turn: bool = False
    tokenizer_class: str = "PreTrainedTokenizerFast"
    bos_token: str | None = None
    ranks: RankLayout | None = None
    step_tokens: StepTokens = field(default_factory=StepTokens)
    token_ids: tuple[tuple[str, int], ...] = ()
    promoted: tuple[str, ...] = ()
    text_markers: tuple[str, ...] = ()
    text_lead: str = ""
    file_sha256: str | None = None
    revision: str | None = None
    unk_token: str | None = None
    pair: PairFraming | None = None
    end_of_call: str | None = None
    added_tokens: tuple[str, ...] = ()
    recurrent: str = ""

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return "encoder" if self.pair else "decoder"

    @property
    def ends(self) -> tuple[str, str]:
        """The tokens that end an assistant turn of text, and one of tool calls."""
        return self.end_of_turn, self.end_of_call or self.end_of_turn


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A profile that was checked against its tokenizer. Ids are the tokenizer's own.

    Attributes:
        tokenizer_json: the file that a build contains, with step tokens where the task has them.
        controls: id of every registered special token, by its text.
        step_id, good_id, bad_id: -1 in tasks without steps.
        end_of_call_id: None where turns of calls end as all others do.
        vocab_size: number of ids of the tokenizer, added tokens included.
        probes: what each probe saw, by its name.
    """

    profile: ModelProfile
    tokenizer_json: bytes = field(repr=False)
    controls: dict[str, int] = field(repr=False)
    eos_id: int
    end_of_turn_id: int
    pad_id: int
    step_id: int
    good_id: int
    bad_id: int
    vocab_size: int
    probes: dict[str, str] = field(repr=False)
    end_of_call_id: int | None = None

    def ends_turn(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which of some ids end an assistant's turn."""
        ends: npt.NDArray[np.bool_] = ids == self.end_of_turn_id
        return ends if self.end_of_call_id is None else ends | (ids == self.end_of_call_id)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that end an assistant's turn."""
        call = self.end_of_call_id
        return (self.end_of_turn_id,) if call is None else (self.end_of_turn_id, call)

    @property
    def added_ids(self) -> dict[str, int]:
        """Ids of the tokens that the user registered, by their texts."""
        added = parsed(self.tokenizer_json).get_added_tokens_decoder().items()
        return {t.content: int(i) for i, t in added if t.content in self.profile.added_tokens}

    @property
    def unk_id(self) -> int:
        """Id of the unknown token, which ordinary text may give; -1 where there is none."""
        token = self.profile.unk_token
        index = parsed(self.tokenizer_json).token_to_id(token) if token else None
        return -1 if index is None else int(index)


def with_step_tokens(tokenizer_json: bytes, tokens: StepTokens) -> bytes:
    """Register the step tokens: at their own ids where the vocabulary has them, else free ones."""
    return _registered(tokenizer_json, tokens, special=True)


def _registered(tokenizer_json: bytes, tokens: Iterable[str], special: bool) -> bytes:
    document = orjson.loads(tokenizer_json)
    added, vocab = document["added_tokens"], document["model"]["vocab"]
    known = {token["content"] for token in added}
    top = max([len(vocab) - 1, *(token["id"] for token in added)])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for content in tokens:
        if content not in known:
            top += content not in vocab
            index = vocab.get(content, top)
            added.append({"id": index, "content": content, **flags, "special": special})
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _promoted(tokenizer_json: bytes, names: tuple[str, ...]) -> bytes:
    """The tokenizer with some of its added tokens flagged as special; ids do not change."""
    document = orjson.loads(tokenizer_json)
    for token in document["added_tokens"]:
        token["special"] |= token["content"] in names
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _ids(tokenizer: Tokenizer, tokens: Iterable[str]) -> list[int]:
    """Ids of tokens; -1 for a text that is no token, which a probe reports."""
    indices = [tokenizer.token_to_id(token) for token in tokens]
    return [-1 if index is None else int(index) for index in indices]


def tokenizer_of(profile: ModelProfile, tokenizer_json: bytes, with_steps: bool) -> bytes:
    """A tokenizer with the tokens that the profile adds to it, and the step tokens if asked for."""
    steps = profile.step_tokens if with_steps else None
    return _added_to(tokenizer_json, profile.promoted, steps, profile.added_tokens)


@functools.lru_cache(maxsize=3)
def _added_to(
    tokenizer_json: bytes,
    promoted: tuple[str, ...],
    steps: StepTokens | None,
    added: tuple[str, ...],
) -> bytes:
    if promoted:
        tokenizer_json = _promoted(tokenizer_json, promoted)
    if steps is not None:
        tokenizer_json = with_step_tokens(tokenizer_json, steps)
    if added:
        tokenizer_json = _registered(tokenizer_json, added, special=False)
    return tokenizer_json


def declare(profile: ModelProfile, tokenizer_json: bytes, with_steps: bool) -> TargetModel:
    """The model of a profile and its tokenizer, before any probe has run.

    Args:
        with_steps: register the step tokens.
    """
    tokenizer_json = tokenizer_of(profile, tokenizer_json, with_steps)
    tokenizer = parsed(tokenizer_json)
    added = tokenizer.get_added_tokens_decoder()
    controls = {token.content: index for index, token in added.items() if token.special}
    named = (profile.eos_token, profile.pad_token, *profile.ends)
    eos, pad, end, end_of_call = _ids(tokenizer, named)
    step, good, bad = _ids(tokenizer, profile.step_tokens) if with_steps else (-1, -1, -1)
    return TargetModel(
        profile=profile,
        tokenizer_json=tokenizer_json,
        controls=controls,
        eos_id=eos,
        end_of_turn_id=end,
        pad_id=pad,
        step_id=step,
        good_id=good,
        bad_id=bad,
        vocab_size=tokenizer.get_vocab_size(with_added_tokens=True),
        probes={},
        end_of_call_id=end_of_call if profile.end_of_call else None,
    )
