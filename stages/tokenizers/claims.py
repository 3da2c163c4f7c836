"""What the files of a model directory declare, and what a build uses in place of it.

A directory may declare no pad token, a number, a text of several tokens, or the token that ends a
turn. A build then uses another one. Each such difference is a ``Repair``, which the summary, the
manifest and ``serving.json`` list.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import encoders, errors, findings
from stages.profile import ModelProfile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ID_FILES = ("config.json", "generation_config.json")
CONFIG = "tokenizer_config.json"
_BY_TEXT = "but a token is named by its text, not by a number"


@dataclass(frozen=True, slots=True)
class Claims:
    """The special tokens that a directory declares; empty for a model that is no directory.

    Attributes:
        pad_token: as ``tokenizer_config.json`` has it, whatever its type.
        pad_ids: ``pad_token_id`` by the file that has it.
        eos_ids: ``eos_token_id`` of the file that generation reads it from.
    """

    pad_token: object = None
    eos_token: object = None
    unk_token: object = None
    pad_ids: Mapping[str, int] = field(default_factory=dict)
    eos_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # a file that cannot be read is refused where it is needed
    return content if isinstance(content, dict) else {}


# Words in the names of settings and layers of models whose layers carry a state along the row.
_RECURRENT = re.compile(
    r"(^|_)(mamba|ssm|rwkv|recurrent(?!_layers)|lightning|linear_att(n|ention)|conv_(l_cache|states)|cca_time|"
    r"hybrid_(override|sliding))"
)


def recurrent(config: Mapping[str, Any]) -> str:
    """The ``model_type`` of a ``config.json`` that names recurrent layers; empty for others."""
    waiting: list[Any] = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and _RECURRENT.search(item.lower()):
            return str(config.get("model_type") or item)
    return ""


def token_text(value: Any) -> Any:
    """A token as a configuration spells it: a string, or an object with its ``content``."""
    return value.get("content") if isinstance(value, dict) else value


def read(folder: Path) -> Claims:
    """The claims of a directory."""
    config = _read(folder / "tokenizer_config.json")
    files = {name: _read(folder / name) for name in _ID_FILES}
    ids = {name: content.get("pad_token_id") for name, content in files.items()}
    return Claims(
        pad_token=token_text(config.get("pad_token")),
        eos_token=token_text(config.get("eos_token")),
        unk_token=token_text(config.get("unk_token")),
        pad_ids={name: index for name, index in ids.items() if isinstance(index, int)},
        eos_ids=_eos_ids(files),
    )


def _eos_ids(files: Mapping[str, dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The eos ids of the last file that has some, which is the one that generation uses."""
    for name in reversed(_ID_FILES):
        declared = files[name].get("eos_token_id")
        ids = declared if isinstance(declared, list) else [declared]
        if ids and all(isinstance(index, int) for index in ids):
            return {name: tuple(ids)}
    return {}


def tokenizer_json(folder: Path) -> bytes:
    """The bytes of a directory's ``tokenizer.json``.

    Raises:
        ModelError: there is none.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise errors.ModelError(
            f"{folder} has no tokenizer.json.",
            "Save the tokenizer there: AutoTokenizer.from_pretrained(...).save_pretrained(DIR).",
        )
    return path.read_bytes()


class Repair(findings.JsonRecord):
    """One value of a model directory that the build does not use as it stands.

    Attributes:
        declared: the directory's value; None where it has none.
        used: the build's value; equal to ``declared`` where it is kept despite ``why``.
    """

    file: str
    key: str
    declared: object
    used: object
    why: str

    @property
    def sentence(self) -> str:
        """The difference in words, for the summary."""
        what = "is not declared" if self.declared is None else f"is {self.declared!r}"
        what = f"{self.file}: {self.key} {what}"
        if self.declared == self.used:
            return f"{what}, {self.why}; it is kept, since no other token is free"
        return f"{what}, {self.why}; this build uses {self.used!r}"


def _pad_problem(claims: Claims, profile: ModelProfile, tokenizer: "Tokenizer") -> str | None:
    """Why the declared pad token cannot be used, as a clause; None where it can."""
    pad = claims.pad_token
    if pad is None:
        return "so padding has no separate token"
    if not isinstance(pad, str):
        return _BY_TEXT
    ids, kept = tokenizer.encode(pad, add_special_tokens=False).ids, profile.pad_token
    if tokenizer.token_to_id(pad) is None or len(ids) != 1:
        return _BY_TEXT if pad.isdecimal() else f"which the tokenizer writes as {len(ids)} tokens"
    if profile.pair is None and pad in (claims.eos_token, *profile.ends) and pad != kept:
        return "which also ends an answer, so a loss that ignores padding never trains the stop"
    unknown = (claims.unk_token, getattr(tokenizer.model, "unk_token", None))
    if profile.pair is None and pad in unknown:
        return "which is also the unknown token, so text may become padding"
    return None if pad == profile.pad_token else "which is an ordinary word of the vocabulary"


def _pads(claims: Claims, profile: ModelProfile, tokenizer: "Tokenizer") -> Iterator[Repair]:
    why = _pad_problem(claims, profile, tokenizer)
    used = profile.pad_token
    if why is not None:
        yield Repair(CONFIG, "pad_token", declared=claims.pad_token, used=used, why=why)
    wanted = tokenizer.token_to_id(used)
    for file, index in claims.pad_ids.items():
        if index != wanted:
            text = tokenizer.id_to_token(index) if 0 <= index < 1 << 32 else None
            known = "no token of this tokenizer" if text is None else repr(text)
            why = f"which is {known}, while the pad token {used!r} is {wanted}"
            yield Repair(file, "pad_token_id", declared=index, used=wanted, why=why)


def _stops(claims: Claims, profile: ModelProfile, tokenizer: "Tokenizer") -> Iterator[Repair]:
    end = profile.end_of_turn
    if claims.eos_token != profile.eos_token:
        why = f"but the chat template ends an answer with {end!r}"
        yield Repair(CONFIG, "eos_token", claims.eos_token, profile.eos_token, why=why)
    wanted = [tokenizer.token_to_id(token) for token in profile.generation_eos]
    for file, ids in claims.eos_ids.items():
        if wanted[0] not in ids:
            why = f"so generation would not stop at {end!r} ({wanted[0]})"
            yield Repair(file, "eos_token_id", declared=list(ids), used=wanted, why=why)


def repairs(
    claims: Claims, profile: ModelProfile, tokenizer_json: bytes, own_eos: bool = False
) -> tuple[Repair, ...]:
    """Every difference between what a directory declares and what a build for it uses.

    Args:
        own_eos: the user named the end of a turn, so that it differs on purpose.
    """
    tokenizer = encoders.parsed(tokenizer_json)
    differences = list(_pads(claims, profile, tokenizer))
    if profile.pair is None and not own_eos:
        differences += _stops(claims, profile, tokenizer)
    return tuple(differences)
