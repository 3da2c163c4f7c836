"""Draws the pictures of docs/how/ from real builds: no figure, no token in them is typed by hand.

A dialogue, a row's journey, a pack, the cut between prompt and answer, and the ledger of rows, each
as SVG.

python docs/pictures.py
"""

import html
import itertools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import posttrain_pipeline as pp
from posttrain_pipeline import Build

ROOT = Path(__file__).parent.parent
HOW = ROOT / "docs" / "how"
SAMPLES = ROOT / "sample_data"
MODEL = "qwen2-1.5b"

WIDTH = 880
LINE = 18
CHARACTER = 7.3  # of the monospaced text, in pixels
COLOURS = {
    "context": ("#eceff3", "#1f2933"),
    "trained": ("#bfe3c9", "#123d20"),
    "marker": ("#ffe0a3", "#4a3000"),
    "refused": ("#f5c6c2", "#5b1511"),
}


@dataclass
class Drawing:
    """An SVG that grows downwards."""

    title: str
    y: float = 34
    parts: list[str] = field(default_factory=list)

    def text(self, words: str, x: float = 16, mono: bool = False, bold: bool = False) -> None:
        """A line of text, or several where it is too long, and a step down after each."""
        most = int((WIDTH - 16 - x) / CHARACTER)
        if len(words) > most:
            end = words.rfind(" ", 0, most) + 1 or most
            self.text(words[:end], x, mono, bold)
            return self.text(words[end:], x, mono, bold)
        self.y += 6 if bold else 0
        family = "ui-monospace, Menlo, Consolas, monospace" if mono else "system-ui, sans-serif"
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{self.y:g}" font-family="{family}" font-size="12"{weight} '
            f'fill="#1f2933" xml:space="preserve">{html.escape(words)}</text>'
        )
        self.y += LINE
        return None

    def boxes(self, cells: list[tuple[str, str]], height: float = 22) -> None:
        """Coloured cells one after another, as many lines as they need, and a step down."""
        x = 16.0
        for words, role in cells:
            wide = len(words) * CHARACTER + 10
            if x + wide > WIDTH - 16:
                x, self.y = 16.0, self.y + height + 4
            self.box(x, wide - 2, words, role, height)
            x += wide
        self.y += height + 14

    def box(self, x: float, wide: float, words: str, role: str, height: float = 22) -> None:
        """One coloured cell at the present height."""
        fill, ink = COLOURS[role]
        self.parts.append(
            f'<rect x="{x:g}" y="{self.y - 15:g}" width="{wide:g}" height="{height:g}" rx="3" '
            f'fill="{fill}"/><text x="{x + 4:g}" y="{self.y:g}" fill="{ink}" font-size="12" '
            f'font-family="ui-monospace, Menlo, Consolas, monospace" xml:space="preserve">'
            f"{html.escape(words)}</text>"
        )

    def bar(self, start: float, end: float, role: str) -> None:
        """A part of a bar at the present height."""
        self.parts.append(
            f'<rect x="{start:.1f}" y="{self.y - 14:g}" width="{end - start + 0.2:.1f}" '
            f'height="30" fill="{COLOURS[role][0]}"/>'
        )

    def border(self, x: float) -> None:
        """A line across such a bar."""
        self.parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.y - 18:g}" y2="{self.y + 20:g}" '
            f'stroke="#1f2933"/>'
        )

    def svg(self) -> str:
        """The file."""
        high = self.y + 4
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high:g}" role="img">'
            f'<title>{html.escape(self.title)}</title><rect width="{WIDTH}" height="{high:g}" '
            'fill="#ffffff"/>'
        )
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"


def _built(task: str, data: str, folder: Path, model: str = MODEL, **more: Any) -> Build:
    return pp.run(task, model=model, data=data, output=str(folder / "build"), workers=1, **more)


def _first(build: Build) -> tuple[dict[str, Any], list[str]]:
    """The first stored row, and what each of its ids decodes to."""
    row = next(iter(build.splits["train"].tables())).slice(0, 1).to_pylist()[0]
    tokenizer = Tokenizer.from_file(str(build.tokenizer / "tokenizer.json"))
    return row, [_shown(tokenizer.decode([i], skip_special_tokens=False)) for i in row["input_ids"]]


