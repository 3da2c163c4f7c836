"""What a chat template prints: every turn in its place, answers trained, each with its end."""

import contextlib
import itertools
import json
from typing import Any, NamedTuple

import pyarrow as pa

from stages.chat_template import reasoning, ways
from stages.chat_template.printed_fields import printed_fields
from stages.chat_template.render import Row
from stages.chat_template.segments import CONTROL, TRAINED
from stages.columns import SEGMENTS
from stages.errors import RowError, counted
from stages.tokenizers.probes import TEMPLATE, BrokenError, Probes, ProbeSubject

PROBES = Probes(TEMPLATE)


@PROBES.add
def end_of_turn_is_trained(subject: ProbeSubject) -> str:
    """Every trained answer ends in a trained end-of-turn token."""
    end = subject.model.profile.end_of_turn
    rendering = rendered(subject, row_of(QUESTION))
    if not rendering.text(trained=True).endswith(end):
        raise BrokenError(detail=f"an answer 'y' is trained as {rendering.text(trained=True)!r}")
    for row, answers in examples(subject, dialogue(subject)):
        trained = rendered(subject, row).text(trained=True)
        if trained.count(end) < len(answers):
            raise BrokenError(detail=f"{len(answers)} answers are trained as {trained!r}")
    return f"an answer 'y' is trained as {rendering.text(trained=True)!r} ({rendering.path})"


@PROBES.add
def turns_survive(subject: ProbeSubject) -> str:
    """Every turn of a dialogue is printed in order, answers trained, questions not."""
    rows = examples(subject, dialogue(subject))
    for row, answers in rows:
        rendering = rendered(subject, row)
        at = 0
        for i, text in enumerate(row.contents):
            at = rendering.whole.find(str(text), at)
            if at < 0:
                raise BrokenError(detail=f"turn {i + 1} is missing or out of order")
            everything = subject.train_on == "all"
            if not everything and (str(text) in rendering.text(trained=True)) != (i in answers):
                raise BrokenError(detail=f"turn {i + 1} is trained where it must not be, or not")
    once = "one example per trained turn" if len(rows) > 1 else "one example"
    in_a_row = f"two questions in a row {_two_questions(subject)}"
    return f"{counted(len(dialogue(subject)), 'turn')} printed in order, {once}, {in_a_row}"


def _two_questions(subject: ProbeSubject) -> str:
    """What becomes of a question behind another one."""
    first, second = "first question", "second question"
    row = row_of([("user", first), ("user", second), *QUESTION[1:]])
    try:
        whole = Rendering(*subject.renderer(row)).whole
    except RowError:
        return "refused"
    between = whole.partition(first)[2].partition(second)[0]
    return "apart" if between.strip() else "joined"


@PROBES.add
def system_survives(subject: ProbeSubject) -> str:
    """A system text is printed and not trained, or rows that have one are refused."""
    wanted = subject.system
    text = wanted if wanted is not None else "a system text"
    try:
        rendering = Rendering(*subject.renderer(row_of([("system", text), *QUESTION])))
    except RowError as error:
        if wanted is not None:
            raise BrokenError(detail=f"--system cannot be printed: {error.detail}") from error
        return f"rows with a system text are refused: {error.detail}"
    if text.strip() not in rendering.whole:
        raise BrokenError(detail=f"a system text {text[:40]!r} is not printed")
    if subject.train_on != "all" and text.strip() not in rendering.text(trained=False):
        raise BrokenError(detail="a system text is trained")
    return "a system text is printed"


_THOUGHT = "A thought."


@PROBES.add
def reasoning_survives(subject: ProbeSubject) -> str:
    """Reasoning is printed and trained with its answer, or rows that have it are refused."""
    name = reasoning.spelled_by(printed_fields(subject.template.source))
    if name is None:
        return "no field of reasoning is printed"
    turns = dialogue(subject)
    row = examples(subject, turns)[-1][0].with_answers({name: _THOUGHT})
    try:
        rendering = Rendering(*subject.renderer(row))
    except RowError as error:
        with contextlib.suppress(RowError):
            call = Rendering(*subject.renderer(_row(1).with_answers({name: _THOUGHT})))
            if _THOUGHT in call.text(trained=True):
                return f"reasoning is printed as {name}, beside calls alone"
        return f"rows with reasoning are refused: {error.detail}"
    if _THOUGHT not in rendering.text(trained=True):
        raise BrokenError(detail="the reasoning of a trained answer is not trained")
    every = rendering.whole.count(_THOUGHT) * 2 == len(turns)
    return f"reasoning is printed as {name}{'' if every else ', of the last answer alone'}"


