"""What is trained of a conversation is what other projects' own renderings train, token by token.

The package ``renderers`` marks the tokens that a model samples, and TRL's training templates those
of an answer. A family's template comes from a peer's package, in a directory with a tokenizer that
has its markers. ``oracles.json`` has what was found, which docs/models.md shows;
``PARITY_RECORD=1`` writes it.
"""

import datetime
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from encoding import encoded, encoding
from parity import ran
from parity.releases import peer_folder
from peers import shipped_template
from rows import normalizing
from small_tokenizers import marked, template_folder
from support import table
from transformers import AutoTokenizer

from stages.columns import IGNORED
from stages.tokenizers import probes, profiles, resolve

Trained = tuple[list[int], list[bool]]
TABLE = table("oracles.toml")
FAMILIES = {one["name"]: one for one in TABLE["families"]}
RECORD = Path(__file__).parent / "oracles.json"
_SPECIFIED = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks it up.", "parameters": _SPECIFIED},
}


def _said(text: str, thought: str = "", *asked: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text}
    turn |= {"reasoning_content": thought} if thought else {}
    calls = [
        {
            "id": f"call{number:05d}",
            "type": "function",
            "function": {"name": "look", "arguments": {"q": text, "n": number}},
        }
        for number, text in enumerate(asked)
    ]
    return turn | ({"tool_calls": calls} if calls else {})


def _results(*texts: str) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": f"call{number:05d}", "name": "look", "content": text}
        for number, text in enumerate(texts)
    ]


_ASKED = {"role": "user", "content": "What is it?"}
_MORE = {"role": "user", "content": "And that?"}
_SYSTEM = {"role": "system", "content": "Be brief."}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [_ASKED, _said("This.")],
    "chat": [_ASKED, _said("This."), _MORE, _said("Another.")],
    "system": [_SYSTEM, _ASKED, _said("This."), _MORE, _said("Another.")],
    "reason": [_ASKED, _said("This.", "Look at it.")],
    "reasons": [_ASKED, _said("This.", "Look at it."), _MORE, _said("Another.", "Look there.")],
    "call": [_ASKED, _said("", "", "it"), *_results("this"), _said("This.")],
    "parallel": [
        *(_SYSTEM, _ASKED, _said("", "", "it", "that"), *_results("this", "other")),
        *(_said("Both."), _MORE, _said("No.")),
    ],
    "agent": [
        *(_ASKED, _said("", "I must look.", "it"), *_results("this")),
        *(_said("This.", "So it is."), _MORE, _said("Another.", "Look there.")),
    ],
}


