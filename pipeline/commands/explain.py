"""``pipeline explain``: what a code means, an example of it, and the fix."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from pipeline.options import headings as under
from pipeline.options.help_page import Command, argument


def _codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from pipeline.messages.explanations import GROUPS, INVARIANTS, group

    named = [name for name in GROUPS if name != INVARIANTS]  # those import the most
    codes = {one.code for name in named for one in group(name).codes}
    return [CompletionItem(code) for code in sorted(codes) if code.startswith(incomplete)]


@click.command(
    name="explain",
    cls=Command,
    help="Say what a code of a message means, with an example and the fix.",
    heading=under.FIRST,
    examples=(
        ("pipeline explain", "All codes by group"),
        ("pipeline explain too_long", "A code of refused rows"),
        ("pipeline explain shortcuts", "An audit that warned or failed"),
    ),
)
@argument(
    "code",
    required=False,
    help="As messages, rejects.jsonl and the report have it; without it, all codes are listed.",
    heading=under.DATA,
    shell_complete=_codes,
)
def COMMAND(code: str | None) -> None:
    """The same text as the page of the code in docs/codes."""
    from pipeline.messages import explain_page, explanations

    if code is None:
        click.echo(explain_page.listing([explanations.group(name) for name in explanations.GROUPS]))
        return
    click.echo("\n\n\n".join(map(explain_page.plain, explanations.find(code))))
