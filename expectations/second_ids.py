"""The ids and labels of a conversation, computed a second time in another way.

A build compiles the template, cuts its text at control tokens and encodes each distinct piece once
per batch. Here the template runs on one conversation as it is, once for the whole and once for the
prompt of each answer, and the reference tokenizer encodes the text of a prompt as inference would,
control tokens included. Labels are then read off the ids: an answer is trained from the end of its
prompt to the next end-of-turn token.

A user's text that contains the text of a control token would become that token here. So each such
text is first replaced by a character that the row does not contain; the rendered text is then cut
at the control tokens in it, which are the template's own, and the replaced texts are put back and
encoded as ordinary text.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from expectations.second_rows import require_aligned
from expectations.second_text import MOST, SecondText
from stages import encoders, profile
from stages.chat_template.appended import RENDERED
from stages.columns import IGNORED
from stages.contract import BARE, Message
from stages.errors import ReadingError

_FREE = range(0xF0000, 0xFFFFE)  # private-use characters, which stand for hidden control tokens
_BLANKS = "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)))) + (
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(slots=True)
class Reading:
    """What a sequence must be.

    Attributes:
        ids: its tokens.
        weights: of each token in the loss; 0 where it is context.
        upto: how many of the tokens are known; the prompts of later answers were not rendered.
        whole: ids of the rendered text encoded as one text, None where a user's text holds a
            control token. They differ from ``ids`` only where the tokenizer merges across the start
            of an answer.
    """

    ids: list[int]
    weights: list[float]
    upto: int
    whole: list[int] | None

    @property
    def labels(self) -> list[int]:
        """The ids where trained, else -100."""
        pairs = zip(self.ids, self.weights, strict=True)
        return [token if weight else IGNORED for token, weight in pairs]

    def ended(self) -> "Reading":
        """The sequence up to its last trained token, where a reward is read."""
        last = max(i for i, weight in enumerate(self.weights) if weight)
        end = slice(last + 1)
        whole = None if self.whole is None else self.whole[end]
        upto = min(self.upto, last + 1)
        return Reading(self.ids[end], self.weights[end], upto=upto, whole=whole)


class _Hidden:
    """Replaces control tokens in a row's own texts by characters that the row does not contain."""

    def __init__(self, controls: re.Pattern[str], texts: Iterable[str]) -> None:
        self._controls = controls
        every = "".join(texts)
        self.tokens = list(dict.fromkeys(controls.findall(every)))
        taken = set(every)
        free = (chr(code) for code in _FREE if chr(code) not in taken)
        self._signs = dict(zip(self.tokens, free, strict=False))

    def hide(self, text: str) -> str:
        return self._controls.sub(lambda match: self._signs[match.group()], text)

    def restore(self, text: str) -> str:
        for token, sign in self._signs.items():
            text = text.replace(sign, token)
        return text


