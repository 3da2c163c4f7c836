"""What a manifest cannot know of a dataset: its title, its licence and where its rows are from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Publisher:
    """What whoever publishes a build says of it.

    Attributes:
        title: empty for one made of task and model.
        license: an identifier of the hub or of SPDX (``apache-2.0``); empty for none.
        sources: one text or address each.
        recipe: the text of the recipe's file; empty for one made of the manifest.
        view: files of the Parquet view, as a pattern relative to the card; empty for none.
        left_out: why files of the build are missing or shorter here, a sentence each.
    """

    title: str = ""
    license: str = ""
    sources: tuple[str, ...] = ()
    recipe: str = ""
    view: str = ""
    left_out: tuple[str, ...] = ()


NOTHING = Publisher()
