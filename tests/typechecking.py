"""Copies of modules whose annotations are checked whenever a function of theirs is called."""

import importlib
import sys

from jaxtyping import install_import_hook


def typechecked(name):
    """A second copy of a module; the first stays what everybody else imports."""
    plain = importlib.import_module(name)
    parent, _, stem = name.rpartition(".")
    del sys.modules[name]
    try:
        with install_import_hook(name, "beartype.beartype"):
            return importlib.import_module(name)
    finally:
        sys.modules[name] = plain
        setattr(sys.modules[parent], stem, plain)
