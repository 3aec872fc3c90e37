"""Every page of the built book on a desktop, in dark mode."""

from tests.book.browser_check import DARK, site_complaints
from tests.book.conftest import report


def test_every_page(site, server, browser):
    complaints = site_complaints(browser, site, server, DARK)
    assert not complaints, report(complaints)
