"""``lmlib data inspect``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from lmlib.bpe import Tokenizer
from lmlib.cli.files import Json, print_json
from lmlib.cli.numbers import WholeNumber
from lmlib.cli.tokenizer.decode import decode_ids
from lmlib.cli.tokenizer.facts import fit, visible
from lmlib.cli.tokenizer.options import Flattened
from lmlib.data import open_tokens
from lmlib.data.sidecar import sidecar_path
from lmlib.data.token_file import Check

__all__ = ["EXAMPLES", "USAGE", "InspectOptions", "inspect"]

USAGE = "Usage: lmlib data inspect FILE [OPTIONS]"

EXAMPLES = """Examples:

  lmlib data inspect train.bin --tokenizer tokenizer.json

  lmlib data inspect nanogpt/train.bin --vocab-size 50257 --check all
"""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Options of ``lmlib data inspect``."""

    tokenizer: Annotated[
        str | None,
        Parameter(
            help="The tokenizer that made the file: it is compared, and shows the "
            "first tokens as text."
        ),
    ] = None
    dtype: str | None = None
    """Type of the ids, if there is no sidecar: uint16, unless told."""
    vocab_size: WholeNumber | None = None
    """Ids in the vocabulary, if there is no sidecar."""
    check: Annotated[
        Check,
        Parameter(help="Ids that must be in the vocabulary; all reads the file."),
    ] = "sample"
    first: WholeNumber = 16
    """How many of the first tokens to show."""
    json: Json = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.first < 0:
            raise ValueError(f"--first is {self.first}: say 0 to show none.")


DEFAULTS = InspectOptions()


def inspect(
    file: Annotated[Path, Parameter(help="A token file.")],
    /,
    *,
    options: Flattened[InspectOptions] = DEFAULTS,
) -> None:
    """Show what a token file holds, and whether its sidecar is true."""
    tokens = open_tokens(
        file,
        dtype=options.dtype,
        vocab_size=options.vocab_size,
        check=options.check,
    )
    first = tokens.ids[: options.first].tolist()
    text = None
    if options.tokenizer is not None:
        tokenizer = Tokenizer.from_pretrained(options.tokenizer)
        tokens.check_tokenizer(tokenizer)
        text = visible(decode_ids(tokenizer, first, options.tokenizer))
    report = {
        "file": str(file),
        "sidecar": sidecar_path(file).exists(),
        "tokens": len(tokens),
        "dtype": tokens.ids.dtype.name,
        "bytes": tokens.ids.nbytes,
        "vocab_size": tokens.vocab_size,
        "end_of_text": tokens.end_of_text,
        "tokenizer_sha256": tokens.tokenizer_sha256,
        "fingerprint": tokens.fingerprint,
        "first": first,
        "text": text,
    }
    if options.json:
        print_json(report)
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    vocab_size, end = report["vocab_size"], report["end_of_text"]
    print(f"file        {report['file']}")
    print(f"sidecar     {'agrees' if report['sidecar'] else 'none'}")
    print(f"tokens      {report['tokens']:,} of {report['dtype']}")
    print(f"            {report['bytes']:,} bytes")
    known = "not known" if vocab_size is None else f"{vocab_size:,} ids"
    print(f"vocabulary  {known}")
    print(f"documents   {'not marked' if end is None else f'end with id {end}'}")
    print(f"tokenizer   {(report['tokenizer_sha256'] or 'not known')[:16]}")
    print(f"first       {fit(' '.join(map(str, report['first'])), 66)}")
    if report["text"] is not None:
        print(f"            {fit(report['text'], 66)}")
