"""``response_chosen`` and ``response_rejected``, or ``chosen_response``/``rejected_response``."""

from __future__ import annotations

from stages.formats._named_sides import NamedSides

FORMAT = NamedSides(
    "history_pair",
    (("response_chosen", "response_rejected"), ("chosen_response", "rejected_response")),
    holds=lambda row, name: name in row,
)
