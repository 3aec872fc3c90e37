"""Samples of a model, made as the options say, and written while they are made."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from lmlib.bpe import Tokenizer
from lmlib.bpe.text_files import STANDARD_INPUT, read_text
from lmlib.checks import check, check_size, check_unicode, is_whole
from lmlib.cli.errors import out_of_memory_explained, warnings_in_a_line
from lmlib.cli.files import print_json
from lmlib.cli.models import open_model, with_tokenizer
from lmlib.cli.streams import complain
from lmlib.data.prepare import END_OF_TEXT
from lmlib.files import name_what_is_full
from lmlib.generate import decode_stream, generate_batch, printable, stream
from lmlib.generate.sampling import check_options
from lmlib.hardware.devices import get_device
from lmlib.model import TransformerLM

if TYPE_CHECKING:
    from lmlib.cli.generate import GenerateOptions

__all__ = ["make_samples"]

FIRST = "\n"  # what a text without a prompt goes on from, as in lmlib train
MOST_SEEDS = 2**63
ADVICE = (
    "make fewer samples at once (--num-samples), shorter ones (--max-new-tokens), "
    "or take a smaller model."
)


@dataclass(frozen=True)
class Sample:
    """What followed the prompt: ``ended`` if by the token that ends a text."""

    seed: int
    tokens: int
    ended: bool
    text: str


@dataclass(frozen=True)
class Request:
    """What all samples have in common, read and checked."""

    model: TransformerLM
    tokenizer: Tokenizer
    prompt: str
    seeds: range
    max_new_tokens: int
    options: dict[str, Any]  # of ``stream_batch``

    @property
    def ids(self) -> list[int]:
        """The prompt's tokens."""
        return self.tokenizer.encode_ordinary(self.prompt or FIRST)

    def generators(self) -> list[torch.Generator]:
        """A generator for each sample."""
        return [torch.Generator().manual_seed(seed) for seed in self.seeds]

    def sample(self, seed: int, ids: list[int]) -> Sample:
        """The sample that was made of these tokens."""
        text = "".join(decode_stream(self.tokenizer, ids))
        return Sample(seed, len(ids), len(ids) < self.max_new_tokens, text)


def make_samples(folder: Path, options: GenerateOptions) -> None:
    """Make samples, and print them, or a report of them for programs."""
    with warnings_in_a_line(), out_of_memory_explained(ADVICE):
        _make_samples(folder, options)


def _make_samples(folder: Path, options: GenerateOptions) -> None:
    request = _read(folder, options)
    start = perf_counter()
    if len(request.seeds) == 1 and not options.json:
        tokens = _write_while_made(request)
        seconds = perf_counter() - start
    else:
        samples = _make_at_once(request)
        seconds = perf_counter() - start
        tokens = sum(sample.tokens for sample in samples)
        if options.json:
            _print_report(folder, request, samples, tokens / seconds)
            return
        _print_in_turn(request, samples)
    if not options.quiet:
        complain(
            f"{tokens:,} tokens in {seconds:.2f} s: "
            f"{tokens / seconds:,.1f} tokens/s, seed {request.seeds[0]}"
        )


# --- what is asked for ------------------------------------------------------------


def _read(folder: Path, options: GenerateOptions) -> Request:
    """Check what needs no model; then read it."""
    check_options(options.temperature, options.top_k, options.top_p)
    max_new_tokens = check_size("max_new_tokens", options.max_new_tokens)
    seeds = _seeds(options)
    if options.ignore_end and options.end_of_text is not None:
        raise ValueError("--ignore-end has no end: leave --end-of-text out.")
    device = get_device(options.device)
    prompt = _prompt(options.prompt)
    loaded = open_model(folder, options.checkpoint)
    tokenizer = with_tokenizer(loaded, folder, options.tokenizer)
    return Request(
        model=loaded.model.to(device),
        tokenizer=tokenizer,
        prompt=prompt,
        seeds=seeds,
        max_new_tokens=max_new_tokens,
        options={
            "temperature": options.temperature,
            "top_k": options.top_k,
            "top_p": options.top_p,
            "stop_token": _stop_token(tokenizer, options),
            "vocab_size": tokenizer.vocab_size,
        },
    )


def _seeds(options: GenerateOptions) -> range:
    count = check_size("num_samples", options.num_samples)
    first = secrets.randbelow(2**32) if options.seed is None else options.seed
    holds = is_whole(first, 0) and first + count <= MOST_SEEDS
    check(holds, "seed", "a whole number from 0 to 2^63, less the samples", first)
    return range(first, first + count)


def _prompt(given: str | None) -> str:
    if given == STANDARD_INPUT:
        return "".join(read_text(given))
    check_unicode("prompt", given or "")
    return given or ""


def _stop_token(tokenizer: Tokenizer, options: GenerateOptions) -> int | None:
    name = options.end_of_text
    if name is not None and name not in tokenizer.special_tokens:
        known = ", ".join(map(repr, tokenizer.special_tokens)) or "none"
        raise ValueError(
            f"The tokenizer has no special token {name!r}: it has {known}."
        )
    if options.ignore_end:
        return None
    return tokenizer.special_tokens.get(name or END_OF_TEXT)


# --- making and writing -----------------------------------------------------------


def _write_while_made(request: Request) -> int:
    """Write the only sample token by token, and return how many there were."""
    counted = _Counted(
        stream(
            request.model,
            request.ids,
            request.max_new_tokens,
            generator=request.generators()[0],
            **request.options,
        )
    )
    texts = decode_stream(request.tokenizer, counted)
    first = next(texts, "")  # an error before it stands alone
    with _line_ended():
        _write(request.prompt + first)
        for text in texts:
            _write(text)
    return counted.number


def _make_at_once(request: Request) -> list[Sample]:
    texts = generate_batch(
        request.model,
        [request.ids] * len(request.seeds),
        request.max_new_tokens,
        generators=request.generators(),
        **request.options,
    )
    return [*map(request.sample, request.seeds, texts)]


def _print_in_turn(request: Request, samples: list[Sample]) -> None:
    for number, sample in enumerate(samples, start=1):
        title = f"sample {number} of {len(samples)}, seed {sample.seed}"
        _write(f"--- {title} ---\n{request.prompt}{sample.text}\n")


def _print_report(
    folder: Path, request: Request, samples: list[Sample], speed: float
) -> None:
    print_json(
        {
            "model": str(folder),
            "prompt": request.prompt,
            "prompt_tokens": len(request.ids),
            "samples": [asdict(sample) for sample in samples],
            "tokens_per_second": round(speed, 1),
        }
    )


class _Counted:
    """Tokens as they go by, and their number."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._ids = ids
        self.number = 0

    def __iter__(self) -> Iterator[int]:
        for token in self._ids:
            self.number += 1
            yield token


def _write(text: str) -> None:
    with name_what_is_full("standard output"):
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


@contextmanager
def _line_ended() -> Iterator[None]:
    """End the line of what was written, whatever has stopped it but the output."""
    try:
        yield
    except OSError:
        raise
    except BaseException:
        _write("\n")
        raise
    _write("\n")
