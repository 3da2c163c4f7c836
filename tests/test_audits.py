"""Audits: their figures equal a plain count, they fail what must fail and nothing by chance."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import SAMPLES, few, raised, rows_to, table

from expectations import audits
from expectations.audits import FAIL, FEW, PASS, WARN, language, level, shortcuts
from expectations.audits import counts as audit
from expectations.contract import Context
from expectations.stored_rows import Chunk, chunk_of
from expectations.undo_layout import Sequences
from pipeline.builder.assembly import taken
from pipeline.builds.stored import read_file as read
from pipeline.builds.summary import said
from pipeline.shards.facts import Margins, of_column
from pipeline.tasks import kind_of
from stages import columns, contract, errors
from stages.chat_template import spelling, turn_ends
from stages.chat_template.template import Template
from stages.formats import load

NOTHING = audits.BuildCounts(0, 0, 0, 0, 0, 0, 0, 0, 0, None, 64)


def figures(folder: Path, audit: str) -> dict[str, dict[str, Any]]:
    """One audit's figures, by name."""
    found = json.loads((folder / "audits.json").read_text("utf-8"))["audits"]
    entry = next(a for a in found if a["name"] == audit)
    return {figure["name"]: figure for figure in entry["figures"]}


def pairs_file(path: Path, rows: list[tuple[str, str]]) -> Path:
    """Preference rows."""
    asked = (f"Question {i}?" for i in range(len(rows)))
    named = zip(asked, rows, strict=True)
    return rows_to(path, *({"prompt": q, "chosen": c, "rejected": r} for q, (c, r) in named))


