"""OpenRLHF: the launcher swaps its Dataset class for one that reads our shards, in any layout."""

from collections.abc import Mapping

from pipeline.exports import ExportFacts, Projection
from pipeline.exports._script import Exact, Row, Texts, export, projection, scripts, stretch
from stages.kinds import CONVERSATION, PAIR, STEPS


def _files(facts: ExportFacts) -> Mapping[str, str]:
    return scripts("openrlhf-dpo.sh")(facts) if facts.kind.compares else {}


def _refuses(facts: ExportFacts) -> str | None:
    if facts.soft and facts.unlabelled:
        return (
            "openrlhf cannot train from soft labels with unlabelled steps among them: its loss "
            "ignores -100 in hard labels only, and would read it as a probability. "
            "Leave out the rows that have some with --filter 'n_unrated = 0'."
        )
    return None


EXPORT = export("openrlhf", files=_files, refuses=_refuses, shares=lambda f: not f.stored.pads)


# OpenRLHF without our launcher: rows of text, if its own tokenizing gives our ids exactly.
#
# A newline that the template prints after the end of turn is not trained, and OpenRLHF removes it.


def _ending(exact: Exact, prompt: str, answer: str, ids: list[int]) -> str | None:
    """Why prompt and answer would not become ``ids``; None when they would."""
    whole = prompt + answer
    if not ids or ids[-1] != exact.eos_id or not whole.endswith(exact.eos):
        return f"does not end in {exact.eos}"
    if whole.rstrip("\n") != whole:
        return "ends in a newline, which would be cut off"
    return None if exact.ids(whole) == ids else "is tokenized differently as text"


def _sft(row: Row, exact: Exact) -> tuple[Texts, str | None]:
    ids, span = row["input_ids"], stretch(row)
    if span is None:
        return {}, "trains more than one stretch of tokens"
    start, stop = span
    prompt, answer = exact.text(ids[:start]), exact.text(ids[start:stop])
    why = _ending(exact, prompt, answer, ids[:stop])
    if why is None and exact.ids(prompt) != ids[:start]:
        why = "has a prompt that is tokenized differently alone"
    return {"input": prompt, "output": answer}, why


def _rm(row: Row, exact: Exact) -> tuple[Texts, str | None]:
    start = row["prompt_length"]
    texts: Texts = {"prompt": exact.text(row["chosen_ids"][:start])}
    if exact.ids(texts["prompt"]) != row["chosen_ids"][:start]:
        return texts, "has a prompt that is tokenized differently alone"
    for side in ("chosen", "rejected"):
        ids = row[f"{side}_ids"]
        texts[side] = exact.text(ids[start:])
        why = _ending(exact, texts["prompt"], texts[side], ids)
        if why is not None:
            return texts, why
    if "margin" in row:
        texts["margin"] = row["margin"]
    return texts, None


def _projection(facts: ExportFacts) -> Projection:
    good, bad = facts.model.good_token, facts.model.bad_token

    def prm(row: Row, exact: Exact) -> tuple[Texts, str | None]:
        text, ratings = exact.text(row["input_ids"]), row["step_labels"]
        texts = {"input": text, "label": [good if label == 1 else bad for label in ratings]}
        if any(label not in (0, 1) for label in ratings):
            return texts, "has steps that are unlabelled or softly labelled"
        same = exact.ids(text) == row["input_ids"]
        return texts, None if same else "is tokenized differently as text"

    one = {CONVERSATION: _sft, PAIR: _rm, STEPS: prm}[facts.kind.trains_as]
    instead = "Export for openrlhf, whose launcher reads the ids themselves."
    return projection("openrlhf-text", instead, one)(facts)


def _openrlhf_text_refuses(facts: ExportFacts) -> str | None:
    if facts.kind.marks and (facts.soft or facts.unlabelled):
        return "openrlhf-text has one hard label per step: this build has soft or missing ones."
    return None


TEXT = export(
    "openrlhf-text",
    refuses=_openrlhf_text_refuses,
    projection=_projection,
    shares=lambda facts: True,
)


# verl: a custom dataset class that reads our shards, one document an item.


VERL = export("verl", shares=lambda facts: True)
