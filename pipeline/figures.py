"""Numbers as people read them: with separators, or short where there is little room."""

from __future__ import annotations

_STEPS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def short(number: float) -> str:
    """Three digits or so: ``11.3k``, ``2.4M``, ``870``."""
    for step, letter in _STEPS:
        if number >= 0.9995 * step:  # what would be rounded to 1000 of the smaller
            value = number / step
            return f"{value:.1f}{letter}" if value < 99.95 else f"{value:.0f}{letter}"
    return f"{number:.0f}"


def bytes_in_words(size: int) -> str:
    """``178.4 MB``; powers of ten, as disks are sold."""
    text = short(size)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} bytes"


def clock(seconds: float) -> str:
    """``0:07``, ``12:34``, ``1:02:03``."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def span(seconds: float) -> str:
    """``0.4 s``, ``27 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(share: float) -> str:
    """Rounded down: 100% is said of all only."""
    return f"{int(100 * share + 1e-9)}%"
