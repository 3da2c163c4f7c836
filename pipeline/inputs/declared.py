"""What options declare of a build before anything is proved: its model, layout and fingerprint.

An equal build that is there already is found with this alone, so nothing heavy is imported here.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pipeline import exports, tasks
from pipeline.options.build_options import PHASE_OF
from pipeline.options.config import Config
from stages import catalog
from stages.errors import ModelError, UsageError
from stages.files import file_hash
from stages.profile import ModelProfile, tokenizer_of
from stages.tokenizers.resolve import Overrides, Resolved, require_known, resolve
from stages.tokens import layouts


def resolved(config: Config) -> tuple[Resolved, ModelProfile]:
    """The model of a build as it was found, and its profile as the options have it.

    Raises:
        ModelError: there is no such model, it is not trained on this task, or not padded so.
    """
    overrides = Overrides(
        chat_template=config.parts.chat_template,
        eos=config.parts.eos,
        date=config.parts.date,
        added_tokens=config.parts.add_token,
    )
    found = resolve(config.parts.model, config.run.cache, overrides, fetch=config.run.fetch)
    profile = found.profile
    if profile.pair is not None and not config.parts.kind.compares:
        raise ModelError(
            f"{profile.name} is an encoder: it reads a pair of texts and generates no text.",
            f"Use it for rm, or name a language model for {config.task}.",
        )
    if profile.pair is not None and config.plan.padding_side == "left":
        raise ModelError(
            f"{profile.name} is read at its first token and counts positions from the left.",
            "Leave --padding-side out: encoders are padded right.",
        )
    if config.parts.thinking != "auto":
        from stages.tokens import inference  # which renders prompts

        profile = inference.chosen(profile, config.parts.thinking)
    side = config.plan.padding_side or profile.padding_side
    return found, replace(profile, padding_side=side)


def require_model(config: Config) -> None:
    """A model's name is a known one, a path, or may be on the hub: asked before any row is read.

    Raises:
        ModelError: it is none of these.
    """
    require_known(config.parts.model)


def layout_of(config: Config, task: tasks.Task) -> str:
    """The build's layout: as asked for, or the first that task and trainer have in common.

    Raises:
        UsageError: it is not offered.
    """
    if config.plan.index_only:
        return _indexed(config, task)
    if not config.plan.layout:
        trainer = config.plan.trainer
        return exports.load(trainer).layout(task.name, task.layouts) if trainer else task.layouts[0]
    if layouts.load(config.plan.layout).indexed:
        raise UsageError(
            f"Layout {config.plan.layout} is that of --index-only.", "Give --index-only instead."
        )
    if config.plan.layout not in task.layouts:
        raise UsageError(
            f"{task.name} does not support layout {config.plan.layout}.",
            f"Choose {' or '.join(task.layouts)}.",
        )
    _require_trainer(config)
    return config.plan.layout


def _require_trainer(config: Config, recurrent: str = "") -> None:
    """The trainer of a build, where one is named, reads its rows.

    Raises:
        UsageError: it does not; or would let the documents of a row run into each other.
    """
    if config.plan.trainer:
        facts = exports.ExportFacts(
            task=config.task,
            layout=config.plan.layout,
            max_length=config.plan.max_length,
            bound=None,
            recurrent=recurrent,
        )
        exports.load(config.plan.trainer).require(facts)


def _indexed(config: Config, task: tasks.Task) -> str:
    """The layout of ``--index-only``.

    Raises:
        UsageError: the task has no packs, or a trainer is to read them.
    """
    if layouts.PACKED not in task.layouts:
        raise UsageError(
            f"--index-only stores packs, and {task.name} has none.", "Leave --index-only out."
        )
    if config.plan.trainer:
        name = config.plan.trainer
        raise UsageError(
            f"{name} reads rows, and --index-only stores packs as an index of them.",
            f"Build without --for, then write its rows: pipeline export {name} DIR -o OUT",
        )
    return layouts.INDEXED


def fitted(config: Config, profile: ModelProfile) -> Config:
    """The options with a length that the model can read: an encoder's positions are absolute.

    Raises:
        UsageError: see ``_require_trainer``.
    """
    if profile.recurrent:
        _require_trainer(config, profile.recurrent)
    if profile.pair is None:
        return config
    return config.but(max_length=min(config.plan.max_length, profile.context_length))


def fingerprint_of(config: Config, profile: ModelProfile, tokenizer_json: bytes) -> str:
    """Hash of options, profile and code."""
    tokenizer = file_hash.of_content(tokenizer_json)
    return hash_of([config.for_build, asdict(profile), tokenizer, code_version()])


def fingerprint_of_rows(config: Config, profile: ModelProfile, tokenizer_json: bytes) -> str:
    """Hash of all that a stored row follows from beside its part."""
    tokenizer = file_hash.of_content(tokenizer_json)
    options: Mapping[str, Any] = config.for_build
    sources = [{"name": one["name"], **_of_rows(one)} for one in options.get("sources", [])]
    return hash_of([_of_rows(options), sources, asdict(profile), tokenizer, code_version()])


def _of_rows(options: Mapping[str, Any]) -> dict[str, object]:
    """The options that stored rows depend on: not which rows are stored, in which packs, or what is
    judged and said of them."""
    phases = ("source", "parts")
    return {
        name: value
        for name, value in options.items()
        if PHASE_OF.get(name) in phases or name in ("layout", "padding_side")
    }


def declared_recipe(config: Config) -> tuple[str, Mapping[str, object]]:
    """The fingerprint of the recipe that ``resolve_recipe`` would give, and its options as a
    manifest has them, in a fraction of its time: no row is looked at, no claim about the model is
    proved, no encoder is loaded.

    Raises:
        UsageError, ModelError: model and options do not go together.
    """
    task = tasks.load(config.task)
    config = config.but(layout=layout_of(config, task))
    found, profile = resolved(config)
    tokenizer_json = tokenizer_of(profile, found.tokenizer_json, task.with_steps)
    config = fitted(config, profile)
    return fingerprint_of(config, profile, tokenizer_json), config.for_build


# Of these a part does not depend: who names the bytes, and what chooses among its examples.
_OUTSIDE = ("data", "filter", "model")
_LONGEST = 200  # characters of a value that is said in full


def made_with(
    config: Config, profile: ModelProfile, format_name: str, encoder: str
) -> dict[str, str]:
    """What a part of the one source is made with, in words: each option and each fact of the model
    by itself, as a part records it. It shares nothing with the hash that names the part."""
    given = {
        one.name: getattr(phase, one.name)
        for phase in (config.source, config.parts)
        for one in fields(phase)
        if one.name not in _OUTSIDE
    }
    model = {f"model.{x.name}": getattr(profile, x.name) for x in fields(profile)}
    del model["model.padding_side"]
    more: dict[str, object] = {"format": format_name, "encoder": encoder}
    more |= {"left": config.sources[0].left, "groups": config.groups}
    more |= {"longest_example": config.plan.longest_example}
    words = {name: repr(value) for name, value in {**given, **model, **more}.items()}
    return {
        name: text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()
        for name, text in sorted(words.items())
    }


# What the bytes of a build depend on beside its options and inputs: this code, and libraries.
#
# Machines that make one build together must agree in all of it, or the build would depend on which
# machine made what.

CODE = "this program's code"
LIBRARIES = (
    "datasets fastokens jinja2 numpy orjson polars pyarrow tokenizers xxhash zstandard".split()
)
ABSENT = "not installed"


@cache
def versions() -> Mapping[str, str]:
    """The versions in this process, by what they are of."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {CODE: code_version(), "Python": python, **{name: _of(name) for name in LIBRARIES}}


