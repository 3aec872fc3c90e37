"""Every page of the built book on a desktop, in light and in dark mode."""

from tests.book.browser_check import DESKTOP, site_complaints
from tests.book.conftest import report


def test_every_page(site, server, browser):
    complaints = site_complaints(browser, site, server, DESKTOP)
    assert not complaints, report(complaints)
