"""``pipeline stops``: whether a trained model ends its answers.

A checkpoint or a server gets prompts of a build, and each answer must end in the build's end of
turn. A finding names the problem, the file or server that has it, and the fix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SINGLE, MULTI, TOOLS, BATCH = "single", "multi-turn", "with tools", "batch with padding"
KINDS = (SINGLE, MULTI, TOOLS, BATCH)
GREEDY, SAMPLED = "greedy", "sampled"


@dataclass(frozen=True, slots=True)
class StopPrompt:
    """One prompt of the build, id for id as it was trained.

    Attributes:
        row: id of the example that it begins.
        text: what the build's tokenizer decodes it to, control tokens included.
    """

    kind: str
    row: str
    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """The answer to a prompt.

    Attributes:
        way: of decoding, ``greedy`` or ``sampled``.
        ended: it ended in the declared end of turn.
        at: the id or string that it ended at; empty where it ran on.
        passed_over: it contains the end of turn, but generation went on after it.
    """

    kind: str
    way: str
    row: str
    ended: bool
    at: str
    tokens: int
    text: str
    passed_over: bool = False

    @classmethod
    def to(cls, prompt: StopPrompt, temperature: float, **found: Any) -> StopAnswer:
        """The answer to a prompt that was decoded at a temperature, 0 for the likeliest tokens."""
        way = SAMPLED if temperature else GREEDY
        return cls(kind=prompt.kind, way=way, row=prompt.row, **found)


@dataclass(frozen=True, slots=True)
class StopFinding:
    """A problem, or something worth knowing.

    Attributes:
        fault: False if it is no problem.
    """

    code: str
    where: str
    what: str
    remedy: str
    fault: bool = True


@dataclass
class Examined:
    """The result for one checkpoint or server.

    Attributes:
        asked: prompts were run; False with ``--tokenizer-only``.
    """

    target: str
    answers: list[StopAnswer] = field(default_factory=list)
    findings: list[StopFinding] = field(default_factory=list)
    asked: bool = False

    def add(self, code: str, where: str, what: str, remedy: str, fault: bool = True) -> None:
        """Add a finding, once."""
        finding = StopFinding(code, where, what, remedy, fault)
        if finding not in self.findings:
            self.findings.append(finding)

    def running_on(self) -> float:
        """Share of answers that do not end in the declared end of turn."""
        return sum(not one.ended for one in self.answers) / max(len(self.answers), 1)

    def counts(self) -> list[dict[str, Any]]:
        """By kind of prompt and way of decoding: answers, those that ended, and where."""
        rows = []
        for kind in KINDS:
            for way in (GREEDY, SAMPLED):
                mine = [a for a in self.answers if (a.kind, a.way) == (kind, way)]
                if not mine:
                    continue
                places = sorted({answer.at for answer in mine if answer.at})
                ends = {at: sum(answer.at == at for answer in mine) for at in places}
                ended = sum(answer.ended for answer in mine)
                rows.append(
                    {
                        "prompts": kind,
                        "decoding": way,
                        "answers": len(mine),
                        "ended": ended,
                        "ran_on": len(mine) - ended,
                        "at": ends,
                    }
                )
        return rows