@dataclass
class SecondReading:
    """Reads conversations of one model.

    Attributes:
        reference: the Hugging Face tokenizer.
        mask_reasoning: reasoning is not trained; an answer is trained from the end of it.
        history: how earlier answers are printed.
        train_all: all turns are trained but those that the row leaves out.
    """

    model: profile.TargetModel
    reference: encoders.Encoder
    system: str | None = None
    mask_reasoning: bool = False
    history: str = RENDERED
    train_all: bool = False

    def __post_init__(self) -> None:
        model = self.model
        names = sorted(model.controls, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names)))
        self._tokenizer = encoders.parsed(model.tokenizer_json)
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._flags = {token.content: token for token in added}
        self._text = SecondText(model, self.history)

    def _segments(self, text: str, before: str) -> list[tuple[str, bool]]:
        """Texts (False) and control tokens (True), without the whitespace that tokens swallow."""
        parts: list[tuple[str, bool]] = []
        swallowing = tuple(name for name, token in self._flags.items() if token.rstrip)
        if before.endswith(swallowing):
            text = text.lstrip(_BLANKS)
        at = 0
        for match in self._controls.finditer(text):
            parts += [(text[at : match.start()], False), (match.group(), True)]
            at = match.end()
        parts.append((text[at:], False))
        for i, (part, is_control) in enumerate(parts):
            if is_control:
                continue
            if i and self._flags[parts[i - 1][0]].rstrip:
                part = part.lstrip(_BLANKS)
            if i + 1 < len(parts) and self._flags[parts[i + 1][0]].lstrip:
                part = part.rstrip(_BLANKS)
            parts[i] = (part, False)
        return [part for part in parts if part[0]]

    def whole(self, text: str) -> list[int]:
        """Ids of a row's text as a trainer encodes it, control tokens included."""
        ids: list[int] = self.reference.encode_whole([text])[0].tolist()
        return ids

    def _ids(self, text: str, hidden: _Hidden, before: str = "") -> list[int]:
        """Ids of rendered text that stands behind ``before``, which is empty at a row's start."""
        first = not before
        if first and not hidden.tokens:
            return self.whole(text)
        segments = self._segments(text, before)
        plain = [hidden.restore(part) for part, is_control in segments if not is_control]
        flat, starts = self.reference.encode(plain)
        bounds = itertools.pairwise(starts.tolist())
        encoded = iter([flat[a:b].tolist() for a, b in bounds])
        ids: list[int] = []
        for i, (part, is_control) in enumerate(segments):
            if is_control:
                ids.append(self.model.controls[part])
                continue
            part_ids = next(encoded)
            if first and not i:  # at the start of a row, where some tokenizers put a space
                part_ids = encoders.as_text(self._tokenizer, hidden.restore(part)).ids
            ids += part_ids
        return ids

    def _reasoning(self, text: str, start: int, stop: int) -> int:
        """The number of characters at the start of an answer that are reasoning."""
        answer = text[start:stop]
        if not (answer.lstrip().startswith("<think>") or text[:start].rstrip().endswith("<think>")):
            return 0
        closed = answer.find("</think>") + len("</think>")
        return len(answer) - len(answer[closed:].lstrip())

    def conversation(self, turns: Sequence[Message], tools: list[Any] | None) -> Reading | None:
        """The ids and weights of a conversation of whose turns it is known which are trained.

        Returns:
            None where control tokens that a text holds cannot be hidden from the template.

        Raises:
            ReadingError: the template does not print an answer after its prompt, or does not end
            it.
        """
        if turns[0].role == BARE:
            return self._bare(turns[0])
        if self.system is not None and turns[0].role != "system":
            turns = [Message("system", self.system, trained=False, weight=0.0), *turns]
        hidden = _Hidden(self._controls, [turn.content or "" for turn in turns])
        seen = [turn.seen() for turn in turns]
        # Content None (a turn of tool calls alone) stays None: templates tell it from an empty
        # text.
        shown = [{**one, "content": hidden.hide(one["content"] or "")} for one in seen]
        shown = [a if b["content"] is not None else b for a, b in zip(shown, seen, strict=True)]
        answers = [
            i
            for i, t in enumerate(turns)
            if t.role == "assistant" and (t.trained or self.train_all)
        ]
        text, starts = self._text(shown, tools, answers)
        if hidden.tokens and hidden.restore(text) != self._text(seen, tools, answers)[0]:
            return None
        ended = answers[:MOST][-1:] == [len(turns) - 1]
        ends = [self._text.end(shown[i]) for i in answers[:MOST]]
        weights = [turns[i].weight or 0.0 for i in answers[:MOST]]
        parts = list(zip(starts, ends, weights, strict=True))
        ids, token_weights, last = self._read(text, parts, hidden, ended=ended)
        upto = len(ids) if len(answers) <= MOST else last
        if self.train_all:
            token_weights = self._every_turn(ids, turns)
        token_weights[0] = 0.0  # in a pack it would be predicted from the example before
        whole = None if hidden.tokens else self.whole(text)
        return Reading(ids, token_weights, upto=upto, whole=whole)

    def _read(
        self, text: str, answers: list[tuple[int, str, float]], hidden: _Hidden, ended: bool
    ) -> tuple[list[int], list[float], int]:
        """Ids and weights of a rendered text that is cut where its answers start, and its number of
        tokens up to the end of the last answer.

        Args:
            answers: where each starts, the token that ends it, and its weight.
            ended: the last turn is an answer, whose end is the last one in the text.
        """
        starts = [start for start, _, _ in answers]
        ids = self._ids(text[: starts[0] if starts else len(text)], hidden)
        token_weights = [0.0] * len(ids)
        upto = len(ids)
        stops = [*starts[1:], len(text)]
        for (start, token, weight), stop in zip(answers, stops, strict=bool(answers)):
            # Up to ``cut`` is reasoning, which is encoded apart: a build cuts there, too.
            left = self._reasoning(text, start, stop) if self.mask_reasoning else 0
            cut = start + left
            head = self._ids(text[start:cut], hidden, text[:start]) if left else []
            tail = self._ids(text[cut:stop], hidden, text[:cut])
            closing = self.model.controls.get(token, -1)
            if closing not in tail:
                raise ReadingError("an answer has no end of turn.")
            end = tail.index(closing) + 1
            if ended and stop == len(text):
                end = len(tail) - tail[::-1].index(closing)
            upto = len(ids) + len(head) + end
            ids += head + tail
            token_weights += [0.0] * len(head) + [weight] * end + [0.0] * (len(tail) - end)
        return ids, token_weights, upto

    def _every_turn(self, ids: list[int], turns: Sequence[Message]) -> list[float]:
        """Weights of all tokens where every turn is trained, each up to its end-of-turn token."""
        closing = self.model.end_ids
        ends = [i + 1 for i, token in enumerate(ids) if token in closing]
        weights = [turn.weight or 0.0 for turn in turns]
        if len(ends) == len(turns) + 1:  # the template has added a system turn
            weights = [1.0, *weights]
        if len(ends) != len(weights):  # a template that joins turns
            if set(weights) != {1.0}:
                raise ReadingError(
                    "turns have separate loss weights, but the template does not end each turn."
                )
            weights = [1.0] * len(ends)
        token_weights = [0.0] * len(ids)
        for (start, stop), weight in zip(itertools.pairwise([0, *ends]), weights, strict=True):
            token_weights[start:stop] = [weight] * (stop - start)
        return token_weights

    def _bare(self, turn: Message) -> Reading:
        text, end = turn.content or "", self.model.profile.end_of_turn
        hidden = _Hidden(self._controls, [text])
        ids = self._ids(hidden.hide(text) + end, hidden)
        weights = [0.0, *[turn.weight or 0.0] * (len(ids) - 1)]
        whole = None if hidden.tokens else self.whole(text + end)
        return Reading(ids, weights, upto=len(ids), whole=whole)

    def steps(
        self,
        problem: str,
        steps: Sequence[str],
        ratings: Sequence[float | None],
        tail: str | None,
        own: str | None = None,
    ) -> Reading | None:
        """The ids of a problem and its steps with a marker after each; all weights are 0.

        Args:
            ratings: one for each step, None where it has none.
            tail: the end of the row's own text; None where the steps are an answer in a chat.
            own: the row's system text.

        Raises:
            ReadingError: markers and ratings do not line up.
        """
        tokens = self.model.profile.step_tokens
        system = own or self.system
        texts = [system or "", problem, *steps, tail or ""]
        hidden = _Hidden(self._controls, texts)
        marked = [hidden.hide(step) + tokens.step for step in steps]
        if tail is not None:
            text = "".join(marked) + hidden.hide(tail)
            ids = self._ids(text, hidden)
            require_aligned(text, ratings, tokens, lambda one: len(self._ids(one, hidden)))
            return Reading(ids, [0.0] * len(ids), upto=len(ids), whole=None)
        shown = [{"role": "user", "content": hidden.hide(problem)}]
        if system is not None:
            shown.insert(0, {"role": "system", "content": hidden.hide(system)})
        answer = {"role": "assistant", "content": tokens.separator.join(marked)}
        text, starts = self._text([*shown, answer], None, [len(shown)])
        answers = [(start, self._text.end(answer), 0.0) for start in starts]
        ids, weights, _ = self._read(text, answers, hidden, ended=True)
        require_aligned(text, ratings, tokens, lambda one: len(self._ids(one, hidden)))
        whole = None if hidden.tokens else self.whole(text)
        return Reading(ids, weights, upto=len(ids), whole=whole)

    def pair(self, prompt: Sequence[Message], answer: Sequence[Message]) -> Reading:
        """The ids of two texts as an encoder's tokenizer frames them; the second is trained."""
        texts = []
        for turns in (prompt, answer):
            seen = [turn.seen() for turn in turns]
            texts.append(self._text.rendered(seen))
        encoding = encoders.as_text(self._tokenizer, texts[0], texts[1])
        framing = self.model.profile.pair
        # Where the answer has no token, its start is where the tokens after it begin.
        start = len(encoding.ids) - (len(framing.after) if framing else 0)
        if 1 in encoding.sequence_ids:
            start = encoding.sequence_ids.index(1)
        weights = [0.0] * start + [1.0] * (len(encoding.ids) - start)
        return Reading(encoding.ids, weights, upto=len(encoding.ids), whole=encoding.ids)