_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up_word",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_CALL = {"function": {"name": "look_up_word", "arguments": {"word": "quince"}}}
_OUTPUT = "a sour fruit"


def _row(*trained: int) -> Row:
    """A question, a call, its output and an answer, up to the last trained turn."""
    fields = json.dumps({"tool_calls": [{"id": "abcdefghi", "type": "function", **_CALL}]})
    output = json.dumps({"name": "look_up_word", "tool_call_id": "abcdefghi"})
    stop = trained[-1] + 1
    return Row(
        roles=["user", "assistant", "tool", "assistant"][:stop],
        contents=["What is a quince?", None, _OUTPUT, "It is a fruit."][:stop],
        fields=[None, fields, output, None][:stop],
        trained=[i in trained for i in range(stop)],
        tools=json.dumps([_TOOL]),
    )


@PROBES.add
def tools_survive(subject: ProbeSubject) -> str:
    """Tools are printed, calls trained and outputs not, or rows that have them are refused."""
    try:
        call = Rendering(*subject.renderer(_row(1)))
        answer = Rendering(*subject.renderer(_row(3)))
    except RowError as error:
        said = subject.model.profile.end_of_call
        if said and error.code == "no_end_of_turn":
            raise BrokenError(detail=f"end_of_call is {said!r}, and {error.detail}") from error
        return f"rows with tools are refused: {error.detail}"
    for word in ("look_up_word", "quince"):
        if word not in call.text(trained=True):
            raise BrokenError(detail=f"a call is trained as {call.text(trained=True)!r}")
    # With --train-on all, the turn in which the tools are printed is trained, too.
    printed = call.whole if subject.train_on == "all" else call.text(trained=False)
    if "Looks a word up." not in printed:
        raise BrokenError(detail="the tools are not printed")
    if _OUTPUT not in answer.whole:
        raise BrokenError(detail="the output of a tool is not printed")
    if subject.train_on != "all" and _OUTPUT in answer.text(trained=True):
        raise BrokenError(detail="the output of a tool is trained")
    return "tools are printed, a call is trained, its output is not"


def _prompts(subject: ProbeSubject, turns: "Turns") -> list[str]:
    told = {"assistant": subject.thought}
    seen = [{"role": role, "content": text, **told.get(role, {})} for role, text in turns]
    variants: list[dict[str, Any]] = [dict(v) for v in subject.model.profile.template_variants]
    return [subject.template.render(seen, add_generation_prompt=True, **v) for v in variants]


@PROBES.add
def generation_prompt_is_prefix(subject: ProbeSubject) -> str:
    """The generation prompt is a prefix of the example at every trained turn."""
    turns = dialogue(subject)
    answers = [i for i, (role, _) in enumerate(turns) if role == "assistant"]
    for i in answers:
        rendering = rendered(subject, row_of(turns[: i + 1], {i}))
        prompts = _prompts(subject, turns[:i])
        starts = rendering.edges if subject.train_on == "all" else {rendering.begins}
        if not any(rendering.whole.startswith(p) and len(p) in starts for p in prompts):
            before = rendering.whole[: rendering.begins]
            raise BrokenError(
                detail=f"turn {i + 1} is trained after {before[-40:]!r}, "
                f"and inference would feed {prompts[0][-40:]!r}"
            )
    once = subject.model.profile.one_example_per_turn
    if not once:
        whole = rendered(subject, row_of(turns)).whole
        for i in answers:
            if not any(whole.startswith(prompt) for prompt in _prompts(subject, turns[:i])):
                raise BrokenError(
                    detail=f"turn {i + 1} of a dialogue is not rendered after the prompt that "
                    "inference would feed"
                )
    shown = max(_prompts(subject, QUESTION[:1]), key=len)[-40:]
    return f"it begins after {shown!r}" + (", one example per trained turn" if once else "")


@PROBES.add
def earlier_turns_stay(subject: ProbeSubject) -> str:
    """Earlier turns are printed alike when later ones follow, unless the profile says no."""
    once = subject.model.profile.one_example_per_turn
    rewrites = ways.rewrites(subject.template, subject.model.profile.ends)
    words = "otherwise" if rewrites else "alike"
    seen = f"earlier turns are printed {words} when later ones follow"
    if rewrites != once:
        raise BrokenError(said=str(once).lower(), seen=f"in its chat template {seen}")
    return seen + (", so each trained turn is an example" if once else "")


