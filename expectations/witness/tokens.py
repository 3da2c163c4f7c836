"""What a row's texts are in tokens, by ``transformers`` over a build's folder ``tokenizer/``.

A conversation is rendered once as a whole, and once up to each answer that is trained, with the
generation prompt: there the answer begins, and it ends with its end of turn. The text is cut where
answers begin, since inference encodes a prompt alone. Where a template ends a turn only by opening
the next one, the last turn of a row ends as it would if another one followed.

What users write is data. Where a text spells a control token, ``apply_chat_template`` and the
tokenizer would make that token of it, and a build does not: so the spelling is hidden behind a
character that the row does not have, until the text is cut at the template's own control tokens.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from expectations.witness.laws import FIGURES, figures, refusal
from expectations.witness.printed import MARKS, BrokenError, Printer, calls, veiled
from expectations.witness.raw import UnreadError
from expectations.witness.said import Given, Said, Sides, Steps, Talk, plain, thought, unstopped
from expectations.witness.steps import one_text
from expectations.witness.talks import each
from expectations.witness.turns import Turn

IGNORED = -100
ANSWERS = 64  # of a row, each of which is a rendering


@dataclass
class Tokens:
    """Tokens, what each weighs in the loss, and where the first answer begins."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    start: int = 0

    @property
    def labels(self) -> list[int]:
        """The ids where trained, else -100."""
        both = zip(self.ids, self.weights, strict=True)
        return [token if weight else IGNORED for token, weight in both]


