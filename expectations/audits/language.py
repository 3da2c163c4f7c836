"""In which scripts the examples and their trained parts are written."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations import audits, undo_layout
from expectations.audits import AuditFacts, Counts, Figure, Tolerances, Totals, declared, portion
from expectations.stored_rows import Chunk
from stages import columns, encoders, profile
from stages.errors import counted, were

# The texts of token ids and what they contain: of the ids that occur, each computed once.
#
# Audits look ids up in tables as long as the vocabulary, so no text is decoded per row; and a small
# build decodes the few ids that it has, not the whole vocabulary.


Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int32]

_OTHERS = "Hangul Cyrillic Arabic Hebrew Devanagari Thai Greek Latin"
SCRIPTS = {
    "Han": r"\p{Han}",
    "Kana": r"\p{Hiragana}|\p{Katakana}",
    **{name: rf"\p{{{name}}}" for name in _OTHERS.split()},
    "other letters": r"\p{L}",
}


class _Known:
    """A small number for every id, computed for those that are asked about."""

    _UNKNOWN = 255

    def __init__(self, size: int, look: Callable[[columns.Ints], Codes | Bools]) -> None:
        self._table = np.full(size, self._UNKNOWN, np.uint8)
        self._look = look

    def of(self, ids: Ids | columns.Ints) -> Codes:
        """The number of each id."""
        present = np.zeros(len(self._table), bool)
        present[ids] = True
        missing = np.flatnonzero(present & (self._table == self._UNKNOWN))
        if len(missing):
            self._table[missing] = self._look(missing)
        found: Codes = self._table[ids]
        return found


class Vocabulary:
    """What is known of one tokenizer's ids, in tables as long as its vocabulary.

    Ids that are asked about are from 0 up to ``size``.
    """

    def __init__(self, tokenizer_json: bytes, controls: tuple[int, ...]) -> None:
        self._tokenizer = encoders.parsed(tokenizer_json)
        self._controls = np.array(controls, np.int64)
        self.size = max(self._tokenizer.get_vocab_size(), *(index + 1 for index in controls))
        self._having: dict[str, _Known] = {}
        self._scripts = _Known(self.size, self._script_of)

    def _matching(self, ids: columns.Ints, patterns: Sequence[str]) -> Iterator[Bools]:
        """Whether the text of each id matches, pattern by pattern; control tokens never do."""
        texts = self._tokenizer.decode_batch([[i] for i in ids.tolist()], skip_special_tokens=False)
        column, ordinary = pa.array(texts, pa.string()), ~np.isin(ids, self._controls)
        for pattern in patterns:
            found = pc.match_substring_regex(column, pattern)
            yield found.to_numpy(zero_copy_only=False) & ordinary

    def having(self, pattern: str, ids: Ids) -> Bools:
        """Whether the text of each id matches a regular expression (RE2); control tokens never
        do."""

        def look(wanted: columns.Ints) -> Bools:
            return next(self._matching(wanted, [pattern]))

        known = self._having.setdefault(pattern, _Known(self.size, look))
        matching: Bools = known.of(ids) == 1
        return matching

    def _script_of(self, ids: columns.Ints) -> Codes:
        script_of = np.full(len(ids), len(SCRIPTS), np.uint8)
        # In reverse order, so that the first script that matches is the one that stays.
        patterns = list(SCRIPTS.values())[::-1]
        for number, matching in enumerate(self._matching(ids, patterns)):
            script_of[matching] = len(SCRIPTS) - 1 - number
        return script_of

    def scripts(self, ids: Ids | columns.Ints) -> Codes:
        """Index into ``SCRIPTS`` of each id's letters; ``len(SCRIPTS)`` where it has none."""
        return self._scripts.of(ids)

    def text(self, index: int) -> str:
        """The text of one id."""
        if not 0 <= index < self.size:
            return f"id {index}"
        return str(self._tokenizer.decode([index], skip_special_tokens=False))

    def spelled(self, phrase: str, inner: bool = False) -> set[tuple[int, ...]]:
        """The ids of a phrase in ordinary text, after various beginnings.

        Args:
            inner: without the first and last id, which may merge with the text around.
        """
        spellings = set()
        for before in ("", " ", "\n"):
            ids = encoders.as_text(self._tokenizer, before + phrase).ids
            blank = encoders.as_text(self._tokenizer, before).ids if before else []
            ids = ids[len(blank) :] if ids[: len(blank)] == blank else ids
            spellings.add(tuple(ids[1:-1] if inner and len(ids) > 3 else ids))
        return {ids for ids in spellings if ids}


@functools.lru_cache(maxsize=2)
def _of(tokenizer_json: bytes, controls: tuple[int, ...]) -> Vocabulary:
    return Vocabulary(tokenizer_json, controls)


def of(model: profile.TargetModel) -> Vocabulary:
    """The model's vocabulary, whose texts are decoded once per process."""
    return _of(model.tokenizer_json, tuple(model.controls.values()))


