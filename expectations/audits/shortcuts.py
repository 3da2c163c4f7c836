"""RM: how well one simple feature of the two answers alone separates chosen from rejected.

A reward model is trained on pairs, so the measure is the paired AUC: the share of pairs in which
the feature is larger on the chosen side, a tie counting half, taken towards whichever side wins.
First and last tokens are words, not numbers: each token is scored by how often it stood on a chosen
side in the *other* half of the pairs, so that a token seen once tells nothing about itself.
"""

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import audits, undo_layout
from expectations.audits import (
    AuditFacts,
    Counts,
    Figure,
    Tolerances,
    Totals,
    declared,
    language,
    portion,
)
from expectations.stored_rows import Chunk
from stages.columns import Ints
from stages.errors import counted

_BLANKS = r"[\s\v\x{85}\p{Z}]*"  # of all scripts
_FULL_STOP = rf"[.。．]{_BLANKS}$"
_MARKDOWN = rf"\*\*|##|```|^{_BLANKS}[#*•]{_BLANKS}$"
_REFUSALS = (
    "I'm sorry", "I’m sorry", "I am sorry", "I apologize", "I can't", "I cannot", "I'm unable",
    "I am unable", "As an AI", "as an AI", "as a language model", "I'm not able to", "抱歉",
    "对不起", "我无法", "我不能", "作为一个AI", "作为一个人工智能", "作为AI",
)  # fmt: skip

_NUMBERS = {
    "length": "is longer",
    "line breaks": "has more line breaks",
    "markdown marks": "has more markdown marks",
    "full stop": "alone ends in a full stop",
    "refusal words": "alone refuses",
    "Latin letters": "has the larger share of Latin letters",
}
_LATIN = list(language.SCRIPTS).index("Latin")
_NAMED = 6  # judgements of which a finding names the rows
_WORDS = {"first token": "begins", "last token": "ends"}


def _within(side: undo_layout.Sequences, at: Ints) -> Ints:
    """How many of some ascending flat indices are in each answer."""
    assert side.starts_at is not None
    ends = np.maximum(side.offsets[1:] - 1, side.starts_at)  # without the end-of-turn token
    return np.searchsorted(at, ends) - np.searchsorted(at, side.starts_at)


def _features(side: undo_layout.Sequences, chunk: Chunk) -> dict[str, npt.NDArray[np.float64]]:
    vocab = language.of(chunk.context.model)
    assert side.starts_at is not None
    ids = np.clip(side.ids, 0, vocab.size - 1)
    last = ids[np.maximum(side.offsets[1:] - 2, side.starts_at - 1)]
    first = ids[np.minimum(side.starts_at, side.offsets[1:] - 1)]
    scripts = vocab.scripts(ids)
    latin = _within(side, np.flatnonzero(scripts == _LATIN))
    letters = _within(side, np.flatnonzero(scripts < len(language.SCRIPTS)))
    phrases = [p for words in _REFUSALS for p in vocab.spelled(words)]
    refused = _within(side, language.places(side.ids, phrases, vocab.size))
    features = {
        "length": side.offsets[1:] - side.starts_at,
        "line breaks": _within(side, np.flatnonzero(vocab.having("\n", ids))),
        "markdown marks": _within(side, np.flatnonzero(vocab.having(_MARKDOWN, ids))),
        "full stop": vocab.having(_FULL_STOP, last),
        "refusal words": refused > 0,
        "Latin letters": latin / np.maximum(letters, 1),
        "first token": first,
        "last token": last,
    }
    return {name: np.asarray(values, np.float64) for name, values in features.items()}


def _measure(chunk: Chunk) -> Counts:
    assert chunk.other is not None
    chosen, rejected = (_features(side, chunk) for side in (chunk.sequences, chunk.other))
    counts: Counts = {}
    for name in _NUMBERS:
        sign = np.sign(chosen[name] - rejected[name])
        counts[name] = np.array([(sign > 0).sum(), (sign == 0).sum(), (sign < 0).sum()])
    for name in _WORDS:
        counts[f"{name} chosen"] = chosen[name].astype(np.int64)
        counts[f"{name} rejected"] = rejected[name].astype(np.int64)
    return counts


