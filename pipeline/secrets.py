"""What may be shown of a text: addresses without their secrets, and what a recipe takes from the
environment by the names of the variables.

An address is shortened by its form, wherever it stands. What was given to the program besides, an
error may quote in any form and in parts, so the secrets in it are noted when they are read, and are
looked for in every text that is shown.
"""

import os
import re
from urllib.parse import parse_qsl, quote, unquote

GAP = "..."  # stands for a secret where its place matters
LEAST = 6  # characters of a secret: less is a word like any other
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*:/{1,2}(?!/))"
_ADDRESS = re.compile(_SCHEME + r"""([^\s'"<>]*)""")
_WHOLE = re.compile(_SCHEME + r"(.*)", re.DOTALL)
_noted: dict[str, str] = {}  # what is not shown, and what is shown instead


def _parts(scheme: str, rest: str) -> tuple[str, str, str]:
    """User with password, what may be shown, and query. Of an address that cannot be told apart, as
    where a password has a slash in it, nothing may."""
    place, mark, query = rest.partition("?")
    if mark and "=" not in query and not scheme.lower().startswith("http"):
        place, query = rest, ""  # a pattern
    host, slash, path = place.partition("/")
    user, at, host = host.rpartition("@")
    if not at and "[" not in host and re.search(r":(?!\d*$)", host.rstrip(".,;:)")):
        return rest, "", ""
    if at and ":" not in user and scheme.lower().startswith("abfs"):
        user, host = "", f"{user}@{host}"  # a container
    return user, f"{host}{slash}{path}", query


def redacted(text: str, gap: str = "") -> str:
    """An address, or a text with some, without users, passwords and queries (signatures, keys).

    Args:
        gap: stands where something was.
    """

    def shortened(match: re.Match[str]) -> str:
        user, place, query = _parts(*match.groups())
        before = f"{gap}@" if user and gap else ""
        return f"{match[1]}{before}{place}{f'?{gap}' if query and gap else ''}"

    alone = not re.search(r"\s", text)
    return _WHOLE.sub(shortened, text, 1) if alone else _ADDRESS.sub(shortened, text)


def note(secret: str, name: str = GAP) -> None:
    """Show a name instead of this text from now on, in all spellings that an error may have."""
    words = " ".join(secret.split())
    forms = {secret, secret.rstrip("/"), repr(secret)[1:-1], words, unquote(secret)}
    forms |= {quote(secret), quote(secret, safe=""), os.path.normpath(secret), redacted(secret)}
    kept = _noted if name == GAP else {}  # a name says more
    _noted.update({form: name for form in forms - kept.keys() if len(form) >= LEAST})


def note_address(text: str) -> None:
    """Note the secrets of an address, which the text is or ends in; nothing where there is none."""
    match = _WHOLE.search(text)
    user, _, query = _parts(*match.groups()) if match else ("", "", "")
    values = (value for _, value in parse_qsl(query) if not value.isalpha())
    for secret in (user, *re.split("[:/@]", user), query, *values):
        note(secret)


def named(text: str) -> str:
    """A text in which what was noted is called by its name."""
    for secret in sorted(_noted, key=len, reverse=True):
        text = text.replace(secret, _noted[secret])
    return text


def shown(text: str) -> str:
    """A text as it may be shown."""
    return named(redacted(text))
