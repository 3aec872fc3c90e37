"""Byte-pair encoding, equal to tiktoken for every string; imports without torch.

``train_bpe`` learns a vocabulary from files or texts, ``Tokenizer`` encodes and
decodes with one. Three layers give the same merges and ids, and check one another:

- ``reference``: training and encoding in the most obvious way, which is slow;
- ``merges`` and ``encode``: the same for any pattern, much faster;
- ``fast``: the same in NumPy, for the three patterns of ``patterns``.

Around them: ``patterns`` and ``unicode_table`` say how text is cut, ``pretokens``
and ``cuts`` where it may be cut beforehand, ``formats`` reads and writes the files
of Hugging Face, tiktoken and GPT-2, and ``baselines`` holds the tokenizers of
characters, bytes and words, to compare with.
"""

from lmlib.bpe.patterns import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN
from lmlib.bpe.spec import TokenizerSpec
from lmlib.bpe.tokenizer import SpecialTokenError, Tokenizer
from lmlib.bpe.train import train_bpe

__all__ = [
    "CL100K_PATTERN",
    "GPT2_PATTERN",
    "O200K_PATTERN",
    "SpecialTokenError",
    "Tokenizer",
    "TokenizerSpec",
    "train_bpe",
]
