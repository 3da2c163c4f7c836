"""Invariants by subject: a module beside this provides SUBJECT, its metrics and the laws on them.

The invariants of ours are a table, ``laws.toml``.

A package of your own adds a subject through an entry point of the group
``posttrain_pipeline.invariants``.
"""

import functools
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from expectations import contract
from stages import catalog
from stages.errors import UsageError

MEMBERS = {
    "dataset": "expectations.shard_laws:DATASET_LAWS",
    "labels": "expectations.sequence_laws:LABELS",
    "origins": "expectations.shard_laws:ORIGINS",
    "pack_index": "expectations.pack_laws:INDEX",
    "padding": "expectations.pack_laws:PADDING",
    "packs": "expectations.pack_laws",
    "pairs": "expectations.sequence_laws:PAIRS",
    "sequences": "expectations.sequence_laws",
    "shards": "expectations.shard_laws",
    "steps": "expectations.sequence_laws:STEPS",
    "turns": "expectations.sequence_laws:TURNS",
    "weights": "expectations.sequence_laws:WEIGHTS",
}


@functools.cache
def _table() -> dict[str, dict[str, dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_name("laws.toml").read_text("utf-8"))


def laws(subject: str) -> tuple[contract.Invariant, ...]:
    """The invariants of a subject of ours, as the table has them."""
    found = []
    for name, law in _table()[subject].items():
        said = dict(law)
        checks = [_check(text) for text in said.pop("checks", ())]
        for text in said.pop("sequences", ()):
            checks += contract.every_sequence(_bounds(text))
        needs = tuple(said.pop("needs", ()))
        found.append(contract.Invariant(name=name, checks=tuple(checks), needs=needs, **said))
    return tuple(found)


def _check(text: str) -> contract.Check:
    """``column = other``, or bounds; ``if`` names a trait of the rows that it is for."""
    said, _, trait = text.partition(" if ")
    needs = (trait,) if trait else ()
    column, sign, other = said.split()[:3]
    if sign == "=" and other not in contract.PARAMETERS and not other.isdigit():
        return contract.Equal(column, other, needs)
    return _bounds(said, needs)


def _bounds(text: str, needs: tuple[str, ...] = ()) -> contract.Between:
    match text.split():
        case [column, "=", bound]:
            return contract.Between(column, _bound(bound), _bound(bound), needs)
        case [column, ">=", low]:
            return contract.Between(column, _bound(low), None, needs)
        case [column, "<=", high]:
            return contract.Between(column, None, _bound(high), needs)
        case [low, "<=", column, "<=", high]:
            return contract.Between(column, _bound(low), _bound(high), needs)
    raise ValueError(text)


def _bound(text: str) -> contract.Bound:
    return text if text in contract.PARAMETERS else int(text)


def subjects() -> dict[str, contract.Subject]:
    """Every subject by name.

    Raises:
        UsageError: an entry point provides something else.
    """
    by_name = {name: catalog.load(__name__, name, "SUBJECT") for name in catalog.names(__name__)}
    for name, subject in by_name.items():
        if not isinstance(subject, contract.Subject):
            raise UsageError(
                f"The entry point {name} of posttrain_pipeline.invariants gives an object of type "
                f"{type(subject).__name__}.",
                "Return an expectations.contract.Subject, with its metrics and invariants.",
            )
    return by_name


def invariants() -> list[contract.Invariant]:
    """Every invariant, by name.

    Raises:
        UsageError: two have one name.
    """
    by_name: dict[str, contract.Invariant] = {}
    owner: dict[str, str] = {}
    for subject, declared in subjects().items():
        for law in declared.invariants:
            if law.name in by_name:
                raise UsageError(
                    f"{subject} declares the invariant {law.name}, and so does {owner[law.name]}.",
                    "Give the invariant of your subject another name.",
                )
            by_name[law.name], owner[law.name] = law, subject
    return [by_name[name] for name in sorted(by_name)]


def are_ours(names: Collection[str]) -> bool:
    """Whether all of these invariants are our own, and none is of another package."""
    found = subjects()
    ours = {law.name for name in catalog.own(__name__) for law in found[name].invariants}
    return ours.issuperset(names)


def applying(context: contract.Context, level: str) -> list[contract.Invariant]:
    """The invariants that apply to a table."""
    return [law for law in invariants() if law.applies(context, level)]


def metrics_of(context: contract.Context, level: str) -> list[tuple[str, contract.Metrics]]:
    """The metrics that apply to a table, each with the name of its subject."""
    return [
        (name, metrics)
        for name, subject in subjects().items()
        for metrics in subject.metrics
        if metrics.applies(context, level)
    ]