def places(ids: Ids, phrases: Sequence[tuple[int, ...]], size: int) -> columns.Ints:
    """The flat indices at which any of some id sequences begins, ascending.

    Args:
        size: of the vocabulary.
    """
    # Candidates are the places of a first id; only these are compared id by id.
    begins = np.zeros(size, bool)
    begins[[phrase[0] for phrase in phrases]] = True
    at = np.flatnonzero(begins[np.clip(ids, 0, size - 1)])
    if not len(at):
        return at
    padded = np.append(ids, np.full(max(map(len, phrases)), -1, ids.dtype))
    hit = np.zeros(len(at), bool)
    for phrase in phrases:
        here = np.ones(len(at), bool)
        for step, index in enumerate(phrase):
            here &= padded[at + step] == index
        hit |= here
    return at[hit]


_NAMES = (*SCRIPTS, "no letters")


def _scripts(ids: Ids, chunk: Chunk) -> columns.Ints:
    """How many tokens have letters of each script: as short in a build of any size."""
    vocab = of(chunk.context.model)
    known = np.clip(ids, 0, vocab.size - 1)
    return np.bincount(vocab.scripts(known), minlength=len(_NAMES))


def _measure(chunk: Chunk) -> Counts:
    ids = chunk.sequences.ids
    counts = {"all": _scripts(ids, chunk)}
    if chunk.context.kind.trains_answers:
        counts["trained"] = _scripts(ids[chunk.trained], chunk)
    if chunk.other is not None:
        counts["other"] = _scripts(chunk.other.ids, chunk)
    return counts


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    titles = {"all": "all tokens"}
    if facts.context.kind.compares:
        titles = {"all": "chosen sides", "other": "rejected sides"}
    elif facts.context.kind.trains_answers:
        titles["trained"] = "trained tokens"
    figures = []
    for what, title in titles.items():
        by_script = totals.summed(what)
        letters = int(by_script[:-1].sum())
        bins = [(n, int(c)) for n, c in zip(_NAMES, by_script, strict=True) if c]
        bins.sort(key=lambda pair: -pair[1])
        top = int(np.argmax(by_script[:-1]))
        value = audits.share(by_script[top], letters)
        detail = f"{value:.1%} of {letters} tokens with letters are {_NAMES[top]}"
        figures.append(portion(title, by_script[top], letters, detail, bins=tuple(bins)))
    return figures


LANGUAGE = declared("language", _judge, _measure)


# Content that spells out a control token: harmless as ids, but a sign of templated input.


def _rows(side: undo_layout.Sequences, chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    model = chunk.context.model
    vocab = of(model)
    names = [name for name in model.controls if len(name) > 3]
    # Ids of a token's text as ordinary text would give them; one id alone would be too common.
    phrases = {ids for name in names for ids in vocab.spelled(name, inner=True) if len(ids) > 1}
    if not phrases:
        return np.zeros(0, np.int64)
    at = places(side.ids, sorted(phrases), vocab.size)
    return np.unique(side.owner(at))


def _control_text_measure(chunk: Chunk) -> Counts:
    rows = _rows(chunk.sequences, chunk)
    if chunk.other is not None:
        rows = np.union1d(rows, _rows(chunk.other, chunk))
    return {"rows": np.array([len(chunk), len(rows)]), "names": np.array(chunk.named(rows), object)}


def _control_text_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    examples, affected = totals.summed("rows").tolist()
    detail = f"the text of a control token in {affected:,} of {counted(examples, 'example')}"
    names = totals.named("names")
    return [portion("examples", affected, examples, detail, tolerances, rows=names)]


CONTROL_TEXT = declared("control_text", _control_text_judge, _control_text_measure)


# How many sampled rows the tokenizer does not give back; above the limit no build is planned.


def _lost_text_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lost, sampled, first = facts.lost
    example = f", for example {first}" if first else ""
    detail = f"{lost} of {counted(sampled, 'sampled row')}{example}"
    # A plan refuses what is above the limit, so here it only warns.
    return [portion("lost text", lost, sampled, detail, {"warn": tolerances["warn"]})]


LOST_TEXT = declared("lost_text", _lost_text_judge)


# How many rows have a null or a boolean in a call that the template prints as Python spells it.


def _python_values_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    spelled, rows = facts.spelled
    detail = f"{spelled:,} of {counted(rows, 'row')}: None, True or False stands in a call"
    return [portion("Python's values", spelled, rows, detail, tolerances)]


PYTHON_VALUES = declared("python_values", _python_values_judge)


# Equal examples.


def _duplicates_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    equal, compared = ledger.equal, ledger.kept
    if ledger.removed:  # before budgets left anything out: of all that were compared
        compared += ledger.removed + ledger.left_after
    removed = "removed" if ledger.removed else "kept"
    examples = counted(compared, "example")
    detail = f"{equal:,} of {examples}, equal to an earlier one, {were(equal)} {removed}"
    judged = None if ledger.removed else tolerances
    return [portion("equal examples", equal, compared, detail, judged)]


DUPLICATES = declared("duplicates", _duplicates_judge)


TABLE = (LANGUAGE, CONTROL_TEXT, LOST_TEXT, PYTHON_VALUES, DUPLICATES)
