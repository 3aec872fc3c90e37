"""``lmlib tokenizer encode``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lmlib.bpe import SpecialTokenError, Tokenizer
from lmlib.cli.files import (
    STANDARD_INPUT_ALONE,
    Quiet,
    TextFile,
    check_spared,
    name_of,
    open_output,
    progress_bar,
    read_texts,
)
from lmlib.cli.tokenizer.conversion import (
    Counter,
    JsonBesideOutput,
    OutputFile,
    check_output,
    hides_progress,
    report_conversion,
)
from lmlib.cli.tokenizer.ids import WrittenIds, spell_ids
from lmlib.cli.tokenizer.options import (
    AllowSpecial,
    Flattened,
    TokenizerName,
    special_arguments,
    tokenizer_files,
)

__all__ = ["EXAMPLES", "USAGE", "EncodeOptions", "encode"]

USAGE = "Usage: lmlib tokenizer encode [FILES…] [OPTIONS]"

EXAMPLES = """Examples:

  echo "Call me Ishmael." | lmlib tokenizer encode

  lmlib tokenizer encode book.txt.gz --tokenizer tokenizer.json \\
      --format u16 --out book.u16

  lmlib tokenizer encode book.txt --format lines | sort | uniq -c | sort -n
"""


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """Options of ``lmlib tokenizer encode``."""

    tokenizer: TokenizerName = "gpt2"
    format: Annotated[
        WrittenIds,
        Parameter(
            help="How to write ids: text (twelve a line), lines (one a line), json "
            "(an array for each file), u16 or u32 (little-endian integers)."
        ),
    ] = "text"
    allow_special: AllowSpecial = ()
    special_as_text: bool = False
    """Encode other special tokens as ordinary text instead of refusing them."""
    out: OutputFile = None
    json: JsonBesideOutput = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Check that the results and a report have a place to go."""
        check_output(self.out, self.json)


DEFAULTS = EncodeOptions()


def encode(*files: TextFile, options: Flattened[EncodeOptions] = DEFAULTS) -> None:
    """Turn text into token ids, in bounded memory.

    Files are encoded one by one, and their ids follow one another; without files,
    standard input is. A special token in the text is an error unless it is allowed,
    so that no text from elsewhere can bring one in.
    """
    files = files or STANDARD_INPUT_ALONE
    check_spared(options.out, [*files, *tokenizer_files(options.tokenizer)])
    tokenizer = Tokenizer.from_pretrained(options.tokenizer)
    special = special_arguments(options.allow_special, options.special_as_text)
    counter, hidden = Counter(), hides_progress(options)
    with open_output(options.out) as output, progress_bar(files, hidden) as bar:
        for path in files:
            texts = counter.count_texts(read_texts(path, bar))
            ids = counter.count_ids(tokenizer.encode_iterable(texts, **special))
            with _options_named(path):
                for chunk in spell_ids(ids, options.format):
                    output.write(chunk)
    report_conversion(counter, files, options)


@contextmanager
def _options_named(path: Path) -> Iterator[None]:
    """Say by which option a special token in a file is allowed."""
    try:
        yield
    except SpecialTokenError as error:
        raise ValueError(
            f"{name_of(path)} holds the special token {error.name!r}: allow it "
            "with --allow-special, or encode it as text with --special-as-text."
        ) from None
