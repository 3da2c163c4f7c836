"""Reads launch scripts and configurations as a shell, Python or YAML would, and compares all that
they set with ``launch.toml``, which says it for the facts of a manifest. It knows nothing of the
templates that they are made from.

A table of ``launch.toml`` is named by a file and by the facts for which it holds, with a dash
before those that must not hold. What a script sets there, it must set to these values and to no
others, and it must set nothing else.
"""

import ast
import functools
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pipeline import exports
from pipeline.builds.build import Build
from pipeline.exports import ExportFacts
from stages import catalog

# What a script sets, by name, or must set: all values that it gives.
Settings: TypeAlias = dict[str, set[str]]


def _shell(text: str) -> Settings:
    """The options of every command that a script may end in, and what it does before."""
    found: Settings = {}
    for command in re.findall(r"^exec ((?:\\\n|.)*)$", text, re.MULTILINE):
        words = shlex.split(command.replace("\\\n", " ").partition(";;")[0])
        name = "exec"
        values: list[str] = []
        for word in [*words, "--"]:
            option, equals, value = word.partition("=")
            if word.startswith(("--", "$@")) or (equals and name != "exec"):
                found.setdefault(name, set()).add(" ".join(values))
                name, values = option, [value] if equals else []
            else:
                values.append(word)
    for line in re.sub(r"^exec (?:\\\n|.)*$", "", text, flags=re.MULTILINE).splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.isidentifier():
            found.setdefault(name, set()).add(value)
        elif line.strip().startswith(("for ", "sed ", "ln ")) or re.match(r"\d\S*\)$", line):
            found.setdefault(line.split()[0] if " " in line else "case", set()).add(line.strip())
    return found


def _python(text: str) -> Settings:
    """Keyword arguments, assignments, imports, what is asked, returned and done."""
    found: Settings = {}
    for node in ast.walk(ast.parse(text)):
        pairs: list[tuple[str, str]] = []
        if isinstance(node, ast.Call):
            pairs = [(one.arg, ast.unparse(one.value)) for one in node.keywords if one.arg]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr) and node.value:
            made = node.value
            if isinstance(made, ast.Call):  # its keywords are looked at by themselves
                made = ast.Call(made.func, made.args, [])
            name = "return" if isinstance(node, ast.Return) else "do"
            if isinstance(node, ast.Assign | ast.AugAssign):
                name = ast.unparse(
                    node.target if isinstance(node, ast.AugAssign) else node.targets[0]
                )
            told = ast.unparse(made)
            notes = name == "do" and (isinstance(made, ast.Constant) or told.startswith("sys.exit"))
            pairs = [] if notes else [(name, told)]
        elif isinstance(node, ast.If):
            pairs = [("if", ast.unparse(node.test))]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(f"from {node.module}", ", ".join(sorted(one.name for one in node.names)))]
        for name, value in pairs:
            found.setdefault(name, set()).add(value)
    return found


def _yaml(text: str) -> Settings:
    """Every ``key: value`` of flat YAML."""
    found: Settings = {}
    for name, value in re.findall(r"^[ -]*(\w+): *(.+)$", text, re.MULTILINE):
        found.setdefault(name, set()).add(value)
    return found


READERS: dict[str, Callable[[str], Settings]] = {".sh": _shell, ".py": _python, ".yaml": _yaml}


@functools.cache
def _table() -> Mapping[str, Mapping[str, Mapping[str, str | list[str]]]]:
    found: dict[str, Any] = tomllib.loads(
        Path(__file__).with_name("launch.toml").read_text("utf-8")
    )
    return found


def _words(facts: ExportFacts) -> set[str]:
    """What a table of ``launch.toml`` may ask for."""
    kind, stored = facts.kind, facts.stored
    task = "pairs" if kind.compares else "steps" if kind.marks else "talks"
    asked = {
        "packs": stored.packs,
        "pads": stored.pads,
        "test": "test" in facts.splits,
        "margin": "margin" in facts.columns,
        "partial": bool(facts.without_margin),
        "recurrent": bool(facts.recurrent),
        "small": 0 < facts.rows < 128,
        "weights": "loss_weights" in facts.columns,
        "soft": facts.soft,
        "unlabelled": facts.unlabelled,
        "encoder": facts.pair is not None,
        "types": facts.pair is not None and bool(facts.pair.token_types),
    }
    return {task, facts.layout, *(name for name, holds in asked.items() if holds)}


