"""MedicalGPT: conversations as text, if its own tokenizing gives our ids exactly.

Its scripts take no ids. But ``--template_name base`` prints a question and its answer unchanged, so
a question that is the whole prompt, control tokens included, is tokenized to that prompt. Its
scripts tokenize with special tokens, so the text must not have the bos token that the tokenizer
adds. The reward script tokenizes prompt and answer as one text; the other script tokenizes each
alone, and puts the eos token after the answer.
"""

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._script import Exact, Row, Texts, projection, script, stretch
from stages.kinds import CONVERSATION, PAIR, STEPS

_OTHERWISE = "is tokenized differently as text"


def _question(ids: list[int], exact: Exact) -> str:
    """A prompt's text, without the tokens that the tokenizer will put before it."""
    lead = len(exact.added)
    return exact.text(ids[lead:] if ids[:lead] == exact.added else ids)


def _sft(row: Row, exact: Exact) -> tuple[Texts, str | None]:
    ids, span = row["input_ids"], stretch(row)
    if span is None:
        return {}, "trains more than one stretch of tokens"
    start, stop = span
    if ids[stop - 1] != exact.eos_id:
        return {}, f"does not end in {exact.eos}"
    question, answer = _question(ids[:start], exact), exact.text(ids[start : stop - 1])
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    texts: Texts = {"conversations": turns}
    source, target = exact.ids(question, special=True), exact.ids(answer)
    # The script removes an eos token at the start of the prompt and at the end of the answer.
    if exact.eos_id in (source[:1] + target[-1:]) or (source, target) != (
        ids[:start],
        ids[start : stop - 1],
    ):
        return texts, _OTHERWISE
    return texts, None


def _rm(row: Row, exact: Exact) -> tuple[Texts, str | None]:
    start = row["prompt_length"]
    question = _question(row["chosen_ids"][:start], exact)
    texts: Texts = {"conversations": [{"from": "human", "value": question}]}
    texts |= {"system": "", "history": [], "question": question}  # what it read before 2026-04
    for side in ("chosen", "rejected"):
        ids = row[f"{side}_ids"]
        texts[side] = texts[f"response_{side}"] = exact.text(ids[start:])
        if exact.ids(question + texts[side], special=True) != ids:
            return texts, _OTHERWISE
    return texts, None


def _projection(facts: ExportFacts) -> Projection:
    one = {CONVERSATION: _sft, PAIR: _rm}[facts.kind.trains_as]
    instead = "Export for a trainer that reads ids: trl, transformers, llamafactory, openrlhf."
    return projection("medicalgpt", instead, one)(facts)


def _detail(facts: ExportFacts) -> str:
    text = "rows of text; the export checks that each is tokenized to the same ids again"
    text += "; not for its scripts of 2023, which print more words around each row"
    if facts.kind.compares:
        return f"{text}; the pad id comes from the model directory that overlay makes"
    return f"{text}; --template_name base, or its own template is printed around them"


EXPORT = Export(
    name="medicalgpt",
    versions="MedicalGPT of 2026-04 (rm: from 2024)",
    takes={CONVERSATION: ("ragged",), PAIR: ("ragged",)},
    why_not={STEPS: "it has no process reward trainer"},
    detail=_detail,
    launch=script("medicalgpt.sh"),
    projection=_projection,
    container="jsonl",
)