def _role(label: int) -> str:
    return "context" if label == -100 else "trained"


def _shown(token: str) -> str:
    return token.replace("\n", "↵").replace("\t", "⇥")


def dialogue(folder: Path) -> str:
    """The first dialogue of the sample with tools and reasoning, all its answers in one example."""
    data = str(SAMPLES / "agent.jsonl")
    row, tokens = _first(
        _built("sft", data, folder, "qwen3-4b", history="appended", layout="ragged")
    )
    start = tokens.index("<|im_start|>", 1)  # behind the system turn, which has the tools
    draw = Drawing("A dialogue with a tool and reasoning")
    draw.text(
        f"agent.jsonl:1 for qwen3-4b: {len(tokens)} tokens, of which the first {start} (the system "
        "turn with the tool) are left out here",
        bold=True,
    )
    draw.y += 4
    draw.boxes([("trained", "trained"), ("context", "context")])
    line: list[tuple[str, str]] = []
    for at in range(start, len(tokens)):
        line.append((tokens[at], _role(row["labels"][at])))
        if tokens[at].endswith("↵"):
            draw.boxes(line)
            draw.y -= 10
            line = []
    draw.y += 10
    return draw.svg()


def journey(folder: Path) -> str:
    """The first row of the Math-Shepherd sample, from bytes to its place in a pack."""
    data = SAMPLES / "prm" / "math_shepherd.jsonl"
    build = _built("prm", str(data), folder)
    row, tokens = _first(build)
    length = row["seq_lengths"][0]
    marked = set(row["step_positions"])
    draw = Drawing("A row's journey")
    draw.text("1  bytes: a line of math_shepherd.jsonl, read as strict JSON", bold=True)
    raw = json.loads(data.read_bytes().splitlines()[0])
    for key in ("input", "label"):
        draw.text(f"{key}: {json.dumps(raw[key], ensure_ascii=False)}", 32, mono=True)
    draw.text(
        "2  normalize, render, mark: turns in the model's template, a marker after each step",
        bold=True,
    )
    for line in "".join(tokens[:length]).split("↵"):
        draw.text(line, 32, mono=True)
    draw.y += 4
    draw.text("3  encode: token ids, and labels that are read at the markers", bold=True)
    draw.y += 4
    first = min(marked)
    start = max(at for at in range(first) if tokens[at] == "<|im_start|>")
    draw.boxes(
        [(tokens[at], "marker" if at in marked else "context") for at in range(start, first + 4)]
    )
    ids = [str(row["input_ids"][at]) for at in range(start, first + 4)]
    draw.text(f"input_ids  … {' '.join(ids)} …", 32, mono=True)
    labels = [str(row["labels"][at]) for at in range(start, first + 4)]
    draw.text(f"labels     … {' '.join(labels)} …", 32, mono=True)
    own = [at for at in row["step_positions"] if at < length]
    draw.text(f"step_positions {own}   step_labels {row['step_labels'][: len(own)]}", 32, mono=True)
    draw.y += 4
    draw.text("4  plan, gather: its place in the training set", bold=True)
    lengths = row["seq_lengths"]
    draw.text(
        f"{row['row_ids'][0]} is tokens 0 to {length - 1} of train row 0, which holds "
        f"{len(lengths)} examples and {sum(lengths)} tokens",
        32,
    )
    return draw.svg()


