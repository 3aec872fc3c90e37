"""The Transformer of GPT-2 and Llama, and the lecture's deep linear model.

Shapes are noted with one letter per dimension: B batch, T sequence, D d_model,
H heads, K head size, F d_ff, V vocabulary, L layers; G are the key-value heads.
"""

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from lmlib.checks import check_count, check_size
from lmlib.config import ModelConfig
from lmlib.init import kaiming_normal_, normal_, residual_scale
from lmlib.kv_cache import KVCache, LayerCache

__all__ = [
    "CausalSelfAttention",
    "Cruncher",
    "GeluMLP",
    "RMSNorm",
    "RotaryEmbedding",
    "SwiGLU",
    "TransformerBlock",
    "TransformerLM",
    "rotate",
]

INIT_STD = 0.02  # of all matrices and embeddings: Radford et al. 2018, section 4.1


class RMSNorm(nn.Module):
    """Divides each vector by its root mean square, then scales each element.

    Computed in fp32, whatever the input. Source: Zhang & Sennrich 2019, eq. 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """The normed input, in its dtype or the weight's, whichever is wider."""
        wide = x.float()  # (B, T, D): squares of 16-bit numbers overflow or vanish
        squares = reduce(wide.square(), "batch seq d_model -> batch seq 1", "mean")
        normed = wide * torch.rsqrt(squares + self.eps)  # (B, T, D)
        return self.weight * normed.to(x.dtype)  # (B, T, D)


class RotaryEmbedding(nn.Module):
    """The angles by which queries and keys are turned, growing with their position.

    Pair i of a head turns by ``position · theta^(-2i/K)``. The angles are worked
    out anew in each forward pass: so they stay fp32 where a model is cast to bf16,
    which cannot tell 256 from 257. Source: Su et al. 2021, section 3.2.2.
    """

    def __init__(self, head_size: int, theta: float = 10_000.0) -> None:
        super().__init__()
        self.head_size = head_size
        self.theta = theta

    def forward(
        self, positions: Int[Tensor, "*batch seq"]
    ) -> Float[Tensor, "cos_sin *batch seq pairs"]:
        """Cosine and sine of each angle, in fp32, for ``rotate``."""
        evens = torch.arange(0, self.head_size, 2, device=positions.device)  # (K/2)
        frequencies = 1 / self.theta ** (evens.float() / self.head_size)  # (K/2)
        # Element by element: with @, autocast would round the positions to bf16.
        column = rearrange(positions.float(), "... seq -> ... seq 1")  # (T, 1)
        angles = column * frequencies  # (T, K/2)
        return torch.stack([angles.cos(), angles.sin()])  # (2, T, K/2)


def rotate(
    x: Float[Tensor, "batch heads seq head_size"],
    rotation: Float[Tensor, "cos_sin *batch seq pairs"],
) -> Float[Tensor, "batch heads seq head_size"]:
    """Turn the pairs of each query or key by the angles of its position.

    Element i makes a pair with i + K/2, as in ``transformers``, and not with its
    neighbour as in the paper: the same up to an order of the elements.
    """
    cos, sin = rotation  # (T, K/2) each, or (1, T, K/2), or (B, 1, T, K/2)
    a, b = rearrange(
        x, "... (two pairs) -> two ... pairs", two=2
    )  # (B, H, T, K/2) each
    turned = [a * cos - b * sin, b * cos + a * sin]  # (B, H, T, K/2) each
    return rearrange(turned, "two ... pairs -> ... (two pairs)").to(x.dtype)


