"""``lmlib tokenizer compare``."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from tqdm import tqdm

from lmlib.bpe import Tokenizer
from lmlib.cli.files import (
    STANDARD_INPUT_ALONE,
    Json,
    NoProgress,
    TextFile,
    name_of,
    print_json,
    progress_bar,
    read_texts,
)
from lmlib.cli.numbers import WholeNumber
from lmlib.cli.tokenizer.comparison import (
    Difference,
    Speed,
    first_difference,
    measure_speed,
)
from lmlib.cli.tokenizer.conversion import count_bytes
from lmlib.cli.tokenizer.facts import fit, token_facts, visible
from lmlib.cli.tokenizer.options import (
    AllowSpecial,
    Flattened,
    TokenizerName,
    special_arguments,
)

if TYPE_CHECKING:
    import tiktoken

__all__ = ["EXAMPLES", "USAGE", "CompareOptions", "compare"]

USAGE = "Usage: lmlib tokenizer compare [FILES…] [OPTIONS]"

EXAMPLES = """Examples:

  lmlib tokenizer compare book.txt

  lmlib tokenizer compare *.py --tokenizer tokenizer.json

  lmlib tokenizer compare book.txt --tokenizer tokenizer.json --peer gpt2
"""


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of ``lmlib tokenizer compare``."""

    tokenizer: TokenizerName = "gpt2"
    peer: Annotated[
        str | None,
        Parameter(
            help="What tiktoken gets instead of the same tokenizer, named in the "
            "same ways: shows where two tokenizers part."
        ),
    ] = None
    allow_special: AllowSpecial = ()
    runs: WholeNumber = 3
    """How often both are timed, in turn."""
    json: Json = False
    quiet: NoProgress = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.runs < 1:
            raise ValueError(f"--runs is {self.runs}: it must be at least 1.")


DEFAULTS = CompareOptions()


def compare(*files: TextFile, options: Flattened[CompareOptions] = DEFAULTS) -> int:
    """Compare our ids with tiktoken's, and the time that both take.

    tiktoken gets the same vocabulary. Each file is encoded as a whole, in memory;
    special tokens that are not allowed are ordinary text. The first difference in
    a file is shown in its context, and makes the exit code 1.

    Speed is a ratio of CPU seconds, of medians of runs that take turns: ours cold,
    with nothing remembered, and warm, right after.
    """
    files = files or STANDARD_INPUT_ALONE
    tokenizer = Tokenizer.from_pretrained(options.tokenizer)
    peer = tokenizer if options.peer is None else options.peer
    encoding = _tiktoken_of(peer)
    special = special_arguments(options.allow_special, others_as_text=True)

    def our_encoder() -> Callable[[str], list[int]]:
        new = Tokenizer.from_spec(tokenizer.spec)
        return lambda text: new.encode(text, **special)

    def encode_with_tiktoken(text: str) -> list[int]:
        return encoding.encode(text, **special)

    with progress_bar(files, options.quiet) as bar:
        texts = ["".join(read_texts(path, bar)) for path in files]
    encode = our_encoder()
    rows = []
    for path, text in zip(files, texts, strict=True):
        ours, theirs = encode(text), encode_with_tiktoken(text)
        token = tokenizer.vocab.__getitem__, encoding.decode_single_token_bytes
        difference = first_difference(ours, theirs, *token)
        num_bytes = count_bytes(text)
        rows.append(_Row(path, num_bytes, len(ours), len(theirs), difference))
    with _bar_of_runs(options) as bar:
        speed = measure_speed(
            texts, our_encoder, encode_with_tiktoken, options.runs, bar.update
        )
    if options.json:
        print_json(_report(rows, speed))
    else:
        _print(rows, speed)
    return int(any(row.difference for row in rows))


@dataclass(frozen=True)
class _Row:
    path: Path
    num_bytes: int
    ours: int  # tokens
    theirs: int
    difference: Difference | None


def _tiktoken_of(tokenizer: Tokenizer | str) -> "tiktoken.Encoding":
    if isinstance(tokenizer, str):
        tokenizer = Tokenizer.from_pretrained(tokenizer)
    try:
        return tokenizer.to_tiktoken()
    except ImportError as error:  # it says what to install
        raise ValueError(str(error)) from None


def _bar_of_runs(options: CompareOptions) -> tqdm:
    return tqdm(
        desc="timing",
        total=options.runs,
        unit="run",
        leave=False,
        disable=True if options.quiet else None,  # None: unless on a terminal
    )


def _report(rows: Sequence[_Row], speed: Speed) -> dict[str, Any]:
    return {
        "files": [
            {
                "file": str(row.path),
                "bytes": row.num_bytes,
                "tokens": row.ours,
                "tiktoken_tokens": row.theirs,
                "equal": row.difference is None,
                "first_difference": row.difference and _spelled(row.difference),
            }
            for row in rows
        ],
        "equal": not any(row.difference for row in rows),
        "cpu_seconds": asdict(speed),
        "times_tiktoken_speed": speed.ratios(),
    }


def _spelled(difference: Difference) -> dict[str, Any]:
    return {
        "token": difference.token,
        "byte": difference.byte,
        "line": difference.line,
        "before": difference.before.decode("utf-8", "replace"),
        "ours": [token_facts(i, token) for i, token in difference.ours],
        "tiktoken": [token_facts(i, token) for i, token in difference.theirs],
    }


def _print(rows: Sequence[_Row], speed: Speed) -> None:
    print(f"{'bytes':>15} {'tokens':>13}  ids        file")
    for row in rows:
        verdict = "DIFFERENT" if row.difference else "equal"
        name = name_of(row.path)
        print(f"{row.num_bytes:15,} {row.ours:13,}  {verdict:9}  {name}")
    for row in rows:
        if row.difference:
            _print_difference(row, row.difference)
    print(f"\nspeed  {_in_words(speed)}")


def _print_difference(row: _Row, difference: Difference) -> None:
    print(
        f"\n{name_of(row.path)} differs first at byte {difference.byte:,}, "
        f"in line {difference.line:,}, after {difference.token:,} equal ids.\n"
        f"In all, tiktoken has {row.theirs:,} tokens."
    )
    print(f"  before    {visible(difference.before)}".rstrip())
    sides = {"ours": difference.ours, "tiktoken": difference.theirs}
    for name, tokens in sides.items():
        shown = " | ".join(visible(token) for _, token in tokens)
        ids = " ".join(str(i) for i, _ in tokens)
        print(f"  {name:8}  {fit(shown, 68) or 'nothing more'}")
        print(f"  {'':8}  {ids}".rstrip())


def _in_words(speed: Speed) -> str:
    ratios = speed.ratios()
    if ratios is None:
        return "too little text to measure it"
    return (
        f"{ratios['cold']:.2f} × tiktoken's cold, {ratios['warm']:.2f} × warm "
        f"(CPU seconds, runs: {speed.runs})"
    )
