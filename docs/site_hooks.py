"""What mkdocs does beside its own: pages also link to files outside docs/, as GitHub shows them.

A file of the repository that a page links to becomes a page of the site, and the link leads there:
``CONTRIBUTING.md`` as it is, any other one as a listing, a folder as the listings of its files.
In the nav, a folder stands for all its pages: ``codes/``.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "sh"}


def _target(folder: str, link: str) -> str:
    """The path in the repository that a link in a file of that folder leads to."""
    return posixpath.normpath(posixpath.join(folder, link))


def _page(path: str) -> str:
    """The page of the site that shows a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return _PAGES.get(path, f"files/{path}.md")


def _moved(text: str, folder: str, page: str) -> str:
    """The text of a file of the repository, with links as they must be on that page."""

    def link(found: re.Match[str]) -> str:
        path = _target(folder, found[1])
        inside = path.startswith("docs/") and (ROOT / path).is_file()
        if not inside and (path.startswith("..") or not (ROOT / path).exists()):
            return found[1]  # mkdocs says that it leads nowhere
        return posixpath.relpath(_page(path), posixpath.dirname(page) or ".")

    return _LINK.sub(link, text)


def _outside(text: str, folder: str) -> Iterator[str]:
    """Files and folders outside docs/ that a text links to."""
    for found in _LINK.finditer(text):
        path = _target(folder, found[1])
        if not path.startswith(("docs/", "..")) and (ROOT / path).exists():
            yield path


def _listing(path: str) -> str:
    """A page of a file, or of a folder's files."""
    at = ROOT / path
    files = sorted(p for p in at.iterdir() if p.is_file()) if at.is_dir() else [at]
    lines = [f"# {path}", ""]
    for file in files:
        lines += [f"## {file.name}", ""] if at.is_dir() else []
        language = _LANGUAGES.get(file.suffix, "text")
        lines += [f"````{language}", file.read_text("utf-8").rstrip(), "````", ""]
    return "\n".join(lines)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of a folder in its place in the nav."""
    for section in config.nav or ():
        for title, items in section.items():
            section[title] = [page for item in items for page in _unfolded(item)]
    return config


def _unfolded(item: Any) -> list[Any]:
    if not isinstance(item, str) or not item.endswith("/"):
        return [item]
    pages = sorted(page.name for page in (ROOT / "docs" / item).glob("*.md"))
    pages.sort(key=lambda name: name != "index.md")  # the overview opens the section
    return [f"{item}{name}" for name in pages]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of files outside docs/."""
    sources = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    sources |= {name: (ROOT / name).read_text("utf-8") for name in _PAGES}
    wanted = {
        path: None
        for source, text in sources.items()
        for path in _outside(text, posixpath.dirname(source))
    }
    for name in _PAGES:
        text = _moved(sources[name], "", _PAGES[name])
        files.append(File.generated(config, _PAGES[name], content=text))
    for path in wanted:
        if path not in _PAGES:
            level = InclusionLevel.NOT_IN_NAV
            content = _listing(path)
            page = File.generated(config, _page(path), content=content, inclusion=level)
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Leads links out of docs/ to those pages."""
    if page.file.generated_by is not None:
        return markdown
    return _moved(markdown, posixpath.dirname(f"docs/{page.file.src_uri}"), page.file.src_uri)
