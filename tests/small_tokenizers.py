"""Small tokenizers, trained here, in the way of families whose vocabulary no package carries.

They have those families' special tokens, flags and pipeline, and ids of their own: what is proved
on them is how we treat such a tokenizer, not the vendors' ids.
"""

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import tokenizers
from support import table
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from stages import profile
from stages.chat_template import turn_ends
from stages.chat_template.template import Template
from stages.errors import RowError
from stages.profile import StepTokens
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles

_TABLE = table("small_tokenizers.toml")
CORPUS = _TABLE["corpus"] * 4
TOKENS: dict[str, list[str]] = _TABLE["tokens"]


def _special(names: Sequence[str], **flags: bool) -> list[tokenizers.AddedToken]:
    return [tokenizers.AddedToken(name, special=True, normalized=False, **flags) for name in names]


def byte_level(names: Sequence[str], **flags: bool) -> Tokenizer:
    """Byte-level BPE (RoBERTa, Phi-4, SmolLM2)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=_special(names, **flags),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def metaspace(names: Sequence[str], prepend: bool, **flags: bool) -> Tokenizer:
    """SentencePiece-like BPE over ``▁`` with byte fallback (Gemma; with ``prepend``, Phi-3)."""
    first = list(names) + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Prepend("▁")] if prepend else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=first, show_progress=False)
    # Sentence-wise pieces: merges never cross a newline, as in the vendors' vocabularies.
    tokenizer.train_from_iterator([line for text in CORPUS for line in text.split("\n")], trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = []  # the byte pieces are vocabulary, not added tokens
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    tokenizer.add_special_tokens(_special(names, **flags))
    return tokenizer


def word_piece(names: Sequence[str]) -> Tokenizer:
    """Lower-casing WordPiece (TOKENS["bert"])."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=_special(names), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def roberta() -> Tokenizer:
    """``<s>A</s></s>B</s>`` over byte-level BPE."""
    tokenizer = byte_level(TOKENS["roberta"])
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def bert() -> Tokenizer:
    """``[CLS]A[SEP]B[SEP]`` over WordPiece, B of type 1."""
    tokenizer = word_piece(TOKENS["bert"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


# Gemma has no leading space, and unused tokens in its vocabulary; Phi-3's turn tokens swallow the
# whitespace behind them, Phi-4's on both sides.
gemma = functools.partial(metaspace, TOKENS["gemma"], prepend=False)
phi3 = functools.partial(metaspace, TOKENS["phi3"], prepend=True, rstrip=True)
phi4 = functools.partial(byte_level, TOKENS["phi4"], lstrip=True, rstrip=True)
smollm = functools.partial(byte_level, TOKENS["smollm"])
SMALL = {
    "roberta-base": roberta,
    "bert-base-uncased": bert,
    "gemma-2-2b-it": gemma,
    "gemma-3-1b-it": gemma,
    "phi-3-mini-4k": phi3,
    "phi-3.5-mini": phi3,
    "phi-4": phi4,
    "smollm2-1.7b-instruct": smollm,
    "smollm2-1.7b": smollm,
}


@functools.cache  # training breaks ties at random; all of a test run speaks of one tokenizer
def small(name: str) -> tuple[profile.ModelProfile, bytes]:
    """A family's profile for its small tokenizer: the vendor's ids are not those it declares."""
    tokenizer = SMALL[name]()
    profile = replace(all_profiles()[name], token_ids=())
    return profile, tokenizer.to_str().encode()


def bound(name: str) -> profile.TargetModel:
    """A family's profile on its small tokenizer."""
    return probes.bind(*small(name), with_steps=False)


def model_folder(folder: Path, name: str) -> Path:
    """A model directory as transformers leaves one: old tokenizer configurations say little."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(small(name)[1])
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    bert = name.startswith("bert")
    config = {
        "model_type": "bert" if bert else "roberta",
        "vocab_size": 600,
        "pad_token_id": 0 if bert else 1,
        "max_position_embeddings": 512 if bert else 514,
        "type_vocab_size": 2 if bert else 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# A model directory around a template alone: what it prints around texts becomes special tokens.

_TOKENS = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|padding|>"}
_MARKER = re.compile(
    r"<[|｜][^<>\s]{1,40}>|<[a-z_]+\|>|</?[A-Za-z][\w:]*>|\[/?[A-Z_]{3,}\]|\]~!?b[\[\]]|\[e~\["
)


def marked(text: str) -> list[str]:
    """What looks like a marker in a text."""
    return list(dict.fromkeys(_MARKER.findall(text)))


def _printed(template: Template) -> Iterator[str]:
    """What a template prints for a chat, for calls and for their results."""
    thought = dict.fromkeys(("reasoning_content", "thinking"), "a thought")
    chat = [turn_ends.asks("a question"), turn_ends.answers("an answer")]
    one = [chat[0], turn_ends.calls("quince"), turn_ends.result("a fruit")]
    both = [
        chat[0],
        turn_ends.calls("quince", "medlar", **thought),
        one[2],
        turn_ends.result("x", 1),
    ]
    system = [{"role": "system", "content": "Be kind."}, *chat]
    for turns, asked in itertools.product(
        (chat * 2, chat[:1], system, one, both, [*both, chat[1]]), (False, True)
    ):
        tools = None if turns in (chat * 2, chat[:1], system) else turn_ends.TOOLS
        with contextlib.suppress(RowError):
            yield template.render(turns, tools, add_generation_prompt=asked)


def template_folder(folder: Path, source: str, specials: Sequence[str] = (), **tokens: str) -> Path:
    """A model directory of a template, with a tokenizer that has its markers as special tokens.

    Args:
        specials: more special tokens; ``tokens``: named ones, instead of names of ours.
    """
    folder.mkdir(parents=True)
    named = tokens or _TOKENS
    printed = "".join(_printed(Template(source, "2026-01-01", **named)))
    known = [named["pad_token"], named["eos_token"], *named.values(), *specials]
    tokenizer = byte_level(list(dict.fromkeys([*known, *_MARKER.findall(printed)])))
    tokenizer.save(str(folder / "tokenizer.json"))
    said = named if "bos_token" in source or tokens else {**named, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps({**said, "chat_template": source}))
    spare = {"vocab_size": tokenizer.get_vocab_size() + 8}
    (folder / "config.json").write_text(json.dumps(spare))
    return folder


@functools.cache  # as above
def at_declared_ids(name: str) -> bytes:
    """A small tokenizer with the ids that a profile declares, and words of no meaning between."""
    profile = all_profiles()[name]
    ids = dict(profile.token_ids)
    own = {*profile.step_tokens} - {*StepTokens()}
    alike = (one for one in SMALL if dict(all_profiles()[one].token_ids).keys() == ids.keys())
    like = next(alike, None)
    ends = (*profile.ends, *profile.generation_eos, profile.eos_token, profile.pad_token)
    first = profile.bos_token or profile.pad_token
    named = (first, *ends, *profile.promoted, *marked(profile.chat_template))
    made = SMALL[like]() if like else byte_level(list(dict.fromkeys([*ids, *named])))
    document = json.loads(made.to_str())
    model, added = document["model"], document["added_tokens"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    more = sorted(own - model["vocab"].keys())
    added += [{"content": token, **flags, "special": True} for token in more]
    rest = iter([token for token in (*model["vocab"], *more) if token not in ids])
    taken = {index: token for token, index in ids.items()}
    count = max(len(model["vocab"]) + len(more), max(taken, default=-1) + 1)
    spelled = [taken.get(i) or next(rest, f"\ue000{i}") for i in range(count)]
    vocab = {token: index for index, token in enumerate(spelled)}
    model["vocab"] = vocab
    document["added_tokens"] = sorted(
        ({**token, "id": vocab[token["content"]]} for token in added), key=lambda one: one["id"]
    )
    for token in (document["post_processor"] or {}).get("special_tokens", {}).values():
        token["ids"] = [vocab[one] for one in token["tokens"]]
    return json.dumps(document).encode()
