"""What a build is told: the options by name, checked once, frozen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from stages import layouts
from stages.errors import UsageError
from stages.kinds import Kind
from stages.selection import condition

# Options that cannot change a byte of a shard.
# The model is recorded as a profile; its spelling may be a path.
_OUTSIDE = {"output", "data_docs", "workers", "engine", "cache_dir", "data", "model"}
LISTS = ("stop", "add_token", "ignore", "where")  # options that may be given several times
# Options that a part does not depend on, so that repacking reuses what is encoded.
_AFTER_PARTS = {
    "layout",
    "padding_side",
    "pad_to",
    "dedup",
    "test_size",
    "shuffle",
    "seed",
    "max_reject",
    "trainer",
    "tolerance",
    "expectations",
}


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/posttrain-pipeline``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "posttrain-pipeline"


@dataclass(frozen=True, slots=True)
class Config:
    """One build's options; the names are those of the command line."""

    task: str
    data: tuple[str, ...]
    model: str
    output: Path
    format: str = "auto"
    map: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    null_fields: str | None = None
    layout: str = ""
    trainer: str = ""  # --for
    padding_side: str = ""  # the family's own: left, encoders right
    pad_to: str = "longest"
    max_length: int = 4096
    too_long: str = "reject"
    max_reject: float = 0.01
    system: str | None = None
    chat_template: str | None = None  # the template's source, not its file
    eos: str | None = None
    date: str | None = None
    train_on: str = "assistant"
    neutral: str = "null"
    prm_template: str = "chat"
    prompt_separator: str = "Step 1:"
    step_tag: str | None = None
    salvage: bool = False
    already_templated: bool = False
    stop_text: str = "reject"
    reasoning_in: str = "template"
    reasoning: str = "keep"
    thinking: str = "auto"
    stop: tuple[str, ...] = ()
    add_token: tuple[str, ...] = ()
    tolerance: Mapping[str, float] = field(default_factory=dict)
    dedup: bool = False
    test_size: float = 0.0
    shuffle: bool = False
    seed: int = 0
    expectations: tuple[tuple[str, str], ...] = ()  # names and texts of the users' suites
    workers: int = 0
    engine: str = "local"
    data_docs: Path | None = None  # where Great Expectations' own pages go
    cache_dir: Path = field(default_factory=default_cache)

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise UsageError(f"--max-length {self.max_length} is too small.", "Give at least 8.")
        number = int(self.pad_to) if self.pad_to.isascii() and self.pad_to.isdigit() else 0
        if self.pad_to not in ("longest", "max-length") and number < 8:
            raise UsageError(
                f"--pad-to must be a width, not {self.pad_to!r}.",
                "Give longest, max-length or a number of tokens, at least 8.",
            )
        kind = self._kind
        if self.too_long not in ("reject", f"trim-{kind.trims}"):
            known = f"Use --too-long trim-{kind.trims}." if kind.trims else "Leave it out."
            raise UsageError(f"--too-long {self.too_long} is not for {self.task}.", known)
        if self.train_on != "assistant" and not kind.trains_answers:
            raise UsageError(f"--train-on {self.train_on} is not for {self.task}.", "Leave it out.")
        if self.reasoning == "mask" and (not kind.trains_answers or self.train_on == "all"):
            raise UsageError(
                "--reasoning mask is only for sft, and not with --train-on all.",
                "Use it for sft without --train-on all, or use --reasoning strip.",
            )
        for text in self.where:
            condition(text)  # raises where it cannot be read
        if self.thinking != "auto" and kind.marks:
            raise UsageError(f"--thinking is not for {self.task}.", "Leave it out.")
        if not all(self.stop):
            raise UsageError("--stop is empty.", "Give the text at which a server must stop.")
        if not 0 <= self.max_reject <= 1:
            raise UsageError(f"--max-reject must be between 0 and 1, not {self.max_reject}.")
        whole = self.test_size < 1 or float(self.test_size).is_integer()
        if not (0 <= self.test_size < 2**53 and whole):  # NaN included
            raise UsageError(
                f"--test-size must be a share or a number of rows, not {self.test_size}.",
                "Give a share below 1, or a number of rows.",
            )

    @property
    def _kind(self) -> Kind:
        from pipeline import tasks  # they are made from a Config

        return tasks.kind_of(self.task)

    @property
    def longest_example(self) -> int:
        """Tokens that an example may have: a fixed width below ``--max-length`` binds too."""
        if not self.layout:  # it is still to be chosen
            return self.max_length
        return layouts.load(self.layout).room(self.pad_to, self.max_length)

    def recorded(self, for_parts: bool = False) -> dict[str, object]:
        """The options that what is built depends on, ready for JSON."""
        left_out = _OUTSIDE | (_AFTER_PARTS if for_parts else set())
        if for_parts:
            left_out |= {"max_length", "stop"}
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        found["map"] = dict(self.map)
        if "tolerance" in found:
            found["tolerance"] = dict(self.tolerance)
        found |= {name: list(getattr(self, name)) for name in LISTS}
        if self.expectations and not for_parts:
            hashes = [
                (n, hashlib.sha256(text.encode()).hexdigest()) for n, text in self.expectations
            ]
            found["expectations"] = [{"file": name, "sha256": digest} for name, digest in hashes]
        if for_parts:
            del found["stop"]
            found["longest_example"] = self.longest_example
        return found
