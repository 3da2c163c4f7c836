"""What ``pipeline`` alone prints: where to begin."""

from __future__ import annotations

import sys

from pipeline import lines

_MODEL = "qwen2-1.5b"
_ROW = '{"question": "What is 2 + 2?", "answer": "4."}'
_STEPS = (
    (
        "Try it on one row",
        (f"echo '{_ROW}' | pipeline run sft - --model {_MODEL} -o first", "pipeline show first"),
    ),
    (
        "With rows of your own (sft, rm or prm)",
        (
            f"pipeline plan data.jsonl --model {_MODEL}",
            f"pipeline run sft data.jsonl --model {_MODEL}",
        ),
    ),
    (
        "What there is to choose from, and whether a model is sound",
        ("pipeline list models", "pipeline list formats", f"pipeline doctor --model {_MODEL}"),
    ),
)
_MORE = (
    "Every command: pipeline --help. Every option: pipeline run sft --help. Completion with Tab: "
    "pipeline completion install. The guides are in docs/, beside README.md."
)


def beginning(version: str) -> str:
    """The page, for the terminal that it is printed on."""
    columns = min(lines.width(sys.stdout), lines.WIDE)
    what = (
        f"posttrain-pipeline {version}: raw rows in, train-ready Arrow shards out, for SFT, reward "
        "models and process reward models."
    )
    found = lines.wrapped(what, columns)
    for does, commands in _STEPS:
        found += ["", *lines.wrapped(f"{does}:", columns)]
        for command in commands:
            found += lines.command(lines.words(command), columns, "  ")
    return "\n".join([*found, "", *lines.wrapped(_MORE, columns)])
