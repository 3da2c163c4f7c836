"""The pages of codes: one for each, and one that lists them."""

from pathlib import Path

from pipeline import lines
from pipeline.messages import explanations

CODES = Path(__file__).parent / "codes"


def _code_page(one: explanations.Explanation) -> str:
    """The page of the site."""
    page = [
        f"# {one.code}",
        "",
        f"[{one.title}](index.md#{_anchor(one.title)}), written by `make docs`.",
        "",
    ]
    for block in explanations.blocks(one):
        if block.kind == explanations.HEAD:
            page += [f"## {block.text}", ""]
        elif block.kind == explanations.TEXT:
            page += [*lines.wrapped(_escaped(block.text), 100), ""]
        else:
            page += [f"```{block.kind}", block.text, "```", ""]
    return "\n".join(page)


def _escaped(text: str) -> str:
    """Text whose ``<`` and ``_`` stay as they are in Markdown."""
    return text.replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*")


def _anchor(title: str) -> str:
    """What a heading is linked by."""
    return title.lower().replace(" ", "-")


def _index(groups: list[explanations.Group]) -> str:
    """The page that lists every code."""
    page = [
        "# Codes",
        "",
        "Written by `make docs` from what `pipeline explain CODE` prints; the tests run every",
        "example. A refused row has its code in `rejects.jsonl`; the summary, the manifest and the",
        "report count the refused rows of a build by code. How many stop a build:",
        "[the limit](../how/ledger.md#the-limit).",
        "",
    ]
    for one in groups:
        page += [f"## {one.title}", "", *lines.wrapped(_escaped(one.about), 100), ""]
        page += ["| code | what it means |", "|---|---|"]
        for code in one.codes:
            means = _escaped(explanations.first_sentence(code.means)).replace("|", "\\|")
            page.append(f"| [`{code.code}`]({code.page}.md) | {means} |")
        page.append("")
    return "\n".join(page)


def codes() -> dict[Path, str]:
    """A page for each code, and one that lists them."""
    groups = [explanations.group(name) for name in explanations.GROUPS]
    every = [one for group in groups for one in group.codes]
    found = {CODES / f"{one.page}.md": _code_page(one) for one in every}
    return found | {CODES / "index.md": _index(groups)}
