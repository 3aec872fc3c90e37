"""Text from a language model: one token after another, each drawn from the last.

With a cache the model reads each token once. A text that has outgrown the
``context_length`` is the exception: its window moves, so every token in it has a
new position and sees others before it, and the model reads all of it anew for each
token, as without a cache.
"""

from lmlib.generate.sampling import keep_top_k, keep_top_p, sample
from lmlib.generate.streaming import (
    generate,
    generate_batch,
    stream,
    stream_batch,
)
from lmlib.generate.text import decode_stream, printable

__all__ = [
    "decode_stream",
    "generate",
    "generate_batch",
    "keep_top_k",
    "keep_top_p",
    "printable",
    "sample",
    "stream",
    "stream_batch",
]
