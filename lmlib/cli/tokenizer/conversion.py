"""What encode and decode share: they count what goes by, and report on it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from lmlib.cli.files import check_writable, print_json

__all__ = [
    "Counter",
    "JsonBesideOutput",
    "OutputFile",
    "check_output",
    "count_bytes",
    "hides_progress",
    "report_conversion",
]

OutputFile = Annotated[
    Path | None,
    Parameter(
        help="The file to write, not standard output; it appears once it is whole."
    ),
]
JsonBesideOutput = Annotated[
    bool, Parameter(help="With --out: print the report as JSON.")
]


def count_bytes(text: str) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


@dataclass
class Counter:
    """Bytes and tokens that went by."""

    bytes: int = 0
    tokens: int = 0

    def count_texts(self, texts: Iterable[str]) -> Iterator[str]:
        """Pass texts on, and count their bytes."""
        for text in texts:
            self.bytes += count_bytes(text)
            yield text

    def count_ids(self, ids: Iterable[int]) -> Iterator[int]:
        """Pass ids on, and count them."""
        for i in ids:
            self.tokens += 1
            yield i

    def facts(self) -> dict[str, Any]:
        """Return both, and the bytes per token, None without tokens."""
        return {
            "bytes": self.bytes,
            "tokens": self.tokens,
            "bytes_per_token": self.bytes / self.tokens if self.tokens else None,
        }


def check_output(out: Path | None, json: bool) -> None:
    """Raise OSError if the file could not be written.

    Raises ValueError if a report would stand between results.
    """
    if out is not None:
        check_writable(out)
    elif json:
        raise ValueError(
            "--json is about the report, which only --out leads to: "
            "add --out, or leave --json out."
        )


def hides_progress(options: Any) -> bool:
    """Whether a bar is unwanted, or would stand between results on a terminal."""
    return options.quiet or (options.out is None and sys.stdout.isatty())


def report_conversion(
    counter: Counter, files: Sequence[Path], options: Any
) -> None:
    """Print what was written to a file, and nothing after standard output."""
    if options.out is None or (options.quiet and not options.json):
        return
    facts = counter.facts()
    if options.json:
        print_json(
            {"files": list(map(str, files)), **facts, "out": str(options.out)}
        )
        return
    print(f"bytes       {counter.bytes:,}")
    print(f"tokens      {counter.tokens:,}")
    if counter.tokens:
        print(f"            {facts['bytes_per_token']:.2f} bytes per token")
    print(f"written to  {options.out}")
