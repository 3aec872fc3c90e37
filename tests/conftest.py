"""Settings of all tests."""

import os

import pytest
from hypothesis import settings

# No deadline: the first example of a test pays for imports, and a busy machine for everything.
# In CI the examples are the same in every run, so that a red run can be repeated.
settings.register_profile("book", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("book")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what looks at the built book, before the marks are asked for."""
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):  # a notebook's cell has none
            item.add_marker("built_book")


@pytest.fixture
def one_thread():
    """For small tensors, which wait for a second thread longer than it saves."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def book_style():
    """The style of the book's figures, which are drawn without a window and closed afterwards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from lmlib.plotting import use_book_style

    with plt.rc_context():
        use_book_style()
        yield
    plt.close("all")


def pytest_terminal_summary(terminalreporter):
    """Say what to do about an output that differs from what a notebook stores; nbval only shows both."""
    failed = terminalreporter.stats.get("failed", [])
    if any(".ipynb::" in report.nodeid for report in failed):
        terminalreporter.write_line(
            "A notebook's output differs from what is stored (nbval counts code cells from 0): "
            "if the new one is right, run `make notebooks`.",
            yellow=True,
        )
