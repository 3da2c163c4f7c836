"""OpenRLHF's options by version: grouped since 0.10.2 (``--ds.packing_samples``), plain before."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.exports._script import command, head

# What the plain options of older versions are called since 0.10.2.
GROUPED = {
    "--pretrain": "--model.model_name_or_path",
    "--dataset": "--data.dataset",
    "--eval_dataset": "--eval.dataset",
    "--eval_split": "--eval.split",
    "--input_key": "--data.input_key",
    "--output_key": "--data.output_key",
    "--prompt_key": "--data.prompt_key",
    "--chosen_key": "--data.chosen_key",
    "--rejected_key": "--data.rejected_key",
    "--input_template": "--data.input_template",
    "--max_len": "--data.max_len",
    "--packing_samples": "--ds.packing_samples",
    "--margin_loss": "--model.margin_loss_enable",
    "--micro_train_batch_size": "--train.micro_batch_size",
    "--train_batch_size": "--train.batch_size",
    "--learning_rate": "--adam.lr",
}
_NO_SPLIT = "0.7.[1-3]|0.7.[1-3].*"
_PLAIN = "0.[0-9]|0.[0-9].*|0.10.[01]|0.10.[01].*"
_VERSION = """\
if [ -z "${OPENRLHF_VERSION:-}" ]; then
    ask='from importlib.metadata import version; print(version("openrlhf"))'
    OPENRLHF_VERSION=$(python3 -c "$ask" 2>/dev/null) || {
        echo "python3 finds no OpenRLHF. Install it there, or set OPENRLHF_VERSION." >&2
        exit 2
    }
fi
"""
_NOTES = (
    "OpenRLHF groups its options since 0.10.2 (--ds.packing_samples, before --packing_samples):",
    "the installed version decides; OPENRLHF_VERSION=0.9.5, say, overrides it.",
)
Lines = list[list[str]]


def grouped(lines: Lines) -> Lines:
    """The same command with the options of 0.10.2 and newer."""
    return [[GROUPED.get(text, text) for text in line] for line in lines]


def script(what: str, file: str, lines: Lines, notes: Iterable[str] = (), before: str = "") -> str:
    """A launch script with the command for old and for new versions; it runs the one that fits.

    Args:
        what: the end of the sentence "Trains ...".
        file: its name under ``launch/``.
        lines: the command as versions before 0.10.2 spell it, a list of words a line.
        notes: comments, a sentence each.
        before: shell lines that set what the command reads.
    """
    branches = [(_PLAIN, lines)]
    without = [line for line in lines if line[0] != "--eval_dataset"]
    if without != lines:  # 0.7.1 to 0.7.3 would evaluate on the rows that they train on
        branches.insert(0, (_NO_SPLIT, without))
        notes = [*notes, "0.7.1 to 0.7.3 cannot name the split test, and train without it."]
    cases = "".join(f"{pattern})\n{command(words)};;\n" for pattern, words in branches)
    start = head(what, file, [*_NOTES, *notes]) + _VERSION + before
    return f"{start}case $OPENRLHF_VERSION in\n{cases}esac\n{command(grouped(lines))}"
