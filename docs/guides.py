"""Fills the tables of README and guides from the program, and from what was run and measured.

A page marks the place with ``<!-- table: NAME ARGUMENT -->`` and ``<!-- end of table -->``.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import page
from benchmarks.figures import Figures
from pipeline import exports, tasks
from pipeline.exports import ExportFacts
from pipeline.inputs import sheet
from pipeline.inputs.detection import rows_of
from pipeline.inputs.readings import glimpses, recognise_looks
from pipeline.inputs.scan import expand
from pipeline.lines import share, wrapped
from pipeline.options.config import Config
from pipeline.serving import examine
from pipeline.stores import default_cache
from stages import catalog, formats, kinds
from stages.profile import ModelProfile
from stages.tokenizers import builtin, probes
from stages.tokenizers.profiles import all_profiles, own_family

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PEERS = ROOT / "tests" / "parity" / "peers"
RAN = ROOT / "tests" / "parity" / "ran.json"
COMPARED = ROOT / "tests" / "parity" / "oracles.json"
ORACLES = ROOT / "tests" / "tables" / "oracles.toml"
_BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<words>[\w. -]+) -->\n).*?(?=<!-- end of table -->)", re.DOTALL
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = [head, *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    made = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([made[0], "|" + "---|" * len(cells[0]), *made[1:]]) + "\n"


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words) or "none"


def _family(name: str) -> str:
    """Every profile of one file of ``stages/profiles``: what all share, and where they differ."""
    profiles = sorted(own_family(name), key=lambda p: p.name)
    shared, differing = [], []
    for name, say in _SAID.items():
        values = {say(profile) for profile in profiles}
        (shared.append((name, values.pop())) if len(values) == 1 else differing.append(name))
    head = ["profile", "hub id", "", *differing]
    rows = [
        [
            f"`{p.name}`",
            ", ".join(p.model_ids),
            "base" if p.is_base else "",
            *(_SAID[name](p) for name in differing),
        ]
        for p in profiles
    ]
    return f"{table(('all of them', ''), shared)}\n{table(head, rows)}"


def _source(profile: ModelProfile) -> str:
    if profile.ranks is None:
        return "the hub, or its cache"
    extra = builtin.carriers()[profile.ranks.carrier].extra
    return f"the extra `{extra}`" if extra else "installed with the program"


def _models(_: str) -> str:
    """Families that have profiles: how many, and where the tokenizer's bytes are."""
    titles = {
        name: (path, path.read_text("utf-8").partition("\n")[0].removeprefix("# "))
        for path in (DOCS / "families").glob("*.md")
        for name in re.findall(r"<!-- table: family (\w+) -->", path.read_text("utf-8"))
    }
    found: dict[str, list[str]] = {}
    for name, (path, title) in sorted(titles.items(), key=lambda item: item[1]):
        kept = " or ".join(dict.fromkeys(map(_source, own_family(name))))
        said = f"[{title}]({path.relative_to(ROOT).as_posix()}) {len(own_family(name))}"
        if extra := re.fullmatch(r"the extra (`[\w-]+`)", kept):
            said, kept = f"{said} ({extra[1]})", "the extra that is named behind it"
        found.setdefault(kept, []).append(said)
    rows = [(", ".join(families), kept) for kept, families in found.items()]
    return table(("families, and how many profiles each has", "tokenizer"), rows)


_SAID: dict[str, Callable[[ModelProfile], str]] = {
    "tokenizer": _source,
    "end of turn": lambda p: _code([p.end_of_turn]),
    "eos of the emitted tokenizer": lambda p: _code([p.eos_token]),
    "pad": lambda p: _code([p.pad_token]),
    "generation stops at": lambda p: _code(p.generation_eos),
    "bos": lambda p: "printed by the template" if p.bos_policy == "template" else p.bos_policy,
    "padding side": lambda p: p.padding_side,
    "a dialogue becomes": lambda p: (
        "one example per turn" if p.one_example_per_turn else "one example"
    ),
    "step tokens (prm)": lambda p: "none: pairs only" if p.pair else _code(p.step_tokens),
    "positions": lambda p: str(p.context_length),
    "embedding rows": lambda p: str(p.embedding_size),
}


def _trainer(name: str) -> str:
    """What an export takes, task by task, and what it says of it."""
    export = exports.load(name)
    rows = []
    for task in tasks.names():
        taken = export.takes.get(tasks.kind_of(task).trains_as, ())
        for layout in taken:
            facts = ExportFacts(task=task, layout=layout, max_length=4096, bound=None)
            rows.append((task, f"`{layout}`", export.detail(facts)))
        if not taken:
            why = export.why_not.get(tasks.kind_of(task).trains_as)
            rows.append((task, "none", why or "it has no trainer for it that takes token ids"))
    reads = [
        f"Versions: {export.versions}.",
        f"It {'reads' if export.takes_margins else 'does not read'} the margins of pairs,",
        f"and {'multiplies' if export.takes_weights else 'has no use for'} loss weights.",
        f"Encoders (RoBERTa, BERT): {'yes' if export.takes_encoders else 'no'}.",
    ]
    return f"{table(('task', 'layout', 'note'), rows)}\n" + " ".join(reads) + "\n"


def _formats(task: str) -> str:
    """The record formats that a task reads."""
    kind = tasks.kind_of(task).formats
    rows = [
        (f"`{name}`", catalog.summary("stages.formats", name).replace("``", "`"))
        for name in catalog.names("stages.formats")
        if kind in formats.load(name).kinds
    ]
    return table(("format", "a row"), rows)


