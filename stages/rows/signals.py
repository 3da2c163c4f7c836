"""What a column may say where no format reads it: one table of words, and shapes of values.

A name is split into words at case changes, digits and everything that is no letter. The words are
looked up from the last to the first, since the last one says what a column holds: a
``reasoning_score`` is a score, and a ``score_model_name`` is a name. A class holds only where the
value has its shape: a score is a number, and reasoning is a text.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stages.rows.speakers import PARTS

# Words of each class; behind a bar, words that stand beside them and say no more. ``word`` is found
# in all its inflections, ``stem*`` with any ending but that of somebody who does it (``verifier``).
TABLE = """
system: system sys developer | prompt instruction
history: history dialog* previousturns previousmessages exchange | past chat conversation turns
tools: tool function api | available call rejected definition
arguments: kwargs thinkingmode enablethinking | chat template
media: image img video audio pixel frame photo picture screenshot bbox object inlinedata filedata
  | path url uri file input
context: context ctx definition passage document article paragraph table evidence knowledge
  background premise hypothes* fact retriev* searchresults starter schema hint persona scenario
  story transcript choice option excerpt snippet candidatestext
  | code sql db answer supporting dialogue
reasoning: cot rational* reason* think* thought explanation explain scratchpad analysis monologue
  | chain initial step trace trajector* deepseek
course: trajector* trace plan derivation deliberation proof workings steps
beginning: prefix prefill | answer response solution
begun: initial partial preceding previous
whole: full whole entire
corrected: corrected correction revised improved edited | answer output response
asked: question query problem prompt instruction input user taskdescription | statement
answered: answer response solution output completion assistant target reply generation | gold model
weight: weight mask importance
trained: train trainable loss keep kept includ* use select*
untrained: exclud* skip discard drop ignor* delet* remov* hidden
label: label ktotag verdict judgement judgment | kto
verdict: valid* verif* correct* pass fail* solv* resolv* success* accept* approv* prefer* win winner
  safe* toxic* harm* refus* grade decision outcome desirab* satisf* quality wrong mistake error good
  bad right offens* nsfw hate violen* violat* flag hallucinat* faithful* factual* truthful* match
  upvot* accura* complete truncat* chosen select*
measure: score rate reward acc helpful* honest* coheren* relevan* thumb vote star like guard judg*
  target advantage feedback moderat* confiden* certain* agree* consisten* useful*
pair: tie swap flip confiden* certain* agree* vote prefer* win winner equal
  consensus
margin: margin strength gap differ* diff
flag: weight train trainable loss mask detail ignore skip exclud* hidden prefix prefill partial
  cachecontrol continu*
