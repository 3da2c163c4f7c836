"""One record format per file: each provides FORMAT.

A *reading* is what a build settles on for a file: a format's name, or ``name/variant`` where one
format's rows can be read in more than one way (``indexed_pair/1-based``). ``--format`` takes both.
"""

from __future__ import annotations

from collections.abc import Iterable

from stages import catalog
from stages.contract import Format, Varied
from stages.errors import UsageError
from stages.formats._unusable import Unusable


def load(reading: str) -> Format:
    """The format, or the variant of one, that a reading names.

    Raises:
        UsageError: there is none.
    """
    name, slash, variant = reading.partition("/")
    found: Format = catalog.load(__name__, name, "FORMAT")
    if not slash:
        return found
    variants = found.variants if isinstance(found, Varied) else {}
    if variant not in variants:
        raise catalog.unknown(f"variant of {name}", variant, sorted(variants))
    return variants[variant]


def names_of(found: Format) -> list[str]:
    """The columns that a format may read: the NAMEs that ``--map`` takes."""
    return [name for names in found.columns.values() for name in names]


def settled_by(found: Format, mapped: Iterable[str]) -> frozenset[str]:
    """The columns that have been decided on where ``--map`` names one of the same meaning."""
    named = set(mapped)
    meant = [names for names in found.columns.values() if not named.isdisjoint(names)]
    return frozenset(name for names in meant for name in names)


def rates_to_first_error(name: str) -> bool:
    """Whether the format's rows rate their steps up to the first error only."""
    return bool(getattr(load(name), "first_error", False))


def for_task(task: str) -> list[Format]:
    """The formats that feed a task."""
    return [f for f in map(load, catalog.names(__name__)) if task in f.tasks]


def usable_for(task: str) -> list[Format]:
    """Those of them whose rows can be trained on; the others are only refused by their name."""
    return [f for f in for_task(task) if not isinstance(f, Unusable)]


def choose(reading: str, task: str) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it cannot feed the task.
    """
    found = load(reading)
    if task not in found.tasks:
        raise UsageError(
            f"Format {found.name} is for {' and '.join(found.tasks)}, not {task}.",
            f"For {task}: {', '.join(f.name for f in usable_for(task))}.",
        )
    return found
