"""``manifest.json``: what was built, from what, and what became of every row.

No clock, no host, no absolute path: equal builds have equal manifests.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import __version__, inference
from pipeline.gather import ShardReport
from pipeline.inputs import Input, identity
from pipeline.margins import Margins
from pipeline.part import PartReport
from pipeline.plan import Plan
from pipeline.recipe import Recipe
from pipeline.rejects import Ledger
from stages import encoders, formats, turn_split
from stages.profile import ModelProfile, TargetModel
from stages.tokenizers import oracle

SCHEMA_VERSION = 1
FATES = ("used", "rejected", "duplicates", "filtered")  # what becomes of a row, one of them


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a finished build knows about itself."""

    recipe: Recipe
    inputs: list[Input]
    parts: list[PartReport]
    rows_of_input: list[int]
    plan: Plan
    shards: list[ShardReport]
    ledger: Ledger
    duplicate_rows: int
    margins: Margins | None = None  # rm only

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """The parts' tallies, added up."""
        total: dict[str, Counter[str]] = {}
        for part in self.parts:
            for name, values in part.counts.items():
                total.setdefault(name, Counter()).update(values)
        return total


def build_id(recipe: Recipe, inputs: Sequence[Input]) -> str:
    """Hash of the recipe and its inputs: equal ids, equal shards."""
    return _id(recipe.fingerprint, [(source.name, source.sha256) for source in inputs])


def id_of(described: dict[str, Any]) -> str:
    """The same, from what a manifest says: of its recipe and inputs, or of the build exported."""
    if exported := described.get("export"):
        names = (exported["trainer"], described["layout"], exported["of"])
        return hashlib.sha256("\0".join(names).encode()).hexdigest()
    named = [(source["path"], source["sha256"]) for source in described["inputs"]]
    return _id(described["recipe_fingerprint"], named)