def answers(count: int) -> list[tuple[str, str]]:
    """Pairs without a shortcut: either side is the longer, and neither ends in a full stop."""
    words = ("river bank", "the old mill by the road", "a lamp", "two birds and a fence post")
    return [(words[i % 4] + f" {i}", words[(i // 2) % 4] + f" {i + 7}") for i in range(count)]


def test_the_paired_auc_is_its_definition():
    """Wins plus half the ties, towards whichever side wins."""
    tolerances = {"warn": 0.75, "fail": 0.98, "least": 50}
    for more, ties, less in ((30, 0, 70), (0, 100, 0), (100, 0, 0), (60, 20, 20)):
        figure = shortcuts._number("length", np.array([more, ties, less]), tolerances)
        wins = [1.0] * more + [0.5] * ties + [0.0] * less
        auc = sum(wins) / len(wins)
        assert figure.value == pytest.approx(max(auc, 1 - auc))


def test_a_token_seen_once_tells_nothing_about_itself(model):
    """Unique last tokens are guessed, whatever they are; one that all share tells all."""
    context = Context(kind_of("rm"), "ragged", 64, model)
    facts = audits.AuditFacts(context, NOTHING, (np.zeros(0, np.int64),) * 2, 0, ())
    tolerances = {"warn": 0.75, "fail": 0.98, "least": 50}
    unique = np.arange(1000, 1100)
    found = shortcuts._word("last token", unique, unique + 100, facts, tolerances)
    assert (found.value, found.status) == (0.5, PASS)
    found = shortcuts._word("last token", np.full(100, 13), unique, facts, tolerances)
    assert (found.value, found.status) == (1.0, FAIL)
    assert "'.' ends 100.0% of chosen and 0.0% of rejected answers" in found.detail


@pytest.mark.parametrize(
    ("feature", "doctor"),
    few([
        ("length", lambda a, b: (a + " and then some more of it than that", b)),
        ("full stop", lambda a, b: (a + ".", b)),
        ("last token", lambda a, b: (a + " done", b)),
        ("first token", lambda a, b: ("Yes, " + a, b)),
        ("line breaks", lambda a, b: (a.replace(" ", "\n", 1), b)),
        ("refusal words", lambda a, b: (a, "I'm sorry, " + b)),
    ], 2),
)  # fmt: skip
def test_a_shortcut_fails_the_build_and_is_named(make, tmp_path, feature, doctor):
    """Nothing is published, and the message names audit, feature and way on."""
    data = pairs_file(tmp_path / "pairs.jsonl", [doctor(a, b) for a, b in answers(60)])
    caught = raised(errors.ExpectationError, make, "rm", data, says=f"shortcuts, {feature}: ")
    assert caught.exit_code == 3
    assert "--tolerance shortcuts.fail=1" in caught.remedy
    assert not (tmp_path / "out").exists()


def test_limits():
    """Above a limit, not at it; below the least number of cases nothing but the figure."""
    allowed = {"warn": 0.75, "fail": 0.98, "least": 50}
    assert [level(v, allowed, 50) for v in (0.75, 0.76, 0.98, 0.99)] == [PASS, WARN, WARN, FAIL]
    assert [level(v, allowed, 49) for v in (0.75, 0.99)] == [PASS, FEW]
    assert level(1.0, {}, 10) == PASS
    for given_ in ({"nothing.fail": 1.0}, {"shortcuts.most": 1.0}, {"lengths.warn": 1.0}):
        raised(errors.UsageError, audits.with_tolerances, given_)


def test_layouts_unpack_to_the_same_examples(make, step_model):
    """Packed, ragged and padded builds of one input: same tokens, training, steps and figures."""
    data = SAMPLES / "prm" / "first_error.json"
    found = []
    for layout in ("packed", "ragged", "padded"):
        out = make("prm", data, layout, layout=layout)
        context = Context(kind_of("prm"), layout, 4096, step_model)
        chunk = chunk_of(read(out / "train" / "data-00000-of-00001.arrow"), "train", context)
        assert chunk.step_owner is not None
        assert chunk.step_values is not None
        columns = (chunk.sequences.offsets, chunk.sequences.ids, chunk.trained, chunk.step_owner)
        rated = np.nan_to_num(chunk.step_values, nan=9).tolist()
        text = (out / "audits.json").read_bytes()
        found.append((chunk.names.to_pylist(), *(c.tolist() for c in columns), rated, text))
    assert found[0] == found[1] == found[2]
    # Counted as in the file, which says where the first error is.
    source = json.loads(data.read_text("utf-8"))
    wrong = [row["label"] for row in source if row["label"] >= 0]
    good = sum(row["label"] if row["label"] >= 0 else len(row["steps"]) for row in source)
    labels = figures(out, "step_labels")
    ends = [[f"step {n + 1}", wrong.count(n)] for n in range(max(wrong) + 1)]
    assert labels["first errors"]["bins"] == ends
    assert labels["balance"]["bins"][:2] == [["good", good], ["bad", len(wrong)]]


def test_prompts_of_chains_end_where_the_problem_ends(step_model):
    """Two chains over one problem have one prompt, whatever their first steps are."""
    step, end = step_model.step_id, step_model.end_of_turn_id
    rows = [
        [1, end, 2, 3, end, 7, 8, step, 9, step, end],
        [1, end, 2, 3, end, 4, step, end],
        [7, step],
    ]
    offsets = columns.offsets_of(np.array([len(row) for row in rows]))
    ids = np.array([i for row in rows for i in row], np.int32)
    context = Context(kind_of("prm"), "ragged", 64, step_model)
    names = pa.array(["a", "b", "c"])
    chunk = Chunk("test", context, names, Sequences(offsets, ids), np.zeros(len(ids), bool))
    ends = shortcuts._prompt_ends(chunk) - offsets[:-1]
    assert ends.tolist() == [5, 5, 1]
    hashes = shortcuts._hashes(chunk).tolist()
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_a_shard_leaves_behind_is_as_small_as_its_sample(built, step_model):
    """The measures of all shards are kept until the end: none is as long as the vocabulary."""
    out = built("sft", SAMPLES / "sft" / "chat.jsonl", "--layout", "ragged")
    table = read(out / "train" / "data-00000-of-00001.arrow")
    chunk = chunk_of(table, "train", Context(kind_of("sft"), "ragged", 4096, step_model))
    for one in audits.audits():
        if one.measure is None or not chunk.context.traits.issuperset(one.needs):
            continue
        for name, values in one.measure(chunk).items():
            assert values.nbytes <= 512 + 64 * table.num_rows, (one.name, name)


def test_scripts(model):
    """A token's script is that of its letters; punctuation has none, control tokens neither."""
    vocab = language.of(model)
    names = [*language.SCRIPTS, "none"]
    for text, script in (("hello", "Latin"), ("好", "Han"), ("ки", "Cyrillic"), ("12", "none")):
        ids = min(vocab.spelled(text), key=len)
        assert {names[i] for i in vocab.scripts(np.array([*ids]))} == {script}
    assert {names[i] for i in vocab.scripts(np.array([*model.controls.values()]))} == {"none"}


def test_blanks_of_all_scripts_are_blanks():
    """A full stop or a mark of a list is one whatever blanks are around it."""
    separators = range(0x1C, 0x20)  # of files and records, which only Python counts as blanks
    spaces = (chr(code) for code in range(0x3001) if code not in separators)
    for blank in (*filter(str.isspace, spaces), ""):
        marks = pa.array([f"{blank}#{blank}", f".{blank}", f".{blank}x"])
        for pattern, wanted in (
            ("_MARKDOWN", [True, False, False]),
            ("_FULL_STOP", [False, True, False]),
        ):
            found = pc.match_substring_regex(marks, getattr(shortcuts, pattern))
            assert found.to_pylist() == wanted, (pattern, blank)


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    first=st.integers(0, 4),
    stride=st.integers(1, 7),
)
def test_rows_of_a_shard_are_taken_batch_by_batch(sizes, first, stride):
    """What is measured is what a take of the whole table would give."""
    schema = pa.schema({"ids": pa.list_(pa.int32())})
    pieces = [[[n, row] * (row % 3) for row in range(size)] for n, size in enumerate(sizes)]
    table = pa.concat_tables([pa.table({"ids": one}, schema) for one in pieces])
    rows = np.arange(first, table.num_rows, stride)
    assume(len(rows))  # no shard without any is asked
    assert taken(table, rows).equals(table.take(pa.array(rows, pa.int64())))


# Margins of pairs: kept where a row has one, null where it has none, counted, never reversed.


def test_a_margin_that_is_no_finite_number_is_refused():
    """Tables can hold infinities, which JSON cannot; NaN stands where they have none."""
    row: contract.Row = {"prompt": "q", "chosen": "a", "rejected": "b"}
    (none,) = load("preference").read(row | {"margin": float("nan")}, contract.FormatOptions())
    assert none.margin is None
    for value in (float("inf"), -float("inf"), 1e39, -1e300, "1", True):
        for named in ({"margin": value}, {"score_chosen": value, "score_rejected": 0}):
            with pytest.raises(errors.RowError) as refused:
                load("preference").read(row | named, contract.FormatOptions())
            assert refused.value.code == "bad_margin", named


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.floats(-9, 9, width=32)), max_size=30))
def test_counts_are_plain_counts(values):
    """Of a column in any pieces; the audit judges the pairs that have one."""
    column = pa.chunked_array([values[:7], values[7:]], pa.float32())
    found = of_column(column)
    given_ = [value for value in values if value is not None]
    below = sum(value < 0 for value in given_)
    assert found == Margins(len(given_), len(values) - len(given_), below)
    assert (said("margins", found.recorded()) == []) == (not given_ or len(given_) == len(values))
    totals = audits.Totals()
    totals.add({"pairs": np.array([found.present, found.negative]), "rows": np.zeros(0, object)})
    judged = audit.MARGINS.judge(None, totals, audit.MARGINS.tolerances)
    # The build fails from more than half on; fewer are told.
    assert any(figure.status == FAIL for figure in judged) == (below > len(given_) / 2)
    assert (not below) == all(figure.status == PASS for figure in judged)


ARGUMENTS: str = table("scripts.toml")["arguments_of_calls"]
_NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a word", ""]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.just("key"), inside),
    max_leaves=4,
)


@pytest.mark.parametrize("value", table("chat_templates.toml")["values"])
@given(argument=_NESTED)
def test_values_in_pythons_spelling_are_those_that_are_printed(value, argument):
    """In any place of an argument, whatever the template does with some of them."""
    template = Template(ARGUMENTS.replace("VALUE", value), "2026-01-01")
    asked, called = turn_ends.asks("q"), turn_ends.calls("quince")
    called[turn_ends.CALLS][0]["function"]["arguments"] = {"one": argument}
    printed = re.search("None|True|False", template.render([asked, called], turn_ends.TOOLS))
    turn = contract.Message("assistant", "", {turn_ends.CALLS: called[turn_ends.CALLS]}, True)
    found = spelling.holds([[turn]], spelling.in_python(template))
    assert found == (printed is not None)
