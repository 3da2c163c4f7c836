"""One source of a build, and how a manifest records options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pipeline.options import many_values
from pipeline.options.build_options import Budget, SourceOptions
from stages.errors import UsageError

TRAIN, TEST = "train", "test"  # the sources of a command that names files of its test split

# The order of a manifest's first options. Files that were written keep their order of keys, so this
# is never changed; an option that is not listed comes after them, in the order of its phase.
_FIRST = (
    "task format map ignore where null_fields layout trainer padding_side pad_to max_length "
    "too_long max_reject system chat_template eos date train_on neutral prm_template "
    "prompt_separator step_tag salvage already_templated stop_text reasoning_in reasoning thinking "
    "stop add_token tolerance dedup test_size shuffle seed expectations"
).split()


def _plain(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def recorded(options: Any) -> dict[str, object]:
    """The options of a phase, ready for JSON."""
    recorded = {}
    for option in fields(options):
        written = option.metadata.get(many_values.RECORDED, _plain)
        value = getattr(options, option.name)
        default = option.metadata.get(many_values.UNLESS_DEFAULT) and value in (option.default, {})
        if written is not None and not default:
            recorded[option.name] = written(value)
    return recorded


def in_order(recorded: dict[str, object]) -> dict[str, object]:
    """The same in a manifest's order."""
    return {name: recorded[name] for name in _FIRST if name in recorded} | recorded


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of options, table by table, as ``Config`` has values; what is said later wins.

    Attributes:
        common: of the build; ``own``: of each source; ``after``: of the build and every source.
    """

    common: tuple[Mapping[str, Any], ...]
    own: tuple[Mapping[str, Any], ...] = ()
    after: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a build: inputs, how they are read, and how much of them is used.

    Attributes:
        name: empty for the one source of a command.
        max_reject: share of its refused rows that fails the build; None where they count with
            those of the other sources, towards the limit of the build.
        license, origin: for the dataset card; None where they are those of the build.
        test: its examples are the test split.
        left: the columns that ``--leave-rest`` leaves out, as sampled rows show them.
    """

    options: SourceOptions
    name: str = ""
    max_reject: float | None = None
    budget: Budget = field(default_factory=Budget)
    license: str | None = None
    origin: str | None = None
    test: bool = False
    left: tuple[str, ...] = field(default=(), compare=False)

    @property
    def recorded(self) -> dict[str, object]:
        """The source in a manifest's options."""
        own: dict[str, object] = {"name": self.name, "max_reject": self.max_reject}
        own |= {"test": True} if self.test else {}
        said = {"license": self.license, "origin": self.origin}
        return own | in_order(recorded(self.options)) | recorded(self.budget) | said

    @classmethod
    def of_record(cls, recorded: Mapping[str, Any], data: tuple[str, ...]) -> Source:
        """The source that ``recorded`` gave; ``data``: where its inputs are now."""
        values: dict[str, Any] = {
            key: tuple(x) if isinstance(x, list) else x for key, x in recorded.items()
        }
        known = {one.name for one in fields(SourceOptions)} - {"data"}
        options = SourceOptions(data, **{name: values[name] for name in known & values.keys()})
        budget = Budget(**{one.name: values.get(one.name) for one in fields(Budget)})
        own: dict[str, Any] = {
            n: values.get(n) for n in ("name", "max_reject", "license", "origin")
        }
        return cls(options, budget=budget, test=bool(values.get("test")), **own)


def with_test(
    sources: tuple[Source, ...], test: tuple[str, ...], common: SourceOptions
) -> tuple[Source, ...]:
    """The same, and the source that is the test split, where files of it are named.

    Args:
        common: how its rows are read, but for ``data``.

    Raises:
        UsageError: another source has its name.
    """
    if not test:
        return sources
    if not sources[0].name:  # the one source of a command
        sources = (replace(sources[0], name=TRAIN),)
    if TEST in (one.name for one in sources):
        raise UsageError("A source is called 'test', the name of --test.", "Rename it.")
    return (*sources, Source(replace(common, data=test), TEST, test=True))
