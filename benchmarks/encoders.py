"""The encoders alone on the rendered text, and what the generated texts are like."""

import json
import sys
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.rows.statistics import statistics
from benchmarks.workplace import Workplace, build
from stages import encoders

_ALONE = Path(__file__).parent / "programs" / "encoder_alone.py"


def alone(text: str, count: int, repeats: int) -> Cell:
    """Microseconds of processor time a row, by encoder; each repeat is a process of its own."""

    def once(place: Workplace) -> Content:
        with place.scratch() as folder:
            out, source = folder / "made.json", place.rows(text, "messages", count)
            process.run(
                [sys.executable, _ALONE, source, place.tokenizer(), out], folder, core=place.core
            )
            made: Content = json.loads(out.read_text())
        return made

    def make(place: Workplace) -> Content:
        return {"runs": [once(place) for _ in range(repeats)]}

    return Cell(f"encoder-{text}", {"text": text, "rows": count, "repeats": repeats}, make)


def about(text: str, count: int) -> Cell:
    """What a kind of text is like, in numbers."""

    def make(place: Workplace) -> Content:
        content = (place.tokenizer() / "tokenizer.json").read_bytes()
        return statistics(encoders.load("fastokens", content), text, count)

    return Cell(f"text-{text}", {"text": text, "rows": count}, make)


def tokens(count: int) -> Cell:
    """Tokens a row of each task, as a build counts them; pairs count both sides."""

    def make(place: Workplace) -> Content:
        made = {}
        for task, shape in (("sft", "messages"), ("rm", "pair"), ("prm", "steps")):
            with place.scratch() as folder:
                source, out = place.rows("english", shape, count), folder / "out"
                process.run(build(task, source, out, place.cache(folder)), folder)
                manifest = json.loads((out / "manifest.json").read_text("utf-8"))
            made[task] = manifest["tokens"]["total"] / count
        return made

    return Cell("tokens", {"rows": count}, make)
