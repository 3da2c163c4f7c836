"""A `<search>` stop token that the server ignores: it loads a tokenizer of its own.

The naive preparation registers the marker as a new token and trains its id. The server's stock
tokenizer has no such id, decodes it to nothing, and never sees the text that it was told to stop
at. As ordinary text, which is what a build leaves it, the marker is read back by any tokenizer.
"""

import json
from typing import Any

import torch
from datasets import load_from_disk
from failures import sums, tiny
from small_tokenizers import TOKENS
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer, PreTrainedModel
from transformers.generation import StoppingCriteria

MARKER = "<search>"
NEW_TOKENS = 24


class _Server(StoppingCriteria):
    """Stops where the text that it decodes holds a stop string.

    The decoder is the incremental one of `tokenizers`, as in inference servers; for an id that its
    tokenizer does not have it gives no text.
    """

    def __init__(self, tokenizer: Any, stops: list[str]) -> None:
        self._tokenizer, self._stops = tokenizer.backend_tokenizer, stops
        self._stream, self._text = DecodeStream(skip_special_tokens=False), ""
        self.seen = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        self._text += self._stream.step(self._tokenizer, input_ids[0, -1].item()) or ""
        self.seen = any(stop in self._text for stop in self._stops)
        return torch.tensor([self.seen])


def _stopped(model: PreTrainedModel, trained: Any, served: Any, asked: list[str]) -> float:
    """Share of answers that a server with its own tokenizer stops at the marker."""
    stopped = 0
    for question in asked:
        server = _Server(served, [MARKER])
        model.generate(
            **tiny.asked(trained, question),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            eos_token_id=trained.eos_token_id,
            pad_token_id=trained.pad_token_id,
            stopping_criteria=[server],
        )
        stopped += server.seen
    return stopped / len(asked)


def test_the_marker_stops_a_server_with_its_own_tokenizer(build, figure, tmp_path):
    rows = [{**row, "answer": f"I ask {MARKER} {row['answer']}"} for row in sums.questions(96)]
    asked = [row["question"] for row in sums.questions(8, seed=1)]
    options = ("--model", tiny.chatml(tmp_path / "base"), "--layout", "ragged", "--stop", MARKER)
    folder = build("sft", rows, *options)
    ours = load_from_disk(str(folder))["train"].select_columns(["input_ids", "labels"]).to_list()
    stock = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    contract = json.loads((folder / "serving.json").read_bytes())
    assert contract["stop_strings"][0] == MARKER
    assert {*stock.get_added_vocab()} == {*TOKENS["smollm"]}

    grown = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    grown.add_special_tokens({"additional_special_tokens": [MARKER]})
    encoded = grown.apply_chat_template([*map(sums.chat, rows)], return_dict=True)["input_ids"]
    naive = [{"input_ids": ids, "labels": ids} for ids in encoded]
    assert all(grown.convert_tokens_to_ids(MARKER) in ids for ids in encoded)

    trained_naive, trained_ours = tiny.learnt(naive), tiny.learnt(ours)
    before = _stopped(trained_naive, grown, stock, asked)
    after = _stopped(trained_ours, stock, stock, asked)
    figure(
        f"answers that a server with the stock tokenizer stops at `{MARKER}`",
        f"{before:.0%}",
        f"{after:.0%}",
    )
    assert before == 0.0
    assert after == 1.0
