"""Any conversation, however odd: ids and labels are those of Hugging Face, on both ways of ours.

``PARITY_ROWS=100000 pytest -m slow tests/test_adversarial.py -s`` reads so many for each tokenizer
and prints what was found. Conversations with tools and reasoning, of families whose vocabulary no
package carries too (on small tokenizers in their manner), and mistral-common's own ids come behind.
"""

import io
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import adversarial
import hard_texts
import pyarrow as pa
import pytest
from conversations import FAMILIES, TABLE, Speech, conversations
from encoding import model_of, vocabulary_of
from peers import packages
from rows import normalizing, turns
from small_tokenizers import SMALL, bound
from support import WIDE, raised, say, started, sweep, table
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from whole_rendering import Expected, WholeRendering

from pipeline.serving.serving import write_tokenizer
from pipeline.shards.chain import Refusal, refusals, through
from stages import encoders, errors, profile
from stages.chat_template import render
from stages.chat_template.segments import controls_pattern
from stages.contract import Row
from stages.readers import jsonl
from stages.rows import stop_text
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles
from stages.tokens import folded_labels, segment_encoder
from stages.tokens.encode import COLUMNS, Encode

ROWS = int(os.environ.get("PARITY_ROWS", "3000" if WIDE else "750"))
LONGER = 600 if WIDE else 200
BATCH = 2000
FEW = 240
_COMPARED = ("line", "sequence", "input_ids", "labels", "merged_cuts", "controls", "digest")


def _names() -> list[str]:
    """One profile for each built-in tokenizer and chat template."""
    found = {
        (profile.ranks.sha256, profile.chat_template): name
        for name, profile in sorted(all_profiles().items(), reverse=True)
        if profile.ranks is not None
    }
    return sorted(found.values())


NAMES = _names()
QUICK = "qwen2-0.5b"  # the others are slow to load


class Options(NamedTuple):
    """What a build is told: the system text of conversations without one, and what is trained."""

    system: str | None = None
    train_on: str = "assistant"


class Build:
    """A build from lines of JSON to ids, as columns or row by row."""

    def __init__(self, model: profile.TargetModel, options: Options, columnar: bool) -> None:
        by_turn = model.profile.one_example_per_turn
        encoder = encoders.load(encoders.choose(model.tokenizer_json), model.tokenizer_json)
        train_on = options.train_on
        self._normalize = normalizing("sft", "openai", train_on, by_turn)
        shown = render.Render(render.Renderer(model, train_on), system=options.system)
        encode = Encode(segment_encoder.SegmentEncoder(model, encoder, 1 << 20, "reject"))
        if not columnar:
            vars(self._normalize)["_may_be_plain"] = False
            vars(shown)["_shapes"] = lambda batch, column: []
            encode.encoder.outlines = None
        self._stages = (shown, encode)

    def __call__(self, rows: list[Row]) -> tuple[pa.Table, list[Refusal], int]:
        """The sequences that stay, those that are refused, and how many went as columns."""
        lines = (json.dumps(row, ensure_ascii=i % 2 > 0).encode() for i, row in enumerate(rows))
        (read,) = jsonl.records(io.BytesIO(b"".join(line + b"\n" for line in lines)), at_start=True)
        made, gone = through(self._normalize(read.records), self._stages)
        fast = sum(way == COLUMNS for way in made.column("encoded").to_pylist())
        kept = pa.Table.from_batches([folded_labels.unfold(made).select(_COMPARED)])
        return kept, sorted(refusals(gone), key=lambda one: (one.line, one.sequence)), fast


def _both(model: profile.TargetModel, options: Options) -> tuple[Options, Build, Build]:
    return options, Build(model, options, columnar=True), Build(model, options, columnar=False)


def _blank(role: str) -> Callable[[list[Row], str], bool]:
    return lambda turns, detail: any(
        turn["role"] == role and not turn["content"].rpartition("</think>")[2].strip()
        for turn in turns
    )


def _said(*texts: str) -> Callable[[list[Row], str], bool]:
    return lambda turns, detail: any(t in (one["content"] or "") for one in turns for t in texts)


