"""Pairs of texts for encoders: the prompt and the answer, between the family's control tokens.

An encoder has no chat format. Its first text is the turns before the answer, its second text the
answer, each printed by the profile's template: one turn as it is written, several turns with a role
before each. Control tokens are added as the tokenizer itself does for ``(text, text_pair)``, so a
trainer that calls the tokenizer with both texts gets the same ids.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stages import contract, encoders
from stages.chat_template import segments, shapes
from stages.chat_template.render import Row, conversations, exchange, template_of
from stages.errors import ModelError, RowError
from stages.profile import PairFraming, TargetModel


class PairRenderer:
    """Renders the turns before an answer, and an answer, to one text each."""

    def __init__(self, model: TargetModel) -> None:
        if model.profile.pair is None:
            raise ModelError(f"{model.profile.name} is not an encoder.")
        self.framing: PairFraming = model.profile.pair
        self._template = template_of(model)
        markers = sorted(map(re.escape, model.profile.text_markers), key=len, reverse=True)
        self._marker = re.compile("^(?:" + "|".join(markers) + ")", re.M) if markers else None

    def text(self, turns: Sequence[contract.Message]) -> str:
        """One text of some turns.

        Raises:
            RowError: the template refuses them, or a line of one looks like the start of a turn.
        """
        for number, turn in enumerate(turns if len(turns) > 1 else ()):
            marker = self._marker and self._marker.search(turn.content or "")
            if marker:
                detail = f"a line of turn {number + 1} begins with {marker.group()!r}, as turns do"
                raise RowError("control_text", detail)
        return self._template.render([turn.seen() for turn in turns])

    def texts(self, row: Row, prompt: int) -> tuple[str, str]:
        """Both texts of one side, whose first ``prompt`` turns are the prompt."""
        if row.tools:
            raise RowError("lost_in_template", "a pair of texts has no place for tools")
        turns = row.turns()
        return self.text(turns[:prompt]), self.text(turns[prompt:])

    def __call__(self, row: Row, prompt: int) -> tuple[list[str], bytes]:
        """Texts and kinds of the segments of one side."""
        first, second = self.texts(row, prompt)
        framing = self.framing
        end = segments.CONTROL | segments.TRAINED
        pieces = [(token, segments.CONTROL) for token in framing.before]
        pieces += [(first, 0)] if first else []
        pieces += [(token, segments.CONTROL) for token in framing.between]
        pieces += [(second, segments.TRAINED)]
        pieces += [(token, end) for token in framing.after[:-1]]
        pieces += [(framing.after[-1], end | segments.CLOSES)]
        return [text for text, _ in pieces], bytes(kind for _, kind in pieces)


def prompt_turns(chosen: Row, rejected: Row) -> int:
    """The number of turns before the answer: those that are trained on neither side."""
    return min(row.trained.index(True) for row in (chosen, rejected))


@dataclass
class RenderTexts:
    """RM on encoders: both sides of a pair to segments.

    Attributes:
        system: the system text of conversations that have none.
    """

    renderer: PairRenderer
    system: str | None = None
    name: str = "render"
    reads: tuple[str, ...] = ("chosen_messages", "rejected_messages", "tools")
    writes: tuple[str, ...] = ("chosen_segments", "rejected_segments", "rendered")

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        sides = [
            list(conversations(batch, f"{name}_messages", self.system))
            for name in ("chosen", "rejected")
        ]
        growing = (shapes.SegmentsColumn(), shapes.SegmentsColumn())
        for number, (chosen, rejected) in enumerate(zip(*sides, strict=True)):
            try:
                prompt = prompt_turns(chosen, rejected)
                rendered = [self.renderer(row, prompt) for row in (chosen, rejected)]
            except RowError as error:
                for side in growing:
                    side.refuse(number, error)
                continue
            for side, (texts, kinds) in zip(growing, rendered, strict=True):
                side.add(number, texts, kinds, "pair")
        batch = growing[0].into(batch, "chosen_segments")
        return growing[1].into(batch, "rejected_segments")


def prove_pair(model: TargetModel) -> dict[str, str]:
    """Check that the declared framing is the tokenizer's own, token types included.

    Returns:
        What was proved, by name.

    Raises:
        ModelError: it is not.
    """
    profile, tokenizer = model.profile, encoders.parsed(model.tokenizer_json)
    renderer = PairRenderer(model)
    framing = renderer.framing
    if framing.after[-1:] != (profile.end_of_turn,):
        raise ModelError(
            f"{profile.name}: an encoder's sequence ends in {framing.after[-1]!r}, not in "
            f"{profile.end_of_turn!r}.",
            "Leave --eos out.",
        )
    texts, kinds = renderer(exchange("x y", "z"), 1)
    ours: list[int] = []
    types: list[int] = []
    answer = False
    for text, kind in zip(texts, kinds, strict=True):
        answer |= bool(kind & segments.TRAINED)
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        ids = [model.controls.get(text, -1)] if kind & segments.CONTROL else plain
        ours += ids
        types += [int(answer)] * len(ids)
    theirs = tokenizer.encode("x y", "z")
    if ours != theirs.ids or (framing.token_types and types != theirs.type_ids):
        raise ModelError(
            f"{profile.name}: the tokenizer frames a pair of texts as {theirs.tokens}, the profile "
            f"as {texts}.",
            "Give the tokenizer that the profile was written for.",
        )
    framed = "A".join(("".join(framing.before), "".join(framing.between)))
    return {
        "pair_framing_is_the_tokenizers": f"{framed}B{''.join(framing.after)}",
        "positions": f"{profile.context_length} positions, the first is {framing.position_offset}",
    }
