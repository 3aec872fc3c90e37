"""Copies of modules whose annotations are checked whenever a function of theirs is called."""

import importlib
import sys

from jaxtyping import install_import_hook


def typechecked(name):
    """A second copy of a module; the first stays what everybody else imports.

    It is not kept in a file: jaxtyping would keep modules that this one imports as if they were checked as well.
    """
    plain = importlib.import_module(name)
    parent, _, stem = name.rpartition(".")
    del sys.modules[name]
    keeps_no_files, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with install_import_hook(name, "beartype.beartype"):
            return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = keeps_no_files
        sys.modules[name] = plain
        setattr(sys.modules[parent], stem, plain)
