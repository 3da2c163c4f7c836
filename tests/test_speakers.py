"""Who a name of a role means: names made of parts, in every spelling, for every task and place."""

import itertools
import json
import shlex
from typing import Any

import pytest
from support import raised, table

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Conversation, FormatOptions, Message, Row
from stages.errors import DataError, RowError, UsageError
from stages.formats._messages import read
from stages.normalize.evidence import detect
from stages.rows import speakers
from stages.rows.selection import Selection, renamed

WORDS = dict(table("speaker_words.jsonl"))
BESIDE = dict(table("words_beside_speakers.jsonl"))
CASES = (str.lower, str.upper, str.capitalize)
JOINTS = ("_", "-", ".", " ")


def spelled(*parts: str) -> list[str]:
    """Parts as one name, in every usual way of writing it."""
    joined = [joint.join(map(case, parts)) for joint in JOINTS for case in CASES]
    camel = "".join(part.capitalize() for part in parts)
    return [*joined, camel, camel[0].lower() + camel[1:]]


@pytest.mark.parametrize("role", WORDS)
def test_a_name_is_read_in_its_parts(role):
    """A word alone, with a number, and with a part that only says that it is a turn."""
    for word in WORDS[role]:
        for case in CASES:
            assert speakers.role_named(case(word)) == role
            assert speakers.role_named(f"{case(word)}4") == role
        for beside, name in ((b, n) for b in BESIDE[role] for n in spelled(word, b)):
            assert speakers.role_named(name) == role, (name, beside)


def test_a_call_is_a_turn_of_the_assistant():
    """A tool word beside ``call``; what a call gives back is a tool's."""
    for word, call in itertools.product(WORDS["tool"], ("call", "calls")):
        for name in spelled(word, call):
            assert (speakers.meaning(name), speakers.role_named(name)) == ("call", "assistant")
        for name in spelled(word, call, "output"):
            assert speakers.meaning(name) == "tool"


def test_other_names_are_nobody():
    """Two roles in one name, a part that is not known, and what is no text."""
    mixed = [n for a, b in itertools.permutations(WORDS, 2) for n in spelled(a, WORDS[b][0])]
    odd = [n for words in WORDS.values() for word in words for n in spelled(word, "critic")]
    for name in (*mixed, *odd, "narrator", "", "4", "-", None, 4, ["user"]):
        assert speakers.role_named(name) is None, name


NAMES = ("Pilot", "narrator-2", "0", "it's me", "ai_critic", "Farmer")


def turns(asks: Any, answers: Any, key: str = "role", text: str = "content") -> list[Row]:
    """Two exchanges."""
    said = zip((asks, answers, asks, answers), "abcd", strict=True)
    return [{key: name, text: content} for name, content in said]


def shaped(asks: Any, answers: Any) -> list[tuple[str, Row]]:
    """Rows with turns in every place, for every task that has some."""
    one, other = (
        turns(asks, answers),
        [*turns(asks, answers)[:-1], {"role": answers, "content": "z"}],
    )
    return [
        ("sft", {"messages": one}),
        ("sft", {"conversations": turns(asks, answers, "from", "value")}),
        ("sft", {"messages": json.dumps(one)}),
        ("sft", {"prompt": one[:-1], "completion": [one[-1]]}),
        ("rm", {"chosen": one, "rejected": other}),
        ("rm", {"prompt": one[:-1], "chosen": [one[-1]], "rejected": [other[-1]]}),
    ]


@pytest.mark.parametrize(("asks", "answers"), [*itertools.permutations(NAMES, 2)])
def test_roles_of_nobody_are_asked_about_with_options_that_read_them(asks, answers):
    """The printed options, as a shell reads them, give what known names give."""
    plain = shaped("user", "assistant")
    for (task, row), (_, wanted) in zip(shaped(asks, answers), plain, strict=True):
        error = raised(DataError, detect, [row] * 3, kind_of(task), "x.jsonl", says="has the role")
        words = shlex.split(error.remedy.partition("; ")[0].partition("instance ")[2])
        roles = dict(word.rpartition("=")[::2] for word in words if word != "--role")
        assert roles == {asks: "user", answers: "assistant"}
        told = Selection(roles=roles).read(row)
        found = detect([told] * 3, kind_of(task), "x.jsonl")
        assert found.format.read(told, FormatOptions()) == formats.load(found.reading).read(
            wanted, FormatOptions()
        )
        assert Selection(roles={"nobody": "user"}).read(row) is row


def test_a_number_may_be_a_role():
    """As labels of speakers are, in tables of dialogues."""
    row = Selection(roles={"0": "user", "1": "assistant"}).read({"messages": turns(0, 1)})
    assert row == {"messages": turns("user", "assistant")}


def test_a_refused_turn_says_how_its_role_is_read():
    """For one row of many, where the file as a whole is read."""
    with pytest.raises(RowError, match="--role narrator=user") as error:
        read({"role": "narrator", "content": "a"}, "messages[0]")
    assert error.value.code == "unknown_role"


def own(asks: str, answers: str) -> list[tuple[str, Any]]:
    """Turns with keys of their own: in a list, in objects that count them or have lists."""
    return [
        *(("list", turns(asks, answers, key, text)) for key in WHO for text in WHAT),
        (
            "object",
            {f"turn_{at}": one for at, one in enumerate(turns(asks, answers, "speaker"), 1)},
        ),
        ("lists", {"speaker": [asks, answers] * 2, "text": [*"abcd"]}),
    ]


WHO, WHAT = ("speaker", "actor", "msg_author"), ("text", "utterance")


@pytest.mark.parametrize(("asks", "answers"), [("Anna", "narrator-2"), ("0", "it's me")])
def test_turns_with_keys_of_their_own_are_read_with_the_roles_that_are_offered(asks, answers):
    """The printed options give the turns that known names give; a role that no turn has is told
    with those that they have."""
    wanted = Conversation(
        [Message(("user", "assistant")[at % 2], said) for at, said in enumerate("abcd")]
    )
    for where, talk in own(asks, answers):
        rows: list[Row] = [{"talk": talk}] * 3
        with pytest.raises(DataError, match="no format of conversations") as error:
            detect(rows, kind_of("sft"), "x.jsonl")
        words = shlex.split(error.value.remedy.rstrip("."))
        roles = dict(word.rpartition("=")[::2] for word in words if "=" in word)
        assert roles == {asks: "user", answers: "assistant"}, where
        told = Selection(roles=roles).read(rows[0])
        found = detect([told] * 3, kind_of("sft"), "x.jsonl")
        assert found.format.read(renamed(told, found.format.renamed), FormatOptions()) == [wanted]
        speakers.require_said(roles, rows, "x.jsonl")
        with pytest.raises(UsageError, match="has the role nobody") as error:
            speakers.require_said({"nobody": "user"}, rows, "x.jsonl")
        assert asks in str(error.value.remedy), where