class CausalSelfAttention(nn.Module):
    """Each position takes a weighted mean of its own value and of earlier ones.

    With fewer key-value heads than heads, H/G neighbouring query heads share a key
    and a value. Sources: Vaswani et al. 2017, section 3.2; Ainslie et al. 2023.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, config.bias
        kv_size = config.num_kv_heads * config.head_size
        self.head_size = config.head_size
        self.grouped = config.num_kv_heads < config.num_heads
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key = nn.Linear(d_model, kv_size, bias=bias)
        self.value = nn.Linear(d_model, kv_size, bias=bias)
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        rotation: Float[Tensor, "cos_sin *batch seq pairs"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """What attention adds to each position; ``rotation`` is for ``rotate``.

        A ``cache`` holds the keys and values of earlier positions, and gets these.
        """
        queries = self._split_heads(self.query(x))  # (B, H, T, K)
        keys = self._split_heads(self.key(x))  # (B, G, T, K)
        values = self._split_heads(self.value(x))  # (B, G, T, K)
        if rotation is not None:
            queries = rotate(queries, rotation)  # (B, H, T, K)
            keys = rotate(keys, rotation)  # (B, G, T, K)
        mask = None
        if cache is not None:
            keys, values, mask = cache.extend(keys, values)  # (B, G, S, K) each
        mixed = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.dropout.p if self.training else 0.0,
            is_causal=mask is None and x.shape[1] > 1,  # one alone sees all
            enable_gqa=self.grouped,
        )  # (B, H, T, K)
        merged = rearrange(mixed, "batch heads seq size -> batch seq (heads size)")
        return self.dropout(self.output(merged))  # (B, T, D)

    def _split_heads(
        self, x: Float[Tensor, "batch seq features"]
    ) -> Float[Tensor, "batch heads seq head_size"]:
        pattern = "batch seq (heads size) -> batch heads seq size"
        return rearrange(x, pattern, size=self.head_size)


class GeluMLP(nn.Module):
    """Two linear layers with GELU between them, as in GPT-2.

    GELU is the approximation by tanh. Source: Hendrycks & Gimpel 2016, section 2.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """What the MLP adds to each position."""
        hidden = F.gelu(self.up(x), approximate="tanh")  # (B, T, F)
        return self.dropout(self.down(hidden))  # (B, T, D)


