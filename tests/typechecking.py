"""Copies of modules whose annotations are checked whenever a function of theirs is called."""

import importlib
import sys

from jaxtyping import install_import_hook


def typechecked(name):
    """A second copy of a module; the first stays what everybody else imports.

    It is compiled here, and not kept: jaxtyping keeps what a checked module imports as if it were checked as well.
    """
    plain = importlib.import_module(name)
    parent, _, stem = name.rpartition(".")
    del sys.modules[name]
    files = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = "no such folder", True
    try:
        with install_import_hook(name, "beartype.beartype"):
            return importlib.import_module(name)
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = files
        sys.modules[name] = plain
        setattr(sys.modules[parent], stem, plain)