class Published(Printer):
    """The tokenizer of a build, and its template.

    Attributes:
        truncated: tokens of turns and steps that do not fit; ``exact``: of all rows.
        asked: the texts that the row that is read asks; ``notes``: what the manifest notes of it;
            ``texts``: of its only example, those that it has.
    """

    def __init__(self, folder: str, words: dict[str, Any]) -> None:
        super().__init__(folder, words)
        self.truncated, self.exact, self.asked = 0, True, tuple[str, ...]()
        self.notes: set[str] = set()
        self.trims = words["too_long"] != "reject"

    def _read(
        self,
        turns: Sequence[Turn],
        weights: Sequence[float],
        tools: list[Any] | None,
        masked: bool = False,
    ) -> Tokens:
        """A conversation, of whose answers some are trained; ``masked``: behind their reasoning."""
        said = [str(turn.get("content") or "") for turn in turns]
        others = [str({**turn, "content": ""}) for turn in turns] + [str(tools)]
        if self.spelled.search("".join(others)):
            raise UnreadError("control tokens in other places than the content")
        hidden = self.hide(said)
        shown = [
            {**turn, "content": veiled(turn["content"], hidden)}
            if isinstance(turn.get("content"), str)
            else turn
            for turn in turns
        ]
        trained = [
            i for i, weight in enumerate(weights) if weight and turns[i]["role"] == "assistant"
        ]
        if len(trained) > ANSWERS:
            raise UnreadError(f"more than {ANSWERS} answers")
        text, starts = self.conversation(shown, trained, tools)
        if hidden:
            restored = text
            for spelling, sign in hidden.items():
                restored = restored.replace(sign, spelling)
            if restored != self.conversation(turns, trained, tools)[0]:
                raise UnreadError("control tokens as text, which the template changes")
        return self._weighed(turns, weights, trained, text, starts, hidden, masked)

    def _weighed(
        self,
        turns: Sequence[Turn],
        weights: Sequence[float],
        trained: Sequence[int],
        text: str,
        starts: Sequence[int],
        hidden: dict[str, str],
        masked: bool,
    ) -> Tokens:
        """A text in which some answers begin, each trained up to its end of turn."""
        spans = pairwise([*starts, len(text)])
        lengths = [thought(text[a:b], text[:a]) if masked else 0 for a, b in spans]
        cuts = sorted({*starts, *(a + n for a, n in zip(starts, lengths, strict=True))})
        head, *pieces = self.cut(text, cuts, hidden)
        found = Tokens(head, [0.0] * len(head), len(head))
        for length, i in zip(lengths, trained, strict=True):
            reasoning = pieces.pop(0) if length else []
            found.ids += reasoning
            found.weights += [0.0] * len(reasoning)
            tail = pieces.pop(0)
            end = self.ends[calls(turns[i])]
            if end not in tail:
                raise BrokenError("template: an answer has no end of turn")
            # A turn may print its end inside of it, too: the last one of a row is its own.
            stop = tail.index(end) + 1
            if i == len(turns) - 1:
                stop = len(tail) - tail[::-1].index(end)
            found.weights += [weights[i]] * stop + [0.0] * (len(tail) - stop)
            found.ids += tail
        if found.weights:
            found.weights[0] = 0.0
        return found

    # What the columns must be.

    def expected(self, said: Said, words: dict[str, Any]) -> list[dict[str, Any] | BrokenError]:
        """The columns of each example that a sequence of a row becomes, or why it can be none."""
        every: Sequence[Said] = [said]
        every = each(said, words) if isinstance(said, Talk) else every
        return [self._one(example, words) for example in every]

    def _one(self, said: Said, words: dict[str, Any]) -> dict[str, Any] | BrokenError:
        read: dict[type, Callable[..., dict[str, Any]]] = {
            Talk: self._of_talk,
            Sides: self._of_pair if self.words["framed"] else self._of_sides,
            Steps: self._of_steps,
            Given: self._of_ids,
        }
        why = refusal(said, words)
        if why:
            return BrokenError(why)
        try:
            made = read[type(said)](said, words)
            return made | {FIGURES: figures(said, words, self.words["raw"])}
        except BrokenError as error:
            return error

    def _of_ids(self, said: Given, words: dict[str, Any]) -> dict[str, Any]:
        if max(said.ids, default=0) >= self.words["vocabulary"]:
            raise BrokenError("ids: one is not in the vocabulary")
        labels = [IGNORED, *said.labels[1:]]
        weights = [float(label != IGNORED) for label in labels]
        return {"input_ids": list(said.ids), "labels": labels, "loss_weights": weights}

    def _of_talk(self, said: Talk, words: dict[str, Any]) -> dict[str, Any]:
        turns, weights = plain(said.turns, words), [weight or 0.0 for weight in said.weights]
        if turns[0]["role"] == "text":
            hidden = self.hide([turns[0]["content"]])
            text = veiled(turns[0]["content"], hidden)
            (ids,) = self.cut(text + self.words["ends"][0], [], hidden)
            found = Tokens(ids, [0.0, *[1.0] * (len(ids) - 1)])
        else:
            turns, weights = _with_system(turns, words), [*weights]
            weights = [0.0] * (len(turns) - len(weights)) + weights
            masked = words["reasoning"] == "mask"
            found = self._trimmed(turns, weights, said.tools, masked)
            if words["train_on"] == "all":
                found = self._whole(found, turns, weights, said.tools)
        return {"input_ids": found.ids, "labels": found.labels, "loss_weights": found.weights}

    def _whole(
        self,
        found: Tokens,
        turns: Sequence[Turn],
        weights: Sequence[float],
        tools: list[Any] | None,
    ) -> Tokens:
        """The same where all is trained up to the last end of turn, or all but some turns."""
        closed = self._closed(found)
        own = [0.0] * len(found.ids)
        of = [1.0] * len(closed)
        if {*weights} != {1.0}:
            of = self._owned(turns, weights, tools, len(closed))
        for (start, stop), weight in zip(pairwise([0, *closed]), of, strict=True):
            own[start:stop] = [weight] * (stop - start)
        return Tokens(found.ids, [0.0, *own[1:]], found.start)

    def _owned(
        self, turns: Sequence[Turn], weights: Sequence[float], tools: list[Any] | None, ends: int
    ) -> list[float]:
        """The weight of the turn that each end of turn belongs to; of a turn that the template
        puts before all others it is 1."""
        if self.spelled.search("".join(str(turn.get("content")) for turn in turns)):
            raise UnreadError("weights of turns whose texts spell control tokens")
        signs = {*self.words["ends"]}
        texts = [self.rendered(turns[: i + 1], tools) for i in range(len(turns))]
        if not all(texts[-1].startswith(text) for text in texts):
            raise UnreadError("weights of turns that the template joins")
        counts = [sum(text.count(sign) for sign in signs) for text in texts]
        if counts[-1] < ends:
            raise UnreadError("weights of turns that a row does not have")
        added = counts[0] == 2
        of = [weights[bisect_right(counts, at)] for at in range(ends)]
        return [1.0, *of[1:]] if added else of

    def _trimmed(
        self, turns: Sequence[Turn], weights: Sequence[float], tools: list[Any] | None, masked: bool
    ) -> Tokens:
        """A conversation, up to the last answer with which it fits."""
        found, limit = self._read(turns, weights, tools, masked), self.words["limit"]
        if self.words["too_long"] != "trim-turns" or len(found.ids) <= limit:
            return found
        ends = [i + 1 for i, turn in enumerate(turns) if turn["role"] == "assistant"]
        if len({weights[i - 1] > 0 for i in ends}) > 1:
            raise UnreadError("a row that is too long, and not all of whose answers are trained")
        whole = found
        for end in reversed(ends):
            found = self._read(turns[:end], weights[:end], tools, masked)
            if len(found.ids) <= limit:
                self._drop(whole.ids, found.ids)
                break
        return found

    def _drop(self, whole: list[int], kept: list[int]) -> None:
        """Count what is left out of a row, where it is an end of it."""
        self.exact &= whole[: len(kept)] == kept
        if whole[: len(kept)] == kept:
            self.truncated += len(whole) - len(kept)

    def _closed(self, found: Tokens) -> list[int]:
        """Where turns have ended."""
        plain = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        if self.ended(plain, None) != self.rendered(plain, None):
            raise UnreadError("turns that end where the next one opens, of which all count")
        return [i + 1 for i, token in enumerate(found.ids) if token in self.ends]

    def _of_pair(self, said: Sides, words: dict[str, Any]) -> dict[str, Any]:
        """Of an encoder: the prompt and the answer, framed as the tokenizer frames two texts."""
        sides = {"chosen_ids": said.chosen, "rejected_ids": said.rejected}
        made: dict[str, Any] = {"margin": said.margin}
        for name, side in sides.items():
            own = plain(side, words)
            turns = _with_system(own, words)
            shared = said.shared + len(turns) - len(own)
            if said.tools or (len(turns) > 2 and self.tokenizer.chat_template is None):
                raise UnreadError("tools, or several turns without a template, for an encoder")
            if self.spelled.search(str(turns)):
                raise UnreadError("control tokens as text, for an encoder")
            texts = (
                own[0]["content"] if len(own) == 1 else self.rendered(own, None)
                for own in (turns[:shared], turns[shared:])
            )
            both = self.tokenizer(*texts)
            made[name] = list(both["input_ids"])
            answer = sum(one == 1 for one in both.sequence_ids())
            made["prompt_length"] = len(made[name]) - answer - 1
        return made

    def _of_sides(self, said: Sides, words: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {"margin": said.margin}
        starts = []
        for name, side in (("chosen_ids", said.chosen), ("rejected_ids", said.rejected)):
            own = plain(side, words)
            turns = _with_system(own, words)
            shared = said.shared + len(turns) - len(own)
            trained = [i >= shared and turn["role"] == "assistant" for i, turn in enumerate(turns)]
            if not any(trained) or (sum(trained) > 1 and words["per_turn"]):
                raise UnreadError("a pair whose answers change each other")
            found = self._read(turns, [float(one) for one in trained], said.tools)
            last = max(i for i, weight in enumerate(found.weights) if weight)
            made[name] = found.ids[: last + 1]
            starts.append(found.start)
        return made | {"prompt_length": min(starts)}

    def _of_steps(self, said: Steps, words: dict[str, Any]) -> dict[str, Any]:
        steps, limit = [*said.steps[:-1], unstopped(said.steps[-1], words)], self.words["limit"]
        pieces = [*said.pieces[:-2], *(unstopped(x, words) for x in said.pieces[-2:])]
        said = replace(said, steps=tuple(steps), pieces=tuple(pieces))
        ids = whole = self._marked(said, len(steps), words)
        while len(ids) > limit and self.words["too_long"] == "trim-steps" and len(steps) > 1:
            steps.pop()
            ids = self._marked(said, len(steps), words)
        if len(ids) <= limit:
            self._drop(whole, ids)
        step, good, bad = (self.id_of(self.words[name]) for name in ("step", "good", "bad"))
        places = [i for i, token in enumerate(ids) if token == step]
        ratings = said.ratings[: len(steps)]
        labels = [IGNORED] * len(ids)
        for place, rating in zip(places, ratings, strict=True):
            if rating is not None:
                labels[place] = good if rating >= 0.5 else bad
        marks = {"step_positions": places, "step_labels": list(ratings)}
        return {"input_ids": ids, "labels": labels, **marks}

    def _marked(self, said: Steps, count: int, words: dict[str, Any]) -> list[int]:
        """The ids of a problem and its first steps, each with the step token behind it."""
        mark, between = self.words["step"], self.words["separator"]
        own = [said.problem, *said.steps[:count], *said.pieces, said.system or ""]
        hidden = self.hide(own)
        self.marked = any(mark in one for one in own[:-1] for mark in MARKS)  # no note of systems
        problem, *texts = (veiled(one.strip(), hidden) for one in own[: count + 1])
        if self.words["raw"]:
            pieces = said.pieces or (*one_text(said, between), "")
            text = "".join(veiled(one, hidden) + mark for one in pieces[:count])
            (ids,) = self.cut(text + veiled(pieces[-1], hidden), [], hidden)
            return ids
        answer = between.join(one + mark for one in texts)
        system = [{"role": "system", "content": veiled(said.system or "", hidden)}]
        asked = [*system * bool(said.system), {"role": "user", "content": problem}]
        asked = _with_system(asked, words)
        turns = [*asked, {"role": "assistant", "content": answer}]
        return [*chain(*self.cut(*self.conversation(turns, [len(asked)], None), hidden))]


def _with_system(turns: Sequence[Turn], words: dict[str, Any]) -> list[Turn]:
    """Turns with the system text of the options, where they have none."""
    if words["system"] is None or turns[0]["role"] == "system":
        return list(turns)
    return [{"role": "system", "content": words["system"]}, *turns]
