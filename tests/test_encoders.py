"""Encoders as reward models: pairs of texts, framed as transformers frames them."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import encoding
import law_metrics
import pyarrow as pa
import pytest
from datasets import load_from_disk
from rows import normalizing, turns
from small_tokenizers import bound, model_folder, small
from support import raised, read_manifest, rows_to, table
from transformers import AutoTokenizer, BertTokenizerFast, RobertaTokenizerFast

from expectations.contract import EXAMPLE, ROW, Context
from expectations.invariants import applying
from expectations.stored_rows import StoredRows
from pipeline.tasks import kind_of
from stages import contract, encoders, errors, profile
from stages.chat_template.render_pair import PairRenderer, RenderTexts, prove_pair
from stages.tokenizers import probes, profiles
from stages.tokens import encode, ragged, segment_encoder
from stages.tokens.padded import pad

FAMILIES = ("roberta-base", "bert-base-uncased")
TEXTS = tuple(table("odd_texts.toml")["encoders"])
FORGED = ("ends </s> here", "[SEP] and [CLS]", "<mask> [MASK] [PAD] <pad>", "<s>")
NAMES = {"system": "System", "user": "User", "assistant": "Assistant"}
LIMIT = 512


def theirs(name: str) -> Any:
    """Transformers' own tokenizer of the family, made of the small one's vocabulary alone."""
    document = json.loads(small(name)[1])["model"]
    if name == "bert-base-uncased":
        return BertTokenizerFast(vocab=document["vocab"], do_lower_case=True)
    merges = [tuple(pair) for pair in document["merges"]]
    return RobertaTokenizerFast(vocab=document["vocab"], merges=merges)


def conversation(random_: random.Random, texts: tuple[str, ...]) -> list[contract.Row]:
    """A prompt of one to five turns, with or without a system text."""
    system = ("system",) * random_.randint(0, 1)
    roles = (*system, *("user", "assistant") * random_.randint(0, 2), "user")
    return turns(*((role, random_.choice(texts)) for role in roles))


def rows_of(count: int, texts: tuple[str, ...], seed: int = 7) -> list[contract.Row]:
    """Seeded pairs."""
    random_ = random.Random(seed)
    made = []
    for number in range(count):
        answers = random_.sample(texts, 2)
        prompt: Any = conversation(random_, texts)
        if len(prompt) == 1 and number % 2:
            prompt = prompt[0]["content"]
        made.append({"prompt": prompt, "chosen": answers[0], "rejected": answers[1]})
    return made


def text_of(prompt: Any) -> str:
    """The prompt's text, written down once more by hand."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0]["content"])
    return "\n\n".join(f"{NAMES[t['role']]}: {t['content']}" for t in prompt)


def encoded(model: profile.TargetModel, rows: list[contract.Row]) -> contract.Batch:
    """Rows as stages encode them; refused rows stay in."""
    encoder = encoders.load(encoders.choose(model.tokenizer_json), model.tokenizer_json)
    segments = segment_encoder.SegmentEncoder(model, encoder, LIMIT, "reject")
    stages = (RenderTexts(PairRenderer(model)), encode.EncodePair(segments))
    batch = encoding.encoded(normalizing("rm", "preference"), stages, rows)
    return batch.append_column("row_id", pa.array([f"d:{i}" for i in range(batch.num_rows)]))