"""
# Words of columns that count, name or date something: the first ones as first word of a name too.
_COUNTED = "n num number nr count max min".split()
_ABOUT = frozenset(
    "id ids idx index uid uuid guid identifier hash sha md fingerprint key token tokens size time "
    "timestamp date ts at created updated year seed temperature latency cost price duration "
    "source src origin split subset set dataset lang language locale name names model models "
    "version type types kind category topic domain subject style by annotator annotators grader "
    "rater labeler labeller verifier scorer worker reviewer evaluator author step turn position "
    "order seq start end level difficulty title group cluster license provider session url link "
    "file path method config count total threshold utc ms parallel control frequency len length "
    "std var range scale description criteria rubric "
    "classification synthetic english streaming redacted translated".split()
) | frozenset(_COUNTED)
_FILLERS = frozenset(
    "is has was are the a an of my all raw text texts message messages content contents value "
    "values list final overall avg average mean human".split()
)
_GENERAL = _FILLERS | frozenset("result results body data".split())
_FIRST = frozenset("first index idx step position location place".split())
_ERRORS = re.compile(r"mistakes?|errors?|wrong|incorrect")
_ASKING = ("is", "has", "was")
_ENDED = frozenset("stop finish filter exit end".split())
SIDES = frozenset("chosen rejected accepted a b w l winner loser better worse preferred".split())
_LOW = re.compile(
    r"(?:toxic|harm(?!less)|refus|wrong|mistake|error|bad$|fail|offens|nsfw|hate|viol|flag|halluc|"
    r"reject|dislike|moderat|swap|flip|tie)"
)
_SPLIT = re.compile(r"[\W\d_]+")
_NUMBERED = re.compile(r"([^\W\d_]+)([\W_]*)[0-2](?!\d)")


def _classes() -> Iterator[tuple[str, str, str]]:
    """Every class of the table, its words, and those beside them."""
    for line in TABLE.replace("\n  ", " ").strip().splitlines():
        name, _, words = line.partition(":")
        own, _, beside = words.partition("|")
        yield name, own, beside


def _forms(word: str) -> str:
    """A pattern of the inflections of a word of the table."""
    if word.endswith("*"):
        return rf"{word[:-1]}(?![a-z]*(?:er|or)s?$)[a-z]{{0,7}}"
    if word.endswith("e"):
        return rf"{word[:-1]}(?:e|es|ed|ing|ings)"
    return rf"{word}(?:{word[-1]}?(?:ed|ing|ings)|e?s)?"


def _pattern(words: str, before: str = "") -> re.Pattern[str]:
    return re.compile(rf"(?P<no>{before})(?:{'|'.join(map(_forms, words.split())) or '(?!)'})")


_NOT = "(?:un|in|non|dis|im|mis)?"
_RATING = ("label", "verdict", "measure")
_WORDS = {k: _pattern(own, _NOT if k in _RATING else "") for k, own, _ in _classes()}
_LISTED = frozenset(word for _, own, _ in _classes() for word in own.split())
_BESIDE = {name: _pattern(words) for name, _, words in _classes()}


@functools.lru_cache(8192)
def _classes_of(word: str) -> frozenset[str]:
    return frozenset(name for name, pattern in _WORDS.items() if pattern.fullmatch(word))


def _classes_of_all(words: Iterable[str]) -> set[str]:
    return set().union(*map(_classes_of, words))


def listed() -> Sequence[str]:
    """Every word of the table in its shortest form."""
    return sorted(word.rstrip("*") for word in _LISTED)


def _is_known(word: str) -> bool:
    return bool(_classes_of(word)) or word in _ABOUT or word in _FILLERS or word in SIDES


def _split(chunk: str) -> Sequence[str]:
    """The words of a name's part without a separator: cut where its case changes, or where both
    halves are known words."""
    small = chunk.casefold()
    words = [word.casefold() for word in PARTS.findall(chunk)]
    if small in _LISTED or len(words) > 1:
        return [small] if small in _LISTED else words
    halves = ([small[:at], small[at:]] for at in range(2, len(small) - 1))
    return next((two for two in halves if all(map(_is_known, two))), words)


@functools.lru_cache(8192)
def words_of(part: str) -> tuple[str, ...]:
    """The words of one part of a path in small letters."""
    whole = "".join(_SPLIT.split(part)).casefold()
    if whole in _LISTED:
        return (whole,)
    return tuple(word for chunk in _SPLIT.split(part) if chunk for word in _split(chunk))


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("[]", "").split(".") if not part.isdigit()]


def _is_place(words: Iterable[str]) -> bool:
    """Whether a name says where the first mistake is."""
    return any(map(_ERRORS.fullmatch, words)) and not _FIRST.isdisjoint(words)


def _says_no_more(words: Iterable[str], name: str) -> bool:
    ours = (_WORDS[name], _BESIDE[name])
    return all(
        word in _FILLERS or word in SIDES or any(pattern.fullmatch(word) for pattern in ours)
        for word in words
    )


@functools.lru_cache(8192)
def is_about(path: str) -> bool:
    """Whether a column only counts, names or dates something, whatever its other words are."""
    words = [word for part in _parts(path)[-1:] for word in words_of(part)]
    if _is_place(words):
        return False
    for word in reversed(words):
        if _classes_of(word):
            break
        if word in _ABOUT:
            inside = "media" in _classes_of_all(words)
            return not (inside and word in ("path", "url", "file", "uri"))
    return bool(words) and words[0] in _COUNTED


def _is_of_a_score(words: Sequence[str]) -> bool:
    """Whether a reason is one for a score, or for an end, and not for an answer."""
    at = next(at for at, word in enumerate(words) if "reasoning" in _classes_of(word))
    before = [word for word in words[:at] if word not in SIDES]
    return not _ENDED.isdisjoint(before) or not _classes_of_all(before).isdisjoint(_RATING)


@functools.lru_cache(8192)
def classes(path: str) -> Mapping[str, bool]:
    """The classes of a column's name, the last word's first, each with whether it says no more.

    Where its last part is too general to say something (``value``), the part before it is taken;
    where it says nothing, that part may still say that it is a score.
    """
    parts = _parts(path)
    if is_about(path):
        return {}
    words = words_of(parts[-1]) if parts else ()
    if _is_place(words):
        return {"place": True}
    found: dict[str, bool] = {}
    for at in range(len(words) - 1, -1, -1):
        for name in _WORDS:
            if name in _classes_of(words[at]):
                found.setdefault(name, _says_no_more(words, name))
    head = next(iter(found), "")
    named = head in ("asked", "answered", "context") and words[0] not in _ASKING
    if named or ("corrected" in found and "measure" not in found):
        # A correct answer, or a corrected one, is no verdict; whether an answer is correct is one.
        rated = [found.pop(name) for name in ("label", "verdict") if name in found]
        if named and rated:
            found["sign"] = False
    for name in ("asked", "answered"):
        if not found.get(name, True):  # an output format is no output
            del found[name]
    if "reasoning" in found and _is_of_a_score(words):
        del found["reasoning"]
    if not found and len(parts) > 1:
        general = all(word in _GENERAL for word in words)
        above = classes(".".join(parts[:-1]))
        return {k: v for k, v in above.items() if general or k in _RATING}
    return found


def has_side(path: str) -> bool:
    """Whether a column is of one side of a pair, or of one numbered answer."""
    parts = _parts(path)
    words = (word for part in parts for word in words_of(part))
    return any(map(SIDES.__contains__, words)) or any(
        between or _is_known(words_of(before)[-1])
        for before, between in _NUMBERED.findall(parts[-1] if parts else "")
    )


def is_low(path: str) -> bool:
    """Whether a high number (or true) means that the answer is bad."""
    for word in reversed(words_of(_parts(path)[-1]) if path else ()):
        for name in (*_RATING, "pair"):
            found = _WORDS[name].fullmatch(word)
            if found:
                return bool(found["no"]) != bool(_LOW.match(word, found.end("no")))
    return False


# Shapes of values.

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)\s*(?:%|/\s*\d+)?")
_SAID = frozenset(
    "good bad true false yes no right wrong up down + - excellent poor ok oui non да нет".split()
)
# In these texts a verdict is seen whatever the column is called.
_TELLING = frozenset(
    "safe unsafe correct incorrect pass passed fail failed failure valid invalid verified "
    "unverified toxic nontoxic harmful harmless refused accepted rejected approved yes no "
    "ja nein 是 否 对 错".split()
)
_TIES = re.compile(r"tied?|draw|equal|neither|unsure|(?:tie)?\W*both\W*(?:bad|good|same)\W*", re.I)
FEW, SHORT = 6, 40  # different texts that a column of verdicts has at most, and their length
LONGEST = 80  # characters of a label


def _plain(text: str) -> str:
    return "".join(text.casefold().split()).rstrip(".!")


def is_telling(value: Any) -> bool:
    """Whether a text is a verdict, whatever its column is called."""
    return type(value) is str and len(value) < 16 and _plain(value) in _TELLING


def is_tie(value: Any) -> bool:
    """Whether a text says that two answers are equally good."""
    return isinstance(value, str) and len(value) < 24 and bool(_TIES.fullmatch(value.strip()))


def is_rating(value: Any) -> bool:
    """Whether a value is a number, true or false, a word for good or bad, or some of these."""
    if isinstance(value, list | dict):
        inside = list(value.values()) if isinstance(value, dict) else value
        return bool(inside) and all(map(is_rating, inside))
    if not isinstance(value, str):
        return isinstance(value, bool | int | float)
    if len(value) > SHORT:
        return False
    text = _plain(value)
    if text in _SAID or text in _TELLING or _NUMBER.fullmatch(value.strip()):
        return True
    words = words_of(value)
    return 1 < len(words) <= 5 and not _classes_of_all(words).isdisjoint(_RATING)


def are_few(values: Sequence[Any]) -> bool:
    """Whether the values of a column are few short texts, and more than one."""
    if not all(isinstance(one, str) and len(one) <= SHORT for one in values):
        return False
    return 1 < len({*values}) <= min(FEW, len(values) // 2)


def is_prose(value: Any) -> bool:
    """Whether a value has a text that is more than a name."""
    if isinstance(value, str):
        text = value.strip()
        return len(text) >= 12 and (" " in text or "\n" in text or not text.isascii())
    inside = value.values() if isinstance(value, dict) else value if type(value) is list else ()
    return any(map(is_prose, inside))


def is_text(value: Any, alone: bool) -> bool:
    """Whether a value can be read by a model.

    Args:
        alone: the column's name says nothing else, so that a single word will do.
    """
    if alone and isinstance(value, list | dict):
        return True
    return isinstance(value, str) and bool(value.strip()) if alone else is_prose(value)


def is_media(value: Any, alone: bool) -> bool:
    """Whether a value can be a file, or what is in one."""
    if isinstance(value, str):
        named = "." in value or "/" in value or len(value) > 200
        return bool(value.strip()) and (alone or (named and " " not in value.strip()))
    return isinstance(value, list | dict | bytes)


def is_declared(value: Any, alone: bool) -> bool:
    """Whether a value can be tools or calls: objects, or their JSON."""
    if isinstance(value, str):
        return value.lstrip()[:1] in ("[", "{") or (alone and is_prose(value))
    return isinstance(value, dict) or (
        isinstance(value, list) and (alone or dict in map(type, value))
    )