def _ran(_: str) -> str:
    """What `make compatibility` recorded of the trainers' own releases."""
    found = json.loads(RAN.read_text("utf-8"))
    rows = []
    for peer in sorted(path.stem for path in PEERS.glob("*.txt")):
        if peer not in found:
            rows.append((f"`{peer}`", "not recorded", ""))
            continue
        passed = [test for test, outcome in found[peer]["tests"].items() if outcome == "passed"]
        files = sorted({test.partition("::")[0].rpartition("/")[2] for test in passed})
        of = ", ".join(found[peer]["tasks"]) or "no build of its own"
        rows.append((f"`{peer}`", of, f"{len(passed)}, in {_code(files)}"))
    return table(("release", "builds of", "tests passed"), rows)


def _takes(_: str) -> str:
    """Trainers by task: the layouts that each takes."""
    rows = []
    for export in map(exports.load, exports.names()):
        trained = [tasks.kind_of(task).trains_as for task in tasks.names()]
        layouts = [_code(export.takes.get(kind, ())) for kind in trained]
        rows.append((f"`{export.name}`", export.versions, *layouts))
    return table(("trainer", "written for", *tasks.names()), rows)


def _recurrent(_: str) -> str:
    """Trainers that put several documents into a row: of which models they keep these apart."""
    rows = []
    for export in map(exports.load, exports.names()):
        taken = export.takes.get(kinds.CONVERSATION, ())
        facts = {one: ExportFacts("sft", one, 4096, bound=None) for one in taken}
        shared = [one for one in taken if export.shares(facts[one])]
        if shared:
            alone = [one for one in taken if one not in shared]
            named = (f"`{export.name}`", export.versions)
            rows.append((*named, _code(shared), _code(export.apart), _code(alone)))
    head = ("trainer", "written for", "documents share a row", "kept apart in", "trained alone")
    return table(head, rows)


def _columns(argument: str) -> str:
    """What becomes of each column of a sample file; ``argument``: its task and its name."""
    task, file = argument.split()
    path = ROOT / "sample_data" / task / file
    config = Config.of(task, (str(path),), "qwen2-1.5b", Path("build"))
    looks = glimpses(expand(config.source.data, config.run.cache_dir))
    (found,) = recognise_looks(looks, config)
    page = sheet.lines(rows_of(looks[0][3]), found.reading, config, {})
    rows = [(f"`{x['column']}`", share(x), x["values"], x["becomes"]) for x in page]
    return table(("column", "rows", "values", "becomes"), rows)


_APART = {
    "=": "equal",
    "b": "also what stands behind the end",
    "e": "without the last end",
    "i": "other ids",
    "l": "without a blank at the start",
    "o": "the last turn ends in another stop",
    "p": "also what the prompt supplies",
}


def _oracle(name: str, found: dict[str, str], why: str) -> str:
    """How what a build trains compares with an oracle, over what it does not refuse."""
    kinds = sorted(set("".join(found[name].split())))
    said = [_APART[kind] for kind in kinds if kind != "=" or kinds == ["="]]
    return f"{name}: {', '.join(said)}{f' ({why})' if why and 'i' in kinds else ''}"


def _calls(refused: list[str]) -> str:
    """How many calls a turn may have, by the conversations that are refused."""
    said = {"parallel": "several", "call": "one"}
    return next((word for case, word in said.items() if case not in refused), "no")


def _families(_: str) -> str:
    """Families whose template a package has: what was found of each, and by which oracles."""
    recorded = json.loads(COMPARED.read_text("utf-8"))
    rows = []
    for one in tomllib.loads(ORACLES.read_text("utf-8"))["families"]:
        found = recorded[one["name"]]
        refused, ids = found["refused"], "the model's directory"
        reasons = "no" if "reason" in refused else "yes"
        if "profile" in one and (layout := all_profiles()[one["profile"]].ranks):
            ids = builtin.carriers()[layout.carrier].requirement.partition("==")[0]
        oracles = [
            _oracle(n, found, one.get("why", "")) for n in ("renderers", "trl") if n in found
        ]
        built = (_code(found["ends"]), found["history"], reasons, _calls(refused))
        read = built if found["ends"] else ("refused", "", "", "")
        rows.append((one["name"], *read, ids, "; ".join(oracles) or "none"))
    head = ("family", "a turn ends in", "earlier turns", "reasoning", "calls in a turn")
    return table((*head, "ids", "compared with"), rows)


def _template(name: str) -> str:
    """What the probes find of a profile's chat template, as a plan says it."""
    found = examine.examine_model(name, "sft", default_cache(), wide=False)
    seen = {probe: one.detail for probe, one in found.verdicts.items()}
    said = wrapped(probes.of_template(seen), 100, "template  ", " " * 10)
    return "\n".join(("```text", *said, "```", ""))


_TABLES: dict[str, Callable[[str], str]] = {
    "family": _family,
    "trainer": _trainer,
    "formats": _formats,
    "ran": _ran,
    "takes": _takes,
    "recurrent": _recurrent,
    "columns": _columns,
    "families": _families,
    "models": _models,
    "template": _template,
    "figures": lambda _: page.front(Figures()) + "\n",
}


def _filled(page: str) -> str:
    def fill(found: re.Match[str]) -> str:
        name, _, argument = found["words"].partition(" ")
        return f"{found['head']}\n{_TABLES[name](argument)}\n"

    return _BLOCK.sub(fill, page)


def pages() -> dict[Path, str]:
    """Every page with such a table, and the text that it should have."""
    paths = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    texts = {path: path.read_text("utf-8") for path in paths}
    return {path: _filled(text) for path, text in texts.items() if _BLOCK.search(text)}
