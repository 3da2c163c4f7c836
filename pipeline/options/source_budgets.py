"""How much of a source a build uses: keys of ``[[source]]`` alone, since a command has one source."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from pipeline.options import values as v
from pipeline.options.build_options import OPTIONS, Option, declared, option
from pipeline.options.values import Amount
from stages.errors import UsageError

_RATES, _AMOUNTS = ("share", "weight"), ("rows", "tokens", "trained_tokens")


# fmt: off
@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a source is trained on; a source without one is used once, whole.

    A share or a weight, or an amount, or passes. Beside another one, an amount and ``epochs`` are
    the most that may be used.
    """

    share: float | None = option(None, v.Number(most=1, above=0), "Share of the build's trained tokens.", flags=())
    weight: float | None = option(None, v.Number(above=0), "Trained tokens beside those of the other sources with a weight.", flags=())
    rows: int | None = option(None, Amount(), "Examples to train on; beside a share or weight, the most.", flags=())
    tokens: int | None = option(None, Amount(), 'Tokens to train on, prompts included, for example "50M"; beside a share or weight, the most.', flags=())
    trained_tokens: int | None = option(None, Amount(), "Tokens with a label; beside a share or weight, the most.", flags=())
    epochs: float | None = option(None, v.Number(above=0, most=1000), "Times that the source is used: whole passes, then a part. Beside anything else, the most [1].", flags=())

    def __post_init__(self) -> None:
        for names in (_RATES, _AMOUNTS):
            given = [name.replace("_", "-") for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise UsageError(f"{' and '.join(given)} both say how much is used.", "Leave one out.")

    @property
    def rated(self) -> bool:
        """Whether the other sources decide how much of it is used."""
        return self.share is not None or self.weight is not None

    @property
    def amount(self) -> tuple[str, int] | None:
        """The unit and the number of an amount."""
        found = {name: getattr(self, name) for name in _AMOUNTS}
        return next(((name, n) for name, n in found.items() if n is not None), None)

    @property
    def given(self) -> dict[str, float]:
        """What was asked for, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value is not None}
# fmt: on


def require_mixture(named: Mapping[str, Budget], total: int | None) -> None:
    """Shares, weights and a total can be met together.

    Args:
        named: the budget of each source; ``total``: trained tokens of the build.

    Raises:
        UsageError: they cannot.
    """
    shares = [one.share for one in named.values() if one.share is not None]
    heavy = any(one.weight is not None for one in named.values())
    others = [name for name, one in named.items() if not one.rated]
    sum_ = sum(shares)
    if sum_ > 1 + _ROUNDING:
        raise UsageError(f"The shares of the sources add up to {sum_:g}.", "Make them 1 or less.")
    open_ = heavy or (bool(others) and total is None)
    if shares and not open_ and (others or sum_ < 1 - _ROUNDING):
        rest = f"{others[0]!r} has none" if others else f"{1 - sum_:g} is of no source"
        raise UsageError(
            f"The shares of the sources add up to {sum_:g}, and {rest}.",
            "Give every source a share, and make them 1; or give weights, which need no sum.",
        )
    if open_ and shares and sum_ > 1 - _ROUNDING:
        first = next(name for name, one in named.items() if one.share is None)
        raise UsageError(
            f"The shares of the sources add up to 1, which leaves nothing for {first!r}.",
            "Lower them, or give it one of them.",
        )


_ROUNDING = 1e-6


BUDGET = {one.name: declared(one) for one in fields(Budget)}


NAME = Option("name", v.Text(), "What a source or build is called in messages and in --set.")
OF_SOURCE: dict[str, Option] = {"name": NAME, **BUDGET}
EVERY = OPTIONS | OF_SOURCE  # what a recipe may say, by name and by key
BY_KEY = {option.key: option for option in EVERY.values()}
