"""Profiles as TOML files: every field, errors that name the key, and the fingerprint."""

import dataclasses
import re
from pathlib import Path

import pytest
from small_tokenizers import small
from support import ROOT, SAMPLES, raised, table

from pipeline.inputs.recipe import resolve_recipe
from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from stages import errors
from stages.profile import AddedToken, ModelProfile, PairFraming, StepTokens
from stages.tokenizers import hub, probes, profiles, resolve
from stages.tokenizers.profiles import all_profiles, find
from stages.tokenizers.resolve import Overrides

WHOLE = (ROOT / "tests" / "tables" / "profile.toml").read_text("utf-8")


def load(tmp_path: Path, text: str) -> tuple[ModelProfile, str | None]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return profiles.load(path)


def test_every_field_can_be_said(tmp_path):
    """Each value arrives as its field's type."""
    profile, tokenizer = load(tmp_path, WHOLE)
    assert tokenizer is None
    fields = dataclasses.fields(ModelProfile)
    said = {f.name for f in fields if getattr(profile, f.name) != f.default}
    assert {f.name for f in fields} - said == {"ranks", "revision", "text_lead"}
    assert profile.template_variants == ((), (("enable_thinking", False),))
    assert profile.token_ids == (("<e>", 3), ("<p>", 4))
    assert profile.step_tokens == StepTokens("s", "g", "b")
    assert profile.pair == PairFraming(("<c>",), ("<s>",), ("<e>",), True, 2)
    assert (profile.name, profile.model_ids, profile.is_base) == ("mine", ("me/mine",), True)


def test_errors_name_the_key(tmp_path):
    """Each mistake is answered with the file and the key."""
    for error in table("profile_errors.toml")["error"]:
        assert error["old"] in WHOLE
        with pytest.raises(errors.ModelError, match=re.escape(error["words"])) as caught:
            load(tmp_path, WHOLE.replace(error["old"], error["new"]))
        assert "mine.toml" in caught.value.what
        assert caught.value.remedy


def test_errors_of_the_places_that_a_file_names(tmp_path):
    """A template file, a tokenizer directory or the profile itself that is not there."""
    for said, words in (
        ('chat_template_file = "no.jinja"', r"chat_template_file 'no\.jinja' cannot"),
        ('template = "none"', "template must be chatml or"),
        ('like = "no.toml"', r"no\.toml cannot be read"),
    ):
        raised(errors.ModelError, load, tmp_path, said, says=words)
    with pytest.raises(errors.ModelError, match=r"no\.toml cannot be read"):
        resolve.resolve("no.toml", tmp_path, Overrides())
    (tmp_path / "mine.toml").write_text('tokenizer = "./no"\n' + WHOLE)
    with pytest.raises(errors.ModelError, match=r"tokenizer './no' is not a directory next to it"):
        resolve.resolve(str(tmp_path / "mine.toml"), tmp_path, Overrides())


def test_like_takes_over_what_is_not_said(tmp_path):
    """The other profile's fields, tokenizer included."""
    profile, _ = load(tmp_path, 'like = "qwen2-1.5b"\ncontext_length = 64\n')
    known = all_profiles()["qwen2-1.5b"]
    assert profile == dataclasses.replace(known, name="mine", context_length=64)


def test_like_takes_over_a_file_beside_it(tmp_path):
    """Which may lack what this one says, and start from another; in a circle, or elsewhere, not."""
    (tmp_path / "base.toml").write_text(WHOLE.replace("vocab_size = 10\n", ""))
    (tmp_path / "larger.toml").write_text('like = "./base.toml"\nembedding_size = 32\n')
    profile, _ = load(tmp_path, 'like = "larger.toml"\nvocab_size = 20\n')
    assert (profile.name, profile.vocab_size, profile.embedding_size) == ("mine", 20, 32)
    assert profile.pair == PairFraming(("<c>",), ("<s>",), ("<e>",), True, 2)
    with pytest.raises(errors.ModelError, match=r"larger\.toml has no vocab_size"):
        profiles.load(tmp_path / "larger.toml")
    (tmp_path / "a.toml").write_text('like = "b.toml"')
    (tmp_path / "b.toml").write_text('like = "a.toml"')
    for like in ("mine.toml", "a.toml", "../base.toml"):
        with pytest.raises(errors.ModelError, match="like must be another file beside this one"):
            load(tmp_path, f'like = "{like}"')


FAMILY = WHOLE.replace('name = "mine"\nmodel_ids = ["me/mine"]\n', "").replace(
    "[pair]", "%s\n[pair]"
)


def test_several_models_in_one_file(tmp_path):
    """Keys above them hold for all; a later one may be like an earlier one; each is checked."""
    path = tmp_path / "family.toml"
    small = '{name = "s", model_ids = ["me/s"], embedding_size = 12}'
    large = '{name = "l", model_ids = [], like = "s", embedding_size = 99}'
    path.write_text(FAMILY % f"models = [{small}, {large}]")
    first, second = profiles.models_of(path)
    assert (first.name, first.embedding_size, first.vocab_size) == ("s", 12, 10)
    assert second == dataclasses.replace(first, name="l", model_ids=(), embedding_size=99)
    raised(errors.ModelError, profiles.load, path, says="describes several models")
    for models, words in (
        ('"s"', "models must be an array of tables, not 's'"),
        ('[{name = "s"}]', "models[0] has no model_ids"),
        (f"[{large}, {small}]", "models[0]: like names no profile: 's'"),
        (f"[{small}, {large.replace('99', '9')}]", "models[1]: embedding_size must be at least"),
        (f"[{small}, {large.replace('like', 'liek')}]", "models[1]: there is no key 'liek'"),
        ('[{name = "s", model_ids = [], tokenizer = ""}]', "models[0] names a tokenizer"),
    ):
        path.write_text(FAMILY % f"models = {models}")
        raised(errors.ModelError, profiles.models_of, path, says=re.escape(words))


