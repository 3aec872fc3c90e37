"""Texts that grow by one token at a time, alone or several at once."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterator, Sequence

from torch import Generator, nn

from lmlib.checks import check_count, check_size
from lmlib.generate.reading import Reader
from lmlib.generate.sampling import check_options, sample

__all__ = ["generate", "generate_batch", "stream", "stream_batch"]


def generate(
    model: nn.Module, prompt: Sequence[int], max_new_tokens: int, **options: object
) -> list[int]:
    """Return the tokens that follow a prompt, ``max_new_tokens`` at most.

    The options, all by name, with their defaults:

    - ``temperature=1.0`` divides the logits; 0 always takes the likeliest token.
    - ``top_k=None`` draws from that many of the likeliest tokens.
    - ``top_p=None`` draws from the fewest that have this probability together.
    - ``stop_token=None`` is an id that ends the text, and is not returned.
    - ``vocab_size=None`` draws from the first so many ids alone: those that the
      tokenizer has, if the model has more.
    - ``generator=None`` draws the random numbers; torch's own if None.
    - ``use_cache=True`` reads each token once, instead of all anew for each.

    ``sample`` and ``stream_batch`` say more of them, and what they raise.
    """
    return list(stream(model, prompt, max_new_tokens, **options))


def generate_batch(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    **options: object,
) -> list[list[int]]:
    """Return what follows each prompt; options are those of ``stream_batch``.

    They are those of ``generate``, with ``generators=None`` for one each.
    """
    texts: list[list[int]] = [[] for _ in prompts]
    for number, token in stream_batch(model, prompts, max_new_tokens, **options):
        texts[number].append(token)
    return texts


def stream(
    model: nn.Module,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    generator: Generator | None = None,
    **options: object,
) -> Iterator[int]:
    """Yield the tokens that follow a prompt, each as soon as it is drawn.

    The options are those of ``generate``; ``stream_batch`` says what it raises.
    """
    pairs = stream_batch(
        model, [prompt], max_new_tokens, generators=[generator], **options
    )
    return (token for _, token in pairs)


def stream_batch(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_token: int | None = None,
    vocab_size: int | None = None,
    generators: Sequence[Generator | None] | None = None,
    use_cache: bool = True,
) -> Iterator[tuple[int, int]]:
    """Yield what follows several prompts: pairs of a prompt's number and a token.

    How a token is drawn, and from which, ``sample`` says. ``stop_token`` ends a
    text, and is not yielded. Of a model whose vocabulary is larger than that of its
    tokenizer, only the first ``vocab_size`` ids are drawn. Nothing is dropped out;
    between tokens the model is as it was before, in training or not.

    Prompts may differ in length. Each goes on as it would alone, with a generator
    of its own: one for each in ``generators``, or torch's for all.

    ``use_cache`` changes the time, and not what is computed, up to rounding: a
    product of one row can add its terms in another order than one of many. It needs
    a model that takes a ``KVCache``; without it any will do that makes logits of
    ids and has a ``config``.

    Raises ValueError, before the first token, for a prompt that is empty or holds
    what is no id of the model, for an option out of range, and for more or fewer
    generators than prompts.
    """
    texts = {k: _ids(x, model.config.vocab_size) for k, x in enumerate(prompts)}
    max_new_tokens = check_count("max_new_tokens", max_new_tokens)
    check_options(temperature, top_k, top_p)
    if vocab_size is not None:
        vocab_size = check_size("vocab_size", vocab_size)
    generators = [None] * len(prompts) if generators is None else generators
    if len(generators) != len(prompts):
        raise ValueError(
            f"There are {len(prompts)} prompts and {len(generators)} generators: "
            "pass one for each."
        )

    def pairs() -> Iterator[tuple[int, int]]:
        longest = max(map(len, texts.values()), default=0)
        # The last token is not read.
        reader = Reader(model, longest + max_new_tokens - 1, use_cache)
        seen = reader.context_length
        for _ in range(max_new_tokens):
            if not texts:
                return
            for number, logits in reader.next_logits(texts).items():
                token = sample(
                    logits[:vocab_size],
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    generator=generators[number],
                )
                if token == stop_token:
                    del texts[number]
                else:
                    texts[number].append(token)
                    # What the model sees no more is not kept, but for a token that
                    # tells of it: a text without an end would fill the memory.
                    del texts[number][: -(seen + 1)]
                    yield number, token

    return pairs()


def _ids(prompt: Sequence[int], vocab_size: int) -> list[int]:
    """The tokens of a prompt as int, be they in a list, an array or a tensor."""
    try:
        ids = [operator.index(token) for token in prompt]
    except TypeError:  # text, or parts of a token
        ids = []
    if not ids or min(ids) < 0 or max(ids) >= vocab_size:
        raise ValueError(
            f"A prompt must be one token or more, each an id of the model's "
            f"vocabulary, from 0 to {vocab_size - 1}, not {reprlib.repr(prompt)}."
        )
    return ids
