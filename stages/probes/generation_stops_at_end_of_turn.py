"""Generation stops at the token that training ends a turn with."""

from __future__ import annotations

from stages.probes import TOKENS, BrokenError, Probe, ProbeSubject


def _check(subject: ProbeSubject) -> str | None:
    profile = subject.model.profile
    if profile.pair:
        return None  # an encoder generates nothing
    if profile.end_of_turn not in profile.generation_eos:
        raise BrokenError(token=profile.end_of_turn, stops=", ".join(profile.generation_eos))
    return f"{profile.end_of_turn} is among {', '.join(profile.generation_eos)}"


PROBE = Probe(
    name="generation_stops_at_end_of_turn",
    proves="generation stops at the token that training ends a turn with",
    fails="generation would never stop: end-of-turn {token!r} is not among its stops ({stops})",
    remedy="Add it to the profile's generation_eos.",
    check=_check,
    needs=("end_of_turn_is_one_token",),
    kind=TOKENS,
)
