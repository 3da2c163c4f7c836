"""First phase: the inputs opened and cut into splits, and the recipe resolved over them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.builder import preflight
from pipeline.inputs import equal_build
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import Input, scan
from pipeline.options.config import Config
from pipeline.shards.part import PartReport
from pipeline.stores import local
from stages.contract import Split
from stages.errors import UsageError


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that the later phases need. It can be pickled, so that other processes run them.

    Attributes:
        inputs: in the order in which they were named.
        build_id: of the build to be, as far as the inputs were read.
        started: seconds since the epoch.
        left_out: files of named folders that no reader is for.
    """

    recipe: Recipe
    inputs: tuple[Input, ...]
    build_id: str
    started: float
    left_out: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The options, with what was left to be chosen."""
        return self.recipe.config

    @property
    def splits(self) -> list[tuple[Split, int, str]]:
        """Every split of every input with the number of its source, and with its format. Its place
        here is the split's number."""
        return [
            (split, number, name)
            for source, (number, name) in zip(self.inputs, self.recipe.readings, strict=True)
            for split in source.splits
        ]

    def of_inputs(self, per_split: Sequence[int]) -> list[list[int]]:
        """Numbers of all splits, grouped by input."""
        numbers = iter(per_split)
        return [[next(numbers) for _ in source.splits] for source in self.inputs]

    @property
    def planned_id(self) -> str:
        """The same for every process that prepares the build, whether the inputs were read or
        not."""
        return equal_build.planned_id_of(self.recipe.fingerprint, self.inputs)

    @property
    def is_read(self) -> bool:
        """Whether all inputs were hashed. Until then the build's id is not its last one."""
        return all(source.sha256 for source in self.inputs)

    def having_read(self, reports: Mapping[int, PartReport]) -> Prepared:
        """The same after bytes of the inputs were read.

        Args:
            reports: of parts, by the numbers of their splits.
        """
        if self.is_read:
            return self
        known = enumerate(split for source in self.inputs for split in source.splits)
        splits = iter([_read(split, reports.get(number)) for number, split in known])
        inputs = tuple(one.having([next(splits) for _ in one.splits]) for one in self.inputs)
        build_id = equal_build.id_of(self.recipe.fingerprint, inputs)
        return replace(self, inputs=inputs, build_id=build_id)

    def encoded_by(self, backend: str) -> Prepared:
        """The same build, encoded by another encoder, whose ids are the same."""
        return replace(self, recipe=replace(self.recipe, backend=backend))

    def require_current(self) -> None:
        """The build is still what this program, as it is now, would make.

        Raises:
            UsageError: another version of the program prepared it.
        """
        current = equal_build.id_of(self.recipe.fingerprint, self.inputs)
        if current != self.build_id:
            raise UsageError(
                "The build was prepared by another version of this program.",
                "Prepare it again, and make its parts by the same version.",
            )


def _read(split: Split, report: PartReport | None) -> Split:
    """A split after its part was made."""
    if split.sha256 or report is None:
        return split
    return replace(split, sha256=report.input_sha256, lines=report.lines)


def prepare(config: Config, inputs: Sequence[Input] | None = None) -> Prepared:
    """Open the inputs and resolve the options; no row is encoded.

    Args:
        inputs: those of the configuration, where they were scanned already.

    Raises:
        UsageError: an option, the model or an input does not exist or does not fit the others.
        DataError: an input is empty or damaged, or its format cannot be detected.
        SurroundingsError: an input is not readable.
    """
    started = time.time()
    left_out = tuple(local.left_out(config.data))
    inputs = tuple(scan(config, hash_now=False) if inputs is None else inputs)
    recipe = resolve_recipe(config, inputs)
    build_id = equal_build.id_of(recipe.fingerprint, inputs)
    return Prepared(recipe, inputs, build_id=build_id, started=started, left_out=left_out)


def refuse_early(prepared: Prepared) -> None:
    """Stop a build now that would be refused after all its work is done.

    Raises:
        DataError: a sample of the rows says that too many will be refused.
    """
    preflight.require_hopeful(prepared.recipe, prepared.inputs)
