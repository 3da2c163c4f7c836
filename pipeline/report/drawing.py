"""Decodes stored rows to pieces of text with their kind (context, trained, padding, a marker).

The report and ``pipeline show`` draw them. They are decoded from the shards with the build's own
tokenizer, so they show what a trainer reads.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from expectations.undo_layout import names as names_of
from pipeline.builds.build import Build, StoredShard
from pipeline.builds.packs import Packs
from pipeline.manifest.records import ModelRecord, Reject
from stages.chat_template.segments import controls_pattern
from stages.columns import IGNORED
from stages.encoders import parsed
from stages.errors import DataError, UsageError
from stages.rows.dialects import STOPS

CONTEXT, TRAINED, ANSWER, PADDING = "context", "trained", "answer", "padding"
GOOD, BAD, OPEN, SCORED = "good", "bad", "open", "scored"  # markers, by their label
KINDS = {
    CONTEXT: "context: read, not trained",
    TRAINED: "trained",
    ANSWER: "answer that is compared",
    GOOD: "marker labelled good",
    BAD: "marker labelled bad",
    OPEN: "marker without a label",
    SCORED: "where the score is read",
    PADDING: "padding",
}
_STEPS = ("step_positions", "step_labels")  # where steps end, and their ratings
_LONGEST_CHARACTER = 4  # bytes, so tokens


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One token, or the few that share a character.

    Attributes:
        control: it is a registered special token, which no text is encoded to.
        spelled: it is ordinary text that looks like a control token or a stop token.
        rating: of the step that it ends, where that is neither 0 nor 1.
    """

    text: str
    kind: str
    ids: tuple[int, ...]
    control: bool = False
    spelled: bool = False
    rating: float | None = None


class Strip(NamedTuple):
    """One sequence: an example, one side of a pair, or a padded row.

    Attributes:
        left_out: of a shortened sequence, the index of the last piece before the gap and how many
            tokens are missing there; (-1, 0) if none are.
    """

    name: str
    tokens: int
    trained: int
    pieces: tuple[TextPiece, ...]
    left_out: tuple[int, int] = (-1, 0)


