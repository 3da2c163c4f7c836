"""A model directory's tokenizer, and the profile that its files declare.

Of an encoder, the tokens around two texts are read off its tokenizer.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from stages.chat_template import segments, turn_ends, ways
from stages.chat_template.template import Template
from stages.encoders import parsed
from stages.errors import ModelError, RowError
from stages.profile import ModelProfile, PairFraming
from stages.tokenizers import claims
from stages.tokenizers.profiles import template

_PADS = ("<|finetune_right_pad_id|>", "<pad>", "[PAD]", "<|endoftext|>", "<|PAD_TOKEN|>")
_LARGEST = 1 << 31
_DATE = str(ModelProfile.__dataclass_fields__["date_string"].default)
_NAMED = ("bos_token", "eos_token", "pad_token")
_EXCHANGE = [turn_ends.asks("a question"), turn_ends.answers("an answer")]
# The markers of turns in the pair template, see stages/profiles/roberta.toml.
TURN_MARKERS = ("System:", "User:", "Assistant:", "Tool:")
# Architectures by their exact "model_type": whether positions start after the pad id, and whether
# the model has token types as an input.
_TYPES = {
    "bert": (False, True),
    "camembert": (True, False),
    "distilbert": (False, False),
    "electra": (False, True),
    "roberta": (True, False),
    "xlm-roberta": (True, False),
}

_WITH_TOOLS = "{% if tools is defined and tools is not none %}"
_FETCH = "Compare it with the file of the model's page, or fetch it again."


def read(folder: Path, name: str) -> dict[str, Any]:
    """One of a model directory's JSON files; empty where there is none.

    Raises:
        ModelError: it is not a JSON object.
    """
    path = folder / name
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}.", _FETCH) from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object.", _FETCH)
    return content


def number(config: dict[str, Any], key: str, default: int, folder: Path) -> int:
    """A size that ``config.json`` gives.

    Raises:
        ModelError: it is not a whole number from 0 up.
    """
    value = config.get(key)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value < _LARGEST:
        problem = f"{folder / 'config.json'}: {key} is {str(value)[:40]}, not a number of tokens."
        raise ModelError(problem, _FETCH)
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8: {error}.", _FETCH) from error


def template_source(folder: Path, config: dict[str, Any]) -> str:
    """The source of a directory's chat template; of two, one is for conversations with tools.

    Raises:
        ModelError: it has none.
    """
    path, source = folder / "chat_template.jinja", config.get("chat_template")
    named = source if isinstance(source, list) else [{"name": "default", "template": source}]
    found: dict[Any, Any] = {n.get("name"): n.get("template") for n in named if isinstance(n, dict)}
    if path.is_file():
        more = sorted(folder.glob("additional_chat_templates/*.jinja"))
        found = {one.stem: _text(one) for one in more} | {"default": _text(path)}
    default, for_tools = found.get("default"), found.get("tool_use")
    if not isinstance(default, str):
        raise ModelError(f"{folder} has no chat template.", "Give one with --chat-template FILE.")
    if not isinstance(for_tools, str):
        return default
    own, other = (one.removesuffix("\n") for one in (for_tools, default))
    return f"{_WITH_TOOLS}\n{own}{{% else %}}\n{other}{{% endif %}}"


def _end_of_turn(
    template: Template, pattern: re.Pattern[str], stops: Sequence[str], name: str
) -> str:
    """The token that ends an answer: where the files name stops, one of these."""
    try:
        token, tail = turn_ends.of_answers(template, pattern, stops)
    except RowError as error:
        raise ModelError(
            f"{name}: {error.detail}.", "Give another template with --chat-template."
        ) from error
    found = token or tail.strip().split("\n")[0]  # the probes check what is no token
    if found:
        return found
    raise ModelError(
        f"{name}: the chat template prints no end-of-turn token after an answer.",
        "Name one with --eos, or give a template that does with --chat-template.",
    )


def _exchanges(template: Template, times: int) -> str:
    """Questions and answers in the template; empty where it refuses them."""
    try:
        return template.render(_EXCHANGE * times)
    except RowError:
        return ""


def _bos_policy(template: Template, bos: str | None) -> str:
    """Where the template prints the bos token."""
    one, two = (_exchanges(template, times).count(bos or "\0") for times in (1, 2))
    if two > one:
        return "turns"
    return "template" if one else "none"


def _eos_token(source: str, date: str, end_of_turn: str, tokens: dict[str, str]) -> str:
    """The end of a turn, or the declared eos token where the template prints that elsewhere."""
    declared = tokens.get("eos_token", end_of_turn)
    templates = (
        Template(source, date, **{**tokens, "eos_token": token})
        for token in (declared, end_of_turn)
    )
    printed = {_exchanges(template, 1) for template in templates}
    return end_of_turn if len(printed) == 1 else declared


def _pad_token(
    name: str, added: set[str], ends: Collection[str], unknown: object, **named: object
) -> str:
    """The declared pad token, or a common one that is registered; never one that ends a turn.

    The unknown token is the last choice but one, since ordinary text may give it; the last is a
    declared pad token that is the eos token, too, where turns end in others.
    """
    declared, eos = named["pad_token"], named["eos_token"]
    usual = [token for token in (declared, *_PADS) if isinstance(token, str) and token in added]
    for token in sorted(usual, key=lambda token: (token == eos, token == unknown)):
        if token not in ends:
            return token
    raise ModelError(
        f"{name}: the tokenizer has no pad token that differs from its eos token.",
        'Set "pad_token" in its tokenizer_config.json to an unused special token.',
    )


def load(
    folder: Path, name: str, chat_template: str | None, eos: str | None
) -> tuple[ModelProfile, bytes]:
    """Read ``tokenizer.json`` and declare a profile from the files beside it.

    Raises:
        ModelError: a file is missing, or lacks what a build needs.
    """
    content, document = claims.tokenizer_json(folder), read(folder, "tokenizer.json")
    config, model = read(folder, "tokenizer_config.json"), read(folder, "config.json")
    parsed(content)  # raises unless the document below has the structure of a tokenizer
    added = {token["content"]: token for token in document.get("added_tokens", [])}
    controls = [text for text, token in added.items() if token["special"]]
    named = {key: claims.token_text(config.get(key)) for key in _NAMED}
    tokens = {key: text for key, text in named.items() if text and isinstance(text, str)}
    source = chat_template or template_source(folder, config)
    unknown = claims.token_text(config.get("unk_token")) or document["model"].get("unk_token")
    template = Template(source, _DATE, **tokens)
    declared = _declared_stops(claims.read(folder), added)
    pattern = segments.controls_pattern(controls or ["\0"])
    end_of_turn = eos or _end_of_turn(template, pattern, stops=declared, name=name)
    end_of_call = turn_ends.of_calls(template, pattern, end_of_turn, declared)
    ends = (end_of_turn, end_of_call or end_of_turn)
    stops = dict.fromkeys(t for t in (*ends, tokens.get("eos_token"), *declared) if t)
    size = len(document["model"]["vocab"])
    top = max([size, *(token["id"] + 1 for token in added.values())])
    profile = ModelProfile(
        name=name,
        model_ids=(),
        chat_template=source,
        end_of_turn=end_of_turn,
        eos_token=_eos_token(source, _DATE, end_of_turn, tokens),
        pad_token=_pad_token(name, set(added), ends, unknown, **named),
        generation_eos=tuple(stops),
        vocab_size=size,
        embedding_size=number(model, "vocab_size", default=top, folder=folder),
        context_length=number(model, "max_position_embeddings", _LARGEST - 1, folder),
        is_base=False,
        bos_policy=_bos_policy(template, tokens.get("bos_token")),
        template_variants=ways.variants(template),
        one_example_per_turn=ways.rewrites(template, ends),
        tokenizer_class=str(config.get("tokenizer_class") or "PreTrainedTokenizerFast"),
        bos_token=tokens.get("bos_token"),
        end_of_call=end_of_call,
        recurrent=claims.recurrent(model),
        promoted=_openers(template, end_of_turn, [t for t in added if t not in controls]),
        text_markers=_text_markers(template, segments.controls_pattern([*added, "\0"])),
        text_lead=_text_lead(parsed(content), end_of_turn),
    )
    return profile, content


def _between(template: Template) -> tuple[str, str]:
    """What is printed between an answer and the next question, and between that and its answer."""
    question, answer = (turn["content"] for turn in _EXCHANGE)
    _, _, behind = _exchanges(template, 2).partition(question)
    asked, _, behind = behind.partition(answer)
    return behind.partition(question)[0], asked


def _text_markers(template: Template, controls: re.Pattern[str]) -> tuple[str, ...]:
    """What stands between turns besides control tokens, where at one place there is none."""
    between = _between(template)
    if all(map(controls.search, between)):
        return ()
    texts = [text.strip() for one in between for text in controls.split(one)]
    return tuple(dict.fromkeys(text for text in texts if text))


def _text_lead(tokenizer: Tokenizer, control: str) -> str:
    """What the tokenizer puts before a text, and not before one behind a control token."""
    alone, behind = (tokenizer.encode(f"{c}x", add_special_tokens=False) for c in ("", control))
    return " " if alone.tokens[0][0] == "▁" and alone.tokens != behind.tokens[1:] else ""


def _openers(template: Template, end_of_turn: str, ordinary: Collection[str]) -> tuple[str, ...]:
    """Those of the ordinary added tokens with which a turn opens: text must not forge them."""
    answered, asked = _between(template)
    opening = (asked.lstrip(), answered.partition(end_of_turn)[2].lstrip())
    found = (token for text in opening for token in ordinary if text.startswith(token))
    return tuple(dict.fromkeys(token for token in found if token != end_of_turn))


def _declared_stops(declared: claims.Claims, added: Mapping[str, Any]) -> list[str]:
    """The added tokens at which a model's own files say that generation stops."""
    texts = {token["id"]: text for text, token in added.items()}
    ids = [index for listed in declared.eos_ids.values() for index in listed]
    return [texts[index] for index in ids if index in texts]