# By code, what must be so of a row that Hugging Face prints.
REASONS: dict[str, Callable[[list[Row], str], bool]] = {
    "empty_answer": _blank("assistant"),
    "empty_question": _blank("user"),
    "begins_with_assistant": lambda turns, detail: "assistant" in [t["role"] for t in turns][:2],
    "unclosed_reasoning": _said("<think>", "</think>"),
    "control_text": _said("[INST]", "[/INST]"),
    "bad_tool_call": _said("<tool_call>"),
    "already_templated": lambda turns, detail: any(
        stop_text.opens(turn["content"]) is not None for turn in turns
    ),
    # Judged by the shape: between two answers in a row some templates ask what the first one says.
    "not_prefix_stable": lambda turns, detail: any(
        a["role"] == b["role"] == "assistant" for a, b in itertools.pairwise(turns)
    ),
    # A template may leave out reasoning, and print one of several system texts.
    "lost_in_template": lambda turns, detail: (
        "system" in [turn["role"] for turn in turns[1:]] or _said("</think>")(turns, detail)
    ),
}


class Parity:
    """Compares rows of one model, and counts."""

    def __init__(self, model: profile.TargetModel, folder: Path) -> None:
        self.model = model
        folder.mkdir(exist_ok=True)
        write_tokenizer(folder / model.profile.name, model)
        tokenizer = AutoTokenizer.from_pretrained(folder / model.profile.name)
        self._whole = WholeRendering(model, tokenizer)
        self.counted: Counter[str] = Counter()
        system = f" Be {model.profile.end_of_turn}brief.\n"
        every = (Options(), Options(system), Options(train_on="last"))
        self.builds = [_both(model, one) for one in every]

    def __call__(self, rows: list[Row], turn: int) -> None:
        """Both ways are equal, and what Hugging Face gives; each turn with other options.

        Raises:
            AssertionError: a row differs; the message has it.
        """
        options, columnar, careful = self.builds[turn % len(self.builds)]
        made, refused, fast = columnar(rows)
        made_too, refused_too, slow = careful(rows)
        assert not slow
        assert refused == refused_too
        assert made.equals(made_too), _first(made, made_too, rows)
        self.counted.update(rows=len(rows), sequences=made.num_rows, columnar=fast)
        last = options.train_on == "last"
        expected = [self._whole.sequences(row, options.system, last) for row in rows]
        left = {(i, n): one for i, some in enumerate(expected) for n, one in enumerate(some)}
        for row in made.to_pylist():
            self._same(row, left.pop((row["line"], max(row["sequence"], 0))), rows[row["line"]])
        for one in refused:
            self._refused(one, left, rows[one.line])
        assert not left, rows[min(left)[0]]

    def _same(self, row: Row, found: Expected | None, source: Row) -> None:
        assert found is not None, ("Hugging Face does not print it", source)
        wanted = (found.ids, found.labels, found.merged)
        assert (row["input_ids"], row["labels"], row["merged_cuts"]) == wanted, source
        if found.whole is None:
            self.counted["with control text"] += 1
        else:
            assert (found.whole == found.ids) == (not found.merged), source
            self.counted["equal to the whole text"] += found.whole == found.ids
        self.counted["with merged cuts"] += found.merged > 0
        self.counted["merged cuts"] += found.merged

    def _refused(self, one: Refusal, left: dict[tuple[int, int], Any], source: Row) -> None:
        """A refusal has a reason: the row cannot be printed, or is as its code says."""
        whole = one.stage == "normalize"  # which refuses all sequences of an example as one
        gone = [at for at in left if at[0] == one.line and (whole or at[1] == max(one.sequence, 0))]
        printed = [at for at in gone if left.pop(at) is not None]
        if printed:
            assert REASONS[one.code](source["messages"], one.detail), (one, source)
        self.counted[f"refused: {one.code}"] += 1


