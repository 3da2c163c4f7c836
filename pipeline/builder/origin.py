"""Compares what a build has of what it was given with that: its model, a folder or a declaration,
and the rows that it refused, with their files."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from pipeline.builder.evidence import Evidence
from pipeline.inputs.recipe import Recipe
from pipeline.manifest.records import REJECTS, TOKENIZER
from pipeline.options.build_options import PHASES
from stages.files import content
from stages.tokenizers import profiles

_BEGIN = 64  # characters of a row
FIRST = 1 << 26  # bytes of an input in which refused rows are looked up; of a file hashed again
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
_NAMED = ("bos_token", "unk_token", "tokenizer_class")
_ANY = (1 << 31) - 1  # positions of a model that names no number
_CLASS = "PreTrainedTokenizerFast"
_FILE, _CONFIG, _STOPS = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
FACTS = ("name", "bos_policy", "embedding_size", "is_base", "pad_token", "recurrent")
Problem = tuple[str, str]


def told(recipe: Recipe) -> dict[str, Any]:
    """What a build was told of its model: the folder, or what is declared."""
    given, parts = recipe.model.profile, recipe.config.parts
    known, folder = profiles.named(parts.model), Path(parts.model).expanduser()
    said: dict[str, Any] = {"added": list(given.added_tokens), "template": parts.chat_template}
    if known is not None:
        names = (*FACTS, *_NAMED, "context_length", "chat_template", "generation_eos")
        ours = any(f'"{known.name}"' in text for text in profiles.own_families().values())
        return said | {"declared": {name: getattr(known, name) for name in names}, "ours": ours}
    if recipe.tokenizer_source == "directory" and folder.is_dir():
        steps = given.step_tokens if recipe.model.step_id >= 0 else ()
        return said | {"folder": str(folder), "steps": list(steps), "promoted": given.promoted}
    return said


def problems(evidence: Evidence) -> Iterator[Problem]:
    """What is not the model's: the file, and a sentence; nothing where it cannot be seen again."""
    model = (evidence.case or {}).get("origin", {})
    ours = {one["content"]: one for one in evidence.tokenizer["added_tokens"]}
    for text in model.get("added", ()):
        if text not in ours or any(ours[text][name] for name in (*_FLAGS, "special")):
            yield f"{TOKENIZER}/{_FILE}", f"{text!r} is more than an ordinary token"
    if "declared" in model:
        yield from _declared(evidence, model["declared"], model["template"])
        if model.get("ours") and model["template"] is None:
            yield from _template(evidence)
    elif "folder" in model:
        yield from _folder(evidence, model, Path(model["folder"]))


def changed() -> Iterator[Problem]:
    """The files of declarations that are not what they were when they were compared with the
    models' own files: ``declared.toml`` says it of each."""
    known = tomllib.loads(Path(__file__).with_name("declared.toml").read_text("utf-8"))
    for name, sha256 in known["profiles"].items():
        text = profiles.FOLDER.joinpath(name).read_text("utf-8")
        if hashlib.sha256(text.encode()).hexdigest() != sha256:
            yield f"profiles/{name}", "it is not the declaration that declared.toml says"
    for option, value in defaults().items():
        if known["defaults"].get(option) != value:
            yield (
                "manifest.json",
                f"{option} is {value} by default, which declared.toml does not say",
            )


def defaults() -> dict[str, str]:
    """What decides where nobody says anything, by the option's name."""
    kinds = (kind for phase, kind in PHASES.items() if phase != "run")
    every = (one for kind in kinds for one in fields(kind))
    return {one.name: json.dumps(one.default) for one in every if one.default is not MISSING}


