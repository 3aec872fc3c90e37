"""Text from a language model: one token after another, each drawn from the last.

For every token the model reads the last ``context_length`` tokens anew.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from lmlib.bpe import Tokenizer
from lmlib.checks import check, check_count, is_nonnegative, is_number, is_whole

__all__ = [
    "decode_stream",
    "generate",
    "keep_top_k",
    "keep_top_p",
    "sample",
    "stream",
]


def generate(
    model: nn.Module, prompt: Sequence[int], max_new_tokens: int, **options: object
) -> list[int]:
    """Return the tokens that follow a prompt; options are those of ``stream``."""
    return list(stream(model, prompt, max_new_tokens, **options))


def stream(
    model: nn.Module,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_token: int | None = None,
    vocab_size: int | None = None,
    generator: Generator | None = None,
) -> Iterator[int]:
    """Yield the tokens that follow a prompt, each as soon as it is drawn.

    How each is drawn, and from which, ``sample`` says. ``stop_token`` ends the
    text, and is not yielded. Of a model whose vocabulary is larger than that of its
    tokenizer, only the first ``vocab_size`` ids are drawn. Nothing is dropped out;
    between tokens the model is as it was before, in training or not.

    Raises ValueError, before the first token, for an empty prompt and for an option
    out of range.
    """
    check(len(prompt) > 0, "prompt", "one token or more", prompt)
    max_new_tokens = check_count("max_new_tokens", max_new_tokens)
    _check_options(temperature, top_k, top_p)

    def tokens() -> Iterator[int]:
        ids = list(prompt)
        for _ in range(max_new_tokens):
            logits = _next_logits(model, ids)[:vocab_size]
            token = sample(
                logits,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                generator=generator,
            )
            if token == stop_token:
                return
            ids.append(token)
            yield token

    return tokens()


def decode_stream(tokenizer: Tokenizer, ids: Iterable[int]) -> Iterator[str]:
    """Yield the text of tokens as it comes, each character once it is whole.

    A character of several bytes can be spread over tokens. Bytes that make none
    become U+FFFD, at the latest when the tokens end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in ids:
        if text := decoder.decode(tokenizer.decode_bytes([token])):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


# --- one token ----------------------------------------------------------------


def sample(
    logits: Float[Tensor, " vocab_size"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
) -> int:
    """Draw a token from the distribution that its logits make.

    ``temperature`` divides the logits: below 1 the likely become likelier, and 0
    always takes the likeliest. ``top_k`` keeps that many of the likeliest tokens,
    and ``top_p`` then the fewest that together have this probability. The draw is
    made on the CPU, so that a ``generator`` gives the same on every device.

    Raises ValueError for an option out of range, and for logits with a NaN or +∞.
    """
    _check_options(temperature, top_k, top_p)
    logits = logits.float().cpu()  # (V)
    if not logits.max().isfinite():
        raise ValueError(
            "The logits hold a NaN or an infinity: the model's weights are broken."
        )
    if temperature == 0:
        return int(logits.argmax())
    # The largest becomes 0, which a small temperature does not divide up to
    # infinity; in fp64, for in fp32 it could be a 0 itself.
    logits = ((logits - logits.max()).double() / temperature).float()
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))


def keep_top_k(
    logits: Float[Tensor, " vocab_size"], top_k: int
) -> Float[Tensor, " vocab_size"]:
    """Set all logits to −∞ but the ``top_k`` largest.

    Source: Fan et al. 2018, section 5.4.
    """
    top = logits.topk(min(top_k, len(logits))).indices  # ties too are cut at k
    return torch.full_like(logits, -torch.inf).scatter(0, top, logits[top])


def keep_top_p(
    logits: Float[Tensor, " vocab_size"], top_p: float
) -> Float[Tensor, " vocab_size"]:
    """Set to −∞ what the fewest tokens with probability ``top_p`` leave over.

    The likeliest always stays. Source: Holtzman et al. 2020, section 3.1.
    """
    ordered, order = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # what likelier ones have
    ordered = ordered.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter(0, order, ordered)


@torch.no_grad()
def _next_logits(
    model: nn.Module, ids: Sequence[int]
) -> Float[Tensor, " vocab_size"]:
    device = next(model.parameters()).device
    window = torch.tensor([ids[-model.config.context_length :]], device=device)
    was_training = model.training
    model.eval()
    try:
        return model(window)[0, -1]  # (V)
    finally:
        model.train(was_training)


def _check_options(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    wanted = "a number from 0 on"
    check(is_nonnegative(temperature), "temperature", wanted, temperature)
    if top_k is not None:
        check(is_whole(top_k, 1), "top_k", "a whole number from 1 on", top_k)
    if top_p is not None:
        holds = is_number(top_p) and 0 < top_p <= 1
        check(holds, "top_p", "above 0 and at most 1", top_p)
