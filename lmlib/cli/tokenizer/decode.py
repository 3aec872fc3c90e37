"""``lmlib tokenizer decode``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lmlib.bpe import Tokenizer
from lmlib.cli.files import (
    STANDARD_INPUT_ALONE,
    Quiet,
    check_spared,
    name_of,
    open_output,
    progress_bar,
    read_blocks,
)
from lmlib.cli.tokenizer.conversion import (
    Counter,
    JsonBesideOutput,
    OutputFile,
    check_output,
    hides_progress,
    report_conversion,
)
from lmlib.cli.tokenizer.ids import ReadIds, parse_ids
from lmlib.cli.tokenizer.options import (
    Flattened,
    TokenizerName,
    tokenizer_files,
)

__all__ = ["EXAMPLES", "USAGE", "DecodeOptions", "decode", "decode_ids"]

USAGE = "Usage: lmlib tokenizer decode [FILES…] [OPTIONS]"

EXAMPLES = """Examples:

  echo "14134 502 1148 21720 417 13" | lmlib tokenizer decode

  lmlib tokenizer decode book.u16 --format u16 --tokenizer tokenizer.json \\
      --out book.txt
"""

IdFile = Annotated[
    Path, Parameter(help="Ids: plain, .gz or .xz; - is standard input.")
]


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """Options of ``lmlib tokenizer decode``."""

    tokenizer: TokenizerName = "gpt2"
    format: Annotated[
        ReadIds,
        Parameter(
            help="How ids are written: text (also what encode calls lines and "
            "json), u16 or u32 (little-endian integers)."
        ),
    ] = "text"
    out: OutputFile = None
    json: JsonBesideOutput = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Check that the results and a report have a place to go."""
        check_output(self.out, self.json)


DEFAULTS = DecodeOptions()


def decode(*files: IdFile, options: Flattened[DecodeOptions] = DEFAULTS) -> None:
    """Turn token ids into exactly the bytes they stand for, in bounded memory.

    Without files, ids come from standard input. Nothing is replaced and nothing
    added, not even a line break at the end.
    """
    files = files or STANDARD_INPUT_ALONE
    check_spared(options.out, [*files, *tokenizer_files(options.tokenizer)])
    tokenizer = Tokenizer.from_pretrained(options.tokenizer)
    counter, hidden = Counter(), hides_progress(options)
    with open_output(options.out) as output, progress_bar(files, hidden) as bar:
        for path in files:
            blocks = read_blocks(path, bar)
            for ids in parse_ids(blocks, options.format, name_of(path)):
                data = decode_ids(tokenizer, ids, options.tokenizer)
                counter.tokens += len(ids)
                counter.bytes += len(data)
                output.write(data)
    report_conversion(counter, files, options)


def decode_ids(tokenizer: Tokenizer, ids: list[int], name: str) -> bytes:
    """Return the bytes of ids; ValueError for one that the tokenizer has not."""
    try:
        return tokenizer.decode_bytes(ids)
    except KeyError as error:
        raise ValueError(
            f"Id {error.args[0]} is not in the vocabulary of {name}: "
            "is that the tokenizer that made the ids?"
        ) from None