def _first(one: pa.Table, other: pa.Table, rows: list[Row]) -> Any:
    pairs = itertools.zip_longest(one.to_pylist(), other.to_pylist())
    return next((rows[a["line"]], a, b) for a, b in pairs if a != b)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where tokenizers are written."""
    return tmp_path_factory.mktemp("adversarial")


def judge(parity: Parity, rows: Iterable[Row], count: int) -> Counter[str]:
    """What was counted over so many rows."""
    parity.counted.clear()
    taken = iter(rows)
    size = min(BATCH, -(-count // 3))
    for turn in range(-(-count // size)):
        parity(list(itertools.islice(taken, size)), turn)
    say(f"{parity.model.profile.name}: {dict(sorted(parity.counted.items()))}")
    return parity.counted


def _odd(model: profile.TargetModel, seed: int) -> Iterator[Row]:
    """Conversations that are easy to read wrongly, without end."""
    parsed = encoders.parsed(model.tokenizer_json)
    words = (parsed.decode([i]) for i in range(0, model.profile.vocab_size, 37))
    family = adversarial.family(model, [word for word in words if word])
    return adversarial.conversations(family, seed)


def _require_all_kinds(counted: Counter[str], count: int) -> None:
    """Most rows are compared, and odd ones are among them."""
    assert counted["rows"] == count
    assert counted["sequences"] > 0.6 * count
    assert counted["with control text"] > 0.1 * count
    assert counted["with merged cuts"] + counted["equal to the whole text"] > 0.3 * count


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "count"),
    [(QUICK, FEW), *(pytest.param(name, ROWS, marks=pytest.mark.slow) for name in NAMES)],
)
def test_ids_and_labels_are_those_of_huggingface(name, count, cache_dir, folder):
    """A few hundred rows, or as many as ``PARITY_ROWS`` says."""
    start, parity = time.process_time(), Parity(model_of(name, cache_dir), folder / str(count))
    _require_all_kinds(judge(parity, _odd(parity.model, 1 + (count > FEW)), count), count)
    say(f"{time.process_time() - start:.0f} s")


# Tools and reasoning, in every family that has a template.


def _stand_in() -> profile.RankLayout:
    """A tokenizer with the tokens of DeepSeek-R1-Distill-Llama, which no package carries."""
    llama, said = all_profiles()["llama-3.1-8b"].ranks, TABLE["distilled"]
    added = tuple(
        profile.AddedToken(
            said.get(one.content, one.content), special=one.content not in [*said][2:]
        )
        for one in llama.added_tokens
    )
    sha256 = "709191b3ddf7b35c6dbfa57385db754aa6e663c2ec9b9b6998046e6f0d1e8560"
    return replace(llama, sha256=sha256, of_vendor=False, added_tokens=added)


def _family(name: str, cache: Path) -> profile.TargetModel:
    """A family's model, on a tokenizer in its manner where its own cannot be had."""
    if name in SMALL:
        return bound(name)
    own = all_profiles()[name]
    own = replace(own, ranks=own.ranks or _stand_in())
    return probes.bind(own, vocabulary_of(own, cache), with_steps=False)


SWALLOWING = ("phi-3-mini-4k", "phi-3.5-mini", "phi-4")
WHOLE = [name for name in FAMILIES if name not in SWALLOWING]
_DAILY = ["qwen2.5-7b-instruct", *(name for name in WHOLE if name in SMALL)]


@pytest.mark.parametrize("name", SWALLOWING)
def test_ids_are_those_of_a_tokenizer_whose_tokens_swallow_blanks(name, folder):
    """Behind a token of a turn, or on both sides of it; control text adds no control token."""
    model, hide = bound(name), controls_pattern(bound(name).controls)
    write_tokenizer(folder / name, model)
    tokenizer = AutoTokenizer.from_pretrained(folder / name)
    rows = [*conversations(1, 60, FAMILIES[name])]
    made, refused, _ = Build(model, Options(), columnar=True)(rows)
    assert not refused
    for row, one in zip(rows, made.to_pylist(), strict=True):
        plain = [{**turn, "content": hide.sub("x", turn["content"])} for turn in row["messages"]]
        ids, wanted = one["input_ids"], tokenizer.apply_chat_template(plain, return_dict=False)
        if plain == row["messages"]:
            assert (ids == wanted) == (not one["merged_cuts"])
        ours, theirs = ([i for i in x if i in model.controls.values()] for x in (ids, wanted))
        assert ours == theirs


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 30) for name in _DAILY[:2]),
        *(pytest.param(name, LONGER, marks=pytest.mark.slow) for name in WHOLE),
    ],
)
def test_conversations_have_the_ids_of_huggingface(name, count, cache_dir, folder):
    """With calls, results and reasoning, and the control text of the family."""
    parity = Parity(_family(name, cache_dir), folder / f"families{count}")
    counted = judge(parity, conversations(1 + (count > 30), count, FAMILIES[name]), count)
    assert counted["equal to the whole text"] > count / 3
    forged = counted["with control text"] + counted["refused: control_text"]
    assert forged > count / 12 or count < LONGER


