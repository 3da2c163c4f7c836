"""The template engine of pages, their style, their one script, and the policy that pins both.

The engine escapes every text. The content policy names the hashes of the style and of the script,
and forbids everything else, network access included, so no value of the data can be more than text.
"""

import base64
import functools
import hashlib
import html
import re
from pathlib import Path
from typing import Any

import jinja2
import orjson
from markupsafe import Markup

from pipeline.report.drawing import visible

LONGEST = 300  # characters of a value of the data; the page says nothing by its length
_FOLDER = Path(__file__).parent


def number(value: float) -> str:
    """With a narrow space between thousands."""
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return text.replace(",", "\u202f")


def counted(count: int, noun: str) -> str:
    """As ``stages.errors``, with the page's narrow spaces."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def spaced(text: str) -> str:
    """Narrow spaces between the thousands of all whole numbers, in place of commas if any."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return re.sub(r"(?<![\w.-])\d{4,}(?![\w.-])", lambda found: number(int(found[0])), plain)


def grouped(value: float) -> str:
    """A tick of an axis: as short as it can be."""
    return f"{value:,g}".replace(",", "\u202f") if value < 1e5 else number(round(value))


def cut(text: object, longest: int = LONGEST) -> str:
    """A text of the data that is safe to show: no invisible characters, and not too long, even
    where half of it must be escaped."""
    text = str(text)
    safe = visible(text if len(text) <= longest else f"{text[: longest - 1]}…")
    while len(html.escape(safe)) > 2 * longest:
        safe = f"{safe[: len(safe) // 2]}…"
    return safe


def percent(part: float, whole: float) -> float:
    """Of 100; 0 of nothing."""
    return round(100 * part / whole, 4) if whole else 0.0


def share(value: float) -> str:
    """A share from 0 to 1 as a reader wants it: what is there never shows as none or as all."""
    text = f"{value:.1%}"
    if value > 0 and text == "0.0%":
        return "under 0.1%"
    return "over 99.9%" if value < 1 and text == "100.0%" else text


def _spelled(value: object) -> str:
    """An option as JSON; a tuple is spelled like the list that it is in the manifest."""
    return orjson.dumps(value).decode()


@functools.cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


@functools.cache
def policy() -> str:
    """The content of ``Content-Security-Policy``."""
    hashes = {
        name: base64.b64encode(hashlib.sha256(_read(name).encode()).digest()).decode()
        for name in ("page.css", "page.js")
    }
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['page.css']}'; "
        f"script-src 'sha256-{hashes['page.js']}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _inline(name: str) -> Markup:
    return Markup(_read(name))  # our own file, never a value of the data


@functools.cache
def environment() -> jinja2.Environment:
    """The engine, made once per process."""
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # folding constants takes longer than it saves a page
        loader=jinja2.FileSystemLoader(_FOLDER),
    )
    made.filters.update(number=number, grouped=grouped, spaced=spaced, share=share)
    made.filters.update(cut=cut, spelled=_spelled, counted=counted)
    made.globals.update(percent=percent, policy=policy, inline=_inline)
    return made


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this folder, compiled once per process."""
    return environment().get_template(name)


def render(name: str, **content: Any) -> str:
    """A page."""
    return template(name).render(**content)
