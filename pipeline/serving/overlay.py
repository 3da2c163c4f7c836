"""``pipeline overlay``: a model directory with a build's tokenizer and configuration.

Trainers and servers read both from the model directory. The weights are linked, not copied.

Tokens that the build added have embedding rows that were never trained. Such rows are often equal
and near zero, so the model could not distinguish the tokens, and with frozen embeddings it would
never learn to. Each gets the mean of trained rows: those of a text with a similar meaning (step,
good and bad token), or those of the tokens that its own text had before it was added.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.builds.build import Build
from pipeline.manifest import dataset_files, records
from pipeline.serving import checkpoint, overlay_gate
from stages.encoders import parsed
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash

# Files of the original that are not linked: the build has its own, and they would contradict those.
_TOKENIZER = (
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "chat_template.jinja chat_template.json vocab.json merges.txt tokenizer.model"
).split()
_REPLACED = (*_TOKENIZER, "config.json", "generation_config.json")
# For each marker, the texts whose embedding rows it starts from: they mean something similar.
_MEANING = {"step_token": ("\n",), "good_token": ("+",), "bad_token": ("-",)}
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_TABLES = ("embed_tokens.weight", "lm_head.weight")


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(
            f"{path.parent} has no {path.name}.", "Give a model directory as transformers saves it."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}.", "Download the model again.") from error
    return content


def _link(origin: Path, target: Path) -> None:
    """A hard link where the file system has them, else a symbolic one."""
    real = origin.resolve()
    try:
        os.link(real, target)
    except OSError:
        target.symlink_to(real)


def _configuration(original: dict[str, Any], source: Build) -> dict[str, Any]:
    """``config.json`` with this build's pad and eos, and no cache in training."""
    model = source.manifest.model
    inner = original.get("text_config", original)
    rows = int(inner.get("vocab_size", 0))
    if rows < model.vocab_size:
        raise UsageError(
            f"The model has {rows} embedding rows, and this build's tokenizer has "
            f"{model.vocab_size} tokens.",
            "Give the model that the build was made for, or resize its embedding first "
            f"(resize_token_embeddings({model.vocab_size})), and build for the resized one.",
        )
    changed = {
        "pad_token_id": model.pad_token_id,
        "eos_token_id": model.eos_token_id,
        "use_cache": False,
    }
    config = {**original, **changed}
    if "text_config" in original:
        config["text_config"] = {**inner, **changed}
    return config


def _markers(model: records.ModelRecord) -> dict[str, tuple[str, int]]:
    """Text and id of the step, good and bad token; none in other tasks than prm."""
    given = {name: (getattr(model, name), getattr(model, f"{name}_id")) for name in _MEANING}
    return {name: pair for name, pair in given.items() if None not in pair}


def _rows(source: Build) -> dict[int, tuple[int, ...]]:
    """For each embedding row that is written, the rows whose mean it gets."""
    model = source.manifest.model
    data = source.tokenizer_json
    averaged = _rows_of_texts(data, model.added_tokens)
    markers = _markers(model)
    if not markers:
        return averaged
    tokenizer = parsed(data)
    for name, (_, target) in markers.items():
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in _MEANING[name]]
        used = tuple(index for each in ids for index in each)
        if target not in used:  # a family without spare rows uses trained ones as they are
            averaged[target] = used
    return averaged


def _rows_of_texts(data: bytes, added: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    """For each token that the user registered, the tokens that its text had before."""
    if not added:
        return {}
    # The same tokenizer without these tokens encodes their texts as ordinary text.
    document = json.loads(data)
    kept = [token for token in document["added_tokens"] if token["content"] not in added]
    before = parsed(json.dumps({**document, "added_tokens": kept}).encode())
    ids = {text: before.encode(text, add_special_tokens=False).ids for text in added}
    return {index: tuple(ids[text]) for text, index in added.items()}


def _give_rows(original: Path, folder: Path, rows: dict[int, tuple[int, ...]]) -> list[str]:
    """Copy the weight files that hold an embedding and write the rows into the copies.

    Returns:
        The names of the tensors that were changed.
    """
    shards = checkpoint.shards_of(original)
    changed = []
    for path, names in shards.items():
        tables = [name for name in names if name.endswith(_TABLES)]
        if not tables:
            continue
        target = folder / path.name
        target.unlink(missing_ok=True)  # it links to the original, which must not be written to
        shutil.copyfile(path.resolve(), target)
        for name in tables:
            checkpoint.set_means(target, name, rows)
            changed.append(name)
    if not changed:
        raise UsageError(
            f"{original} has no safetensors file with an embedding (embed_tokens.weight).",
            "Save the model with safe_serialization.",
        )
    return changed


def overlay(original: Path, build: Path, output: Path) -> list[str]:
    """Write the model directory.

    Returns:
        Notes for its user, a sentence each.

    Raises:
        UsageError: the model is not one, or not the build's.
        SurroundingsError: the output exists.
    """
    source = Build.open(build).require_intact()
    file_hash.require_all(original)
    changed = _configuration(_read(original / "config.json"), source)
    if output.exists() and any(output.iterdir()):
        raise UsageError(f"{output} has files in it.", "Give a new directory with -o.")
    staged = output.parent / f".{output.name}.overlay"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        notes = _fill(original, build, staged, changed, source)
        overlay_gate.require(staged, original, source)
        if output.exists():
            output.rmdir()  # empty, as was checked above
        staged.rename(output)
    except OSError as error:
        raise SurroundingsError(f"{output} cannot be written: {error}.", "Make room.") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return notes


def _fill(
    original: Path, build: Path, staged: Path, config: dict[str, Any], source: Build
) -> list[str]:
    for path in sorted(original.iterdir()):
        if path.is_file() and path.name not in _REPLACED:
            _link(path, staged / path.name)
    for path in sorted((build / "tokenizer").iterdir()):
        if path.name != "generation_config.json":
            shutil.copyfile(path, staged / path.name)
    dataset_files.write_json(staged / "config.json", config)
    generation = original / "generation_config.json"
    before = _read(generation) if generation.exists() else {}
    ours = _read(build / "tokenizer" / "generation_config.json")
    dataset_files.write_json(staged / "generation_config.json", {**before, **ours})
    rows = _rows(source)
    if not rows:
        bare = not any(path.suffix in _WEIGHTS for path in original.iterdir())
        return [f"{original} has no weights, so none were linked."] if bare else []
    return _notes(_give_rows(original, staged, rows), rows, source)


def _notes(changed: list[str], rows: dict[int, tuple[int, ...]], source: Build) -> list[str]:
    model = source.manifest.model
    given = [f"{text} from {_MEANING[name][0]!r}" for name, (text, _) in _markers(model).items()]
    added = model.added_tokens
    given += [f"{text} from the tokens that its text had before" for text in added]
    names = ", ".join(given)
    modules = sorted({name.rsplit(".", 2)[-2] for name in changed})
    train = "They are still untrained: under LoRA, or with frozen embeddings, train them too"
    served = f"Serve the model with this directory's tokenizer: others have no {', '.join(added)}."
    return [
        *([served] if added else []),
        f"{len(rows)} rows of {', '.join(changed)} were given values: {names}.",
        f"{train} (modules_to_save={modules}).",
    ]