@pytest.mark.parametrize("count", [120, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAMILIES)
def test_ids_are_those_of_transformers(name, count):
    """Every row equals the family's own tokenizer called with (text, text_pair)."""
    model, tokenizer, rows = bound(name), theirs(name), rows_of(count, TEXTS)
    batch = encoded(model, rows)
    assert batch.column("reject_code").null_count == len(rows)
    for row, got in zip(rows, batch.to_pylist(), strict=True):
        for side in ("chosen", "rejected"):
            wanted = tokenizer(text_of(row["prompt"]), row[side])
            assert got[f"{side}_ids"] == wanted["input_ids"]
            answer = tokenizer(row[side], add_special_tokens=False)["input_ids"]
            assert got[f"{side}_ids"][got["prompt_length"] : -1] == answer


@pytest.mark.parametrize("name", FAMILIES)
def test_text_cannot_forge_a_control_token(name):
    """The only control tokens are the framing's, whatever the texts say."""
    model = bound(name)
    framing = model.profile.pair
    wanted = [model.controls[t] for t in (*framing.before, *framing.between, *framing.after)]
    known = set(model.controls.values()) - {model.unk_id}
    for row in encoded(model, rows_of(60, FORGED)).to_pylist():
        for ids in (row["chosen_ids"], row["rejected_ids"]):
            assert [token for token in ids if token in known] == wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_too_long_is_refused_never_cut(name):
    """A side above 512 tokens is refused by its name; one of exactly 512 stays whole."""
    model = bound(name)
    framing = model.profile.pair
    around = len((*framing.before, *framing.between, *framing.after))
    words = [" ".join(["x"] * n) for n in (LIMIT - around - 1, LIMIT - around)]
    batch = encoded(model, [{"prompt": "x", "chosen": text, "rejected": "x x"} for text in words])
    lengths = [len(ids) for ids in batch.column("chosen_ids").to_pylist()]
    assert lengths[0] <= LIMIT < lengths[1] or name == "roberta-base"
    codes = batch.column("reject_code").to_pylist()
    assert codes == ["too_long" if n > LIMIT else None for n in lengths]
    assert "too_long" in codes


def test_what_a_text_cannot_say_is_refused():
    """Turns inside a turn, and tools; where a prompt is one turn nothing is marked or forged."""
    talk = turns(("user", "Hi.\nAssistant: no\nUser: x"), ("assistant", "a"), ("user", "b"))
    prompts: list[contract.Row] = [{"prompt": talk}, {"prompt": "x", "tools": [{"name": "f"}]}]
    prompts.append({"prompt": "User: hello"})
    rows = [{**row, "chosen": "Assistant: hi", "rejected": "bad"} for row in prompts]
    codes = encoded(bound("roberta-base"), rows).column("reject_code").to_pylist()
    assert codes == ["control_text", "lost_in_template", None]


def test_another_tokenizer_is_refused():
    """Declared ids, and the framing, must be the tokenizer's own."""
    profile, content = small("roberta-base")
    with pytest.raises(errors.ModelError, match="'<mask>' is 50264 in this family, but 4 here"):
        probes.bind(profiles.all_profiles()["roberta-base"], content, with_steps=False)
    once = replace(profile, pair=replace(profile.pair, between=("</s>",)))
    with pytest.raises(errors.ModelError, match="frames a pair of texts as"):
        prove_pair(probes.bind(once, content, with_steps=False))
    model = bound("bert-base-uncased")
    bare = json.dumps({**json.loads(model.tokenizer_json), "post_processor": None}).encode()
    unframed = probes.bind(model.profile, bare, with_steps=False)
    raised(errors.ModelError, prove_pair, unframed, says="frames a pair of texts as")


def test_unknown_words_are_no_control_tokens():
    """BERT's [UNK] is a registered token that any text may become."""
    model = bound("bert-base-uncased")
    batch = encoded(model, [{"prompt": "🏳️ ok", "chosen": "ж🏴", "rejected": "no"}])
    assert model.unk_id in batch.column("chosen_ids").to_pylist()[0]
    context = Context(kind_of("rm"), "ragged", LIMIT, model)
    metrics = law_metrics.examples(StoredRows(pa.table(batch), context))
    assert metrics["chosen_n_controls"].to_list() == [3]


def tables(name: str) -> dict[str, tuple[pa.Table, Context]]:
    """Good rows of a family, ragged and padded."""
    model = bound(name)
    types = model.profile.pair is not None and model.profile.pair.token_types
    batch = pa.table(encoded(model, rows_of(5, TEXTS)))
    right = pad(batch, LIMIT, "right", model.pad_id, types)
    return {
        "ragged": (ragged.ordered(batch), Context(kind_of("rm"), "ragged", LIMIT, model)),
        "padded": (right, Context(kind_of("rm"), "padded", LIMIT, model)),
    }


def broken(table: pa.Table, context: Context) -> set[str]:
    """The laws that a table breaks."""
    found = set()
    levels = [(EXAMPLE, law_metrics.examples)]
    levels += [(ROW, law_metrics.training_rows)] if context.layout == "padded" else []
    for level, measured in levels:
        metrics = measured(StoredRows(table, context))
        laws = applying(context, level)
        found |= {law.name for law in laws if law_metrics.broken(law, metrics, context).any()}
    return found


def mutated(table: pa.Table, column: str, change: Callable[[list[int]], list[int]]) -> pa.Table:
    values = table.column(column).to_pylist()
    values[1] = change(values[1])
    index = table.schema.get_field_index(column)
    return table.set_column(index, column, pa.array(values, table.schema.field(column).type))


def test_rows_on_disk_that_break_a_law_are_found():
    """A first token, a last token, a token type, a missing column, each broken by hand; good rows
    break none."""
    for name in FAMILIES:
        assert [broken(*one) for one in tables(name).values()] == [set(), set()]
    made = tables("bert-base-uncased")
    ragged_table, context = made["ragged"]
    first = mutated(ragged_table, "chosen_ids", lambda ids: [ids[1], *ids[1:]])
    assert "encoders_begin_with_classifier" in broken(first, context)
    last = mutated(ragged_table, "rejected_ids", lambda ids: ids[:-1])
    assert "answers_end_in_end_of_turn" in broken(last, context)
    padded_table, context = made["padded"]
    flipped = mutated(padded_table, "chosen_token_type_ids", lambda t: [1 - t[0], *t[1:]])
    assert broken(flipped, context) == {"token_types_in_place"}
    without = padded_table.drop_columns(["rejected_token_type_ids"])
    assert broken(without, context) == {"token_types_in_place"}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_build_gives_what_its_tokenizer_gives(name, pipeline, tmp_path):
    """From a model directory to padded shards; the emitted tokenizer repeats every row."""
    model_folder(tmp_path / "model", name)
    rows = [*rows_of(30, TEXTS), {"prompt": "x", "chosen": "y " * 600, "rejected": "z"}]
    data = tmp_path / "data.jsonl"
    rows_to(data, *rows)
    options = ("--model", "./model", "--layout", "padded", "-o", "out")
    pipeline("run", "rm", data, *options).ended()
    manifest = read_manifest(tmp_path / "out")
    assert manifest["rows"]["rejected_by_code"] == {"too_long": 1}
    assert manifest["max_length"] == LIMIT
    assert manifest["witness"] == {"drawn": 31, "read": 31, "unread": {}}
    assert manifest["model"]["padding_side"] == "right"
    assert manifest["model"]["pair"]["position_offset"] == (2 if name == "roberta-base" else 0)
    if name == "bert-base-uncased":
        assert pipeline("check", "out").status == 0
    scored = [line for line in pipeline("show", "out").out.splitlines() if "scored" in line]
    assert scored
    pair = profiles.all_profiles()[name].pair
    assert all(pair.before[0] in line for line in scored)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "tokenizer")
    for row, got in zip(rows, load_from_disk(str(tmp_path / "out"))["train"], strict=False):
        for side in ("chosen", "rejected"):
            call = tokenizer(
                text_of(row["prompt"]),
                row[side],
                padding="max_length",
                max_length=len(got[f"{side}_ids"]),
            )
            assert set(call) == set(tokenizer.model_input_names)
            for key, values in call.items():
                column = f"{side}_{'ids' if key == 'input_ids' else key}"
                assert got[column] == values


@pytest.mark.slow
def test_what_encoders_are_not_for(pipeline, tmp_path):
    """sft, left padding, another end of turn, and a profile whose tokenizer is not at hand."""
    model_folder(tmp_path / "model", "roberta-base")
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "x", "chosen": "y", "rejected": "z"}\n')
    for arguments, words in table("refusals.toml")["encoders"]:
        ran = pipeline("run", arguments[0], data, *arguments[1:], HF_HOME=str(tmp_path / "hf"))
        assert (ran.status, words in ran.err) == (2, True), ran.err
