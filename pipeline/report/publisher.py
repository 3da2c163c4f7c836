"""What is said of a dataset: its title, its licence and where its rows are from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Publisher:
    """What whoever publishes a build says of it; what is empty is as the build's recipe has it.

    Attributes:
        title: empty for one made of task and model.
        license: an identifier of the hub or of SPDX (``apache-2.0``); empty for none.
        origins: where rows are from: one text or address each.
        recipe: the text of the recipe's file; empty for one made of the manifest.
        hub: name of the dataset on the hub; empty elsewhere.
        view: files of the Parquet view, as a pattern relative to the card; empty for none.
        left_out: why files of the build are missing or shorter here, a sentence each.
    """

    title: str = ""
    license: str = ""
    origins: tuple[str, ...] = ()
    recipe: str = ""
    hub: str = ""
    view: str = ""
    left_out: tuple[str, ...] = ()

    def about(self, manifest: Manifest) -> Publisher:
        """With the title, licence and origin of the build's recipe where nothing else is said."""
        options: Mapping[str, Any] = manifest.options
        return replace(
            self,
            title=self.title or options.get("title") or "",
            license=self.license or options.get("license") or "",
            origins=self.origins or tuple(filter(None, [options.get("origin") or ""])),
        )


NOTHING = Publisher()


@dataclass(frozen=True, slots=True)
class SaidOfSource:
    """What the recipe says of one of its sources; empty where it says nothing."""

    name: str
    license: str
    origin: str


def recorded_sources(manifest: Manifest) -> Sequence[Mapping[str, Any]]:
    """The options of each named source; empty for a build of one without a name."""
    options: Mapping[str, Any] = manifest.options
    return tuple(options.get("sources", ()))


def said_of_sources(manifest: Manifest) -> list[SaidOfSource]:
    """The named sources, in their order; empty for a build of one without a name."""
    return [
        SaidOfSource(one["name"], one.get("license") or "", one.get("origin") or "")
        for one in recorded_sources(manifest)
    ]


def licenses(manifest: Manifest, publisher: Publisher) -> list[str]:
    """Of the dataset: the one that was given for all of it, or those of its sources, each once, if
    each source has one."""
    if publisher.license:
        return [publisher.license]
    found = [one.license for one in said_of_sources(manifest)]
    return list(dict.fromkeys(found)) if all(found) else []


# As the hub spells those that it knows; it takes others as "other", with a name.
_HUB = frozenset(
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 "
    "bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause "
    "bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 "
    "cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 "
    "cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 "
    "cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 "
    "agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by "
    "odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr "
    "deepfloyd-if-license llama2 gemma unknown other".split()
)


def for_hub(found: list[str]) -> Iterator[tuple[str, object]]:
    """The keys of a card's front matter that say these licences."""
    if not found:
        return
    known = [one.lower() for one in found if one.lower() in _HUB]
    others = [one for one in found if one.lower() not in _HUB]
    words = list(dict.fromkeys([*known, *(["other"] if others else [])]))
    yield "license", words[0] if len(words) == 1 else words
    if others:
        names = (re.sub(r"[^a-z0-9.]+", "-", one.lower()).strip("-") for one in others)
        yield "license_name", "-and-".join(filter(None, names)) or "other"