def _differs(file: str, said: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in wanted.items():
        if said.get(name) != value:
            yield file, f"{name} is {said.get(name)!s:.60}, and the model has {value!s:.60}"


def _declared(
    evidence: Evidence, model: Mapping[str, Any], template: str | None
) -> Iterator[Problem]:
    """A built-in model."""
    yield from changed()
    wanted = {name: model[name] for name in FACTS}
    manifest = {name: getattr(evidence.manifest.model, name) for name in FACTS}
    yield from _differs("manifest.json", manifest, wanted)
    config = {name: model[name] for name in _NAMED}
    config["model_max_length"] = model["context_length"]
    config["chat_template"] = model["chat_template"] if template is None else template
    yield from _differs(f"{TOKENIZER}/{_CONFIG}", evidence.read(f"{TOKENIZER}/{_CONFIG}"), config)
    yield from _stops(evidence, model["generation_eos"])


def _template(evidence: Evidence) -> Iterator[Problem]:
    """The published template is, to the letter, one of the files that ``changed`` looks at."""
    text = evidence.read(f"{TOKENIZER}/{_CONFIG}").get("chat_template")
    files = profiles.FOLDER.glob("chat_templates/*.jinja")
    if text and f"{text}\n" not in [path.read_text("utf-8") for path in files]:
        yield f"{TOKENIZER}/{_CONFIG}", "chat_template is no file that declared.toml names"


def _stops(evidence: Evidence, declared: tuple[str, ...] | list[str]) -> Iterator[Problem]:
    """Generation stops where the model does, and where turns end."""
    model = evidence.manifest.model
    texts = {*declared, model.end_of_turn, model.end_of_call or model.end_of_turn}
    wanted = {evidence.ids.get(text) for text in texts}
    there = evidence.read(f"{TOKENIZER}/{_STOPS}")["eos_token_id"]
    if {*there} != wanted:
        told = f"eos_token_id is {there}, and the model stops at {', '.join(sorted(texts))}"
        yield f"{TOKENIZER}/{_STOPS}", told


def _folder(evidence: Evidence, model: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    """A model's own files."""
    ours, theirs = evidence.tokenizer, _json(folder / _FILE)
    for part in (ours.keys() | theirs.keys()) - {"added_tokens"}:
        if ours.get(part) != theirs.get(part):
            yield f"{TOKENIZER}/{_FILE}", f"{part} is not that of the model"
    known = {one["content"]: one for one in theirs.get("added_tokens", ())}
    for text in known.keys() & {*model["promoted"]}:
        known[text] = {**known[text], "special": True}
    new = {*model["added"], *model["steps"]}
    there = {one["content"]: one for one in ours["added_tokens"]}
    for text in known.keys() | (there.keys() - new):
        if known.get(text) != there.get(text):
            yield f"{TOKENIZER}/{_FILE}", f"{text!r} is {there.get(text)}, not {known.get(text)}"
    config, sizes = _json(folder / _CONFIG), _json(folder / "config.json")
    bos, eos = (_text(config.get(name)) for name in ("bos_token", "eos_token"))
    said = evidence.read(f"{TOKENIZER}/{_CONFIG}")
    named: dict[str, Any] = {"bos_token": bos}
    named["tokenizer_class"] = config.get("tokenizer_class") or _CLASS
    limit = sizes.get("max_position_embeddings")
    named["model_max_length"] = _ANY if limit is None else limit
    yield from _differs(f"{TOKENIZER}/{_CONFIG}", said, named)
    if isinstance(sizes.get("vocab_size"), int):
        rows = evidence.manifest.model.embedding_size
        wanted = {"embedding_size": sizes["vocab_size"]}
        yield from _differs("manifest.json", {"embedding_size": rows}, wanted)
    texts = {one["id"]: text for text, one in known.items() if "id" in one}
    declared = [texts[one] for one in _eos_ids(folder) if one in texts]
    yield from _stops(evidence, [*declared, *([eos] if eos else [])])


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())  # a configuration may spell Infinity
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(token: Any) -> str | None:
    """A token as a configuration spells it: its text, or an object with it; None for another."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if found and isinstance(found, str) else None


def _eos_ids(folder: Path) -> list[int]:
    """Where generation stops, by the file that it is read from: one before the other."""
    for name in (_STOPS, "config.json"):
        told = _json(folder / name).get("eos_token_id")
        ids: list[Any] = told if isinstance(told, list) else [told]
        if ids and all(isinstance(one, int) for one in ids):
            return ids
    return []


def displaced(evidence: Evidence, entries: list[tuple[str, int, int, str]]) -> Iterator[Problem]:
    """Refused rows that are not at their place, of files that are still those that were read."""
    for source, every in groupby(sorted(entries), itemgetter(0)):
        one = evidence.inputs[source]
        try:
            found = [*_displaced(Path(one.path), every)]
        except OSError:  # it is gone
            continue
        if found and all(map(content.is_there, one.splits)):
            yield from found


def _displaced(path: Path, entries: Iterable[tuple[str, int, int, str]]) -> Iterator[Problem]:
    """The same of one file."""
    here = before = 0
    with path.open("rb") as file:
        for source, offset, line, raw in entries:
            if offset > FIRST:
                return
            file.seek(here)
            before += file.read(offset - here).count(b"\n")
            text = file.read(len(raw.encode()) + 4)
            here = offset
            if path.suffix == ".json":  # its rows may have any number of lines
                begun = raw.lstrip(" \t\r\n").partition("\\x")[0][:_BEGIN].encode()
                if not text.lstrip(b" \t\r\n").startswith(begun):
                    yield REJECTS, f"{source}:{line} does not begin at byte {offset}"
            elif before + 1 != line:
                yield REJECTS, f"{source}:{line} is line {before + 1} of its file"
            elif not _is_said(raw, text):
                yield REJECTS, f"{source}:{line} has another text in its file"


def _is_said(raw: str, there: bytes) -> bool:
    """Whether a row's text is that of its bytes; bytes that are no UTF-8 are not compared."""
    try:
        text = there.partition(b"\n")[0].decode()
    except UnicodeDecodeError:
        return True
    return raw.strip() in text or text.strip() in raw or "\\x" in raw[-12:]
