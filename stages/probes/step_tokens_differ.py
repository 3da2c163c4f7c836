"""Step, good and bad token are three ids, and none of them is a token with another meaning."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str | None:
    model = subject.model
    if model.step_id < 0:
        return None
    ids = [model.step_id, model.good_id, model.bad_id]
    others = [model.pad_id, model.eos_id, model.end_of_turn_id]
    if len(set(ids)) < len(ids) or set(ids) & set(others):
        raise BrokenError(ids=ids, others=others)
    return f"{ids} differ from {others}"


PROBE = Probe(
    name="step_tokens_differ",
    proves="step, good and bad token are three ids, none of them pad, eos or end-of-turn",
    fails="step and reward tokens {ids} are not three ids other than pad, eos and stop {others}",
    remedy="Give the profile's step_tokens three tokens that are neither pad, eos nor a stop.",
    check=_check,
    needs=("step_tokens_are_one_id_in_context",),
    kind=TOKENS,
)