def trains(name: str, facts: ExportFacts) -> bool | None:
    """Whether a trainer takes such a build; None where nothing is said of it, or of the model's
    recurrent layers."""
    told: Any = _table()["trains"].get(name)
    if told is None or facts.recurrent:
        return None
    words = _words(facts)
    layouts_ = {layout for task in words & told.keys() for layout in told[task].split()}
    none = any(words.issuperset(one.split()) for one in told["none"])
    return facts.layout in layouts_ and not none


def _values(facts: ExportFacts) -> dict[str, object]:
    """What values of ``launch.toml`` may name."""
    model, length = facts.model, facts.max_length
    # Rows in a step of OpenRLHF's optimizer: the largest power of two up to the rows, of 128.
    step = max(2**n for n in range(8) if 2**n <= max(facts.rows, 1))
    return {
        "length": length,
        "thrice": 3 * length,
        # LLaMA-Factory fills packs up to a multiple of 8 tokens, beyond the longest.
        "beyond": length + 8 - length % 8,
        "pairs": max(1, min(4, facts.rows)),
        "step": step,
        "micro": 1 if facts.stored.packs else min(4, step),
        "splits": " ".join(facts.splits),
        "pad": json.dumps(model.pad_token, ensure_ascii=False),
        "eos": json.dumps(model.eos_token, ensure_ascii=False),
        "marker": model.step_token,
        "good": model.good_token,
        "bad": model.bad_token,
    }


def wanted(name: str, file: str, facts: ExportFacts) -> Settings | None:
    """What a file of a trainer must set; None where nothing is said of it."""
    words, values = _words(facts), _values(facts)
    found: Settings = {}
    told = _table().get(f"{name}/{file}")
    if told is None:
        return None
    for tables in (_table().get(f"*{Path(file).suffix}", {}), told):
        for asked, table in tables.items():
            each = asked.split()
            if all((one.removeprefix("-") in words) != one.startswith("-") for one in each):
                for key, value in table.items():
                    several = value if isinstance(value, list) else [value]
                    found.setdefault(key, set()).update(x.format(**values) for x in several)
    return found


def facts_of(build: Build) -> ExportFacts:
    """The facts of a build, from its manifest and from what is counted of it."""
    manifest, train = build.manifest, build.manifest.splits.get("train")
    prm = manifest.prm
    rows = sum(shard.rows for shard in train.shards) if train else 0
    margins = manifest.margins if "margin" in manifest.columns else None
    absent = margins.absent if margins else 0
    return ExportFacts(
        task=manifest.task,
        layout=manifest.layout,
        max_length=manifest.max_length,
        bound=manifest.model,
        columns=manifest.columns,
        splits=(*manifest.splits,),
        rows=rows,
        soft=prm is not None and prm.label_kind != "hard",
        unlabelled=bool(prm and (prm.unlabelled if prm.unrated is None else prm.unrated)),
        without_margin=absent,
        recurrent=manifest.model.recurrent,
        tokenizer_json=build.tokenizer_json,
    )


def differences(set_: Settings, must: Settings) -> Iterator[str]:
    """Settings that are missing, or have another value."""
    for name in sorted({*set_, *must}):
        given, asked = (sorted(of.get(name, ())) for of in (set_, must))
        if not given:
            yield f"it does not set {name}"
        elif given != asked:
            told = " and ".join(asked) or "nothing"
            yield f"it sets {name} to {' and '.join(given)}, and the manifest says {told}"


def problems(build: Build, trainer: str = "", whole: bool = True) -> Iterator[tuple[str, str]]:
    """What the launch scripts of an export say otherwise than its manifest: file and difference.

    Args:
        trainer: of a build for one, which is no export.
        whole: nothing is set beside what must be; an earlier version may have set other things.
    """
    made_for = build.manifest.export
    name = made_for.trainer if made_for else trainer
    facts, folder = facts_of(build), build.here / "launch"
    if exports.key(name) not in catalog.own(exports.__name__):
        return
    files = {f"{name}.sh", *(exports.load(name).files(facts))}
    for file in sorted(files):
        must, path = wanted(name, file, facts), folder / file
        if not path.is_file():
            yield f"launch/{file}", "it is not there"
        elif must is not None:
            settings = READERS[path.suffix](path.read_text("utf-8"))
            if not whole:
                both = settings.keys() & must.keys()
                settings, must = ({k: of[k] for k in both} for of in (settings, must))
            for what in differences(settings, must):
                yield f"launch/{file}", what
