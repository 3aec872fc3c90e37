"""Every page of the built book in a browser, on a desktop in light and in dark mode and on a phone."""

import pytest

from tests.book.browser_check import DESKTOP, PHONE, page_complaints
from tests.book.conftest import report
from tests.book.page_check import pages
from tests.book.pages import toc_docnames

REDIRECT = "index.html"  # has a test of its own
PAGES = ["search.html", *(f"{docname}.html" for docname in toc_docnames())]


@pytest.fixture(scope="module")
def context(browser):
    with browser.new_context() as context:
        yield context


@pytest.fixture(scope="module")
def seen():
    """The kinds of text whose contrast is known from a page before."""
    return set()


def test_every_page_has_a_test(site):
    assert sorted([REDIRECT, *PAGES]) == pages(site)


@pytest.mark.parametrize("page", PAGES)
def test_page(page, context, server, seen):
    complaints = page_complaints(context, server, page, DESKTOP, PHONE, seen=seen)
    assert not complaints, report(complaints)