@PROBES.add
def no_double_bos(subject: ProbeSubject) -> str:
    """A sequence begins with one bos token or with none, as the profile says."""
    profile = subject.model.profile
    if profile.bos_token is None:
        return "the model has no bos token"
    bos = subject.tokenizer.token_to_id(profile.bos_token)
    ids, _ = ids_of(subject, rendered(subject, row_of(QUESTION)))
    count = 0 if bos is None else ids.count(bos)
    if profile.bos_policy == "turns":  # it may stand at the start of any turn
        count = next((i for i, token in enumerate(ids) if token != bos), len(ids))
    wanted = 0 if profile.bos_policy == "none" else 1
    if count != wanted or (wanted and ids[0] != bos):
        raise BrokenError(token=profile.bos_token, count=count, wanted=wanted, head=ids[:4])
    if not wanted:
        return f"the template prints no {profile.bos_token}"
    added = subject.tokenizer.encode("x", add_special_tokens=True).ids[:1] == [bos]
    note = "; encoding templated text with special tokens on would add a second" if added else ""
    return f"the template prints one {profile.bos_token}{note}"


# Helpers of the probes that render conversations.


Turns = list[tuple[str, str]]


class Rendering(NamedTuple):
    """A conversation's segments, and how it was rendered (see ``Renderer``)."""

    texts: list[str]
    kinds: bytes
    path: str

    def text(self, trained: bool) -> str:
        """The trained or the untrained text, joined."""
        pairs = zip(self.texts, self.kinds, strict=True)
        return "".join(text for text, kind in pairs if bool(kind & TRAINED) == trained)

    @property
    def whole(self) -> str:
        return "".join(self.texts)

    @property
    def edges(self) -> set[int]:
        """Where segments start and stop, in characters."""
        return set(itertools.accumulate(map(len, self.texts), initial=0))

    @property
    def begins(self) -> int:
        """Characters before training starts."""
        first = next((i for i, kind in enumerate(self.kinds) if kind & TRAINED), len(self.kinds))
        return len("".join(self.texts[:first]))


def row_of(turns: Turns, trained: set[int] | None = None, tools: str | None = None) -> Row:
    """A conversation as columns; every answer is trained unless ``trained`` says which turns."""
    roles = [role for role, _ in turns]
    if trained is None:
        trained = {i for i, role in enumerate(roles) if role == "assistant"}
    flags = [i in trained for i in range(len(turns))]
    return Row(roles, [text for _, text in turns], [None] * len(turns), flags, tools)


def dialogue(subject: ProbeSubject) -> Turns:
    """Three exchanges; only one where all is trained and each trained turn is its own example."""
    alone = subject.model.profile.one_example_per_turn and subject.train_on == "all"
    return _DIALOGUE[:2] if alone else _DIALOGUE


def examples(subject: ProbeSubject, turns: Turns) -> list[tuple[Row, set[int]]]:
    """The examples of a conversation in a build: itself, or one per trained turn."""
    everything = range(len(turns)) if subject.train_on == "all" else ()
    answers = [i for i, (role, _) in enumerate(turns) if role == "assistant" or i in everything]
    if not subject.model.profile.one_example_per_turn:
        return [(row_of(turns, set(answers)), set(answers))]
    return [(row_of(turns[: i + 1], {i}), {i}) for i in answers if turns[i][0] == "assistant"]


def rendered(subject: ProbeSubject, row: Row) -> Rendering:
    """The segments of a row that every model must be able to render.

    Raises:
        BrokenError: it cannot be rendered.
    """
    try:
        return Rendering(*subject.renderer(row))
    except RowError as error:
        raise BrokenError(detail=error.detail) from error


def ids_of(subject: ProbeSubject, rendering: Rendering) -> tuple[list[int], list[int]]:
    """Ids of a rendering as a build encodes it, and those of its text segments alone."""
    pairs = zip(rendering.texts, rendering.kinds, strict=True)
    segments = [[{"text": text, "kind": kind} for text, kind in pairs]]
    encoded = subject.encoder(pa.array(segments, SEGMENTS))
    return encoded.ids.tolist(), encoded.ids[(encoded.kinds & CONTROL) == 0].tolist()


QUESTION: Turns = [("user", "x"), ("assistant", "y")]
_DIALOGUE: Turns = [
    ("user", "first question"),
    ("assistant", "first answer"),
    ("user", "second question"),
    ("assistant", "second answer"),
    ("user", "third question"),
    ("assistant", "third answer"),
]