def _framing(encoding: Encoding, token_types: bool, offset: int, name: str) -> PairFraming:
    """The tokens that the tokenizer puts around two texts of one word each."""
    owners = encoding.sequence_ids
    texts = [i for i, owner in enumerate(owners) if owner is not None]
    answer = owners.index(1) if 1 in owners else 0
    prompt = [i for i in texts if owners[i] == 0]
    if not answer or not prompt or prompt[-1] > answer or prompt[0] == 0 or owners[-1] is not None:
        raise ModelError(
            f"{name}: the tokenizer frames a pair of texts as {encoding.tokens}.",
            "An encoder's begins with a token to read at and ends in a separator.",
        )
    tokens = encoding.tokens
    return PairFraming(
        before=tuple(tokens[: prompt[0]]),
        between=tuple(tokens[prompt[-1] + 1 : answer]),
        after=tuple(tokens[texts[-1] + 1 :]),
        token_types=token_types,
        position_offset=offset,
    )


def _pad(config: dict[str, Any], model: dict[str, Any], tokenizer: Tokenizer, folder: Path) -> str:
    """The pad token, by its text or by the id that ``config.json`` gives.

    Raises:
        ModelError: there is none.
    """
    pad = claims.token_text(config.get("pad_token"))
    pad_id = model.get("pad_token_id")
    if pad is None and isinstance(pad_id, int) and 0 <= pad_id < 1 << 32:
        pad = tokenizer.id_to_token(pad_id)
    if not isinstance(pad, str):
        what = "names no pad token" if pad is None else f"names its pad token by a number, {pad!r}"
        raise ModelError(
            f"{folder} {what}.",
            'Set "pad_token" in its tokenizer_config.json, as the model was trained with it.',
        )
    return pad


