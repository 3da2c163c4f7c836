"""Judges what lies beside the shards: the tokenizer's files, the stop contract, the counts of the
manifest, the refused rows.

Files are read with ``json`` alone, ids are looked up in ``tokenizer.json``, and counts are added up
again from the shards and ``rejects.jsonl``, by code that writes none of these files.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from pipeline.builder import origin, recounted
from pipeline.builder.evidence import Evidence, place_of
from pipeline.builds import stored
from pipeline.manifest.manifest import MANIFEST
from pipeline.manifest.records import REJECTS, REPORT, SERVING, TOKENIZER
from pipeline.report.card import CARD
from pipeline.shards.measured import OURS
from stages.errors import OwnLawError, counted
from stages.tokens import layouts

Problem: TypeAlias = tuple[str, str]  # the file, and what differs
_Place: TypeAlias = tuple[str, int]  # of a row: its input and its line
_LINE = re.compile(r"^\| ([^|]+) \| ([\d,]+) \|$", re.MULTILINE)
_FIGURE = re.compile(r"<span>([^<]*)</span><b>([^<]*)</b>")
SHOWN = 3  # differences that an error names
_STOCK = "stock_tokenizer_sees_it"


def require(evidence: Evidence) -> None:
    """Require that all side files are what follows from the shards and from each other.

    Raises:
        OwnLawError: one is not.
    """
    found = [*problems(evidence), *_files(evidence)]
    if found:
        more = f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        lines = "".join(f"\n  {name}: {what}" for name, what in found[:SHOWN])
        raise OwnLawError(f"Files beside the shards are not what they must be:{lines}{more}", OURS)


def problems(evidence: Evidence) -> list[Problem]:
    """All differences."""
    found = [*_tokenizer(evidence), *origin.problems(evidence), *_serving(evidence)]
    if evidence.shards:
        found += [(MANIFEST, what) for what in recounted.problems(evidence)]
    if evidence.manifest.export is None:
        found += [*_rejects(evidence), *_declared(evidence)]
    return found


def _declared(evidence: Evidence) -> Iterator[Problem]:
    """The splits and shards that ``datasets`` is told of; in our layouts their columns, too."""
    ours = evidence.manifest.layout in layouts.MEMBERS
    for name, side in evidence.manifest.splits.items():
        shards = [{"filename": shard.path.removeprefix(f"{name}/")} for shard in side.shards]
        wanted = {"_split": name, "_data_files": shards, "_format_type": None}
        yield from _unequal(f"{name}/state.json", evidence.read(f"{name}/state.json"), wanted)
    for name, side in evidence.manifest.splits.items() if ours else ():
        told, file = f"{name}/dataset_info.json", evidence.build.here / side.shards[0].path
        columns = {field.name: field.type for field in stored.read_file(file).schema}
        for key, feature in evidence.read(told)["features"].items():
            if not _is_of(feature, columns.get(key)):
                yield told, f"{key} is declared as {feature}, and stored as {columns.get(key)}"


def _is_of(feature: Mapping[str, Any], kind: pa.DataType | None) -> bool:
    """Whether ``datasets`` reads a declared column as one of this type."""
    if "feature" in feature:
        listed = kind is not None and pa.types.is_list(kind)
        return listed and _is_of(feature["feature"], getattr(kind, "value_type", None))
    return bool(feature["dtype"] == {"float": "float32"}.get(str(kind), str(kind)))


def _unequal(name: str, said: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in wanted.items():
        if said.get(key) != value:
            yield name, f"{key} is {said.get(key)!r}, and must be {value!r}"


def _files(evidence: Evidence) -> Iterator[Problem]:
    """Files that are not as the manifest says; shards, and what is as large, are not read again."""
    folder, known = evidence.build.here, evidence.manifest.files

    def sha256(path: Path) -> str:
        large = path.suffix == ".arrow" or path.stat().st_size > origin.FIRST
        given = known[path.relative_to(folder).as_posix()]
        return given if large else hashlib.sha256(path.read_bytes()).hexdigest()

    for one in stored.differences(folder, known, sha256):
        yield one.name, one.detail


def _tokenizer(evidence: Evidence) -> Iterator[Problem]:
    model, config = evidence.manifest.model, evidence.read(f"{TOKENIZER}/tokenizer_config.json")
    data = (evidence.build.here / TOKENIZER / "tokenizer.json").read_bytes()
    template = hashlib.sha256(config["chat_template"].encode()).hexdigest()
    said = {"tokenizer_sha256": model.tokenizer_sha256, "chat_template_sha256": template}
    wanted = {"tokenizer_sha256": hashlib.sha256(data).hexdigest()}
    wanted["chat_template_sha256"] = model.chat_template_sha256
    yield from _unequal(f"{TOKENIZER}/", said, wanted)
    date = evidence.manifest.options.get("date") or model.date_string
    yield from _unequal(MANIFEST, {"date": date}, {"date": model.date_string})
    names = ("eos_token", "pad_token", "padding_side")
    off = ("clean_up_tokenization_spaces", "split_special_tokens", "add_bos_token")
    flags = dict.fromkeys((*off, "add_prefix_space"), False) | {"errors": "replace"}
    wanted_there: dict[str, Any] = flags | {n: getattr(model, n) for n in names}
    yield from _unequal(f"{TOKENIZER}/tokenizer_config.json", config, wanted_there)
    ends = ("end_of_turn", "end_of_call")
    tokens = ("eos_token", "pad_token", *ends, "step_token", "good_token", "bad_token")
    named = [(text, getattr(model, f"{n}_id")) for n in tokens if (text := getattr(model, n))]
    for text, token in (*named, *model.added_tokens.items()):
        if evidence.ids.get(text) != token:
            there = evidence.ids.get(text)
            yield MANIFEST, f"{text!r} has id {token}, and {there} in {TOKENIZER}/tokenizer.json"
    added = evidence.tokenizer["added_tokens"]
    ids = {str(one["id"]): {k: x for k, x in one.items() if k != "id"} for one in added}
    own = {config.get(f"{name}_token") for name in ("eos", "pad", "bos", "unk", "cls", "sep")}
    special = [one["content"] for one in added if one["special"]]
    wanted_there = {"added_tokens_decoder": ids}
    yield from _unequal(f"{TOKENIZER}/tokenizer_config.json", config, wanted_there)
    if {*config["additional_special_tokens"]} != {*special} - own:
        yield f"{TOKENIZER}/tokenizer_config.json", "additional_special_tokens are others"


def _serving(evidence: Evidence) -> Iterator[Problem]:
    """``serving.json`` and ``generation_config.json``, from the tokenizer that lies beside them."""
    manifest, said, ids = evidence.manifest, evidence.read(SERVING), evidence.ids
    model, config = manifest.model, evidence.read(f"{TOKENIZER}/tokenizer_config.json")
    own = {marker["text"] for marker in said["markers"]}
    texts = [s for s in said["stop_strings"] if s not in own or s in model.added_tokens]
    stops = {ids.get(text, -1) for text in texts}
    room = manifest.max_new_tokens
    wanted: dict[str, Any] = {"eos_token_id": ids.get(config["eos_token"])}
    wanted |= {"pad_token_id": ids.get(model.pad_token)}
    wanted |= {"end_of_turn": model.end_of_turn, "end_of_turn_id": ids.get(model.end_of_turn)}
    steps = {n: getattr(model, n) for n in ("step_token", "good_token", "bad_token")}
    wanted |= {name: text for name, text in steps.items() if text}
    own_ids = {text: ids.get(text) for text in (*model.added_tokens, *filter(None, steps.values()))}
    wanted |= {"added_tokens": own_ids, "include_stop_str_in_output": bool(own)}
    wanted |= {"max_new_tokens": room and {n: getattr(room, n) for n in ("p999", "max", "turns")}}
    wanted |= {"repairs": [one.sentence for one in model.repairs]}
    yield from _unequal(SERVING, said, wanted)
    if bool(said["needs_this_tokenizer"]) != bool(model.added_tokens):
        yield SERVING, "needs_this_tokenizer does not follow from the added tokens"
    yield from _markers(evidence, said)
    yield from _modes(evidence, said.get("chat_template"))
    if model.pair is not None:  # an encoder generates nothing
        return
    trained = {model.end_of_turn, model.end_of_call or model.end_of_turn}
    generation = evidence.read(f"{TOKENIZER}/generation_config.json")
    marked = {ids.get(text) for text in own} & {*generation["eos_token_id"]}  # stops anyway
    told = set(said["stop_token_ids"]) - marked
    if told != stops - marked or not trained <= set(said["stop_strings"]):
        yield SERVING, f"stop_token_ids are {said['stop_token_ids']}, and must be {sorted(stops)}"
    yield from _engines(said, config)
    ends = [ids[s] for s in said["stop_strings"] if s not in own and s in ids]
    wanted = {"eos_token_id": ends, "pad_token_id": ids.get(model.pad_token)}
    # A stop marker may be a stop of the model, too; then it is in no list but this.
    there = {**generation, "eos_token_id": [i for i in generation["eos_token_id"] if i in ends]}
    yield from _unequal(f"{TOKENIZER}/generation_config.json", there, wanted)
    engine = said["engines"]["transformers"]["GenerationConfig"]
    others = [s for s in said["stop_strings"] if ids.get(s) not in generation["eos_token_id"]]
    yield from _unequal(SERVING, engine, {**generation, "stop_strings": others or None})


def _engines(said: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Problem]:
    """The snippets of engines stop as the contract says, and see stops that are special tokens."""
    engines, strings = said["engines"], said["stop_strings"]
    alike = {name: said[name] for name in ("stop_token_ids", "include_stop_str_in_output")}
    added = config["added_tokens_decoder"].values()
    special = {flags["content"] for flags in added if flags["special"]}
    if not special.isdisjoint(strings):
        alike["skip_special_tokens"] = False
    openai, room = engines["openai"], said.get("max_new_tokens") or {"max": None}
    for told in (engines["vllm"]["SamplingParams"], engines["trl_grpo"]["generation_kwargs"]):
        yield from _unequal(SERVING, told, {"stop": strings, **alike})
    for told, key in (
        (engines["vllm"]["SamplingParams"], "max_tokens"),
        (engines["trl_grpo"], "max_completion_length"),
        (engines["transformers"]["GenerationConfig"], "max_new_tokens"),
        (openai, "max_tokens"),
    ):
        yield from _unequal(SERVING, told, {key: room["max"]})
    yield from _unequal(SERVING, {**openai, **openai["extra_body"]}, {"stop": strings[:4], **alike})


def _markers(evidence: Evidence, said: Mapping[str, Any]) -> Iterator[Problem]:
    """The stops that were asked for stand before those of the model, each with its ids."""
    options: Any = evidence.manifest.options
    asked = dict.fromkeys(options["stop"])
    texts = [one["text"] for one in said["markers"]]
    if texts != [*asked] or said["stop_strings"][: len(texts)] != texts:
        yield SERVING, f"its markers are {texts}, and {[*asked]} are asked for"
    for one in said["markers"]:
        ids = evidence.encoded(one["text"])
        is_one, stock = len(ids) == 1, one[_STOCK]
        use = "string or id" if is_one and stock else "string"
        if one["text"] in evidence.manifest.model.added_tokens:
            use = "id, or the string where this build's tokenizer is loaded"
        wanted = {"ids": ids, "is_one_token": is_one, "use": use}
        yield from _unequal(SERVING, one, wanted if is_one else {**wanted, _STOCK: False})


def _modes(evidence: Evidence, said: Mapping[str, Any] | None) -> Iterator[Problem]:
    """The prompts that were trained, and how each engine is asked for one."""
    told = evidence.manifest.inference
    if said is None or told is None:
        if (said is None) != (told is None):
            yield SERVING, "chat_template is not what the manifest says of inference"
        return
    there = {"arguments": told.arguments, "trained_turns": told.trained_turns}
    yield from _unequal(SERVING, said, there)
    used = {n: told.modes[n] for n in told.modes if told.trained_turns[n]}
    alone = [n for n, turns in told.trained_turns.items() if turns]
    wanted: dict[str, Any] = {"mixed": len(used) > 1}
    wanted |= {"arguments": told.modes.get(alone[0]) if len(alone) == 1 else None}
    yield from _unequal(MANIFEST, {n: getattr(told, n) for n in wanted}, wanted)
    if {name: one["arguments"] for name, one in said["modes"].items()} != used:
        yield SERVING, "the modes of chat_template are not those that are trained"
    for one in said["modes"].values():
        given = list(one["arguments"].values())
        for request in _all_of(one["engines"], "chat_template_kwargs"):
            if request != one["arguments"]:
                yield SERVING, f"an engine is asked for {request}, not for {one['arguments']}"
        if len(given) == 1 and isinstance(given[0], bool):
            request = one["engines"]["ollama"]["request"]
            yield from _unequal(SERVING, request, {"think": given[0]})


def _all_of(value: Any, name: str) -> Iterator[Any]:
    """What stands under a key, at any depth."""
    for key, one in value.items() if isinstance(value, dict) else ():
        if key == name:
            yield one
        yield from _all_of(one, name)


def _rejects(evidence: Evidence) -> Iterator[Problem]:
    """``rejects.jsonl``: its codes are the manifest's, and its lines those of the inputs."""
    rows = evidence.manifest.rows
    first: dict[tuple[str, int], str] = {}
    entries, refused = [], []
    every = [name for own in evidence.rows.values() for one in own for name in one]
    numbered = {(name.rpartition(":")[0], _has_number(name)) for name in every}
    with (evidence.build.here / REJECTS).open("rb") as lines:
        for line in lines:
            one = json.loads(line)
            first.setdefault((one["source"], one["line"]), one["code"])
            refused.append(((one["source"], one["line"]), one["code"], one["stage"]))
            if not re.fullmatch(rf"{re.escape(one['source'])}:{one['line']}(#\d+)?", one["id"]):
                yield REJECTS, f"{one['id']} is not line {one['line']} of {one['source']}"
            numbered.add((one["source"], _has_number(one["id"])))
            # Where texts of rows were not published, details, which quote them, were not either.
            if one["raw"] and (one["detail"] == one["code"] or not one["detail"].strip()):
                yield REJECTS, f"{one['id']} does not say what {one['code']} is about"
            if one["offset"] is not None and one["source"] in evidence.inputs:
                entries.append((one["source"], one["offset"], one["line"], one["raw"]))
    for source in sorted(source for source, has in numbered if has):
        if (source, False) in numbered:
            yield REJECTS, f"of {source} some ids have a number behind the line, and others none"
    whole = Counter(first.values())
    every_row = rows.used + rows.rejected == rows.in_  # none of several examples is a duplicate
    alone = every_row and not rows.used_in_part
    if len(first) < rows.rejected or (alone and len(first) != rows.rejected):
        yield REJECTS, f"it has {counted(len(first), 'row')}, and the manifest {rows.rejected}"
    for code, count in rows.rejected_by_code.items():
        if count > whole[code]:
            yield REJECTS, f"it has {whole[code]} rows with {code}, and the manifest {count}"
    if evidence.case and every and every_row:
        yield from _in_part(evidence, {place_of(name)[:2] for name in every}, refused)
    yield from origin.displaced(evidence, entries)
    yield from _pages(evidence)


