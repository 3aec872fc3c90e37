"""Every page of the built book on a phone."""

from tests.book.browser_check import PHONE, site_complaints
from tests.book.conftest import report


def test_every_page(site, server, browser):
    complaints = site_complaints(browser, site, server, PHONE)
    assert not complaints, report(complaints)
