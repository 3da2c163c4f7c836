"""The stop tokens and the template that a build declares, and prompts from its examples."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tokenizers import Tokenizer

from pipeline import tasks
from pipeline.builds import packs
from pipeline.builds.build import Build
from pipeline.builds.stored_model import stored_model
from pipeline.manifest.records import Serving
from stages import encoders, profile
from stages.chat_template.render import template_of
from stages.chat_template.template import Template
from stages.columns import IGNORED
from stages.errors import RowError, UsageError
from stages.tokens.inference import matches
from stages.tokens.inference import prompts as generation_prompts

_LOOKED_AT = 4000  # examples
_FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
_TOOL = {"type": "function", "function": _FUNCTION}
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "How many are 2 and 3?"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": "They are 5."}]


class Declared(NamedTuple):
    """A build, with its model and everything that it declares about stopping."""

    source: Build
    model: profile.TargetModel

    @property
    def folder(self) -> Path:
        return self.source.folder

    @property
    def serving(self) -> Serving:
        return self.source.serving

    @property
    def tokenizer(self) -> Tokenizer:
        return encoders.parsed(self.model.tokenizer_json)

    @property
    def template(self) -> Template:
        return template_of(self.model)

    @property
    def stop_ids(self) -> list[int]:
        return list(self.serving.stop_token_ids)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the chat template for the generation prompt that the build trains."""
        inference = self.source.manifest.inference
        return dict(inference.arguments or {}) if inference else {}

    @property
    def end(self) -> str:
        """The end of a turn, for a sentence."""
        ends = zip(dict.fromkeys(self.model.profile.ends), self.model.end_ids, strict=True)
        return " or ".join(f"{token!r} ({index})" for token, index in ends)

    @property
    def end_of_answers(self) -> str:
        """What the template prints behind a last answer; empty where the next turn ends it."""
        end = self.model.profile.end_of_turn
        behind = self.template.render(ANSWERED).rpartition(ANSWERED[-1]["content"])[2]
        return end if end in behind else ""

    @property
    def room(self) -> int:
        """Tokens to wait for an end: twice what the longest trained answer has."""
        measured = self.serving.max_new_tokens
        return min(max(32, 2 * measured.max), 4096) if measured else 512


def read(folder: Path) -> Declared:
    """What a build declares.

    Raises:
        UsageError: the folder is not a build, or not one of answers.
        DataError: it is damaged.
    """
    build = Build.open(folder)
    if not tasks.kind_of(build.manifest.task).trains_answers:
        raise UsageError(
            f"{folder} is a build for {build.manifest.task}, which trains no model to answer.",
            "Give the sft build that the model was trained on.",
        )
    model = stored_model(build)
    date = build.manifest.model.date_string
    return Declared(build, replace(model, profile=replace(model.profile, date_string=date)))


def _examples(build: Declared) -> Iterator[tuple[str, list[int], list[int]]]:
    """Row id, ids and labels of examples, of the test side where there is one."""
    splits = build.source.splits
    for table in splits["test" if "test" in splits else "train"].tables():
        for start in range(0, len(table), 64):
            block = table.slice(start, 64).combine_chunks()
            single = packs.examples(block)
            columns = (single.column(n).to_pylist() for n in ("row_id", "input_ids", "labels"))
            yield from zip(*columns, strict=True)


def _cut(build: Declared, ids: list[int], labels: list[int]) -> int:
    """Where the last trained answer starts; the ids before it are a prompt. 0 if there is none."""
    trained = [i for i, label in enumerate(labels) if label != IGNORED]
    options: Mapping[str, Any] = build.source.manifest.options
    if all(one.get("train_on") != "all" for one in options.get("sources") or [options]):
        last = [i for i in trained if i == 0 or labels[i - 1] == IGNORED]
        return last[-1] if last else 0
    # With --train-on all the labels do not show where an answer begins, but its prompt does.
    flat = pa.array(ids, pa.int32()).to_numpy()
    known = (prompt.tail for prompt in generation_prompts(build.model))
    ends = [int(at[-1]) + len(tail) for tail in known if len(at := matches(flat, tail))]
    return max((end for end in ends if end < len(ids)), default=0)


def _literal(build: Declared, with_it: dict[str, Any], without: dict[str, Any]) -> str:
    """The longest line that the template prints only with some arguments; it shows their use."""
    try:
        one = build.template.render(ASKED, add_generation_prompt=True, **with_it)
        other = build.template.render(ASKED, add_generation_prompt=True, **without)
    except RowError:
        return ""
    lines = [line for line in one.split("\n") if line not in other and '"name"' not in line]
    return max(lines, key=len, default="")


def _kind(build: Declared, text: str, header: str, tools: str) -> str:
    if tools and tools in text:
        return TOOLS
    end = build.model.profile.end_of_turn
    turns = text.count(header) > 1 if end in header else end in text
    return MULTI if turns else SINGLE


def prompts(build: Declared, count: int) -> "list[StopPrompt]":
    """Prompts of each kind, up to so many; those of a batch have different lengths.

    Raises:
        UsageError: no example has a prompt.
    """
    tools = _literal(build, {"tools": [_TOOL]}, {})
    question = str(ASKED[0]["content"])
    opened = build.template.render(ASKED, add_generation_prompt=True)
    header = opened.rpartition(question)[2].split("<think>")[0]
    by_kind: dict[str, list[StopPrompt]] = {SINGLE: [], MULTI: [], TOOLS: []}
    for number, (row, ids, labels) in enumerate(_examples(build)):
        if number >= _LOOKED_AT or all(len(some) >= count for some in by_kind.values()):
            break
        cut = _cut(build, ids, labels)
        if cut < 1:
            continue
        text = build.tokenizer.decode(ids[:cut], skip_special_tokens=False)
        kind = _kind(build, text, header, tools)
        if len(by_kind[kind]) < count:
            by_kind[kind].append(StopPrompt(kind, row, tuple(ids[:cut]), text))
    every = [prompt for some in by_kind.values() for prompt in some]
    if not every:
        raise UsageError(
            f"No example of {build.folder} has a prompt.", "Give a build of questions and answers."
        )
    # The shortest and the longest prompts together need the most padding.
    by_length = sorted(every, key=lambda prompt: len(prompt.ids))
    batch = [*by_length[: count // 2], *by_length[-(count - count // 2) :]]
    batched = dict.fromkeys(replace(prompt, kind=BATCH) for prompt in batch)
    return [*every, *(batched if len(batched) > 1 else ())]


# ``pipeline stops``: whether a trained model ends its answers.
#
# A checkpoint or a server gets prompts of a build, and each answer must end in the build's end of
# turn. A finding names the problem, the file or server that has it, and the fix.


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
    def to(cls, prompt: StopPrompt, temperature: float, **found: Any) -> "StopAnswer":
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
        for kind, way in itertools.product(KINDS, (GREEDY, SAMPLED)):
            mine = [a for a in self.answers if (a.kind, a.way) == (kind, way)]
            at = dict(sorted(Counter(one.at for one in mine if one.at).items()))
            ended, every = sum(one.ended for one in mine), len(mine)
            row = {"prompts": kind, "decoding": way, "answers": every, "ended": ended}
            rows += [{**row, "ran_on": every - ended, "at": at}] if mine else []
        return rows