def load_encoder(
    folder: Path, name: str, chat_template: str | None
) -> tuple[ModelProfile, bytes] | None:
    """The profile that an encoder's files declare; None for other models.

    Raises:
        ModelError: a file is missing, or lacks what a build needs.
    """
    model: dict[str, Any] = read(folder, "config.json")
    kind = model.get("model_type")
    if not isinstance(kind, str | None):
        raise ModelError(f"{folder / 'config.json'}: model_type is {kind!r:.40}, not a name.")
    if kind not in _TYPES:
        return None
    content = claims.tokenizer_json(folder)
    config = read(folder, "tokenizer_config.json")
    tokenizer = parsed(content)
    pad = _pad(config, model, tokenizer, folder)
    unknown = claims.token_text(config.get("unk_token"))
    unknown = unknown or read(folder, "tokenizer.json")["model"].get("unk_token")
    behind_pad, types = _TYPES[kind]
    offset = int(tokenizer.token_to_id(pad) or 0) + 1 if behind_pad else 0
    types = types and number(model, "type_vocab_size", default=2, folder=folder) > 1
    framing = _framing(tokenizer.encode("x", "x"), token_types=types, offset=offset, name=name)
    separator = framing.after[-1]
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    positions = number(model, "max_position_embeddings", default=512, folder=folder)
    return (
        ModelProfile(
            name=name,
            model_ids=(),
            chat_template=chat_template or template("pair"),
            end_of_turn=separator,
            eos_token=separator,
            pad_token=pad,
            generation_eos=(),
            vocab_size=size,
            embedding_size=number(model, "vocab_size", default=size, folder=folder),
            context_length=positions - offset,
            is_base=False,
            padding_side="right",
            text_markers=() if chat_template else TURN_MARKERS,
            unk_token=unknown,
            pair=framing,
        ),
        content,
    )
