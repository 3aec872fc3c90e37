"""``lmlib tokenizer inspect``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from lmlib.bpe import Tokenizer
from lmlib.cli.files import (
    Json,
    NoProgress,
    TextFile,
    name_of,
    print_json,
    progress_bar,
    read_texts,
)
from lmlib.cli.numbers import WholeNumber
from lmlib.cli.tokenizer.facts import (
    compression,
    compression_by_language,
    fit,
    longest_tokens,
    merges_of_word,
    visible,
)
from lmlib.cli.tokenizer.options import PATTERNS, Flattened, TokenizerName

__all__ = ["EXAMPLES", "USAGE", "InspectOptions", "inspect"]

USAGE = "Usage: lmlib tokenizer inspect [FILES…] [OPTIONS]"

EXAMPLES = """Examples:

  lmlib tokenizer inspect

  lmlib tokenizer inspect book.txt --tokenizer tokenizer.json --no-languages

  lmlib tokenizer inspect --word " whaling" --longest 0 --no-languages
"""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Options of ``lmlib tokenizer inspect``."""

    tokenizer: TokenizerName = "gpt2"
    longest: WholeNumber = 10
    """How many of the longest tokens to show."""
    word: Annotated[
        tuple[str, ...],
        Parameter(
            help="A word whose merges to show one by one; repeatable. In a text, "
            'most words start with a space: --word " whale".'
        ),
    ] = ()
    languages: Annotated[
        bool,
        Parameter(
            negative="--no-languages",
            help="Show how the Universal Declaration of Human Rights compresses in "
            "34 languages.",
        ),
    ] = True
    json: Json = False
    quiet: NoProgress = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.longest < 0:
            raise ValueError(f"--longest is {self.longest}: say 0 to show none.")


DEFAULTS = InspectOptions()


def inspect(
    *files: TextFile, options: Flattened[InspectOptions] = DEFAULTS
) -> None:
    """Show what is in a tokenizer, and how well it compresses.

    That is the size of its vocabulary, its special tokens, pattern and longest
    tokens; the bytes per token in 34 languages and in the files named; and the
    merges that build a word, each with its rank: 256 is the first merge. A space in
    a token is shown as ␣.
    """
    tokenizer = Tokenizer.from_pretrained(options.tokenizer)
    with progress_bar(files, options.quiet) as bar:
        in_files = [
            {"file": str(path), **compression(tokenizer, read_texts(path, bar))}
            for path in files
        ]
    languages = compression_by_language(tokenizer) if options.languages else []
    report = {
        "tokenizer": options.tokenizer,
        "vocab_size": tokenizer.vocab_size,
        "merges": len(tokenizer.merges),
        "special_tokens": dict(tokenizer.special_tokens),
        "pattern": tokenizer.pattern,
        "longest": longest_tokens(tokenizer, options.longest),
        "files": in_files,
        "languages": languages,
        "words": [
            {"word": word, "pretokens": merges_of_word(tokenizer, word)}
            for word in options.word
        ],
    }
    if options.json:
        print_json(report)
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    special = report["special_tokens"].items()
    names = [f"{visible(token.encode())} = {i}" for token, i in special]
    pattern_names = {pattern: name for name, pattern in PATTERNS.items()}
    pattern = report["pattern"]
    print(f"tokenizer   {report['tokenizer']}")
    print(f"vocabulary  {report['vocab_size']:,} ids, {report['merges']:,} merges")
    print(f"special     {', '.join(names) or 'none'}")
    print(f"pattern     {pattern_names.get(pattern, pattern)}")
    _print_longest(report["longest"])
    _print_compression(report["files"])
    _print_compression(report["languages"])
    for word in report["words"]:
        for pretoken in word["pretokens"]:
            _print_merges(pretoken)


def _print_longest(tokens: Sequence[dict[str, Any]]) -> None:
    if tokens:
        print(f"\n{'bytes':>6} {'id':>7}  longest tokens")
    for facts in tokens:
        token = bytes.fromhex(facts["hex"])
        print(f"{len(token):6} {facts['id']:7}  {fit(visible(token), 64)}")


def _print_compression(rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        kind = "language" if "language" in rows[0] else "file"
        print(f"\n{'bytes/token':>11} {'tokens':>13} {'bytes':>15}  {kind}")
    for row in rows:
        ratio = row["bytes_per_token"]
        shown = "-" if ratio is None else f"{ratio:.2f}"
        name = row.get("language") or name_of(Path(row["file"]))
        print(f"{shown:>11} {row['tokens']:13,} {row['bytes']:15,}  {name}")


def _print_merges(pretoken: dict[str, Any]) -> None:
    word = visible(pretoken["pretoken"].encode())
    print(f"\nmerges of {fit(word, 70)}\n  rank  tokens after the merge")
    for step in pretoken["steps"]:
        print(f"{step['rank']:6}  {fit(' '.join(step['after']), 72)}")
    if pretoken["whole"]:
        print("        but the whole is a token, though no merges lead to it")
    ids = " ".join(str(token["id"]) for token in pretoken["tokens"])
    print(f"   ids  {fit(ids, 72)}")