def _pages(evidence: Evidence) -> Iterator[Problem]:
    """The pages for readers have the manifest's numbers; of a name its first figure is meant."""
    rows, tokens = evidence.manifest.rows, evidence.manifest.tokens
    said = dict(reversed(_FIGURE.findall(evidence.text(REPORT))))
    for what, count in {"refused": rows.rejected, "rows used": rows.used}.items():
        if re.sub(r"\D", "", said.get(what, "")) != str(count):
            yield REPORT, f"it does not say that {count} are {what}"
    wanted = {"rows read": rows.in_, "used": rows.used, "rejected": rows.rejected}
    wanted |= {"duplicates removed": rows.duplicates, "left out by a filter": rows.filtered}
    wanted |= {"trained tokens": tokens.trained, "padding": tokens.padding}
    said = dict(reversed(_LINE.findall(evidence.text(CARD))))
    for what in wanted.keys() & said.keys():  # those of other versions may have other names
        if int(said[what].replace(",", "")) != wanted[what]:
            yield CARD, f"{what} are {said[what]}, and the manifest says {wanted[what]}"


def _in_part(
    evidence: Evidence, stored_: Set[_Place], refused: Sequence[tuple[_Place, str, str]]
) -> Iterator[Problem]:
    """The examples that are refused, where every row is stored or refused: of a row without others
    that is refused before it became one, none."""
    several = Counter(place for place, *_ in refused)
    own = [
        (place, code)
        for place, code, stage in refused
        if stage != "normalize" or place in stored_ or several[place] > 1
    ]
    examples, rows = evidence.manifest.examples, evidence.manifest.rows
    said = {"rejected_by_code": examples.rejected_by_code, "used_in_part": rows.used_in_part}
    wanted: dict[str, Any] = {"rejected_by_code": Counter(code for _, code in own)}
    wanted |= {"used_in_part": len(several.keys() & stored_)}
    wanted |= {"rejected_in_part": Counter(code for place, code in own if place in stored_)}
    yield from _unequal(MANIFEST, {**said, "rejected_in_part": examples.rejected_in_part}, wanted)


def _has_number(name: str) -> bool:
    """Whether an id has the number of an example in its row; those of an input have, or do not."""
    return "#" in name.rpartition(":")[2]