def pack(folder: Path) -> str:
    """The first pack of the chat sample, to scale."""
    build = _built("sft", str(SAMPLES / "sft" / "chat.jsonl"), folder)
    row, tokens = _first(build)
    draw = Drawing("A pack")
    total = sum(row["seq_lengths"])
    draw.text(f"train row 0: {len(row['seq_lengths'])} examples, {total} tokens", bold=True)
    draw.y += 6
    scale, at = (WIDTH - 32) / total, 0
    for length in row["seq_lengths"]:
        roles = [_role(label) for label in row["labels"][at : at + length]]
        for role, run in itertools.groupby(range(length), key=roles.__getitem__):
            places = [16 + (at + index) * scale for index in run]
            draw.bar(places[0], places[-1] + scale, role)
        draw.border(16 + at * scale)
        at += length
    draw.border(16 + total * scale)
    draw.y += 40
    draw.boxes([("trained", "trained"), ("context", "context")])
    draw.text(f"seq_lengths {row['seq_lengths']}", mono=True)
    draw.text(f"row_ids     {row['row_ids'][:3]} …", mono=True)
    draw.y += 8
    first = row["seq_lengths"][0]
    draw.text("where the first example ends and the second begins", bold=True)
    draw.y += 4
    places = range(first - 6, first + 6)
    draw.boxes([(tokens[i], _role(row["labels"][i])) for i in places])
    positions = [i if i < first else i - first for i in places]
    draw.text(
        f"position  {' '.join(f'{i:>4}' for i in positions)}   restarts: no document sees another",
        mono=True,
    )
    draw.text(
        f"label     {' '.join('   ·' if row['labels'][i] == -100 else '  id' for i in places)}",
        mono=True,
    )
    return draw.svg()


def cut(folder: Path) -> str:
    """An answer that begins with a line break, encoded in one piece and as a build does."""
    data = folder / "row.jsonl"
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "\n4"}]
    data.write_text(json.dumps({"messages": turns}) + "\n", "utf-8")
    build = _built("sft", str(data), folder)
    assert build.manifest.encoder.merged_cuts == 1, "this tokenizer would not merge there"
    row, tokens = _first(build)
    start = next(i for i, label in enumerate(row["labels"]) if label != -100)
    tokenizer = Tokenizer.from_file(str(build.tokenizer / "tokenizer.json"))
    head = max(i for i in range(start) if tokens[i] == "<|im_start|>")
    text = tokenizer.decode(row["input_ids"][head:], skip_special_tokens=False)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    draw = Drawing("The cut")
    draw.text(
        "the text in one piece: the prompt's last line break is merged into the answer", bold=True
    )
    draw.y += 4
    pieces = [_shown(tokenizer.decode([i], skip_special_tokens=False)) for i in whole]
    draw.boxes([(piece, "refused" if piece == "↵↵" else "context") for piece in pieces])
    draw.text(f"ids  {whole}", mono=True)
    draw.y += 10
    draw.text("as a build does: cut where training starts, as at inference", bold=True)
    draw.y += 4
    draw.boxes([(t, _role(row["labels"][head + i])) for i, t in enumerate(tokens[head:])])
    draw.text(f"ids  {row['input_ids'][head:]}", mono=True)
    return draw.svg()


def ledger(folder: Path) -> str:
    """Where the rows of the chat sample went."""
    build = _built("sft", str(SAMPLES / "sft" / "chat.jsonl"), folder)
    rows, draw = build.manifest.rows, Drawing("The ledger of rows")
    draw.text(
        f"{rows.in_} rows in = {rows.used} used + {rows.rejected} refused + "
        f"{rows.duplicates} duplicates",
        bold=True,
    )
    draw.y += 6
    wide = (WIDTH - 32) / rows.in_
    draw.box(16, rows.used * wide - 2, f"used: {rows.used}", "trained")
    draw.box(16 + rows.used * wide, rows.rejected * wide, f"refused: {rows.rejected}", "refused")
    draw.y += 32
    draw.text("each refused row by name, in rejects.jsonl", bold=True)
    for refused in build.rejects():
        words = f"{refused.id}  {refused.code}: {refused.detail}"
        draw.text(words, 32, mono=True)
    examples = build.manifest.examples
    draw.y += 6
    draw.text(
        f"{examples.made} examples made = {examples.kept} kept + {examples.rejected} refused + "
        f"{examples.duplicates} duplicates",
        bold=True,
    )
    tokens = build.manifest.tokens
    draw.text(
        f"{tokens.total} tokens, {tokens.trained} of them trained, {tokens.padding} padding",
        bold=True,
    )
    return draw.svg()


def pages() -> dict[Path, str]:
    """Every picture, drawn from builds that are made for it."""
    made = {}
    for draw in (dialogue, journey, pack, cut, ledger):
        with tempfile.TemporaryDirectory() as folder:
            made[HOW / f"{draw.__name__}.svg"] = draw(Path(folder))
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