def _id(fingerprint: str, inputs: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(f"{fingerprint}\0{identity(inputs)}".encode()).hexdigest()


def model_of(model: TargetModel) -> dict[str, Any]:
    """What the manifest says of the model."""
    profile = model.profile
    steps = profile.step_tokens if model.step_id >= 0 else None
    ids = (model.step_id, model.good_id, model.bad_id) if steps else (None, None, None)
    return {
        "name": profile.name,
        "revision": profile.revision,
        "tokenizer_sha256": hashlib.sha256(model.tokenizer_json).hexdigest(),
        "chat_template_sha256": hashlib.sha256(profile.chat_template.encode()).hexdigest(),
        "eos_token": profile.eos_token,
        "eos_token_id": model.eos_id,
        "end_of_turn": profile.end_of_turn,
        "end_of_turn_id": model.end_of_turn_id,
        "pad_token": profile.pad_token,
        "pad_token_id": model.pad_id,
        "padding_side": profile.padding_side,
        "bos_policy": profile.bos_policy,
        "step_token": steps.step if steps else None,
        "step_token_id": ids[0],
        "good_token": steps.good if steps else None,
        "good_token_id": ids[1],
        "bad_token": steps.bad if steps else None,
        "bad_token_id": ids[2],
        "vocab_size": model.vocab_size,
        "embedding_size": profile.embedding_size,
        "date_string": profile.date_string,
        "is_base": profile.is_base,
        "family": profile.family,
        "pair": _pair(profile),
        "added_tokens": model.added_ids,
    }


def _pair(profile: ModelProfile) -> dict[str, Any] | None:
    """How an encoder's two texts are framed, and which positions it has; None for decoders."""
    if profile.pair is None:
        return None
    return {
        "before": list(profile.pair.before),
        "between": list(profile.pair.between),
        "after": list(profile.pair.after),
        "token_types": profile.pair.token_types,
        "position_offset": profile.pair.position_offset,
        "positions": profile.context_length,
        "read_at": "first",
    }


def _splits(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in outcome.plan.sides:
        shards = [s for s in outcome.shards if s.split == side.name]
        found[side.name] = {
            "rows": sum(s.rows for s in shards),
            "examples": sum(s.examples for s in shards),
            "tokens": sum(s.tokens for s in shards),
            "shards": [
                {
                    "path": s.path,
                    "rows": s.rows,
                    "tokens": s.tokens,
                    "bytes": s.bytes,
                    "sha256": s.sha256,
                }
                for s in shards
            ],
        }
    return found


def _packing(outcome: Outcome) -> dict[str, Any] | None:
    config, plan = outcome.recipe.config, outcome.plan
    rows = sum(s.rows for s in outcome.shards)
    tokens = sum(s.tokens for s in outcome.shards)
    if config.layout == "packed":
        return {
            "packs": rows,
            "efficiency": round(tokens / (rows * config.max_length), 6),
            "lower_bound": plan.lower_bound,
        }
    return None


def _padding(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.recipe.config.layout != "padded":
        return None
    tokens = sum(s.tokens for s in outcome.shards)
    padding = sum(s.padding for s in outcome.shards)
    return {"width": outcome.plan.width, "waste": round(padding / (tokens + padding), 6)}


def _notes(outcome: Outcome) -> Counter[str]:
    notes = Counter(outcome.counts.get("note", Counter()))
    salvaged = sum(part.rows for part in outcome.parts if part.damage)
    return notes + Counter({"salvaged_before_damage": salvaged})


def _rows(outcome: Outcome) -> dict[str, Any]:
    ledger, plan = outcome.ledger, outcome.plan
    rows_in = sum(part.rows for part in outcome.parts)
    used = len(np.unique(plan.examples.row[plan.kept]))
    return {
        "in": rows_in,
        "used": used,
        "rejected": ledger.rejected_rows,
        "duplicates": outcome.duplicate_rows,
        "filtered": sum(part.filtered for part in outcome.parts),
        "duplicates_found": int(plan.duplicate.sum()),
        "rejected_by_code": dict(sorted(ledger.rows_by_code.items())),
        "notes": dict(sorted(_notes(outcome).items())),
    }


def _examples(outcome: Outcome) -> dict[str, Any]:
    ledger, plan = outcome.ledger, outcome.plan
    return {
        "made": sum(part.made for part in outcome.parts),
        "rejected": ledger.examples_by_code.total(),
        "duplicates": int((~plan.kept).sum()),
        "kept": int(plan.kept.sum()),
        "rejected_by_code": dict(sorted(ledger.examples_by_code.items())),
    }


def ledger(outcome: Outcome) -> dict[str, int]:
    """What became of every row and every example, as the gate's dataset table has it."""
    rows, made = _rows(outcome), _examples(outcome)
    plan, kept = outcome.plan, outcome.plan.kept
    duplicates = 0 if outcome.recipe.config.dedup else int(plan.duplicate.sum())
    return {
        "rows_in": rows["in"],
        "rows_accounted": sum(rows[name] for name in FATES),
        "examples_made": made["made"],
        "examples_accounted": made["kept"] + made["rejected"] + made["duplicates"],
        "examples_kept": made["kept"],
        "tokens_kept": int(plan.examples.length[kept].sum()),
        "trained_kept": int(plan.examples.trained[kept].sum()),
        "duplicates_declared": duplicates,
    }


def _prm(outcome: Outcome) -> dict[str, Any] | None:
    config, step_tokens = outcome.recipe.config, outcome.recipe.model.profile.step_tokens
    if config.task != "prm":
        return None
    return {
        "template": config.prm_template,
        "step_separator": step_tokens.separator if config.prm_template == "chat" else None,
        "label_kind": "soft" if any(s.measured.soft_labels for s in outcome.shards) else "hard",
        "neutral": config.neutral,
    }


def _encoder(outcome: Outcome) -> dict[str, Any]:
    recipe = outcome.recipe
    encoder = encoders.load(recipe.backend, recipe.model.tokenizer_json)
    return {
        "backend": encoder.name,
        "version": encoder.version,
        "parity": _parity(outcome),
        "rendered": dict(sorted(outcome.counts.get("rendered", Counter()).items())),
        "merged_cuts": outcome.counts.get("sums", Counter())["merged_cuts"],
    }


def _unread(parts: Sequence[PartReport]) -> list[dict[str, Any]]:
    """Columns of one input that nothing read, the largest first."""
    rows, size = Counter[str](), Counter[str]()
    for part in parts:
        rows.update(part.counts.get("unread_rows", {}))
        size.update(part.counts.get("unread_bytes", {}))
    total = max(sum(part.rows - part.filtered for part in parts), 1)
    order = sorted(rows, key=lambda column: (-size[column], column))
    return [
        {
            "column": column,
            "rows": rows[column],
            "share": round(rows[column] / total, 6),
            "bytes": size[column],
        }
        for column in order
    ]


def _parity(outcome: Outcome) -> dict[str, Any]:
    """What sampled rows were compared with; a build with a difference has no manifest."""
    return {
        "sampled": sum(part.sampled for part in outcome.parts),
        "skipped": sum(part.skipped for part in outcome.parts),
        "mismatches": 0,
        # How many were compared with it is in run.json: not every machine has the vocabulary.
        "oracle": oracle.vocabulary(outcome.recipe.model.profile.ranks),
    }


def _inputs(outcome: Outcome) -> list[dict[str, Any]]:
    recipe = outcome.recipe
    found = iter(outcome.parts)
    parts = [[next(found) for _ in source.splits] for source in outcome.inputs]
    columns = (outcome.inputs, outcome.rows_of_input, recipe.formats, recipe.evidence, parts)
    return [
        {
            "path": source.name,
            "bytes": source.bytes,
            "sha256": source.sha256,
            "rows": rows,
            "format": name,
            "evidence": why,
            "damage": next((part.damage for part in mine if part.damage), None),
            "unread": _unread(mine),
        }
        for source, rows, name, why, mine in zip(*columns, strict=True)
    ]


def _tokens(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    return {
        "total": sum(s.tokens for s in outcome.shards),
        "trained": int(plan.examples.trained[plan.kept].sum()),
        "padding": sum(s.padding for s in outcome.shards),
        "truncated": outcome.counts.get("sums", Counter())["truncated"],
        "turn_split": turn_split.told(outcome.counts.get("turn_split", {})),
    }


def describe(outcome: Outcome) -> dict[str, Any]:
    """The manifest, without writing it; ``audits`` and ``files`` are filled in later."""
    recipe = outcome.recipe
    config = recipe.config
    probes = recipe.model.probes.items()
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "build_id": build_id(recipe, outcome.inputs),
        "recipe_fingerprint": recipe.fingerprint,
        "task": config.task,
        "layout": config.layout,
        "max_length": config.max_length,
        "seed": config.seed,
        "options": config.recorded(),
        "model": model_of(recipe.model)
        | {"repairs": [repair.described() for repair in recipe.repairs]},
        "prm": _prm(outcome),
        "rm": {"margins": outcome.margins.recorded()} if outcome.margins else None,
        "format": ",".join(dict.fromkeys(formats.load(name).name for name in recipe.formats)),
        "inputs": _inputs(outcome),
        "rows": _rows(outcome),
        "examples": _examples(outcome),
        "tokens": _tokens(outcome),
        "packing": _packing(outcome),
        "padding": _padding(outcome),
        "splits": _splits(outcome),
        "probes": {name: {"passed": True, "detail": detail} for name, detail in probes},
        "encoder": _encoder(outcome),
        **inference.of_build(outcome.recipe, outcome.shards),
        "audits": {},
        "trainers": {},
        "files": {},
    }


def hash_files(folder: Path, known: dict[str, str]) -> dict[str, str]:
    """sha256 of every file of a build; ``known`` spares hashing shards twice."""
    found = dict(known)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in found and name not in ("run.json", "manifest.json"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return dict(sorted(found.items()))
