"""Files that hold a tokenizer: those of Hugging Face, of tiktoken and of GPT-2.

Readers return a ``TokenizerSpec`` and take nothing that they cannot keep exactly;
writers return the content of a file, and refuse what it could not hold.
"""

from lmlib.bpe.formats.alphabet import gpt2_byte_alphabet
from lmlib.bpe.formats.gpt2 import gpt2_files, read_gpt2, read_vocab_bpe
from lmlib.bpe.formats.hugging_face import (
    read_tokenizer_json,
    to_hugging_face,
    tokenizer_json,
)
from lmlib.bpe.formats.rank_files import (
    read_tiktoken,
    tiktoken_ranks,
    to_tiktoken,
)

__all__ = [
    "gpt2_byte_alphabet",
    "gpt2_files",
    "read_gpt2",
    "read_tiktoken",
    "read_tokenizer_json",
    "read_vocab_bpe",
    "tiktoken_ranks",
    "to_hugging_face",
    "to_tiktoken",
    "tokenizer_json",
]
