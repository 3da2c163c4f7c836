"""The generation prompts of a model's template, and which of them a build trains.

A hybrid reasoning model has two, chosen by an argument of its chat template: with Qwen3's
``enable_thinking=False`` the prompt ends in an empty block of reasoning. An answer is trained after
one of them, and a server must use the same one.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stages import columns, encoders
from stages.chat_template import render, turn_ends, ways
from stages.chat_template.segments import CONTROL, controls_pattern, cut
from stages.columns import Ids
from stages.errors import ModelError, RowError
from stages.profile import ModelProfile, TargetModel
from stages.tokens.segment_encoder import SegmentEncoder

AUTO, ON, OFF = "auto", "on", "off"  # --thinking
NAMES = {True: "thinking", False: "non_thinking"}
_ASKED = [turn_ends.asks("x")]


class Prompt(NamedTuple):
    """One generation prompt.

    Attributes:
        name: ``thinking`` or ``non_thinking``; empty where a model has one prompt only.
        arguments: of the chat template.
        tail: ids of its last control token and of the text after it.
    """

    name: str
    arguments: dict[str, object]
    tail: tuple[int, ...]


def modes(profile: ModelProfile) -> dict[bool, dict[str, object]]:
    """Arguments of the chat template with which a model reasons (True), and with which it does not;
    none where it has one prompt only."""
    keywords = [pair for variant in profile.template_variants for pair in variant]
    if not keywords:
        return {}
    name = keywords[0][0]
    if all(isinstance(value, bool) for _, value in keywords):
        return {reasons: {name: reasons} for reasons in (True, False)}
    template = render.template_of_profile(profile)
    own = [pair for pair in ways.keywords(template) if pair[0] == name]
    return {ways.follows(template, True, (pair,)): dict([pair]) for pair in reversed(own)}


def chosen(profile: ModelProfile, wanted: str) -> ModelProfile:
    """The profile with only the prompt that ``--thinking`` chooses.

    Raises:
        ModelError: it has one prompt only.
    """
    if wanted == AUTO:
        return profile
    arguments = modes(profile).get(wanted == ON)
    if arguments is None:
        raise ModelError(
            f"The chat template of {profile.name} has only one generation prompt, so "
            f"--thinking {wanted} has no effect.",
            "Leave --thinking out.",
        )
    return replace(profile, template_variants=(tuple(arguments.items()),))


def allowed(prompt: Prompt, model: TargetModel) -> bool:
    """Whether answers may follow this prompt: the profile allows all of them, or only this one."""
    left = model.profile.template_variants
    return len(left) != 1 or not left[0] or dict(left[0]) == prompt.arguments


def _tail(model: TargetModel, prompt: str) -> tuple[int, ...]:
    """The ids of a prompt from its last control token on; empty where it has none."""
    pieces = cut(prompt, [], controls_pattern(model.controls))
    reference = encoders.load("tokenizers", model.tokenizer_json)
    encoder = SegmentEncoder(model, reference, 1 << 30, "reject")
    segments = [[{"text": text, "kind": kind} for text, kind in pieces]]
    encoded = encoder(pa.array(segments, columns.SEGMENTS))
    control = np.flatnonzero(encoded.kinds & CONTROL)
    return tuple(encoded.ids[control[-1] :].tolist()) if len(control) else ()


def prompts(model: TargetModel, asked: str = "x") -> tuple[Prompt, ...]:
    """A model's generation prompts, the longest tail first; none if they have no control token.

    Args:
        asked: what the question is; a tail may have it in itself.
    """
    if model.profile.pair is not None:
        return ()
    template = render.template_of(model)
    named = {NAMES[reasons]: one for reasons, one in modes(model.profile).items()}
    by_tail: dict[tuple[int, ...], Prompt] = {}
    for name, arguments in (named or {"": dict[str, object]()}).items():
        try:
            question = [{"role": "user", "content": asked}]
            text = template.render(question, None, add_generation_prompt=True, **arguments)
        except RowError:  # the template refuses a question alone
            return ()
        tail = _tail(model, text)
        if tail:
            by_tail.setdefault(tail, Prompt(name, arguments, tail))
    return tuple(sorted(by_tail.values(), key=lambda prompt: -len(prompt.tail)))


class Tails(NamedTuple):
    """What the generation prompts of a model end in.

    Attributes:
        model: whose.
        ids: from the last control token on, the longest first; none where they are not the same
            for every question.
        opens: they are printed before an answer only, and do not end a question as well.
    """

    model: TargetModel
    ids: tuple[tuple[int, ...], ...]
    opens: bool


_TAILS: list[Tails] = []  # of the last model


def tails(model: TargetModel) -> Tails:
    """What every generation prompt of a model ends in."""
    if not _TAILS or _TAILS[0].model is not model:
        one, other = (
            {p.tail for p in prompts(model, asked)} | _after_results(model, asked)
            for asked in ("x", "Why is that so?")
        )
        found = tuple(sorted(one, key=len, reverse=True)) if one == other else ()
        _TAILS[:] = [Tails(model, found, bool(found) and _opens(model))]
    return _TAILS[0]


def _after_results(model: TargetModel, output: str) -> set[tuple[int, ...]]:
    """What the prompts end in that follow the output of a tool; none where it is in the tail."""
    turns = [turn_ends.asks("x"), turn_ends.calls("quince"), turn_ends.result(output)]
    template = render.template_of(model)
    tails = set()
    for keywords in model.profile.template_variants:
        given = template.given(dict(keywords))
        try:
            text = given.render(turns, turn_ends.TOOLS, add_generation_prompt=True)
        except RowError:  # rows with calls are refused
            continue
        tails.add(_tail(model, text))
    return tails - {()}


def _opens(model: TargetModel) -> bool:
    template = render.template_of(model)
    try:
        texts = {template.render(_ASKED, None, add_generation_prompt=x) for x in (True, False)}
    except RowError:  # whatever such a template does without
        return False
    return len(texts) == 2


def matches(ids: Ids, tail: tuple[int, ...]) -> columns.Ints:
    """Positions at which the ids of ``tail`` begin."""
    count = len(ids) - len(tail) + 1
    if count <= 0:
        return np.zeros(0, np.int64)
    # The candidates shrink with each further token, so the whole array is compared only once.
    at = np.flatnonzero(ids[:count] == tail[0])
    for place, token in enumerate(tail[1:], 1):
        at = at[ids[at + place] == token]
    return at
