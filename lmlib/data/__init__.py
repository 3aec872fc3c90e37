"""Training data: text to token files, token files to batches.

``prepare_tokens`` encodes text into a token file, which ``open_tokens`` maps into
memory; both work without torch. ``get_batch`` draws random windows of it, and
``BatchLoader`` gives every window once per epoch and can be resumed exactly; they
need torch, which is loaded when they are asked for.
"""

from importlib import import_module

from lmlib.data.prepare import prepare_tokens
from lmlib.data.token_file import TokenFile, open_tokens

__all__ = ["BatchLoader", "TokenFile", "get_batch", "open_tokens", "prepare_tokens"]

_WITH_TORCH = {"get_batch": "batches", "BatchLoader": "loader"}


def __getattr__(name: str) -> object:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
