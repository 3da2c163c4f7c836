"""Counts a build's trained answers: how many tokens they have, and which prompt they follow.

A server must allow as many new tokens as the longest answer has, and must give a hybrid reasoning
model the generation prompt that its answers were trained after.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline.executors import Sums
from pipeline.manifest.counts import AnswerTokens, Inference
from stages.columns import IGNORED, Bools, Ids, Ints, numbers, whole
from stages.profile import TargetModel
from stages.tokens.inference import Prompt, allowed, matches, prompts

OTHER = "other"  # after none of the known prompts


@dataclass(frozen=True, slots=True)
class Answers(Sums):
    """Counts that add up over shards.

    Attributes:
        lengths: how many trained turns have so many tokens, the end of the turn included.
        prompts: how many trained turns follow each prompt, by its name.
        unmeasured: trained turns whose start is unknown.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    prompts: Counter[str] = field(default_factory=Counter)
    unmeasured: int = 0


def limits(answers: Answers) -> AnswerTokens | None:
    """New tokens that a generation needs: ``max`` of the trained turns and ``p999``, the smallest
    number that 99.9 % of them do not exceed; None if some turn has no known length."""
    turns = answers.lengths.total()
    if not turns or answers.unmeasured:
        return None
    within, wanted = 0, -(-turns * 999 // 1000)  # rounded up, in whole numbers
    p999 = 0
    for length in sorted(answers.lengths):
        within += answers.lengths[length]
        if within >= wanted:
            p999 = length
            break
    return AnswerTokens(p999, max(answers.lengths), turns)


def _turns(trained: Bools, ends: Bools) -> tuple[Ints, Ints]:
    """First and last positions of the trained turns: runs of trained tokens, cut after each end of
    turn. Blocks hold many examples in a row, and two trained turns may touch."""
    last = ends.copy()
    last[:-1] |= ~trained[1:]
    last[-1:] = True
    last &= trained
    first = trained.copy()
    first[1:] &= ~trained[:-1] | last[:-1]
    return np.flatnonzero(first), np.flatnonzero(last)


class Counting:
    """Counts blocks of examples, before they are laid out in training rows.

    Args:
        masked: reasoning is generated but not trained, so an answer starts before its first
            trained token.
        everything: turns of other roles are trained too, and are not counted as answers.
    """

    def __init__(self, model: TargetModel, masked: bool, everything: bool) -> None:
        self._model = model
        known = prompts(model)
        self._hybrid = len(known) > 1
        self._prompts = tuple(p for p in known if allowed(p, model))
        self._masked, self._everything = masked, everything
        self.answers = Answers()

    def __call__(self, block: pa.Table) -> None:
        """Add a block; rows with step labels are not counted."""
        names = set(block.schema.names)
        if {"input_ids", "labels"} <= names and "step_positions" not in names:
            _, ids = numbers(whole(block.column("input_ids")))
            _, labels = numbers(whole(block.column("labels")))
            self._add(ids, labels != IGNORED)
        elif "chosen_ids" in names and self._hybrid:
            self._add_pairs(block)

    def _add(self, ids: Ids, trained: Bools) -> None:
        first, last = _turns(trained, self._model.ends_turn(ids))
        search = self._masked or self._everything
        starts = first
        # Without masked reasoning an answer begins at its first trained token, and only the name
        # of the prompt is needed; otherwise its start is the end of the prompt before it.
        if self._hybrid or search:
            opened, names = self._opened(ids, first, last)
            starts = opened if search else first
            if self._everything:
                names = [name for name in names if name != OTHER]
            if self._hybrid:
                self.answers.prompts.update(names)
        known = starts >= 0
        lengths, turns = np.unique((last - starts + 1)[known], return_counts=True)
        self.answers.lengths.update(dict(zip(lengths.tolist(), turns.tolist(), strict=True)))
        if not self._everything:
            unmeasured = self.answers.unmeasured + int((~known).sum())
            self.answers = replace(self.answers, unmeasured=unmeasured)

    def _opened(self, ids: Ids, first: Ints, last: Ints) -> tuple[Ints, list[str]]:
        """For each trained turn, the position after its prompt, or -1, and the prompt's name."""
        begins, names = np.full(len(first), -1, np.int64), [OTHER] * len(first)
        heads = np.full(len(first), -1, np.int64)
        ends = np.flatnonzero(self._model.ends_turn(ids))
        # A prompt belongs to a turn when no other turn ends between them.
        barrier = np.append(-1, ends)[np.searchsorted(ends, first)]
        limit = last if self._everything else first  # train_on all trains the prompt as well
        for prompt in self._prompts:  # the longest first: a shorter one may be its beginning
            at = matches(ids, prompt.tail)
            if not len(at):
                continue
            place = np.searchsorted(at, last, side="right") - 1
            head = np.where(place >= 0, at[np.maximum(place, 0)], -1)
            prompt_end = head + len(prompt.tail)
            fits = (head > barrier) & (prompt_end <= limit) & (head > heads)
            begins[fits], heads[fits] = prompt_end[fits], head[fits]
            for turn in np.flatnonzero(fits):
                names[turn] = prompt.name
        return begins, names

    def _add_pairs(self, block: pa.Table) -> None:
        """Count which prompt each pair ends its shared part with, from the chosen side."""
        offsets, ids = numbers(whole(block.column("chosen_ids")))
        ends = offsets[:-1] + block.column("prompt_length").to_numpy()
        left = np.ones(len(ends), bool)
        for prompt in self._prompts:
            size = len(prompt.tail)
            start = np.maximum(ends - size, 0)  # in the array; too short a prompt is no match
            same = left & (ends - size >= offsets[:-1])
            for place, token in enumerate(prompt.tail):
                same &= ids[start + place] == token
            self.answers.prompts[prompt.name] += int(same.sum())
            left &= ~same
        self.answers.prompts[OTHER] += int(left.sum())


def described(answers: Answers, known: tuple[Prompt, ...]) -> Inference | None:
    """The manifest's ``inference`` of a hybrid reasoning model; None for other models.

    ``arguments`` are those that the chat template needs at inference; None if the build trains
    answers with reasoning and answers without it.
    """
    if len(known) < 2:
        return None
    counts = {prompt.name: answers.prompts[prompt.name] for prompt in known}
    used = [prompt for prompt in known if counts[prompt.name]]
    one = used[0] if len(used) == 1 and not answers.prompts[OTHER] else None
    return Inference(
        trained_turns={**dict(sorted(counts.items())), OTHER: answers.prompts[OTHER]},
        arguments=one.arguments if one else None,
        mixed=len(used) > 1,
        modes={prompt.name: prompt.arguments for prompt in known},
    )
