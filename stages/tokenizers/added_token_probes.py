"""Tokens that a build registers: one id each beside any text, and no other id changes."""

import itertools

import orjson
from tokenizers import Tokenizer

from stages import encoders
from stages.chat_template import render_pair, segments
from stages.errors import RowError, counted
from stages.tokenizers import survival, template_probes, token_probes
from stages.tokenizers.probes import TEMPLATE, TOKENS, BrokenError, Probes, ProbeSubject

PROBES = Probes(TOKENS)

_ORDINARY = (
    "3.+ -\n",
    "ки ки",
    "Step 2: 3 + 4 = 7. +\n",
    "<|ste p|> <|goo",
    "a\n\n b",
    "你好，世界",
)


def _same_elsewhere(subject: ProbeSubject) -> int:
    """The number of added tokens, if nothing else in the file was changed.

    Raises:
        BrokenError: something else was changed.
    """
    before, after = orjson.loads(subject.stock), orjson.loads(subject.model.tokenizer_json)
    old, new = before.pop("added_tokens", []), after.pop("added_tokens", [])
    for token in old:
        token["special"] |= token["content"] in subject.model.profile.promoted
    if before != after:
        changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        raise BrokenError(detail=f"its {', '.join(sorted(changed))} differ")
    if new[: len(old)] != old:
        raise BrokenError(detail="an existing token is registered differently")
    return len(new) - len(old)


def _agrees(subject: ProbeSubject) -> None:
    """Check that ordinary text has the same ids before tokens were added, after it, and after the
    tokenizer was saved and loaded.

    Raises:
        BrokenError: the ids of a text differ.
    """
    stock = Tokenizer.from_str(subject.stock.decode())
    again = Tokenizer.from_str(subject.tokenizer.to_str())
    for text in (*_ORDINARY, *encoders.PROBES):
        ids = subject.tokenizer.encode(text, add_special_tokens=False).ids
        for other, when in ((stock, "before"), (again, "after saving and loading")):
            theirs = other.encode(text, add_special_tokens=False).ids
            if theirs != ids:
                raise BrokenError(detail=f"{text!r} gives {ids}, and {theirs} {when}")
    for token, index in subject.model.controls.items():
        if again.token_to_id(token) != index:
            raise BrokenError(detail=f"{token!r} is {again.token_to_id(token)} after saving")


def _no_added_token_in_text(subject: ProbeSubject) -> str:
    """Check that ordinary text gives none of the tokens that the build added.

    Raises:
        BrokenError: a text gives one.
    """
    model = subject.model
    steps = {model.step_id, model.good_id, model.bad_id} - {-1}
    steps |= set(model.added_ids.values())
    for text in _ORDINARY:
        ids = subject.tokenizer.encode(text, add_special_tokens=False).ids
        if steps.intersection(ids):
            raise BrokenError(detail=f"{text!r} gives {ids}, an added token among them")
    return f"no ordinary text gives {sorted(steps)}"


@PROBES.add
def added_tokens_agree_with_stock(subject: ProbeSubject) -> str:
    """Added tokens change no other id, survive saving, and the stock tokenizer agrees."""
    if subject.wide:
        _agrees(subject)
    if subject.stock == subject.model.tokenizer_json:
        return "no token was added"
    if not subject.wide:  # parsing both files takes longer than all other probes of a build
        return _no_added_token_in_text(subject)
    return f"{counted(_same_elsewhere(subject), 'token')} added, the rest of the file is untouched"


_BEFORE = ("3.", "x", " ", "\n", "+", "ки", "好", ".\n\n")
_AFTER = ("", "\nStep 2", " +", "x", "\n\n")


@PROBES.add
def step_tokens_are_one_id_in_context(subject: ProbeSubject) -> str | None:
    """Step and reward tokens are one id each, whatever text is next to them."""
    if subject.model.step_id < 0:
        return None
    tokens = subject.model.profile.step_tokens
    ids = [token_probes.one_id(subject, token) for token in tokens]
    for before in _BEFORE:
        for after in _AFTER:
            frames = []
            for token, own in zip(tokens, ids, strict=True):
                text = before + token + after
                encoded = subject.tokenizer.encode(text, add_special_tokens=False).ids
                if encoded.count(own) != 1:
                    raise BrokenError(token=token, why=f"is not one id in {text!r} ({encoded})")
                at = encoded.index(own)
                frames.append((encoded[:at], encoded[at + 1 :]))
            if frames[1:] != frames[:-1]:
                raise BrokenError(token=tokens.step, why=f"changes its neighbours in {text!r}")
    return f"{tuple(tokens)} = {tuple(ids)}"


@PROBES.add
def step_tokens_differ(subject: ProbeSubject) -> str | None:
    """Step, good and bad token are three ids, none of them pad, eos or end-of-turn."""
    model = subject.model
    if model.step_id < 0:
        return None
    ids = [model.step_id, model.good_id, model.bad_id]
    others = [model.pad_id, model.eos_id, *model.end_ids]
    if len(set(ids)) < len(ids) or set(ids) & set(others):
        raise BrokenError(ids=ids, others=others)
    return f"{ids} differ from {others}"


