"""Replacements for OpenRLHF's three dataset classes, which read shards instead of text.

They have the interface of its own classes: items are tensors [1, length], batches are tensors
[rows, 1, longest], which its trainers squeeze. Packs are split into their documents.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pipeline.torch_data.rows import documents
from stages.errors import UsageError

IGNORED = -100
Tensor = Any


def _pad(tensors: Sequence[Tensor], value: float, side: str = "right") -> Tensor:
    """[rows, 1, longest] from [1, length] each: every trainer since 0.7.1 squeezes the middle."""
    longest = max(tensor.size(-1) for tensor in tensors)
    padded = []
    for tensor in tensors:
        room = longest - tensor.size(-1)
        widths = (0, room) if side == "right" else (room, 0)
        padded.append(torch.nn.functional.pad(tensor, widths, value=value))
    return torch.stack(padded)


def _require_length(ids: Sequence[int], longest: int, name: str) -> None:
    if len(ids) > longest:
        raise UsageError(
            f"{name} has {len(ids)} tokens, more than the trainer's max_len {longest}.",
            "Start it with the build's own max_length.",
        )


class _Shard:
    """The rows of a split, which have these columns."""

    _columns: tuple[str, ...]
    _fill = 0  # of the targets

    def __init__(
        self, dataset: Any, tokenizer: Any, max_length: int, strategy: Any, **rest: Any
    ) -> None:
        missing = [name for name in self._columns if name not in dataset.column_names]
        if missing:
            raise UsageError(
                f"The dataset has no column {', '.join(missing)}.",
                "Give a build made with --for openrlhf, for this task.",
            )
        self._rows, self._pad_id, self._longest = dataset, tokenizer.pad_token_id, max_length

    def __len__(self) -> int:
        return len(self._rows)


class ShardSFT(_Shard):
    """``SFTDataset`` of 0.7.1 and newer: ids, mask of ones, loss mask moved one token forward."""

    _columns: tuple[str, ...] = ("input_ids", "labels")

    def _mask(self, doc: dict[str, Any]) -> Tensor:
        """int64 [1, length]: as stored where the row is padded, else ones."""
        padded = "attention_mask" in doc
        return torch.tensor([doc["attention_mask"] if padded else [1] * len(doc["input_ids"])])

    def _targets(self, doc: dict[str, Any]) -> Tensor:
        """float32 [1, length]: place i gates the prediction of token i + 1."""
        mask = (torch.tensor([doc["labels"]]) != IGNORED).float()
        if "loss_weights" in doc:
            mask = mask * torch.tensor([doc["loss_weights"]], dtype=torch.float32)
        return torch.cat([mask[:, 1:], torch.zeros(1, 1)], dim=1)

    def __getitem__(self, index: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """One tuple per document of the row."""
        items = []
        for doc in documents(self._rows[index]):
            _require_length(doc["input_ids"], self._longest, str(doc.get("row_id", index)))
            items.append((torch.tensor([doc["input_ids"]]), self._mask(doc), self._targets(doc)))
        return items

    def collate_fn(self, items: Iterable[list[tuple[Tensor, Tensor, Tensor]]]) -> Any:
        """All documents of the rows, padded right; ``--packing_samples`` un-pads them.

        Rows of a padded build have one width, and stay as they are stored, left or right. Beside
        wider rows of another build, those that are padded left grow on the left.
        """
        columns = [*zip(*(doc for item in items for doc in item), strict=True)]
        side = "left" if any(not mask[0, 0] for mask in columns[1]) else "right"
        return tuple(map(_pad, columns, (self._pad_id, 0, self._fill), (side,) * 3))


class ShardPRM(ShardSFT):
    """``ProcessRewardDataset`` of 0.7.4 to 0.9.5: the reward token's id at each step token.

    Builds with soft labels give floats there instead, which its loss reads as probabilities.
    """

    _columns = ("input_ids", "labels", "step_positions", "step_labels")

    def __init__(
        self, dataset: Any, tokenizer: Any, max_length: int, strategy: Any, **rest: Any
    ) -> None:
        super().__init__(dataset, tokenizer, max_length, strategy)
        self._fill = self._pad_id  # as theirs does; the loss reads step tokens alone
        token = strategy.args.placeholder_token
        ids = tokenizer.encode(token, add_special_tokens=False)
        if len(ids) != 1:
            raise UsageError(
                f"--placeholder_token {token!r} is {len(ids)} tokens of this tokenizer.",
                "Train from a model directory that pipeline overlay made for this build.",
            )
        self._step = ids[0]
        self._check_rewards(tokenizer, strategy.args.reward_tokens)
        ratings = {label for labels in dataset["step_labels"] for label in labels}
        if None in ratings and not ratings <= {0.0, 1.0, None}:
            raise UsageError(
                "A row has soft labels and unlabelled steps, which the loss would read as -100.",
                "Build with --neutral good or bad, or with hard labels.",
            )
        self._soft = not ratings <= {0.0, 1.0, None}

    def _check_rewards(self, tokenizer: Any, tokens: Sequence[str] | None) -> None:
        rewards = {
            index
            for token in tokens or ()
            for index in tokenizer.encode(token, add_special_tokens=False)
        }
        first = {label for label in self._rows[0]["labels"] if label != IGNORED}
        if tokens and not first <= rewards:
            raise UsageError(
                f"--reward_tokens {' '.join(tokens)} are not the tokens of this build's labels.",
                "Give the good and the bad token, in this order, as its launch script does.",
            )

    def _targets(self, doc: dict[str, Any]) -> Tensor:
        ids = torch.tensor([doc["input_ids"]])
        labels = torch.tensor([doc["labels"]])
        if self._soft:
            labels = torch.full_like(ids, IGNORED, dtype=torch.float32)
            where = torch.tensor(doc["step_positions"], dtype=torch.long)
            labels[0, where] = torch.tensor(doc["step_labels"], dtype=torch.float32)
        steps = set(torch.nonzero(ids[0] == self._step).flatten().tolist())
        labelled = set(torch.nonzero(labels[0] != IGNORED).flatten().tolist())
        stored = {int(x) for x in doc["step_positions"]}
        if not labelled or not labelled <= steps or steps != stored:
            raise UsageError(
                f"{doc.get('row_id', 'a row')} has labels outside its step tokens, or none.",
                "Train with the tokenizer and the placeholder of the build.",
            )
        return labels


class ShardRM(_Shard):
    """``RewardDataset`` of 0.7.1 and newer, for ``rm`` (padded left) and ``dpo`` (right)."""

    _columns = ("chosen_ids", "rejected_ids", "prompt_length")

    def __init__(self, *given: Any, is_dpo: bool = False, **rest: Any) -> None:
        super().__init__(*given, **rest)
        self._dpo = is_dpo

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Ids and masks of both sides, and the margin (rm) or the prompt's length (dpo)."""
        row = self._rows[index]
        sides = []
        for name in ("chosen_ids", "rejected_ids"):
            _require_length(row[name], self._longest, str(row.get("row_id", index)))
            ids = torch.tensor([row[name]])
            sides += [ids, torch.ones_like(ids)]
        return (*sides, row["prompt_length"] if self._dpo else (row.get("margin") or 0))

    def collate_fn(self, items: Iterable[tuple[Any, ...]]) -> Any:
        """Both sides padded, ids with the pad token and masks with 0."""
        *sides, extras = zip(*items, strict=True)
        side = "right" if self._dpo else "left"
        return (*map(_pad, sides, (self._pad_id, 0) * 2, (side,) * 4), list(extras))