def _of(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # which take long to import

    try:
        return version(library)
    except PackageNotFoundError:
        return ABSENT


def require_alike(wanted: Mapping[str, str], who: str) -> None:
    """This process makes the bytes that another one makes.

    Args:
        wanted: the versions there; ``who``: this process, as the message names it.

    Raises:
        UsageError: it has other versions; the message says of what.
    """
    told = difference(wanted, versions())
    if told:
        raise UsageError(
            f"{who} has {told}.",
            "Install the same versions of this program and of its libraries on every machine.",
        )


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What differs, in words; empty where nothing does."""
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    return ", ".join(
        f"{name} {_short(found.get(name, ABSENT))} instead of {_short(wanted.get(name, ABSENT))}"
        for name in names
    )


def _short(text: str) -> str:
    return text[:12] if len(text) == 64 else text


# Hashes that name a recipe and a part: of options, profile and code.


def _sources(folder: Path) -> list[str]:
    """The paths of the code in a folder and below it, in one order everywhere. Every build
    asks as it starts; ``Path.rglob`` takes longer than all the reading."""
    return sorted(
        f"{place}/{name}"
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".py", ".jinja", ".toml"))
    )


@cache
def code_version() -> str:
    """Hash of this installation's code, and of what other packages add to it: a part made by other
    code is another part."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("expectations", "pipeline", "stages"):
        for name in _sources(root / package):
            path = Path(name)
            digest.update(f"{name.removeprefix(f'{root}/')}\0".encode())
            digest.update(path.read_bytes())
    for added in catalog.installed():
        digest.update(added)
    return digest.hexdigest()


def hash_of(value: object) -> str:
    """Of a value, as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
