"""One subject per file: each provides SUBJECT, its metrics and the invariants on them.

A package of your own adds a subject through an entry point of the group
``posttrain_pipeline.invariants``.
"""

from collections.abc import Collection

from expectations.contract import Context, Invariant, Metrics, Subject
from stages import catalog
from stages.errors import UsageError

MEMBERS = {
    "dataset": "expectations.invariants.shards:DATASET_LAWS",
    "labels": "expectations.invariants.sequences:LABELS",
    "pack_index": "expectations.invariants.packs:INDEX",
    "padding": "expectations.invariants.packs:PADDING",
    "turns": "expectations.invariants.sequences:TURNS",
    "weights": "expectations.invariants.sequences:WEIGHTS",
}


def subjects() -> dict[str, Subject]:
    """Every subject by name.

    Raises:
        UsageError: an entry point provides something else.
    """
    by_name = {name: catalog.load(__name__, name, "SUBJECT") for name in catalog.names(__name__)}
    for name, subject in by_name.items():
        if not isinstance(subject, Subject):
            raise UsageError(
                f"The entry point {name} of posttrain_pipeline.invariants gives an object of type "
                f"{type(subject).__name__}.",
                "Return an expectations.contract.Subject, with its metrics and invariants.",
            )
    return by_name


def invariants() -> list[Invariant]:
    """Every invariant, by name.

    Raises:
        UsageError: two have one name.
    """
    by_name: dict[str, Invariant] = {}
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


def applying(context: Context, level: str) -> list[Invariant]:
    """The invariants that apply to a table."""
    return [law for law in invariants() if law.applies(context, level)]


def metrics_of(context: Context, level: str) -> list[tuple[str, Metrics]]:
    """The metrics that apply to a table, each with the name of its subject."""
    return [
        (name, metrics)
        for name, subject in subjects().items()
        for metrics in subject.metrics
        if metrics.applies(context, level)
    ]