def _number(name: str, counts: Ints, tolerances: Tolerances) -> Figure:
    more, ties, less = counts.tolist()
    pairs = more + ties + less
    value = round(max(more, less) / pairs + ties / pairs / 2, 6)
    side = "chosen" if more >= less else "rejected"
    detail = (
        f"{side} {_NUMBERS[name]} in {max(more, less) / pairs:.1%} of {counted(pairs, 'pair')}; "
        f"the sides are equal in {ties / pairs:.1%}"
    )
    return Figure(name, value, "auc", detail, status=audits.level(value, tolerances, pairs))


def _scores(chosen: Ints, rejected: Ints, size: int) -> npt.NDArray[np.float64]:
    """Log odds of each token to be on a chosen side, with half a count added to both."""
    good, bad = (np.bincount(ids, minlength=size) for ids in (chosen, rejected))
    scores: npt.NDArray[np.float64] = np.log((good + 0.5) / (bad + 0.5))
    return scores


def _word(
    name: str, chosen: Ints, rejected: Ints, facts: AuditFacts, tolerances: Tolerances
) -> Figure:
    pairs = len(chosen)
    size = int(max(chosen.max(), rejected.max())) + 1
    # Two folds: each half is scored with the counts of the other half.
    fold = np.arange(pairs) % 2 == 0
    sign = np.zeros(pairs)
    for half in (fold, ~fold):
        scores = _scores(chosen[~half], rejected[~half], size)
        sign[half] = np.sign(scores[chosen[half]] - scores[rejected[half]])
    value = round(max(0.5, float((sign > 0).mean() + (sign == 0).mean() / 2)), 6)
    good, bad = (np.bincount(ids, minlength=size) for ids in (chosen, rejected))
    telling = int(np.argmax(np.abs(good - bad)))
    text = language.of(facts.context.model).text(telling)
    detail = (
        f"{text!r} {_WORDS[name]} {good[telling] / pairs:.1%} of chosen and "
        f"{bad[telling] / pairs:.1%} of rejected answers in {counted(pairs, 'pair')}"
    )
    if good[telling] == bad[telling]:
        detail = (
            f"no token {_WORDS[name]} one side more often than the other, in "
            f"{counted(pairs, 'pair')}"
        )
    return Figure(name, value, "auc", detail, status=audits.level(value, tolerances, pairs))


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    figures = [_number(name, totals.summed(name), tolerances) for name in _NUMBERS]
    for name in _WORDS:
        sides = totals.joined(f"{name} chosen"), totals.joined(f"{name} rejected")
        figures.append(_word(name, *sides, facts, tolerances))
    return figures


SHORTCUTS = declared("shortcuts", _judge, _measure)


# Test examples and prompts that are also in train: above the limit no build is published.


def _prompt_ends(chunk: Chunk) -> Ints:
    """Where each example's prompt ends: where training starts; PRM: where the problem ends."""
    sequences = chunk.sequences
    if sequences.starts_at is not None:
        return sequences.starts_at
    starts, stops = sequences.offsets[:-1], sequences.offsets[1:]
    # The first trained token at or after each start: searchsorted in the sorted trained indices.
    trained = np.append(np.flatnonzero(chunk.trained), len(chunk.trained))
    if not chunk.context.kind.marks:
        ends: Ints = np.minimum(trained[np.searchsorted(trained, starts)], stops)
        return ends
    markers = np.flatnonzero(sequences.ids == chunk.context.model.step_id)
    first = np.append(markers, len(sequences.ids))[np.searchsorted(markers, starts)]
    # The problem ends in the last end-of-turn token before the first marker, if there is one.
    turns = np.flatnonzero(chunk.context.model.ends_turn(sequences.ids))
    before = np.searchsorted(turns, first) - 1
    turn = np.append(turns, -1)[before]
    return np.where(turn >= starts, turn + 1, np.minimum(first, stops))


