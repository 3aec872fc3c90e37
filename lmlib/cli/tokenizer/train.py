"""``lmlib tokenizer train``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from cyclopts import Parameter

from lmlib.bpe import Tokenizer, train_bpe
from lmlib.bpe.formats import tokenizer_json
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
from lmlib.cli.tokenizer.options import PATTERNS, Flattened

__all__ = ["EXAMPLES", "USAGE", "TrainOptions", "train"]

USAGE = "Usage: lmlib tokenizer train FILES… --vocab-size N --out FILE [OPTIONS]"

EXAMPLES = """Examples:

  lmlib tokenizer train book.txt --vocab-size 10000 --out tokenizer.json

  lmlib tokenizer train part-*.txt.gz --vocab-size 32000 --num-workers 8 \\
      --special-token "<|endoftext|>" --pattern cl100k --out tokenizer.json

  zstdcat web.zst | lmlib tokenizer train - --vocab-size 8000 --out web.json
"""


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``lmlib tokenizer train``.

    Raises OSError if ``out`` could not be written, before time is spent.
    """

    vocab_size: WholeNumber
    """Tokens to end with: 256 bytes, one per merge, and the special tokens."""
    out: Annotated[
        Path,
        Parameter(
            help="The tokenizer.json to write, in Hugging Face's format. One that "
            "is there is replaced, once the new one is whole."
        ),
    ]
    special_token: Annotated[
        tuple[str, ...],
        Parameter(
            help="A text that becomes one token and is never cut, such as "
            "<|endoftext|>; repeatable. Their ids follow the merges, in this order."
        ),
    ] = ()
    pattern: Annotated[
        str,
        Parameter(
            help="How text is cut into pre-tokens, which no merge crosses: gpt2, "
            "cl100k, o200k, none (it is not cut), or a regular expression."
        ),
    ] = "gpt2"
    num_workers: WholeNumber = 1
    """Processes that count pre-tokens side by side."""
    json: Json = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Check what would be noticed only after training."""
        check_writable(self.out)


def train(*files: TextFile, options: Flattened[TrainOptions]) -> None:
    """Learn a byte-pair encoding from text files and write a tokenizer.json.

    The pair merged is the most frequent one; of several, the greater as bytes. So
    the result depends neither on the order of the files nor on the workers.
    """
    if not files:
        raise ValueError("Name the files to train on, or - for standard input.")
    special_tokens = list(options.special_token)
    pattern = PATTERNS.get(options.pattern, options.pattern)
    check_readable(files)
    check_spared(options.out, files)
    _check_can_be_saved(special_tokens, pattern)
    start = perf_counter()
    vocab, merges = train_bpe(
        files,
        vocab_size=options.vocab_size,
        special_tokens=special_tokens,
        pattern=pattern,
        num_workers=options.num_workers,
        progress=not options.quiet,
    )
    tokenizer = Tokenizer(
        vocab, merges, special_tokens=special_tokens, pattern=pattern
    )
    tokenizer.save(options.out)
    report = {
        "files": list(map(str, files)),
        "bytes_on_disk": _bytes_on_disk(files),
        "merges": len(merges),
        "vocab_size": len(vocab),
        "vocab_size_asked": options.vocab_size,
        "seconds": round(perf_counter() - start, 3),
        "out": str(options.out),
    }
    if options.json:
        print_json(report)
    elif not options.quiet:
        _print(report)


def _check_can_be_saved(special_tokens: list[str], pattern: str | None) -> None:
    """Raise ValueError now for what would be refused only after training."""
    vocab = {byte: bytes([byte]) for byte in range(256)}
    tokenizer_json(Tokenizer(vocab, [], special_tokens, pattern).spec)


def _bytes_on_disk(files: Sequence[Path]) -> int | None:
    """Return the size of all files; None if one has none, as a pipe."""
    if not all(path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)


def _print(report: dict[str, Any]) -> None:
    files = report["files"]
    source = name_of(Path(files[0])) if len(files) == 1 else f"{len(files)} files"
    size = report["bytes_on_disk"]
    print(f"read        {source}" + (f", {size:,} bytes on disk" if size else ""))
    print(f"merges      {report['merges']:,}")
    print(f"vocabulary  {report['vocab_size']:,} tokens")
    if report["vocab_size"] < report["vocab_size_asked"]:
        asked = report["vocab_size_asked"]
        print(f"            fewer than the {asked:,} asked for: no pair was left")
    print(f"seconds     {report['seconds']:.1f}")
    print(f"written to  {report['out']}")
