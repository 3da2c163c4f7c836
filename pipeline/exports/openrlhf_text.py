"""OpenRLHF without the launcher: text rows, where tokenizing them again gives our ids exactly.

Every row is decoded, encoded again as OpenRLHF does it, and compared; one difference refuses the
export, and the reason is said. Ids and labels stay beside the text, so nothing is lost by it. What
a template prints after the end of turn (a newline) is untrained, and OpenRLHF cuts it off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from pipeline.exports import Export, Facts, Projection
from pipeline.exports._script import script
from stages.columns import IGNORED
from stages.encoders import parsed
from stages.errors import UsageError

Texts = dict[str, Any]


class _Exact:
    """Decodes ids, and proves that OpenRLHF's tokenizing gives them again."""

    def __init__(self, tokenizer: Tokenizer, eos: str, eos_id: int) -> None:
        self._tokenizer, self._eos, self._eos_id = tokenizer, eos, eos_id

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def ending(self, prompt: str, answer: str, ids: list[int]) -> str | None:
        """Why prompt and answer would not become ``ids``; None when they would."""
        whole = prompt + answer
        if not ids or ids[-1] != self._eos_id or not whole.endswith(self._eos):
            return f"does not end in {self._eos}"
        if whole.rstrip("\n") != whole:
            return "ends in a newline, which would be cut off"
        return None if self.ids(whole) == ids else "is tokenized otherwise when it is text"


def _sft(row: Mapping[str, Any], exact: _Exact) -> tuple[Texts, str | None]:
    ids, labels = row["input_ids"], np.asarray(row["labels"])
    trained = np.flatnonzero(labels != IGNORED)
    start, stop = int(trained[0]), int(trained[-1]) + 1
    if stop - start != len(trained):
        return {}, "trains more than one stretch of tokens"
    prompt, answer = exact.text(ids[:start]), exact.text(ids[start:stop])
    why = exact.ending(prompt, answer, ids[:stop])
    if why is None and exact.ids(prompt) != ids[:start]:
        why = "has a prompt that is tokenized otherwise alone"
    return {"input": prompt, "output": answer}, why


def _rm(row: Mapping[str, Any], exact: _Exact) -> tuple[Texts, str | None]:
    start = row["prompt_length"]
    made: Texts = {"prompt": exact.text(row["chosen_ids"][:start])}
    if exact.ids(made["prompt"]) != row["chosen_ids"][:start]:
        return made, "has a prompt that is tokenized otherwise alone"
    for side in ("chosen", "rejected"):
        ids = row[f"{side}_ids"]
        made[side] = exact.text(ids[start:])
        why = exact.ending(made["prompt"], made[side], ids)
        if why is not None:
            return made, why
    if "margin" in row:
        made["margin"] = row["margin"]
    return made, None


def _prm(good: str, bad: str) -> Callable[[Mapping[str, Any], _Exact], tuple[Texts, str | None]]:
    def one(row: Mapping[str, Any], exact: _Exact) -> tuple[Texts, str | None]:
        text = exact.text(row["input_ids"])
        labels = [good if label == 1 else bad for label in row["step_labels"]]
        made = {"input": text, "label": labels}
        if any(label not in (0, 1) for label in row["step_labels"]):
            return made, "has steps that are unlabelled or softly labelled"
        if exact.ids(text) != row["input_ids"]:
            return made, "is tokenized otherwise when it is text"
        return made, None

    return one


def _refuse(problems: Counter[str], first: Mapping[str, str]) -> None:
    listed = "; ".join(f"{n} rows: {why} ({first[why]})" for why, n in problems.most_common())
    raise UsageError(
        f"openrlhf-text would not train on this build's tokens. {listed}.",
        "Export for openrlhf, whose launcher reads the ids themselves.",
    )


def _projection(facts: Facts) -> Projection:
    model = facts.model
    exact = _Exact(parsed(facts.tokenizer_json), model["eos_token"], model["eos_token_id"])
    one = {"sft": _sft, "rm": _rm, "prm": _prm(model["good_token"], model["bad_token"])}[facts.task]

    def forward(table: pa.Table) -> pa.Table:
        made: list[Texts] = []
        problems: Counter[str] = Counter()
        first: dict[str, str] = {}
        for row in table.to_pylist():
            texts, why = one(row, exact)
            if why is not None:
                problems[why] += 1
                first.setdefault(why, str(row["row_id"]))
            made.append(texts)
        if problems:
            _refuse(problems, first)
        return pa.Table.from_pylist(made)

    def back(table: pa.Table) -> pa.Table:
        return pa.table({})

    return Projection((), forward, back)


def _flags(facts: Facts) -> Iterator[list[str]]:
    if facts.task == "prm":
        model = facts.model
        yield ["deepspeed", "--module", "openrlhf.cli.train_prm", "--pretrain", "$MODEL"]
        yield ["--dataset", "$BUILD", "--max_len", str(facts.max_length), "--packing_samples"]
        yield ["--input_key", "input", "--label_key", "label"]
        yield ["--placeholder_token", str(model["step_token"])]
        yield ["--reward_tokens", str(model["good_token"]), str(model["bad_token"])]
        return
    yield ["deepspeed", "--module", f"openrlhf.cli.train_{facts.task}"]
    yield ["--model.model_name_or_path", "$MODEL", "--data.dataset", "$BUILD"]
    yield ["--data.max_len", str(facts.max_length), "--ds.packing_samples"]
    if facts.task == "sft":
        yield ["--data.input_key", "input", "--data.output_key", "output"]
        yield ["--data.input_template", ""]
    else:
        yield ["--data.prompt_key", "prompt", "--data.chosen_key", "chosen"]
        yield ["--data.rejected_key", "rejected", "--data.input_template", ""]


def _launch(facts: Facts) -> str:
    return script("with OpenRLHF's own datasets", "openrlhf-text.sh", _flags(facts))


def _detail(facts: Facts) -> str:
    return "rows of text, each proved when it is written to be tokenized to these ids again"


def _refuses(facts: Facts) -> str | None:
    if facts.task == "prm" and (facts.soft or facts.unlabelled):
        return "openrlhf-text has one hard label per step: this build has soft or missing ones."
    return None


EXPORT = Export(
    name="openrlhf-text",
    versions="openrlhf 0.7.1 to 0.11.2 (prm: 0.7.4 to 0.9.5)",
    takes={"sft": ("ragged",), "rm": ("ragged",), "prm": ("ragged",)},
    detail=_detail,
    launch=_launch,
    refuses=_refuses,
    projection=_projection,
)