def tools_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The tools of a conversation that uses some."""
    return [TOOL] if any("tool_calls" in turn for turn in messages) else None


def _source(template: str) -> str:
    """The source of a template, by the package that has it and its name there."""
    package, name = template.split("/")
    if package == "profile":
        return profiles.all_profiles()[name].chat_template
    if package == "llama.cpp":
        return shipped_template(name)
    folder = peer_folder("trl-1.16.0") / "trl" / "chat_templates"
    return (folder / f"{name}.jinja").read_text("utf-8")


class Family:
    """A model of a template, and its tokenizer as a trainer loads it."""

    def __init__(self, told: dict[str, Any], folder: Path, more: str) -> None:
        self.told = told
        source = _source(told["template"])
        named = told.get("tokens", {})
        tokens = (
            {"eos_token": "<|endoftext|>", "pad_token": "<|padding|>", **named} if named else {}
        )
        template_folder(
            folder, source, [*marked(source + more), *told.get("markers", ())], **tokens
        )
        path = folder / "tokenizer.json"
        document = json.loads(path.read_bytes())
        document["model"]["merges"] = []  # a token a byte: no token spans what is compared
        path.write_text(json.dumps(document))
        today = resolve.Overrides(date=datetime.date.today().isoformat())
        found = resolve.resolve(f"{folder}/", folder, today).profile
        self.model = probes.bind(found, path.read_bytes(), with_steps=False)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def template(self, messages: list[Any], tools: Any, **variables: Any) -> list[int]:
        """The ids of what transformers renders."""
        found = self.tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=True, return_dict=False, **variables
        )
        return list(found)

    def examples(self, messages: list[Any]) -> list[tuple[list[Any], Trained]] | None:
        """What a build makes of a conversation: the turns of each example, its ids, and which of
        them are trained; None where it refuses one."""
        by_turn = self.model.profile.one_example_per_turn
        door = normalizing("sft", "openai", "assistant", by_turn)
        row = json.loads(json.dumps({"messages": messages, "tools": tools_of(messages)}))
        made = encoded(door, encoding("sft", self.model), [row]).to_pylist()
        if any(one["reject_code"] for one in made):
            return None
        said = [i for i, turn in enumerate(messages) if turn["role"] == "assistant"]
        ends = [said[one["sequence"]] + 1 for one in made] if by_turn else [len(messages)]
        labels = [[label != IGNORED for label in one["labels"]] for one in made]
        return [
            (messages[:end], (one["input_ids"], trained))
            for end, one, trained in zip(ends, made, labels, strict=True)
        ]


def starts(trained: list[bool]) -> list[int]:
    """Where each run of trained tokens starts."""
    return [i for i, (a, b) in enumerate(itertools.pairwise([False, *trained])) if b > a]


def apart(found: Family, ours: Trained, theirs: Trained) -> set[str]:
    """How an oracle differs from a build, see ``tests/tables/oracles.toml``: nothing else does."""
    (ids, trained), (their_ids, sampled) = ours, theirs
    kinds = set()
    if ids != their_ids:
        if ids[:-1] not in (their_ids, their_ids[:-1]) or ids[-1] not in found.model.end_ids:
            return {"i"}
        kinds.add("o" if len(ids) == len(their_ids) else "e")
        sampled = [*sampled[: len(ids) - 1], True]
    more = [b and not a for a, b in zip(trained, sampled, strict=True)]
    less = [i for i, a, b in zip(ids, trained, sampled, strict=True) if a and not b]
    if less:
        assert not found.tokenizer.decode(less).strip()
        kinds.add("l")
    for start in starts(more):
        stop = start + next((i for i, one in enumerate(more[start:]) if not one), len(more) - start)
        leads, follows = trained[stop : stop + 1] == [True], start > 0 and trained[start - 1]
        assert leads or follows
        kinds.add("p" if leads else "b")
    return kinds


THOUGHT = {"reasoning_content": "Hm, hm."}


def without(ids: list[int], part: list[int]) -> list[int]:
    """Ids without the first run of some."""
    at = next((i for i in range(len(ids)) if ids[i : i + len(part)] == part), len(ids))
    return ids[:at] + ids[at + len(part) :]


def require_template(found: Family, messages: list[Any], ours: Trained) -> None:
    """The ids are those of the template, with the end of the last turn where it prints none; or it
    prints the turn alone, which is trained behind its prompt. Each trained run begins where a
    server's prompt ends, and ends in a token that ends turns."""
    (ids, trained), tools = ours, tools_of(messages)
    ends, begun = found.model.end_ids, starts(trained)
    variants = [dict(variant) for variant in found.model.profile.template_variants]
    said = [i for i, turn in enumerate(messages) if turn["role"] == "assistant"]
    for start, turn in zip(begun, said[-len(begun) :], strict=True):
        asked = [messages[:turn], tools]
        prompts = (found.template(*asked, add_generation_prompt=True, **one) for one in variants)
        assert ids[:start] in prompts
    wholes = [found.template(messages, tools, **one) for one in variants]
    wholes += [[*whole, end] for whole in wholes for end in ends]
    answer = ids[begun[0] :]
    closed = (  # an answer without reasoning closes the block that its prompt opens
        without(found.template([*messages[:-1], messages[-1] | THOUGHT], tools, **one), thought)
        for one in variants
        for thought in [found.tokenizer.encode(THOUGHT["reasoning_content"])]
    )
    assert ids in wholes or (
        len(begun) == 1 and any(one[-len(answer) :] == answer for one in (*wholes, *closed))
    )
    stops = [i for i, (a, b) in enumerate(itertools.pairwise([*trained, False])) if a > b]
    assert all(ids[stop] in ends for stop in stops)


