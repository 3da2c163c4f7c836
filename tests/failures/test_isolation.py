"""Packing changes nothing: loss and gradients of packs are those of the same examples alone.

Documents are told apart by positions that restart (SDPA, eager, flex), or by lengths alone, which
is what varlen kernels read. The kernels need a GPU; on the CPU one of our own stands in.
"""

import itertools
from typing import Any

import pytest
import torch
from failures import sums, tiny
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import Qwen2ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pipeline.torch_data import Flatten, Rows

TOKENS = 96


@pytest.fixture
def layouts(build) -> tuple[Rows, Rows]:
    """The same examples as single rows and as packs."""
    rows, options = sums.questions(12), ("--model", "qwen2-1.5b", "--max-length", TOKENS)
    alone, packs = (
        Rows(build(f"sft-{layout}", rows, *options, "--layout", layout))
        for layout in ("ragged", "packed")
    )
    assert len(packs) < len(alone)
    return alone, packs


def _loss(model: Qwen2ForCausalLM, batch: tiny.Batch) -> torch.Tensor:
    """Sum over the trained tokens."""
    labels, at = tiny.labelled(batch.pop("labels"))
    logits = model(**batch, logits_to_keep=at).logits
    return cross_entropy(logits[0], labels[0], reduction="sum")


def _gradients(
    model: Qwen2ForCausalLM, batches: list[tiny.Batch]
) -> tuple[float, dict[str, torch.Tensor]]:
    """Sum of all tokens' losses, and what it does to every weight."""
    model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = _loss(model, batch)
        loss.backward()
        total += loss.item()
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters()}


def _leaking(packs: Rows) -> list[tiny.Batch]:
    """Packs whose positions run on, as where nothing says that they are packs."""
    batches = [Flatten()([row]) for row in packs]
    return [{**b, "position_ids": torch.arange(b["input_ids"].shape[1])[None]} for b in batches]


def _close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], **by: float) -> None:
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, **by)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packs_train_what_their_examples_do(attention, layouts, figure):
    alone, packs = ([Flatten()([row]) for row in rows] for rows in layouts)
    model = tiny.causal(151936, attn_implementation=attention).double()
    expected, wanted = _gradients(model, alone)
    found, got = _gradients(model, packs)
    with torch.no_grad():
        leaked = sum(_loss(model, pack).item() for pack in _leaking(layouts[1]))
    figure(
        f"loss of packs less that of the same rows alone, {attention}",
        f"{leaked - expected:+.1e} (positions run on)",
        f"{found - expected:+.1e}",
    )
    assert found == pytest.approx(expected, rel=1e-9)
    _close(got, wanted, rtol=1e-5, atol=1e-6)  # softmax is float32
    assert abs(leaked - expected) > 1e-6 * expected, "the comparison would not see a leak"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own importing
def test_flex_attention_isolates_packs(layouts, figure):
    """Losses only: there is no backward of it on the CPU."""
    model = tiny.causal(151936, attn_implementation="flex_attention").requires_grad_(False)
    with torch.compiler.set_stance("force_eager"):  # its kernel takes a minute to compile
        alone, packs = ([Flatten()([row]) for row in rows] for rows in layouts)
        expected, found, leaked = (
            sum(_loss(model, batch).item() for batch in batches)
            for batches in (alone, packs, _leaking(layouts[1]))
        )
    figure(
        "loss of packs less that of the same rows alone, flex in float32",
        f"{leaked - expected:+.1e} (positions run on)",
        f"{found - expected:+.1e}",
    )
    assert found == pytest.approx(expected, rel=1e-6)
    assert abs(leaked - expected) > 1e-5 * expected, "the comparison would not see a leak"


def _by_lengths(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention that knows documents by their lengths alone: torch's kernel, or one of ours."""
    assert attention_mask is None
    if query.is_cuda:
        flat = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
        ends = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
        causal = {"window_size": (-1, 0), "enable_gqa": True}
        return varlen_attn(*flat, *ends, scale=scaling, **causal)[None], None
    pieces = [
        scaled_dot_product_attention(
            *(tensor[:, :, start:stop] for tensor in (query, key, value)),
            is_causal=True,
            scale=scaling,
            enable_gqa=True,
        )
        for start, stop in itertools.pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(pieces, 2).transpose(1, 2), None


NO_GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here: the varlen kernel was not run"
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])
def test_lengths_alone_keep_documents_apart(device, layouts, figure, monkeypatch):
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "by_lengths", _by_lengths)
    exact = device == "cpu"
    model = tiny.causal(151936, attn_implementation="by_lengths")
    model = model.to(device, torch.float64 if exact else torch.bfloat16)
    alone, packs = (
        [
            {
                name: value.to(device) if isinstance(value, torch.Tensor) else value
                for name, value in Flatten(lengths=True)([row]).items()
            }
            for row in rows
        ]
        for rows in layouts
    )
    one = [
        {**p, "cu_seq_lens_q": p["cu_seq_lens_q"][[0, -1]], "max_length_q": TOKENS} for p in packs
    ]
    expected, wanted = _gradients(model, alone)
    found, got = _gradients(model, packs)
    with torch.no_grad():
        leaked = sum(_loss(model, pack).item() for pack in one)
    figure(
        f"loss of packs less that of the same rows alone, lengths alone on {device}",
        f"{leaked - expected:+.1e} (one length for all)",
        f"{found - expected:+.1e}",
    )
    assert found == pytest.approx(expected, rel=1e-9 if exact else 2e-3)
    _close(got, wanted, **({"rtol": 1e-5, "atol": 1e-6} if exact else {"rtol": 0.05, "atol": 0.05}))
    assert abs(leaked - expected) > 1e-6 * expected, "the comparison would not see a leak"