class SwiGLU(nn.Module):
    """A linear layer gated by the SiLU of another, and one back, as in Llama.

    Source: Shazeer 2020, eq. 6.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"]
    ) -> Float[Tensor, "batch seq d_model"]:
        """What the MLP adds to each position."""
        hidden = F.silu(self.gate(x)) * self.up(x)  # (B, T, F)
        return self.dropout(self.down(hidden))  # (B, T, D)


class TransformerBlock(nn.Module):
    """Attention, then an MLP: each reads the normed input and adds to the input."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = _norm(config)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = _norm(config)
        self.mlp = SwiGLU(config) if config.mlp == "swiglu" else GeluMLP(config)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        rotation: Float[Tensor, "cos_sin *batch seq pairs"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """The residual stream after this block."""
        x = x + self.attention(self.attention_norm(x), rotation, cache)  # (B, T, D)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, D)


class TransformerLM(nn.Module):
    """A language model: token ids to logits of the token that follows each.

    A tied model has no ``head``: its token embedding serves as one, so that the
    state dict holds each parameter once. Weights begin as ``init_weights`` says.
    """

    def __init__(
        self, config: ModelConfig, *, generator: Generator | None = None
    ) -> None:
        super().__init__()
        self.config = config
        d_model = config.d_model
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        if config.position == "learned":
            self.position_embedding = nn.Embedding(config.context_length, d_model)
        else:
            self.rotary = RotaryEmbedding(config.head_size, config.rope_theta)
        self.dropout = nn.Dropout(config.dropout)
        blocks = (TransformerBlock(config) for _ in range(config.num_layers))
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = _norm(config)
        if not config.tie_embeddings:
            self.head = nn.Linear(d_model, config.vocab_size, bias=False)
        self.init_weights(generator)

    def forward(
        self, ids: Int[Tensor, "batch seq"], cache: KVCache | None = None
    ) -> Float[Tensor, "batch seq vocab_size"]:
        """The logits, in fp32 or in what autocast chose.

        With a ``cache``, the ids follow the tokens that it holds, and join them.

        Raises ValueError for ids of another shape, and for a sequence that is empty
        or longer than ``context_length``; on a CPU, IndexError for an id outside
        the vocabulary. A GPU would have to be waited for to know.
        """
        self._check_shape(ids)
        x = self._embed(ids)  # (B, T, D)
        positions = torch.arange(ids.shape[1], device=ids.device)  # (T)
        layers = [None] * len(self.blocks)
        if cache is not None:
            positions, layers = cache.advance(ids), cache.layers  # (B, T)
        rotation = None
        if self.config.position == "learned":
            x = x + self.position_embedding(positions)  # (B, T, D)
        else:
            angles = self.rotary(positions)  # (2, T, K/2), or (2, B, T, K/2)
            # The same for all heads.
            rotation = rearrange(angles, "two ... seq pairs -> two ... 1 seq pairs")
        x = self.dropout(x)  # (B, T, D)
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, rotation, layer)  # (B, T, D)
        x = self.final_norm(x)  # (B, T, D)
        if self.config.tie_embeddings:
            return F.linear(x, self.token_embedding.weight)  # (B, T, V)
        return self.head(x)  # (B, T, V)

    @torch.no_grad()
    def init_weights(self, generator: Generator | None = None) -> None:
        """Begin anew: normal weights with σ = 0.02, biases 0, norms that only norm.

        What writes to the residual stream is smaller by ``residual_scale``, as in
        GPT-2. A ``generator`` must be on the device of the weights.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                normal_(module.weight, INIT_STD, generator=generator)
            elif isinstance(module, nn.LayerNorm | RMSNorm):
                module.weight.fill_(1)
            if getattr(module, "bias", None) is not None:
                module.bias.zero_()
        for block in self.blocks:
            for writer in (block.attention.output, block.mlp.down):
                writer.weight.mul_(residual_scale(self.config.num_layers))

    def _embed(
        self, ids: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, "batch seq d_model"]:
        try:
            return self.token_embedding(ids)
        except IndexError as error:
            raise IndexError(
                f"The ids go from {ids.min()} to {ids.max()}, and the vocabulary "
                f"from 0 to {self.config.vocab_size - 1}: use the tokenizer that "
                "the model was made for."
            ) from error

    def _check_shape(self, ids: Tensor) -> None:
        if ids.ndim != 2:
            raise ValueError(
                f"ids must have the shape (batch, seq), not {tuple(ids.shape)}: "
                "for a single sequence pass ids[None]."
            )
        length, longest = ids.shape[1], self.config.context_length
        if not 1 <= length <= longest:
            raise ValueError(
                f"A sequence of {length} tokens does not fit a context_length of "
                f"{longest}: pass between 1 and {longest} tokens."
            )


def _norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, config.norm_eps)
    return nn.LayerNorm(config.d_model, config.norm_eps, bias=config.bias)


class Cruncher(nn.Module):
    """The lecture's deep linear model: D·D·L + D parameters, and nothing between.

    ``layers.0.weight`` and so on are D×D, ``final.weight`` is 1×D, without biases.
    They begin with σ = 1/√D, which keeps the scale of what passes through. With
    ``num_layers`` of 0 it is linear regression.

    Raises ValueError for a ``dim`` that is no whole number from 1 on, and for a
    ``num_layers`` that is none from 0 on.
    """

    def __init__(
        self, dim: int, num_layers: int, *, generator: Generator | None = None
    ) -> None:
        super().__init__()
        dim = check_size("dim", dim)
        num_layers = check_count("num_layers", num_layers)
        layers = (nn.Linear(dim, dim, bias=False) for _ in range(num_layers))
        self.layers = nn.ModuleList(layers)
        self.final = nn.Linear(dim, 1, bias=False)
        for linear in (*self.layers, self.final):
            kaiming_normal_(linear.weight, gain=1.0, generator=generator)

    def forward(self, x: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
        """One number for each row."""
        for layer in self.layers:
            x = layer(x)  # (B, D)
        return rearrange(self.final(x), "batch 1 -> batch")
