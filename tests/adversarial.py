"""Seeded conversations made to be read wrongly: whatever is known to make two tokenizers differ.

Every text is put together from pieces of several kinds: text of control tokens and text that is
almost one, what the chat template itself prints, blanks of every sort at every cut, joined emoji,
combining marks and texts that are equal only when normalized, scripts from right to left, code,
runs of digits and of letters, control characters, and pieces of the vocabulary in any order.
"""

import random
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.chat_template.render import template_of
from stages.profile import TargetModel

_TABLE = Path(__file__).parent / "tables" / "odd_texts.toml"
_TEXTS: dict[str, list[str]] = {
    name.removeprefix("adversarial_"): texts
    for name, texts in tomllib.loads(_TABLE.read_text("utf-8")).items()
}

_ALPHABETS = ("a", "ab", "0123456789", "7", "=", "-", "é", "中", "ACGT", "xX9/+", "😀", " ", "\n")
_HEADS = ("", "", "", "", "", "\n", " ", "\n\n", "\t", "\u3000", "  ", "\r", "\x00")


@dataclass(frozen=True)
class Family:
    """What a model's texts can be mistaken for.

    Attributes:
        controls: the text of its control tokens, those that its template prints again and again:
            most vocabularies reserve hundreds of others.
        printed: what its template prints around the texts of a row.
        pieces: texts of tokens of its vocabulary.
    """

    controls: tuple[str, ...]
    printed: tuple[str, ...]
    pieces: tuple[str, ...]


def family(model: TargetModel, vocabulary: Sequence[str]) -> Family:
    """The family of a model, and its template's own words."""
    turns = [{"role": "user", "content": "\ue000"}, {"role": "assistant", "content": "\ue000"}]
    printed: dict[str, None] = {}
    for messages in (turns, [*turns, *turns], turns[:1]):
        text = template_of(model).render(messages, add_generation_prompt=len(messages) == 1)
        printed |= dict.fromkeys(part for part in text.split("\ue000") if part)
    for control in model.controls:
        printed |= dict.fromkeys(part for text in printed for part in text.split(control) if part)
    named = [name for name in model.controls if any(name in text for text in printed)]
    often = named * (1 + len(model.controls) // len(named))
    return Family((*often, *model.controls), tuple(printed), tuple(vocabulary))


def _near(rng: random.Random, control: str) -> str:
    """A text that is nearly a control token's."""
    at = rng.randrange(len(control))
    changes: tuple[Callable[[], str], ...] = (
        lambda: control[:at] + control[at + 1 :],
        lambda: control[:at] + "\u200b" + control[at:],
        lambda: control[:at] + " " + control[at:],
        lambda: control[: at + 1],
        lambda: control[at:],
        lambda: control.swapcase(),
        lambda: control.replace("|", "｜").replace("<", "＜"),
        lambda: control[:at] + control[: at + 1] + control[at + 1 :],
        lambda: control[:at] + "\u0301" + control[at:],
    )
    return rng.choice(changes)()


def _long(rng: random.Random) -> str:
    """A run without a blank, or one of blanks."""
    size = rng.choice((17, 33, 64, 127, 300)) if rng.random() < 0.9 else 2000
    return "".join(rng.choices(rng.choice(_ALPHABETS), k=size))


def _numbers(rng: random.Random) -> str:
    digits = str(rng.getrandbits(rng.choice((4, 16, 64, 200))))
    spaced, thousands = " ".join(digits), f"{int(digits):,}"
    return rng.choice((digits, spaced, thousands, f"-{digits}.0e5", f"{digits}%"))


def _points(rng: random.Random) -> str:
    """Characters from everywhere."""
    points = (rng.randrange(rng.choice((0x250, 0x3000, 0x110000))) for _ in range(6))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def _normal(rng: random.Random) -> str:
    """One of the forms of a text."""
    text = "".join(rng.choices(_TEXTS["marks"] + _TEXTS["scripts"], k=2))
    return unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC", "NFKD")), text)


class Texts:
    """Draws texts for one family."""

    def __init__(self, found: Family, rng: random.Random) -> None:
        self._rng = rng
        self._family = found
        choice = rng.choice
        self._kinds: tuple[tuple[float, Callable[[], str]], ...] = (
            *((10, lambda: choice(_TEXTS["words"])), (4, lambda: choice(_TEXTS["blanks"]))),
            *((1, lambda: choice(_TEXTS["emoji"])), (1.5, lambda: choice(_TEXTS["marks"]))),
            *((2, lambda: choice(_TEXTS["scripts"])), (1.5, lambda: choice(_TEXTS["code"]))),
            *((0.4, lambda: choice(_TEXTS["jinja"])), (0.4, lambda: choice(_TEXTS["tags"]))),
            *(
                (1, lambda: choice(_TEXTS["odd"])),
                (1, lambda: _numbers(rng)),
                (0.6, lambda: _long(rng)),
            ),
            *((0.7, lambda: _points(rng)), (1, lambda: _normal(rng))),
            *((0.5, lambda: choice(found.printed)), (0.5, lambda: choice(found.controls))),
            *((0.7, lambda: _near(rng, choice(found.controls))),),
            *((1.5, lambda: "".join(rng.choices(found.pieces, k=3))),),
        )
        self._draws = [draw for _, draw in self._kinds]
        self._weights = [weight for weight, _ in self._kinds]

    def __call__(self) -> str:
        """A text; now and then an empty one."""
        rng = self._rng
        if rng.random() < 0.02:
            return rng.choice(("", "", " ", "\n", "\u3000"))
        if rng.random() < 0.01:
            return rng.choice(self._family.printed + self._family.controls)
        drawn = rng.choices(self._draws, self._weights, k=rng.choice((1, 1, 2, 3, 4, 6)))
        joint = rng.choice(("", "", " ", "\n"))
        return rng.choice(_HEADS) + joint.join(draw() for draw in drawn) + rng.choice(_HEADS)


def _roles(rng: random.Random) -> list[str]:
    """Mostly turns that take turns, with or without a system text; and other orders."""
    roles = ["user", "assistant"] * rng.choice((1, 1, 1, 2, 3))
    if rng.random() < 0.35:
        roles.insert(0, "system")
    if rng.random() < 0.06:
        roles.insert(rng.randrange(len(roles)), rng.choice(("user", "assistant", "system")))
    if rng.random() < 0.02:
        roles.append("user")
    return roles


def conversations(found: Family, seed: int) -> Iterator[dict[str, Any]]:
    """Rows without end that depend on family and seed alone, in the openai format."""
    rng = random.Random(seed)
    texts = Texts(found, rng)
    while True:
        yield {"messages": [{"role": role, "content": texts()} for role in _roles(rng)]}
