"""What can be checked of the built site by reading its files: links, anchors, alt texts, weights.

Each check takes the folder of a site and returns complaints: sentences that say which page, what and what to do.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

PAGE_LIMIT = 300_000  # bytes: a page and its own images
SITE_LIMIT = 40_000_000  # bytes
SHORTEST_ALT = 20  # characters: less cannot say what is learned from a figure


def pages(site: Path) -> list[str]:
    """Every HTML page of the site, as an address relative to its root."""
    found = (path.relative_to(site) for path in site.rglob("*.html"))
    return sorted(path.as_posix() for path in found if path.parts[0] not in ("_static", "_sources"))


def content_pages(site: Path) -> list[str]:
    """The pages that were written for the book: not the redirect at the root, not the search page."""
    return [page for page in pages(site) if article(site, page).name == "article"]


def parsed(site: Path, page: str) -> BeautifulSoup:
    return _parsed(*_version(site / page))


def _version(path: Path) -> tuple[Path, int]:
    """What a file's content is remembered by: its place and the time of its last change."""
    path = path.resolve()
    return path, path.stat().st_mtime_ns


@lru_cache(maxsize=128)
def _parsed(path: Path, _changed: int) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def article(site: Path, page: str) -> Tag:
    """What the page says, without the navigation around it."""
    soup = parsed(site, page)
    return soup.select_one("article.bd-article") or soup


# Links


def link_complaints(site: Path) -> list[str]:
    """Every link within the site leads to a file, and to an anchor in it where it names one."""
    complaints = []
    for page in pages(site):
        for attribute, address in _addresses(parsed(site, page)):
            problem = _link_problem(site, page, address)
            if problem:
                complaints.append(f'{page}: {attribute}="{address}" {problem}')
    return complaints


def _addresses(soup: BeautifulSoup) -> Iterator[tuple[str, str]]:
    for attribute in ("href", "src"):
        for tag in soup.select(f"[{attribute}]"):
            yield attribute, tag[attribute]


def _link_problem(site: Path, page: str, address: str) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(urlsplit(urljoin(f"/{page}", parts.path)).path).lstrip("/") if parts.path else page
    target = site / path
    if target.is_dir():
        target, path = target / "index.html", f"{path.rstrip('/')}/index.html".lstrip("/")
    if not target.is_file():
        return "leads to no file of the site: mend or remove the link"
    anchor = unquote(parts.fragment)
    if anchor and path.endswith(".html") and anchor not in _anchors(*_version(target)):
        return f'leads to no anchor: nothing on {path} has the id "{anchor}"'
    return None


@lru_cache(maxsize=128)
def _anchors(path: Path, changed: int) -> frozenset[str]:
    soup = _parsed(path, changed)
    ids = {tag["id"] for tag in soup.select("[id]")}
    return frozenset(ids | {tag["name"] for tag in soup.select("a[name]")})


# Images


def image_complaints(site: Path) -> list[str]:
    """Every image has an alt text that somebody wrote."""
    complaints = []
    for page in pages(site):
        inside = {id(image) for image in article(site, page).select("img")}
        for image in parsed(site, page).select("img"):
            problem = _alt_problem(image.get("alt", "").strip(), is_content=id(image) in inside)
            if problem:
                complaints.append(f"{page}: the image {image.get('src')} {problem}")
    return complaints


def _alt_problem(alt: str, *, is_content: bool) -> str | None:
    if not alt:
        return "has no alt text: say in mystnb.image.alt what a sighted reader learns from it"
    looks_like_a_file = " " not in alt and re.search(r"[/\\]|\.\w{3,4}$|^[0-9a-f]{16,}$", alt)
    if looks_like_a_file:
        return f'has a file name as alt text ("{alt}"): say what a sighted reader learns from it'
    if is_content and len(alt) < SHORTEST_ALT:
        return f'has an alt text of {len(alt)} characters ("{alt}"): say what a sighted reader learns from it'
    return None


# Weights


def weight_complaints(site: Path, page_limit: int = PAGE_LIMIT, site_limit: int = SITE_LIMIT) -> list[str]:
    """A page with its own images, and the site as a whole, stay within their limits."""
    complaints = []
    for page in pages(site):
        weight = page_weight(site, page)
        if weight > page_limit:
            complaints.append(
                f"{page}: the page and its images weigh {weight:,} bytes, the limit is {page_limit:,}: "
                "make figures smaller, or print less"
            )
    total = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if total > site_limit:
        complaints.append(f"the site weighs {total:,} bytes, the limit is {site_limit:,}")
    return complaints


def page_weight(site: Path, page: str) -> int:
    """Bytes of a page: its HTML and the images of its article (theme and MathJax are shared by all pages)."""
    own = {(site / page).resolve()}
    for image in article(site, page).select("img[src]"):
        path = (site / page).parent / unquote(urlsplit(image["src"]).path)
        if not urlsplit(image["src"]).scheme and path.is_file():
            own.add(path.resolve())
    return sum(path.stat().st_size for path in own)
