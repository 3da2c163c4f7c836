"""Runs prompts through a checkpoint or a server, and explains answers that do not end."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import tasks
from pipeline.serving import checkpoint, declared, endpoint, serving
from pipeline.serving.declared import BATCH, GREEDY, Declared, Examined, StopAnswer, StopPrompt
from stages import profile
from stages.errors import UsageError, counted
from stages.tokenizers import claims, probes
from stages.tokenizers.resolve import Overrides, resolve

Ask = Callable[[Sequence[StopPrompt], float], list[StopAnswer]]


class StopRun(NamedTuple):
    """The options of a run; names as on the command line.

    Attributes:
        prompts: of each kind.
        most: new tokens of an answer; 0 is twice the longest trained one.
    """

    target: str
    build: Path
    tokenizer_only: bool = False
    prompts: int = 4
    most: int = 0
    temperature: float = 1.0
    seed: int = 0
    served: str = ""
    key: str = ""


def examine(wanted: StopRun) -> Examined:
    """Compare the target with the build, run the prompts, and look for the causes of failures.

    Raises:
        UsageError: the build, the model directory or what it needs is missing.
        SurroundingsError: the server does not answer.
    """
    build = declared.read(wanted.build)
    asked = declared.prompts(build, wanted.prompts)
    examined = Examined(wanted.target)
    if wanted.target.startswith(("http://", "https://")):
        server = endpoint.Server(wanted.target, wanted.served, wanted.key)
        endpoint.compare(server, build, asked, examined)
        if not wanted.tokenizer_only:
            _run(asked, _from_server(server, build, wanted), wanted, examined)
            _explain_server(server, build, wanted, asked, examined)
        return examined
    folder = Path(wanted.target).expanduser()
    checkpoint.compare(folder, build, asked, examined)
    if not wanted.tokenizer_only:
        _run(asked, _from_checkpoint(folder, build, wanted), wanted, examined)
        _explain_checkpoint(folder, build, examined)
    return examined


def _run(asked: list[StopPrompt], ask: Ask, wanted: StopRun, examined: Examined) -> None:
    examined.asked = True
    batch = [prompt for prompt in asked if prompt.kind == BATCH]
    groups = [[prompt] for prompt in asked if prompt.kind != BATCH] + ([batch] if batch else [])
    for temperature in (0.0, wanted.temperature):
        for group in groups:
            examined.answers += ask(group, temperature)


def _from_checkpoint(folder: Path, build: Declared, wanted: StopRun) -> Ask:
    """Answers of a model directory.

    Raises:
        UsageError: torch is not installed, or there are no weights.
    """
    try:
        from pipeline.torch_data import generate
    except ImportError as error:
        raise UsageError(
            f"A checkpoint needs torch and transformers to answer: {error}.",
            "Install torch, give the URL of a server, or compare files with --tokenizer-only.",
        ) from error
    if not generate.has_weights(folder):
        raise UsageError(f"{folder} has no weights.", "Give a trained model's directory.")
    model = generate.Checkpoint(folder, build.model.pad_id)
    ends = set(build.stop_ids)

    def ask(group: Sequence[StopPrompt], temperature: float) -> list[StopAnswer]:
        most = wanted.most or build.room
        ids = model.answer([p.ids for p in group], most, temperature, wanted.seed)
        return [answer(*pair, temperature) for pair in zip(group, ids, strict=True)]

    def answer(prompt: StopPrompt, ids: list[int], temperature: float) -> StopAnswer:
        last = ids[-1] if ids else -1
        stopped = last in model.stops
        at = f"{build.tokenizer.id_to_token(last)!r} ({last})" if stopped else ""
        text = build.tokenizer.decode(ids, skip_special_tokens=False)
        ended = stopped and last in ends
        passed = not ended and bool(ends.intersection(ids))
        found = {"ended": ended, "at": at, "tokens": len(ids), "text": text, "passed_over": passed}
        return StopAnswer.to(prompt, temperature, **found)

    return ask


def _read_choice(
    build: Declared, prompt: StopPrompt, choice: dict[str, Any], temperature: float
) -> StopAnswer:
    stopped = choice.get("finish_reason") == "stop"
    text = str(choice.get("text") or "")
    reason = choice.get("stop_reason")
    at = "the server's own end" if reason is None else repr(reason)
    passed = not stopped and any(end in text for end in build.model.profile.ends)
    tokens = int((choice.get("usage") or {}).get("completion_tokens") or 0)
    where = at if stopped else ""
    found = {"ended": stopped, "at": where, "tokens": tokens, "text": text, "passed_over": passed}
    return StopAnswer.to(prompt, temperature, **found)


def _from_server(server: endpoint.Server, build: Declared, wanted: StopRun, **more: Any) -> Ask:
    def ask(group: Sequence[StopPrompt], temperature: float) -> list[StopAnswer]:
        settings = {
            "max_tokens": wanted.most or build.room,
            "temperature": temperature,
            "seed": wanted.seed,
            **more,
        }
        choices = server.complete(group, **settings)
        if len(choices) != len(group):
            raise UsageError(
                f"{server.url} gave {counted(len(choices), 'completion')} for "
                f"{counted(len(group), 'prompt')}.",
                "Give a server that takes several prompts in one request, or --prompts 1.",
            )
        pairs = zip(group, choices, strict=True)
        return [_read_choice(build, prompt, choice, temperature) for prompt, choice in pairs]

    return ask


def _not_learnt(where: str, build: Declared, examined: Examined) -> None:
    faults = {finding.code for finding in examined.findings if finding.fault}
    # Each of these explains why the model did not learn it.
    if faults & {"pad_is_end_of_turn", "template_without_end_of_turn", "other_tokenizer"}:
        return
    what = f"answers run on and never contain {build.end}: the model did not learn to end a turn"
    remedy = (
        "Look at how it was trained: labels that leave out the end of a turn (pipeline show "
        f"{build.folder} shows the build's), too few steps, or another chat template."
    )
    examined.add("end_of_turn_not_learnt", where, what, remedy)


def _explain_checkpoint(folder: Path, build: Declared, examined: Examined) -> None:
    ran = [answer for answer in examined.answers if not answer.ended]
    codes = {finding.code for finding in examined.findings}
    if any(answer.passed_over for answer in ran) and "eos_not_in_generation_config" not in codes:
        what = f"answers go on after {build.end}, at which generation does not stop"
        remedy = f'Set "eos_token_id": {build.stop_ids} there.'
        where = str(folder / "generation_config.json")
        examined.add("eos_not_in_generation_config", where, what, remedy)
    if ran and not any(answer.passed_over for answer in ran):
        _not_learnt(str(folder), build, examined)
    _padding(build, examined)


def _padding(build: Declared, examined: Examined) -> None:
    """Find prompts whose answers run on in a padded batch, but end when the prompt is alone."""
    alone = {a.row: a.ended for a in examined.answers if a.way == GREEDY and a.kind != BATCH}
    batch = [a for a in examined.answers if a.way == GREEDY and a.kind == BATCH]
    worse = [a.row for a in batch if not a.ended and alone.get(a.row)]
    if worse:
        what = f"in a padded batch the prompt of {worse[0]} runs on, but alone it does not"
        remedy = "Check positions and the attention mask of the model's code under padding."
        examined.add("padding_changes_answers", examined.target, what, remedy)


def _explain_server(
    server: endpoint.Server,
    build: Declared,
    wanted: StopRun,
    asked: list[StopPrompt],
    examined: Examined,
) -> None:
    ran = {answer.row for answer in examined.answers if not answer.ended and answer.way == GREEDY}
    first = next((prompt for prompt in asked if prompt.row in ran), None)
    if first is None:
        return
    # One failed prompt again, with the build's own stops: if it ends now, the server is at fault.
    by_id = {"stop_token_ids": build.stop_ids}
    again = _from_server(server, build, wanted, stop=list(build.serving.stop_strings[:4]), **by_id)
    passed = any(answer.passed_over for answer in examined.answers)
    stopped = again([first], 0.0)[0]
    if not (stopped.ended or passed):
        _not_learnt(server.url, build, examined)
        return
    how = f"with the stop strings and ids of serving.json it stops, at {stopped.at}"
    what = f"the server does not stop at {build.end} by itself" + (
        f"; {how}" if stopped.ended else ", which is in its answers"
    )
    remedy = (
        f'Set "eos_token_id": {build.stop_ids} in generation_config.json of the directory that it '
        f"serves (vLLM: --generation-config {build.folder}/tokenizer), or send stop and "
        "stop_token_ids with each request, as serving.json has them."
    )
    examined.add("eos_not_in_generation_config", server.url, what, remedy)


# Every probe over one model, and how a server has to stop it.


class ExaminedModel(NamedTuple):
    """A model, the verdict of each probe, and where its tokenizer came from."""

    model: profile.TargetModel
    source: str
    verdicts: dict[str, probes.ProbeVerdict]

    @property
    def sound(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts.values())


def examine_model(
    model: str,
    task: str,
    cache_dir: Path,
    overrides: Overrides | None = None,
    system: str | None = None,
    train_on: str = "assistant",
    fetch: bool = False,
    wide: bool = True,
) -> ExaminedModel:
    """Run every probe.

    Args:
        wide: run them on many texts; otherwise on the few that each build runs them on.

    Raises:
        ModelError: there is no such model, or its files do not describe one.
    """
    resolved = resolve(model, cache_dir, overrides or Overrides(), fetch=fetch)
    with_steps = tasks.load(task).with_steps and resolved.profile.pair is None
    target = profile.declare(resolved.profile, resolved.tokenizer_json, with_steps)
    folder = Path(model).expanduser()
    own = resolved.source == "directory" and folder.is_dir()
    said = claims.read(folder) if own else claims.Claims()
    subject = probes.ProbeSubject(target, resolved.tokenizer_json, train_on, system, wide, said)
    return ExaminedModel(target, resolved.source, probes.examine(subject))


def described(examined: ExaminedModel, stops: tuple[str, ...]) -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    return {
        "model": examined.model.profile.name,
        "tokenizer": examined.source,
        "passed": examined.sound,
        "probes": {
            name: {"passed": v.passed, "detail": v.detail, "remedy": v.remedy}
            for name, v in examined.verdicts.items()
        },
        "serving": serving.contract(examined.model, stops) if examined.sound else None,
    }