def test_added_tokens_are_written_in_runs(tmp_path):
    """A text, several with the same flags, or one text for each number of a range."""
    tokens = '["<a>", {content = ["<b{0..2}>", "<c>"], special = false}, {content = "{x}"}]'
    profile, _ = load(
        tmp_path, WHOLE.replace("[pair]", f'[ranks]\nsha256 = "0"\nadded_tokens = {tokens}\n[pair]')
    )
    plain = [AddedToken(text, special=False) for text in ("<b0>", "<b1>", "<b2>", "<c>")]
    assert profile.ranks.added_tokens == (AddedToken("<a>"), *plain, AddedToken("{x}"))
    for wrong in ("3", "[3]", "[{}]", "[{content = [3]}]", '[{content = "x", specials = true}]'):
        ranks = f'[ranks]\nsha256 = "0"\nadded_tokens = {wrong}\n'
        with pytest.raises(errors.ModelError, match=r"ranks\.added_tokens"):
            load(tmp_path, WHOLE.replace("[pair]", f"{ranks}[pair]"))


def test_what_the_file_says_is_in_the_fingerprint(tmp_path, cache_dir):
    """Its fields and the template beside it; not its comments, and not its path."""
    first = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    last = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    source = str(SAMPLES / "sft" / "word_problems.jsonl")
    text = 'like = "qwen2-1.5b"\nname = "mine"\nchat_template_file = "chat.jinja"\n'
    prints = []
    for number, (extra, template) in enumerate(
        (("", first), ("# a comment\n", first), ("vocab_size = 9\n", first), ("", f" {first}"))
    ):
        (tmp_path / "chat.jinja").write_text(template + last)
        path = tmp_path / f"{number}.toml"
        path.write_text(text + extra)
        config = Config.of("sft", (source,), str(path), tmp_path / "out", cache_dir=cache_dir)
        recipe = resolve_recipe(config, scan(config))
        assert recipe.model.profile.name == "mine"
        assert recipe.model.profile.chat_template == template + last
        prints.append(recipe.fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_the_page_speaks_of_files_that_load(tmp_path):
    """Every profile of docs/profiles.md is read without complaint, and names every field."""
    page = (ROOT / "docs" / "profiles.md").read_text("utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.S)
    assert len(blocks) == 3
    for block in blocks[:2]:
        load(tmp_path, block)
    (tmp_path / "family.toml").write_text(blocks[2])
    assert len(profiles.models_of(tmp_path / "family.toml")) == 3
    hidden = {"revision", "text_lead", "chat_template"}
    for field in dataclasses.fields(ModelProfile):
        assert field.name in hidden or field.name in page, field.name


def test_names_match_exactly(tmp_path, monkeypatch):
    """What only looks like a known model is asked about, and the way on is named."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find("Gemma-2-9b-it") is None
    with pytest.raises(errors.ModelError, match="Did you mean gemma-2-9b-it") as caught:
        resolve.resolve("gemma-2-9b-itt", tmp_path, Overrides())
    assert "profile.toml" in caught.value.remedy
    with pytest.raises(errors.ModelError, match=r"Did you mean google/gemma-2-9b-it") as caught:
        resolve.resolve("google/gemma2-9b-it", tmp_path, Overrides())
    assert "hf download google/gemma2-9b-it" in caught.value.remedy


def test_a_copy_of_a_known_model_must_have_its_ids(tmp_path):
    """A directory of that exact name whose tokenizer is another one is refused by name."""
    profile, content = small("gemma-2-2b-it")
    of_hub = "models--google--gemma-2-2b-it/snapshots/1"
    for place in ("gemma-2-2b-it", "google/gemma-2-2b-it", of_hub, "mine"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_bytes(content)
        (folder / "chat_template.jinja").write_text(profile.chat_template)
        (folder / "tokenizer_config.json").write_text(
            '{"bos_token": "<bos>", "pad_token": "<pad>"}'
        )
        found = resolve.resolve(f"{folder}/", tmp_path, Overrides()).profile.token_ids
        assert found == (() if place == "mine" else all_profiles()["gemma-2-2b-it"].token_ids)
    assert resolve.known_as(tmp_path / "mine", "mine") is None


def test_a_profile_takes_its_tokenizer_from_the_hubs_cache(tmp_path, monkeypatch):
    """Where no package carries it; and it is refused when its ids are others."""
    (tmp_path / "tokenizer.json").write_bytes(small("gemma-2-2b-it")[1])
    monkeypatch.setattr(hub, "cached", lambda model_id, revision: hub.Snapshot(tmp_path, "abc"))
    found = resolve.resolve("gemma-2-2b-it", tmp_path, Overrides())
    assert found.source == "hub cache"
    with pytest.raises(errors.ModelError, match="is 106 in this family, but 4 here"):
        probes.bind(found.profile, found.tokenizer_json, with_steps=False)
