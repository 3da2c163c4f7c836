"""The independent check on a sample of every build's own rows.

Each sampled row is rendered again by the chat template as a whole and encoded by the reference
tokenizer as a whole, the way ``apply_chat_template`` does it, and must give the ids that the
segments gave. Where the tokenizer would merge across the cut at which training starts, ids differ
on purpose: the prompt is what inference feeds. Such rows are counted, not compared.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from stages.contract import Batch
from stages.encoders import Encoder, parsed
from stages.errors import ParityError, RowError
from stages.formats.text import BARE
from stages.profile import TargetModel
from stages.render import conversations, template_of
from stages.render_pair import PairRenderer, prompt_turns
from stages.segments import controls_pattern

Text: TypeAlias = str | tuple[str, str] | None  # None where there is nothing to compare with

HEAD = 32  # rows at the start of a split
EVERY = 256  # and then every so many


@dataclass
class Witness:
    """Counts what it sampled and raises on the first row that differs."""

    model: TargetModel
    reference: Encoder
    task: str
    system: str | None = None
    raw: bool = False
    sampled: int = 0
    skipped: int = 0
    _seen: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._template = template_of(self.model)
        self._controls = controls_pattern(self.model.controls)

    def restart(self) -> None:
        """Begin another split: sampling depends on the split alone."""
        self.sampled = self.skipped = self._seen = 0

    def _sample(self, batch: Batch) -> list[int]:
        open_rows = batch.column("reject_code").is_null().to_numpy(zero_copy_only=False)
        number = np.arange(self._seen, self._seen + batch.num_rows)
        self._seen += batch.num_rows
        return np.flatnonzero(open_rows & ((number < HEAD) | (number % EVERY == 0))).tolist()

    def __call__(self, batch: Batch) -> None:
        """Check a sample of a batch that has been encoded.

        Raises:
            ParityError: a row's ids are not the reference's.
        """
        rows = self._sample(batch)
        if not rows:
            return
        sample = pa.table(batch).take(pa.array(rows))
        for name, texts in self._texts(sample):
            ours = sample.column(name).to_pylist()
            merged = sample.column("merged_cuts").to_pylist()
            plain = [i for i, text in enumerate(texts) if text is not None and not merged[i]]
            self.skipped += len(texts) - len(plain)
            found = self._whole([texts[i] for i in plain])
            for theirs, i in zip(found, plain, strict=True):
                self.sampled += 1
                end = len(ours[i]) if self.model.profile.pair is None else None
                if theirs[:end] != ours[i]:
                    line = sample.column("line")[i].as_py() + 1
                    raise ParityError(f"row {line} of its split: ids differ from the reference's")

    def _whole(self, texts: list[Text]) -> list[list[int]]:
        """Ids of whole texts; a pair of texts is framed by the tokenizer itself."""
        if self.model.profile.pair is not None:
            tokenizer = parsed(self.model.tokenizer_json)
            return [tokenizer.encode(*text).ids for text in texts if isinstance(text, tuple)]
        ids, offsets = self.reference.encode_whole([str(text) for text in texts])
        bounds = itertools.pairwise(offsets.tolist())
        return [ids[start:stop].tolist() for start, stop in bounds]

    def _pairs(self, sample: pa.Table) -> Iterator[tuple[str, list[Text]]]:
        renderer = PairRenderer(self.model)
        names = ("chosen", "rejected")
        batch = sample.combine_chunks().to_batches()[0]
        sides = [list(conversations(batch, f"{n}_messages", self.system)) for n in names]
        prompts = [prompt_turns(*rows) for rows in zip(*sides, strict=True)]
        for name, rows in zip(names, sides, strict=True):
            texts = [renderer.texts(r, n) for r, n in zip(rows, prompts, strict=True)]
            yield f"{name}_ids", [None if self._forged(*pair) else pair for pair in texts]

    def _texts(self, sample: pa.Table) -> Iterator[tuple[str, list[Text]]]:
        if self.model.profile.pair is not None:
            yield from self._pairs(sample)
            return
        if self.task == "prm":
            yield "input_ids", [self._steps(row) for row in sample.to_pylist()]
            return
        sides = ("chosen_", "rejected_") if self.task == "rm" else ("",)
        for side in sides:
            turns = sample.column(f"{side}messages").to_pylist()
            tools = sample.column("tools").to_pylist()
            texts: list[Text] = [self._turns(t, x) for t, x in zip(turns, tools, strict=True)]
            yield f"{side}ids" if side else "input_ids", texts

    def _forged(self, *texts: str | None) -> bool:
        return any(self._controls.search(text or "") for text in (self.system, *texts))

    def _turns(self, turns: list[dict[str, str | None]], tools: str | None) -> str | None:
        if self._forged(*(turn["content"] for turn in turns)):
            return None
        if turns[0]["role"] == BARE:
            return (turns[0]["content"] or "") + self.model.profile.end_of_turn
        seen = [
            {
                "role": turn["role"],
                "content": turn["content"],
                **(json.loads(turn["fields"]) if turn["fields"] else {}),
            }
            for turn in turns
        ]
        if self.system is not None and seen[0]["role"] != "system":
            seen.insert(0, {"role": "system", "content": self.system})
        try:
            return self._template.render(seen, json.loads(tools) if tools else None)
        except RowError as error:
            raise ParityError(
                f"the template refused a row that had been rendered: {error}"
            ) from error

    def _steps(self, row: dict[str, Any]) -> str | None:
        labels, steps = row["step_labels"], row["steps"]
        if self._forged(str(row["problem"]), *steps):
            return None
        marker = self.model.profile.step_tokens.step
        steps = steps[: len(labels)]  # the steps that stayed under --too-long
        if self.raw:
            return "".join(step + marker for step in steps) + str(row["tail"] or "")
        between = self.model.profile.step_tokens.separator
        answer = between.join(step + marker for step in steps)
        seen = [
            {"role": "user", "content": row["problem"]},
            {"role": "assistant", "content": answer},
        ]
        if self.system is not None:
            seen.insert(0, {"role": "system", "content": self.system})
        return self._template.render(seen)
