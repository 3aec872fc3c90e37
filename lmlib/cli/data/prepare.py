"""``lmlib data prepare``."""

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lmlib.bpe import Tokenizer
from lmlib.cli.files import (
    Json,
    Quiet,
    TextFile,
    check_readable,
    check_spared,
    check_writable,
    name_of,
    print_json,
)
from lmlib.cli.numbers import WholeNumber
from lmlib.cli.tokenizer.options import (
    AllowSpecial,
    Flattened,
    TokenizerName,
    tokenizer_files,
)
from lmlib.data import prepare_tokens
from lmlib.data.prepare import END_OF_TEXT
from lmlib.data.sidecar import sidecar_path

__all__ = ["EXAMPLES", "USAGE", "PrepareOptions", "prepare"]

USAGE = "Usage: lmlib data prepare FILES… --out FILE [OPTIONS]"

EXAMPLES = """Examples:

  lmlib data prepare book.txt --tokenizer tokenizer.json --out train.bin

  lmlib data prepare part-*.txt.gz --num-workers 8 --out train.bin

  zstdcat web.zst | lmlib data prepare - --no-end-of-text --out web.bin
"""


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Options of ``lmlib data prepare``.

    Raises OSError if ``out`` could not be written, before time is spent.
    """

    tokenizer: TokenizerName = "gpt2"
    out: Annotated[
        Path,
        Parameter(
            help="The token file to write. What is known about it goes beside it, "
            "with .json after its name. Those that are there are replaced once the "
            "new ones are whole."
        ),
    ]
    end_of_text: Annotated[
        str,
        Parameter(
            help="The special token that stands between the documents of a file, "
            "and is added after each file that does not end with it. The default "
            "is left out where the tokenizer does not have it."
        ),
    ] = END_OF_TEXT
    no_end_of_text: bool = False
    """Add nothing after a file, and recognise nothing in it."""
    dtype: Annotated[
        Literal["uint16", "uint32"] | None,
        Parameter(help="Type of the ids: uint16 where they fit, unless told."),
    ] = None
    allow_special: AllowSpecial = ()
    special_as_text: bool = False
    """Encode other special tokens as ordinary text instead of refusing them."""
    num_workers: WholeNumber | None = None
    """Processes that encode side by side: one for each CPU, unless told."""
    json: Json = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Check what would be noticed only after encoding."""
        check_writable(self.out)
        check_writable(sidecar_path(self.out))


def prepare(*files: TextFile, options: Flattened[PrepareOptions]) -> None:
    """Encode text into a token file to train on.

    That is the ids one after another, as little-endian integers: the format of
    nanoGPT's train.bin. The same bytes come from any number of workers, and text
    may be larger than memory.
    """
    if not files:
        raise ValueError("Name the files to encode, or - for standard input.")
    check_readable(files)
    check_spared(options.out, tokenizer_files(options.tokenizer))
    tokenizer = Tokenizer.from_pretrained(options.tokenizer)
    allowed, num_workers = options.allow_special, options.num_workers
    start = perf_counter()
    tokens = prepare_tokens(
        files,
        tokenizer,
        options.out,
        end_of_text=None if options.no_end_of_text else options.end_of_text,
        dtype=options.dtype,
        allow_special=tokenizer.special_tokens if "all" in allowed else allowed,
        special_as_text=options.special_as_text,
        num_workers=_num_cpus() if num_workers is None else num_workers,
        progress=not options.quiet,
    )
    report = {
        "files": list(map(str, files)),
        "tokens": len(tokens),
        "dtype": tokens.ids.dtype.name,
        "bytes": tokens.ids.nbytes,
        "vocab_size": tokens.vocab_size,
        "end_of_text": tokens.end_of_text,
        "seconds": round(perf_counter() - start, 3),
        "out": str(options.out),
    }
    if options.json:
        print_json(report)
    elif not options.quiet:
        _print(report)


def _num_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _print(report: dict[str, Any]) -> None:
    files, end = report["files"], report["end_of_text"]
    source = name_of(Path(files[0])) if len(files) == 1 else f"{len(files)} files"
    print(f"read        {source}")
    print(f"tokens      {report['tokens']:,} of {report['dtype']}")
    print(f"            {report['bytes']:,} bytes")
    print(f"vocabulary  {report['vocab_size']:,} ids")
    print(f"documents   {'not marked' if end is None else f'end with id {end}'}")
    print(f"seconds     {report['seconds']:.1f}")
    print(f"written to  {report['out']}")
