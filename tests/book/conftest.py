"""What the checks of the book share: the built site, a server for it, a browser."""

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = Path("_build", "html")
SOURCES = ("book", "lmlib", "benchmarks/results/gpu", "_config.yml", "_toc.yml")
BROWSERS = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built book, which must not be older than what it is built from."""
    complaint = site_complaint(ROOT)
    if complaint:
        pytest.fail(complaint, pytrace=False)
    return ROOT / SITE


def report(complaints: list[str]) -> str:
    """One complaint a line, for the message of an assert."""
    return "\n".join(["", *complaints])


def site_complaint(root: Path) -> str | None:
    """Why the built book of this repository cannot be checked, if it cannot."""
    built = root / SITE / "searchindex.js"  # among the last files that a build writes
    if not built.exists():
        return "The book is not built: run `make book` first."
    newest = max(source_files(root), key=lambda path: path.stat().st_mtime)
    if newest.stat().st_mtime > built.stat().st_mtime:
        return f"{newest.relative_to(root)} is newer than the built book: run `make book` first."
    return None


def source_files(root: Path) -> Iterator[Path]:
    for name in SOURCES:
        for path in [root / name, *(root / name).rglob("*")]:
            if path.is_file() and not {"__pycache__", ".ipynb_checkpoints", ".ruff_cache"} & set(path.parts):
                yield path


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_args) -> None:
        pass


def serve(folder: Path) -> Iterator[str]:
    """Serve `folder` on a free port while the caller holds the generator; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[str]:
    """The address of the built book."""
    yield from serve(site)


# For a module and not for the session: Playwright keeps an event loop running in this thread until it is
# stopped, and nbval, which runs notebooks later in the same session, needs one of its own.
@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        message = "No Chromium to look at the pages with: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    from tests.book.browser_check import FLAGS

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()