def _hashes(chunk: Chunk) -> Ints:
    """A 64-bit hash of each example's prompt."""
    view = memoryview(np.ascontiguousarray(chunk.sequences.ids).tobytes())
    starts = (chunk.sequences.offsets[:-1] * 4).tolist()
    digests = [
        hashlib.blake2b(view[start : stop * 4], digest_size=8).digest()
        for start, stop in zip(starts, _prompt_ends(chunk).tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.int64)


def _leaks_measure(chunk: Chunk) -> Counts:
    asks = _prompt_ends(chunk) - chunk.sequences.offsets[:-1] > 1  # the first is never trained
    return {chunk.split: _hashes(chunk)[asks]}


def _leaked(totals: Totals) -> Ints:
    """The hash of each test example's prompt that a train example has.

    What most examples have alike is no prompt, but what a template prints before turns that are all
    trained.
    """
    test, train = totals.joined("test"), totals.joined("train")
    prompts, counts = np.unique(np.concatenate([test, train]), return_counts=True)
    leaked = test[np.isin(test, train)]
    found: Ints = leaked[~np.isin(leaked, prompts[2 * counts > len(test) + len(train)])]
    return found


def _pair(facts: AuditFacts, prompt: int) -> tuple[str, ...]:
    """A test example with a prompt, and a train example with the same."""
    names: dict[str, str] = {}
    for chunk in facts.everything():
        asked = np.flatnonzero(_hashes(chunk) == prompt)
        for name in chunk.named(asked, most=1):
            names.setdefault(chunk.split, name)
    return names["test"], names["train"]


def _leaks_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    of = facts.ledger.test
    if of is None:
        return []
    prompts = _leaked(totals)
    pair = _pair(facts, prompts[0]) if len(prompts) else ()
    example = f": {pair[0]} asks what {pair[1]} asks" if pair else ""
    leaks = (
        ("leaked examples", facts.leaked, "test examples are in train too"),
        ("leaked prompts", len(prompts), f"test examples ask what train examples ask{example}"),
    )
    return [
        audits.portion(name, leaked, of, f"{leaked} of {of} {text}", tolerances, rows=pair)
        for name, leaked, text in leaks
    ]


LEAKS = declared("leaks", _leaks_judge, _leaks_measure)


# Judgements that contradict each other: two answers in both orders, a step that is good and bad.


def _sums(sequences: undo_layout.Sequences, stops: Ints, owner: Ints) -> Ints:
    """A 64-bit hash of each sequence up to some of its places.

    Args:
        stops: flat and ascending; ``owner``: the sequence of each.
    """
    view = memoryview(np.ascontiguousarray(sequences.ids).tobytes())
    starts = (sequences.offsets * 4).tolist()
    found, current, last, hashed = [], -1, 0, hashlib.blake2b(digest_size=8)
    for at, stop in zip(owner.tolist(), (stops * 4).tolist(), strict=True):
        if at != current:
            current, last, hashed = at, starts[at], hashlib.blake2b(digest_size=8)
        hashed.update(view[last:stop])
        last = stop
        found.append(hashed.digest())
    return np.frombuffer(b"".join(found), np.int64)


def _contradictions_measure(chunk: Chunk) -> Counts:
    """Of each judgement, what is judged and which way."""
    if chunk.other is not None:
        every = np.arange(len(chunk))
        sides = [_sums(side, side.offsets[1:], every) for side in (chunk.sequences, chunk.other)]
        subject, way, owner = sides[0] ^ sides[1], sides[0] < sides[1], every
    else:
        assert chunk.step_owner is not None
        assert chunk.step_values is not None
        markers = np.flatnonzero(chunk.sequences.ids == chunk.context.model.step_id)
        rated = ~np.isnan(chunk.step_values)
        subject = _sums(chunk.sequences, markers + 1, chunk.step_owner)[rated]
        way, owner = chunk.step_values[rated] >= 0.5, chunk.step_owner[rated]
    return {
        "subjects": subject,
        "ways": way.astype(np.int64),
        "names": np.array(chunk.names.take(pa.array(owner)).to_pylist(), object),
    }


def _contradictions_judge(
    facts: AuditFacts, totals: Totals, tolerances: Tolerances
) -> list[Figure]:
    subjects, ways = totals.joined("subjects"), totals.joined("ways")
    _, group = np.unique(subjects, return_inverse=True)
    size, good = np.bincount(group), np.bincount(group, ways)
    both = np.flatnonzero(((good > 0) & (good < size))[group])
    order = both[np.argsort(group[both], kind="stable")]  # those of one subject side by side
    what, how = "pair", "others prefer the other of the same two answers"
    if facts.context.kind.marks:
        what, how = "rated step", "the same steps are rated the other way elsewhere"
    detail = f"{len(both):,} of {counted(len(subjects), what)}: {how}"
    named = tuple(dict.fromkeys(totals.joined("names")[order[:_NAMED]].tolist()))
    return [portion("both ways", len(both), len(subjects), detail, tolerances, rows=named)]


CONTRADICTIONS = declared("contradictions", _contradictions_judge, _contradictions_measure)


TABLE = (SHORTCUTS, LEAKS, CONTRADICTIONS)