class Renderers:
    """Prime Intellect's renderers."""

    def __init__(self, base: Any, configs: Any, kind: str) -> None:
        base._populate_registry()
        self.base, self.kind = base, kind
        known = (value for value in vars(configs).values() if isinstance(value, type))
        named = {
            one.model_fields["name"].default: one
            for one in known
            if issubclass(one, configs.BaseRendererConfig) and "name" in one.model_fields
        }
        self.config = named[kind]
        module = base.RENDERER_REGISTRY[kind].__module__
        self.source = Path(f"{configs.__file__}").with_name(f"{module.rpartition('.')[2]}.py")

    def __call__(self, found: Family, messages: list[Any], last: bool) -> Trained:
        """The ids, and which of them a model samples; ``last``: in the last turn."""
        told: dict[str, Any] = {}
        for argument, values in found.told.get("by_reasoning", {}).items():
            told[argument] = values[any("reasoning_content" in turn for turn in messages)]
        if "date_string" in self.config.model_fields:
            told["date_string"] = f"{datetime.date.today():%d %b %Y}"
        made = self.base.build_training_sample(
            self.base.create_renderer(found.tokenizer, self.config(**told)),
            messages,
            tools=tools_of(messages),
            ensure_final_stop=True,
            message_loss_mask=[not last or turn is messages[-1] for turn in messages],
        )
        return list(made.token_ids), [bool(one) for one in made.loss_mask]


def trl(found: Family, messages: list[Any], last: bool) -> Trained:
    """Ids and trained tokens of TRL's training template; ``last``: of the last turn."""
    named = [turn | {"thinking": turn.get("reasoning_content", "")} for turn in messages]
    given = [
        turn if turn["thinking"] else plain for turn, plain in zip(named, messages, strict=True)
    ]
    made = found.tokenizer.apply_chat_template(
        given, tools=tools_of(messages), tokenize=True, return_dict=True,
        chat_template=_source(f"trl/{found.told['trl']}"),
        return_assistant_tokens_mask=True,
    )  # fmt: skip
    trained = [bool(one) for one in made["assistant_masks"]]
    begun = starts(trained)[-1] if last else 0
    return list(made["input_ids"]), [one and i >= begun for i, one in enumerate(trained)]


def compare(
    found: Family, oracles: dict[str, Callable[[Family, list[Any], bool], Trained]]
) -> dict[str, Any]:
    """What is recorded of a family: the conversations that a build refuses, the tokens that end
    turns, whether earlier turns are kept, and by oracle how it differs, a word a conversation."""
    by_turn = found.model.profile.one_example_per_turn
    refused: list[str] = []
    words: dict[str, list[str]] = {name: [] for name in oracles}
    ends: set[str] = set()
    for case, messages in CONVERSATIONS.items():
        made = found.examples(messages)
        if made is None:
            refused.append(case)
            continue
        for example, (ids, trained) in made:
            require_template(found, example, (ids, trained))
            last = max(i for i, one in enumerate(trained) if one)
            ends.add(found.tokenizer.convert_ids_to_tokens(ids[last]))
        for name, oracle in oracles.items():
            kinds: set[str] = set()
            for example, ours in made:
                kinds |= apart(found, ours, oracle(found, example, by_turn))
            words[name].append("".join(sorted(kinds)) or "=")
    return {
        "refused": refused,
        "ends": sorted(ends),
        "history": "rewritten" if by_turn else "kept",
        **{name: " ".join(by_case) for name, by_case in words.items()},
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_trained_is_what_an_oracle_trains(name, peer, tmp_path):
    """Ids are the template's, prompts are a server's, and oracles differ as it is recorded."""
    told, more = FAMILIES[name], ""
    oracles: dict[str, Any] = {"trl": trl} if told.get("trl") else {}
    if "renderer" in told:
        load = peer("renderers", "0.1.12", bare=("renderers",))
        modules = load("renderers.base"), load("renderers.configs")
        oracles["renderers"] = Renderers(*modules, told["renderer"])
        more = oracles["renderers"].source.read_text("utf-8")
    found = compare(Family(told, tmp_path / "model", more), oracles)
    with ran.alone():
        known: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
        if os.environ.get("PARITY_RECORD"):
            known = {one: found if one == name else known.get(one) for one in FAMILIES}
            RECORD.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert found == known[name]