def visible(text: str) -> str:
    """Text with escapes for all characters that are invisible or control a terminal or a page."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character == "\t":
        return "\\t"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Drawer:
    """Decodes token ids to pieces, with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, model: ModelRecord) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._controls = {index for index, token in added.items() if token.special}
        names = {token.content for token in added.values() if token.special}
        self._looks = controls_pattern(sorted({*names, *STOPS}))
        self._marks = {model.good_token_id: GOOD, model.bad_token_id: BAD}
        self._step, self._pair = model.step_token_id, model.pair

    def _texts(self, ids: list[int]) -> list[str]:
        texts = self._tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=False)
        for at, index in enumerate(ids):
            token = self._tokenizer.id_to_token(index)
            if token is None:
                texts[at] = f"[id {index}]"
            elif token.startswith("▁") and not texts[at].startswith(" "):
                texts[at] = " " + texts[at]  # a decoder drops the blank before a first word
        return texts

    def _character(self, ids: list[int], kinds: list[str], at: int) -> tuple[str, int] | None:
        """The shortest run of tokens from ``at`` on that decodes to whole characters: its text and
        its end; None if a character is cut by a change of kind.

        A byte-level tokenizer can split one character over several tokens; each of them alone
        decodes to U+FFFD.
        """
        for stop in range(at + 2, min(at + _LONGEST_CHARACTER, len(ids)) + 1):
            if kinds[stop - 1] != kinds[at]:
                return None
            text = self._tokenizer.decode(ids[at:stop], skip_special_tokens=False)
            if "\ufffd" not in text:
                return text, stop
        return None

    def pieces(self, ids: list[int], kinds: list[str]) -> Iterator[TextPiece]:
        """One piece per token, or per character that needs several."""
        # Text that looks like a control token is searched between real ones, never across them.
        for control, run in groupby(self._drawn(ids, kinds), key=lambda piece: piece.control):
            pieces = list(run)
            yield from pieces if control else self._told_apart(pieces)

    def _told_apart(self, run: list[TextPiece]) -> Iterator[TextPiece]:
        """The same pieces of ordinary text, ``spelled`` where they look like a control token."""
        ends = list(accumulate(len(piece.text) for piece in run))
        looks = [m.span() for m in self._looks.finditer("".join(piece.text for piece in run))]
        for piece, end in zip(run, ends, strict=True):
            begin = end - len(piece.text)
            spelled = any(start < end and begin < stop for start, stop in looks)
            yield replace(piece, spelled=True) if spelled else piece

    def _drawn(self, ids: list[int], kinds: list[str]) -> Iterator[TextPiece]:
        texts, at = self._texts(ids), 0
        while at < len(ids):
            text, stop = texts[at], at + 1
            if "\ufffd" in text:
                text, stop = self._character(ids, kinds, at) or (text, stop)
            control = ids[at] in self._controls
            yield TextPiece(visible(text), kind=kinds[at], ids=tuple(ids[at:stop]), control=control)
            at = stop

    def kinds(self, ids: list[int], labels: list[int], mask: list[int] | None) -> list[str]:
        """The kind of each token of a sequence with labels; ``mask`` is 0 where it is padded."""
        token_kinds = [TRAINED if label != IGNORED else CONTEXT for label in labels]
        if self._step is not None:
            for at, (index, label) in enumerate(zip(ids, labels, strict=True)):
                if index == self._step:
                    token_kinds[at] = self._marks.get(label, OPEN)
        real = mask or [1] * len(ids)
        return [kind if n else PADDING for kind, n in zip(token_kinds, real, strict=True)]

    def strip(
        self,
        name: str,
        ids: list[int],
        kinds: list[str],
        most: int | None = None,
        ratings: Mapping[int, float | None] | None = None,
    ) -> Strip:
        """A sequence, decoded; padding at an end is one piece.

        Args:
            most: tokens that are decoded, two thirds of them from the start; None is all.
            ratings: of steps, by the place of the token that ends each.
        """
        real = [at for at, kind in enumerate(kinds) if kind != PADDING]
        start, stop = (real[0], real[-1] + 1) if real else (len(ids), len(ids))
        pieces = list(self._padding(ids[:start]))
        cuts, gone = [slice(start, stop)], 0
        if most is not None and stop - start > most:
            cuts = [slice(start, start + most - most // 3), slice(stop - most // 3, stop)]
            gone = stop - start - most
        left_out = (-1, 0)
        for cut in cuts:
            at = cut.start
            for piece in self.pieces(ids[cut], kinds[cut]):
                rating = ratings.get(at) if ratings else None
                pieces.append(piece if rating in (None, 0, 1) else replace(piece, rating=rating))
                at += len(piece.ids)
            left_out = (len(pieces) - 1, gone) if gone and cut is cuts[0] else left_out
        pieces += self._padding(ids[stop:])
        trained = sum(kind in (TRAINED, GOOD, BAD) for kind in kinds)
        return Strip(name, len(real), trained, tuple(pieces), left_out)

    def strips(
        self, row: dict[str, Any], most: int | None = None, tokens: int | None = None
    ) -> list[Strip]:
        """The sequences of a row in our columns, decoded.

        Args:
            most: of a pack's examples; ``tokens``: of each; None is all.
        """
        if "chosen_ids" in row:
            return [self._side(row, side, tokens) for side in ("chosen", "rejected")]
        ids, labels = row["input_ids"], row["labels"]
        kinds = self.kinds(ids, labels, row.get("attention_mask"))
        ratings = dict(zip(*(row.get(name) or () for name in _STEPS), strict=True))
        if "seq_lengths" not in row:
            return [self.strip(row["row_id"], ids, kinds, tokens, ratings)]
        strips, start = [], 0
        for name, length in list(zip(row["row_ids"], row["seq_lengths"], strict=True))[:most]:
            span = slice(start, start + length)
            own = {at - start: rating for at, rating in ratings.items()}
            strips.append(self.strip(name, ids[span], kinds[span], tokens, own))
            start += length
        return strips

    def _side(self, row: dict[str, Any], side: str, tokens: int | None) -> Strip:
        ids = row[f"{side}_ids"]
        mask = row.get(f"{side}_attention_mask") or [1] * len(ids)
        real = [at for at, value in enumerate(mask) if value]
        kinds = [PADDING] * len(ids)
        for place, at in enumerate(real):
            kinds[at] = CONTEXT if place < row["prompt_length"] else ANSWER
        if real:  # the score is read at an encoder's first token, and at a decoder's last one
            kinds[real[0 if self._pair else -1]] = SCORED
        return self.strip(f"{row['row_id']}, {side}", ids, kinds, most=tokens)

    def _padding(self, ids: list[int]) -> Iterator[TextPiece]:
        if ids:
            text = f"[{visible(self._texts(ids[:1])[0])} x {len(ids)}]"
            yield TextPiece(text, kind=PADDING, ids=(ids[0],), control=ids[0] in self._controls)


class Shards:
    """A build's shards, for reading single rows."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self._open: tuple[str, pa.Table] | None = None

    @cached_property
    def drawer(self) -> Drawer:
        return Drawer(parsed(self.build.tokenizer_json), self.build.manifest.model)

    def table(self, shard: StoredShard) -> pa.Table:
        """A shard in our columns. The last one stays open, for its next row; no other does, since
        each one keeps some of its pages in memory."""
        path = shard.record.path
        if self._open is None or self._open[0] != path:
            self._open = None  # closed before the next one is opened
            self._open = path, shard.table()
        return self._open[1]

    def require_split(self, split: str | None) -> None:
        """Raise UsageError where the build has no such split; None is none in particular."""
        sides = self.build.splits
        if split is not None and split not in sides:
            raise UsageError(f"There is no split {split!r}.", f"Known: {', '.join(sides)}.")

    def row(self, split: str, number: int) -> dict[str, Any]:
        """A stored row as Python objects.

        Raises:
            UsageError: there is no such split or row.
        """
        sides = self.build.splits
        self.require_split(split)
        at = number
        for shard in sides[split].shards if number >= 0 else ():
            if at < shard.record.rows:
                stored_row: dict[str, Any] = self.table(shard).slice(at, 1).to_pylist()[0]
                return stored_row
            at -= shard.record.rows
        last = sides[split].record.rows - 1
        raise UsageError(f"{split} has no row {number}.", f"Give a number from 0 to {last}.")

    def pack(self, split: str, number: int) -> dict[str, Any]:
        """A pack of a build with ``--index-only``, as the row that it stands for.

        Raises:
            UsageError: there is no such pack.
        """
        packs = Packs(self.build, split)
        if not 0 <= number < len(packs):
            last = len(packs) - 1
            raise UsageError(f"{split} has no pack {number}.", f"Give a number from 0 to {last}.")
        row: dict[str, Any] = packs.table(number, number + 1).to_pylist()[0]
        return row

    def find(self, row_id: str) -> tuple[str, int, int]:
        """Split, stored row, and index in that row of an example; of a row that gave several
        (``FILE:3#0``) the first, where only the row is named.

        Raises:
            UsageError: no shard holds it; where it was refused, that and why.
        """
        first = f"{row_id}#"
        for which in (
            lambda names: names.index(row_id).as_py(),
            lambda names: pc.index(pc.starts_with(names, first), True).as_py(),
        ):
            if (found := self._find(which)) is not None:
                return found
        for refused in (one for one in self._rejects() if f"{one.id}#".startswith(first)):
            what = f"{refused.id} was refused: {refused.code}: {refused.detail}."
            raise UsageError(what, f"What it means, and the fix: pipeline explain {refused.code}")
        counts, fix = self.build.manifest.examples, "Ids are FILE:LINE."
        fates = ("duplicates", "near_duplicates", "contaminated", "filtered", "left_out")
        gone = {fate.replace("_", " "): getattr(counts, fate) for fate in fates}
        if any(gone.values()):
            listed = ", ".join(f"{name} {count:,}" for name, count in gone.items() if count)
            fix += f" Examples that were left out are not stored: {listed}."
        raise UsageError(f"No example has the row_id {row_id!r}.", fix)

    def examples_of(self, row_id: str) -> list[str]:
        """The ids of a row that gave several examples: by number, of those that are stored."""
        first, found = f"{row_id}#", set[str]()
        for side in self.build.splits.values():
            for names in (names_of(self.table(shard))[1] for shard in side.shards):
                found.update(names.filter(pc.starts_with(names, first)).to_pylist())
        return sorted(found, key=lambda name: int(name.removeprefix(first)))

    def _rejects(self) -> Iterator[Reject]:
        """The refused rows, where the build has a list of them."""
        with suppress(DataError):
            yield from self.build.rejects()

    def _find(self, which: Callable[[pa.Array], int]) -> tuple[str, int, int] | None:
        """Split, stored row, and index in that row, of what is looked for among names."""
        for split, side in self.build.splits.items():
            before = 0
            for shard in side.shards:
                offsets, names = names_of(self.table(shard))
                at = which(names)
                if at >= 0:
                    row = int(np.searchsorted(offsets, at, side="right")) - 1
                    return split, before + row, at - int(offsets[row])
                before += shard.record.rows
        return None

    @property
    def strips(self) -> Callable[..., list[Strip]]:
        """The sequences of a stored row: ``Drawer.strips``."""
        return self.drawer.strips
