"""What the length limit cost: rows refused for it, and tokens trimmed."""

from __future__ import annotations

from expectations.audits import Audit, Facts, Figure, Tolerances, Totals, level, share


def _judge(facts: Facts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    manifest = facts.manifest
    examples, tokens = manifest["examples"], manifest["tokens"]
    refused = examples["rejected_by_code"].get("too_long", 0)
    lost, trimmed = share(refused, examples["made"]), tokens["truncated"]
    limit = manifest["max_length"]
    cut = share(trimmed, tokens["total"] + trimmed)
    return [
        Figure(
            "refused",
            lost,
            "share",
            f"{refused} of {examples['made']} examples are longer than {limit} tokens",
            status=level(lost, tolerances, examples["made"]),
        ),
        Figure(
            "trimmed",
            cut,
            "share",
            f"{trimmed} tokens of whole turns or steps were left out",
            status=level(cut, tolerances, examples["made"]),
        ),
    ]


AUDIT = Audit(
    name="truncation",
    why="long rows differ from the others: without them a model learns to answer briefly",
    judge=_judge,
    tolerances={"warn": 0.05, "least": 50},
)
