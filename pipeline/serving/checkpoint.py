"""Compares a model directory with the build that it was trained on: tokenizer, template, stop ids
and pad token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline.serving.declared import ANSWERED, ASKED, StopDeclaration
from pipeline.serving.stops import Examined, StopPrompt
from stages.chat_template.template import Template
from stages.errors import ModelError, RowError, UsageError
from stages.files import regular
from stages.tokenizers import claims, directory


def _overlay(folder: Path, build: StopDeclaration) -> str:
    command = f"pipeline overlay {folder} --build {build.folder} -o NEW"
    return f"Write the build's own files next to the weights: {command}."


def first_difference(one: str, other: str) -> str:
    """A sentence part with the characters around the first difference of two texts."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    at = min(len(one), len(other)) if at is None else at
    start = max(0, at - 12)
    return f"{one[start : at + 24]!r} in the build, {other[start : at + 24]!r} there"


def compare(
    folder: Path, build: StopDeclaration, asked: list[StopPrompt], examined: Examined
) -> None:
    """Compare the directory's files with the build's.

    Raises:
        UsageError: it is not a model directory.
    """
    regular.require_all(folder)
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder} has no config.json.", "Give a model directory as transformers saves it."
        )
    try:
        _tokenizer(folder, build, asked, examined)
        _template(folder, build, examined)
    except ModelError as error:
        examined.add("unreadable", str(folder), error.what, _overlay(folder, build))
    _stops(folder, build, examined)
    _pads(folder, build, examined)


def _tokenizer(
    folder: Path, build: StopDeclaration, asked: list[StopPrompt], examined: Examined
) -> None:
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(claims.tokenizer_json(folder).decode())
    except Exception as error:  # the library raises no class of its own
        raise ModelError(f"{path} cannot be read: {error}.") from error
    theirs = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items()}
    ours = {t.content: i for i, t in build.tokenizer.get_added_tokens_decoder().items()}
    # The directory may have more tokens than the build: only ours must have our ids.
    other = {text: index for text, index in ours.items() if theirs.get(text) != index}
    if other:
        named = ", ".join(f"{text!r} = {index}" for text, index in list(other.items())[:4])
        what = f"tokens of the build's tokenizer are missing or have other ids: {named}"
        examined.add("other_tokenizer", str(path), what, _overlay(folder, build))
        return
    for prompt in asked:
        mine = build.tokenizer.encode(prompt.text, add_special_tokens=False).ids
        ids = tokenizer.encode(prompt.text, add_special_tokens=False).ids
        if ids != mine:
            what = (
                f"the prompt of {prompt.row} gives {len(ids)} ids, but the build's "
                f"tokenizer gives {len(mine)}, or other ids"
            )
            examined.add("other_tokenizer", str(path), what, _overlay(folder, build))
            return


def _template(folder: Path, build: StopDeclaration, examined: Examined) -> None:
    config = directory.read(folder, "tokenizer_config.json")
    named = {key: claims.token_text(config.get(key)) for key in ("bos_token", "eos_token")}
    tokens = {key: text for key, text in named.items() if isinstance(text, str)}
    source = directory.template_source(folder, config)
    theirs = Template(source, build.model.profile.date_string, **tokens)
    where = folder / "chat_template.jinja"
    where = where if where.is_file() else folder / "tokenizer_config.json"
    try:
        judge_template(
            build,
            where=str(where),
            whole=theirs.render(ANSWERED),
            prompt=theirs.render(ASKED, add_generation_prompt=True, **build.arguments),
            examined=examined,
        )
    except RowError as error:
        what = f"its chat template fails on a question and an answer: {error.detail}"
        examined.add("other_template", str(where), what, _overlay(folder, build))


def judge_template(
    build: StopDeclaration, where: str, whole: str, prompt: str | None, examined: Examined
) -> None:
    """Compare how a question and its answer are rendered there with how the build renders them.

    Args:
        whole: with the answer; ``prompt``: the question with the generation prompt.
    """
    answer = str(ANSWERED[-1]["content"])
    end = build.model.profile.end_of_turn
    use = "Use the build's chat template: tokenizer/tokenizer_config.json of the build has it."
    if end not in whole.rpartition(answer)[2]:  # what is printed after the answer
        what = f"the chat template prints no {build.end} after an answer; the build's does"
        examined.add("template_without_end_of_turn", where, what, use)
        return
    ours = build.template.render(ANSWERED)
    if whole != ours:
        what = f"the chat template prints a different text: {first_difference(ours, whole)}"
        examined.add("other_template", where, what, use)
        return
    ours = build.template.render(ASKED, add_generation_prompt=True, **build.arguments)
    if prompt is not None and prompt != ours:
        what = f"the generation prompt is different: {first_difference(ours, prompt)}"
        examined.add("other_template", where, what, use)


def _stops(folder: Path, build: StopDeclaration, examined: Examined) -> None:
    claimed = claims.read(folder)
    end = build.model.end_of_turn_id
    # At most one entry: the file that generation takes its eos ids from.
    where, ids = next(iter(claimed.eos_ids.items()), ("generation_config.json", ()))
    if end not in ids:
        listed = f"lists {list(ids)}" if ids else "lists none"
        what = f"eos_token_id {listed}, so generation does not stop at {build.end}"
        remedy = f'Set "eos_token_id": {build.stop_ids} there. {_overlay(folder, build)}'
        examined.add("eos_not_in_generation_config", str(folder / where), what, remedy)
    ours = build.model.profile.eos_token
    if claimed.eos_token is not None and claimed.eos_token != ours:
        what = f"eos_token is {claimed.eos_token!r}, but {ours!r} in the build's tokenizer"
        path = str(folder / "tokenizer_config.json")
        examined.add("other_eos_token", path, what, _overlay(folder, build))


def _pads(folder: Path, build: StopDeclaration, examined: Examined) -> None:
    claimed = claims.read(folder)
    profile = build.model.profile
    places: list[tuple[str, Any]] = [("tokenizer_config.json", claimed.pad_token)]
    ids = {build.model.end_of_turn_id: profile.end_of_turn, build.model.eos_id: profile.eos_token}
    places += [(file, ids[index]) for file, index in claimed.pad_ids.items() if index in ids]
    for file, token in places:
        if token is not None and token in (profile.end_of_turn, profile.eos_token):
            what = (
                f"the pad token is {token!r}, which also ends an answer: a trainer that drops "
                "padding from the loss by its id never trains the end of a turn"
            )
            remedy = (
                f"Train again with the build's labels and its pad token {profile.pad_token!r}: "
                f"{_overlay(folder, build)}"
            )
            examined.add("pad_is_end_of_turn", str(folder / file), what, remedy)
