"""``pipeline explain``: what a code means, an example of it, and the fix."""

from __future__ import annotations

import click


@click.command(
    name="explain",
    help="Say what a code means, with an example and the fix; without CODE, list all codes.",
)
@click.argument("code", required=False)
def COMMAND(code: str | None) -> None:
    """The same text as the page of the code in docs/codes."""
    from pipeline.explain import explanations, page

    if code is None:
        click.echo(page.listing([explanations.group(name) for name in explanations.GROUPS]))
        return
    click.echo("\n\n\n".join(map(page.plain, explanations.find(code))))
