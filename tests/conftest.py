"""Settings of all tests."""

import os

from hypothesis import settings

# No deadline: the first example of a test pays for imports, and a busy machine for everything.
# In CI the examples are the same in every run, so that a red run can be repeated.
settings.register_profile("book", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("book")