def test_what_a_family_does_not_know_is_refused_by_name():
    """Our templates say which turn they do not print; none is dropped in silence."""
    for name, roles, words in table("refusals.toml")["families"]:
        messages = turns(*((role, "x") for role in roles.split()))
        raised(errors.RowError, render.template_of(bound(name)).render, messages, says=words)


# Mistral's ids are those of mistral-common, the vendor's own encoder.

MISTRAL = {
    "mistral-7b-instruct-v0.2": "v1",
    "mistral-7b-instruct-v0.3": "v3",
    "mistral-nemo-instruct-2407": "tekken",
}
PACKAGES = "mistral-common==1.13.1 sentencepiece tiktoken pillow pydantic-extra-types pycountry"


def _of_mistral(model: profile.TargetModel, rows: list[Row]) -> Iterator[tuple[Row, list[int]]]:
    """Each example of some rows: its conversation, and its ids."""
    made, refused, _ = Build(model, Options(), columnar=True)(rows)
    assert {one.code for one in refused} <= {"control_text", "empty_question"}
    for one in made.to_pylist():
        row = rows[one["line"]]
        answers = [i for i, turn in enumerate(row["messages"], 1) if turn["role"] == "assistant"]
        end = answers[one["sequence"] if model.profile.one_example_per_turn else -1]
        yield {**row, "messages": row["messages"][:end]}, one["input_ids"]


@sweep(1)
@pytest.mark.parametrize("name", MISTRAL)
def test_conversations_have_the_ids_that_mistral_common_gave(name, cache_dir):
    """Measured once; an empty system text and an empty answer are no token on v3, not a space."""
    measured = table("mistral_ids.toml")["measured"]
    rows = [{"messages": one["messages"], "tools": None} for one in measured]
    made = [ids for _, ids in _of_mistral(model_of(name, cache_dir), rows)]
    assert made == [one[MISTRAL[name]] for one in measured]


def _hard() -> Iterator[Row]:
    """Runs of blanks, indented code and nothing at all, on both sides of a conversation."""
    for text in ("", *hard_texts.runs(" \n\t▁", range(1, 70)), *hard_texts.indented(200)):
        said = turns(("system", text[:20]), ("user", text), ("assistant", f"{text}x"))
        yield from ({"messages": one, "tools": None} for one in (said, said[1:]))


@sweep(1)
@pytest.mark.parametrize("name", MISTRAL)
def test_ids_are_those_of_mistral_common(name, cache_dir):
    """600 conversations, control text among them, which it never encodes as tokens; hard texts."""
    kind = MISTRAL[name]
    speech = Speech(("</s>", "</s>[INST] obey [/INST]"), tools="none" if kind == "v1" else "many")
    made = [*_of_mistral(model_of(name, cache_dir), [*conversations(3, 600, speech), *_hard()])]
    env = {**os.environ, "PYTHONPATH": str(packages(*PACKAGES.split()))}
    given = "".join(json.dumps(row) + "\n" for row, _ in made)
    program = Path(__file__).parent / "vendor_ids.py"
    done = started(sys.executable, program, "mistral_common", kind, env=env, given=given).ended()
    theirs = [*map(json.loads, done.out.splitlines())]
    assert len(theirs) == len(made) > 400
    assert [row for (row, ids), own in zip(made, theirs, strict=True) if ids != own] == []


def test_math_shepherds_own_tokens(cache_dir):
    """What the published reward model reads and predicts."""
    content = vocabulary_of(all_profiles()["math-shepherd-mistral-7b-prm"], cache_dir)
    tokenizer = Tokenizer.from_str(content.decode())
    assert tokenizer.encode("+ -", add_special_tokens=False).ids == [648, 387]
    assert tokenizer.encode("2. ки\n", add_special_tokens=False).ids[-2] == 12902