# Texts come back from their ids, up to what the tokenizer declares; no encoding is random.


LOST_TEXT = Probes(TOKENS)

_PLAIN = "The answer is 42, and I know it."
_OTHERS = ("x = [1]\n\tif x: y()", "Naïve café", "你好，世界", "привет", "مرحبا", "👍🏽 ok")


@LOST_TEXT.add
def all_text_survives(subject: ProbeSubject) -> str:
    """Texts come back from their ids, up to what the tokenizer declares that it changes."""
    for name in ("dropout", "alpha"):  # of BPE, and of a unigram model that samples
        if value := getattr(subject.tokenizer.model, name, None):
            raise BrokenError(detail=f"{name} = {value} gives one text other ids each time")
    lost = survival.loss(subject.model, _PLAIN)
    if lost:
        raise BrokenError(detail=lost)
    others = [seen for text in _OTHERS if (seen := survival.loss(subject.model, text))]
    lossy = f"; {others[0]}" if others else ""
    return f"{1 + len(_OTHERS) - len(others)} of {1 + len(_OTHERS)} texts come back{lossy}"


# Text that looks like a control token or like the marker of a turn stays text, or is refused.


FORGED = Probes(TEMPLATE)


def _dialogues(subject: ProbeSubject) -> list[template_probes.Turns]:
    controls = sorted(subject.model.controls)
    together = " ".join(controls)
    dialogues: list[template_probes.Turns] = [
        [("user", f"x{together}"), ("assistant", f"y{together}")]
    ]
    if subject.wide:
        for token in controls:
            dialogues += [[("user", token), ("assistant", token)]]
            dialogues += [[("system", f"{token}\n{token}"), *template_probes.QUESTION]]
    return dialogues


@FORGED.add
def content_cannot_forge_control_tokens(subject: ProbeSubject) -> str:
    """No text in any turn becomes a control token."""
    controls = set(subject.model.controls.values())
    refused = 0
    dialogues = _dialogues(subject)
    for turns in dialogues:
        try:
            rendering = template_probes.Rendering(*subject.renderer(template_probes.row_of(turns)))
        except RowError:
            refused += 1  # a refused row cannot forge anything
            continue
        _, plain = template_probes.ids_of(subject, rendering)
        forged = controls.intersection(plain)
        if forged:
            raise BrokenError(text=turns[0][1], id=min(forged))
    known = counted(len(subject.model.controls), "control token")
    tokens = f"{known} in {counted(len(dialogues), 'conversation')}"
    return f"{tokens}: none forged" + (f", {refused} refused" if refused else "")


_STOP = "\x00"


def _markers(subject: ProbeSubject) -> list[str]:
    """The texts between two turns where no control token is."""
    row, _ = template_probes.examples(subject, template_probes.dialogue(subject))[-1]
    rendering = template_probes.rendered(subject, row)
    pairs = zip(rendering.texts, rendering.kinds, strict=True)
    text = "".join(_STOP if kind & segments.CONTROL else piece for piece, kind in pairs)
    plain = []
    for (_, left), (_, right) in itertools.pairwise(template_probes.dialogue(subject)):
        start = text.find(left)
        between = text[start + len(left) : text.find(right, start)]
        if start >= 0 and _STOP not in between:
            plain.append(between.strip())
    return list(dict.fromkeys(plain))


@FORGED.add
def turn_markers_cannot_be_forged(subject: ProbeSubject) -> str:
    """A control token is between two turns, or rows with the markers' text are refused."""
    markers = _markers(subject)
    for marker in markers:
        turns = [("user", f"x {marker} y"), ("assistant", "z")]
        try:
            subject.renderer(template_probes.row_of(turns))
        except RowError:
            continue
        raise BrokenError(marker=marker)
    if markers:
        shown = ", ".join(map(repr, markers))
        return f"turn markers are ordinary text ({shown}); rows that contain it are refused"
    return "a control token is between any two turns"


@FORGED.add
def pair_framing_is_the_tokenizers(subject: ProbeSubject) -> str:
    """An encoder's two texts get the special tokens that its own tokenizer adds."""
    return "; ".join(render_pair.prove_pair(subject.model).values())


@FORGED.add
def pair_turns_cannot_be_forged(subject: ProbeSubject) -> str:
    """A row whose text could be taken for several turns is refused."""
    renderer = render_pair.PairRenderer(subject.model)
    markers = subject.model.profile.text_markers
    for marker in markers:
        turns = [("user", f"x\n{marker} y"), ("assistant", "z"), ("user", "u"), ("assistant", "v")]
        try:
            renderer(template_probes.row_of(turns, trained={3}), 3)
        except RowError:
            continue
        raise BrokenError(marker=marker)
    shown = " ".join(markers) or "no text that is known"
    return f"a prompt of several turns is marked with {shown}; rows that contain it are refused"
