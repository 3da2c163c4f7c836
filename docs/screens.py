"""Takes the pictures of docs/output.md: the report of builds of sample_data, in a browser.

Wide and narrow, light and dark. Needs Chromium or Chrome (``chromium``, ``google-chrome`` or
``--browser``); without one, nothing is written and the exit status is 2. ``--page FILE`` takes
another page, into ``--folder``.

python docs/screens.py
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
DARK, LIGHT = 0, 1  # as Chromium numbers the schemes


@dataclass(frozen=True)
class Picture:
    """One picture: what is looked at, from the top, and how large the window is."""

    name: str
    page: str
    width: int = 1280
    height: int = 900
    scheme: int = LIGHT


BUILDS = {  # task, data, model
    "chat": ("sft", "sft/chat.jsonl", "qwen2-1.5b"),
    "steps": ("prm", "prm/math_shepherd.jsonl", "qwen2.5-1.5b"),
}
TAKEN = (
    Picture("report", "chat", height=1300),
    Picture("report-dark", "steps", height=1300, scheme=DARK),
    Picture("report-narrow", "chat", width=400, height=860),
    Picture("report-narrow-dark", "steps", width=400, height=860, scheme=DARK),
)


def browser(given: str | None) -> str | None:
    """The browser to use; None if there is none."""
    return next(filter(None, map(shutil.which, [given] if given else BROWSERS)), None)


def take(program: str, page: Path, picture: Picture, folder: Path) -> Path:
    """One picture of a page."""
    target = folder / f"{picture.name}.png"
    command = [
        program,
        "--headless",
        "--disable-gpu",
        "--no-sandbox",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
        f"--blink-settings=preferredColorScheme={picture.scheme}",
        f"--window-size={picture.width},{picture.height}",
        f"--screenshot={target}",
        page.resolve().as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def build(name: str, folder: Path) -> Path:
    """The page of a build of sample_data."""
    task, data, model = BUILDS[name]
    command = [
        str(Path(sys.executable).parent / "pipeline"),
        *("run", task, str(ROOT / "sample_data" / data), "--model", model),
        *("-o", str(folder / name), "--cache-dir", str(folder / "cache"), "--quiet"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / name / "report.html"


def main() -> int:
    """Take them all, or those of one page."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--browser")
    words.add_argument("--page", type=Path)
    words.add_argument("--folder", type=Path, default=PICTURES)
    given = words.parse_args()
    program = browser(given.browser)
    if program is None:
        sys.stderr.write("No browser was found: install chromium, or name one with --browser.\n")
        return 2
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        pages = {} if given.page else {one: build(one, Path(name)) for one in BUILDS}
        for picture in TAKEN:
            page = given.page or pages[picture.page]
            sys.stdout.write(f"{take(program, page, picture, given.folder)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
