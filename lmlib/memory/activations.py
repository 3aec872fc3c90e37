"""What a training step saves for backward, tensor by tensor, by formula; no torch.

Backward needs numbers of the forward: for ``y = x @ w`` it needs x for the gradient
of w, and w for that of x. PyTorch saves them when the forward runs, a tensor that
several operations need only once. A sum saves nothing, since its gradient is that
of both its parts: so the residual stream costs only what reads it.

The letters are B batch, T sequence, D d_model, H heads, K head size, F d_ff,
V vocabulary, L layers; G are the key-value heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from lmlib.checks import check_size
from lmlib.config import ModelConfig

__all__ = [
    "ATTENTIONS",
    "PRECISIONS",
    "Activations",
    "SavedTensor",
    "StepMemory",
    "block_saved_tensors",
    "bytes_by_component",
    "bytes_by_dtype",
    "cruncher_saved_tensors",
    "loss_workspace",
    "saved_tensors",
    "step_memory",
]

ATTENTIONS = ("math", "fused")
PRECISIONS = ("fp32", "bf16-autocast", "bf16")

ITEM_SIZES = {"int64": 8, "float32": 4, "bfloat16": 2}
GPU_BLOCK = 512  # bytes, of which PyTorch's CUDA allocator deals in multiples


@dataclass(frozen=True)
class SavedTensor:
    """A tensor kept from forward to backward, and how many there are like it."""

    component: str
    name: str
    numel: int
    dtype: str  # as torch calls it
    copies: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * self.numel * ITEM_SIZES[self.dtype]

    @property
    def allocated_nbytes(self) -> int:
        """The same as a GPU's allocator counts: each rounded up to 512 bytes."""
        blocks = -(-self.numel * ITEM_SIZES[self.dtype] // GPU_BLOCK)
        return self.copies * blocks * GPU_BLOCK


@dataclass(frozen=True)
class Activations:
    """Bytes saved for backward by component; each counts those of all layers."""

    embeddings: int = 0
    norms: int = 0
    attention: int = 0
    mlp: int = 0
    head: int = 0
    loss: int = 0  # V log-probabilities for each token
    block_inputs: int = 0  # of checkpointed blocks, which keep nothing else
    weight_copies: int = 0  # bf16 copies of fp32 weights, which autocast makes

    @property
    def total(self) -> int:
        """The sum of all components."""
        return sum(asdict(self).values())


def bytes_by_component(saved: Iterable[SavedTensor]) -> Activations:
    """Add up by component the bytes of what ``saved_tensors`` returns."""
    nbytes: Counter[str] = Counter()
    for tensor in saved:
        nbytes[tensor.component] += tensor.nbytes
    return Activations(**nbytes)


def bytes_by_dtype(saved: Iterable[SavedTensor]) -> dict[str, int]:
    """Add up the bytes of saved tensors by dtype, which is named as in torch."""
    nbytes: Counter[str] = Counter()
    for tensor in saved:
        nbytes[tensor.dtype] += tensor.nbytes
    return dict(nbytes)


# --- the Transformer ------------------------------------------------------------


def saved_tensors(
    config: ModelConfig,
    batch_size: int,
    seq_len: int | None = None,
    *,
    attention: str = "fused",
    precision: str = "fp32",
    checkpointing: bool = False,
) -> tuple[SavedTensor, ...]:
    """Return what ``TransformerLM`` and its cross-entropy save for backward.

    ``seq_len`` left out is the config's context length. ``attention`` is the
    backend of PyTorch's ``scaled_dot_product_attention``: "math" writes the T×T
    weights of each head to memory, "fused" (flash attention) does not.
    ``precision`` is "fp32", "bf16-autocast" (fp32 weights, products in bf16), or
    "bf16" (weights too). With ``checkpointing`` each block keeps only its input,
    and runs forward again in backward: see ``block_saved_tensors``.

    Parameters are not among them, which exist anyway; their bf16 copies are, and
    so are ids and targets, each with a storage of its own. It is what a CPU saves
    in eager mode; ``torch.compile`` decides anew. On a GPU the mask of a dropout
    takes one byte an element, LayerNorm's statistics are fp32 for a bf16 model too,
    and only there is fused attention with dropout.

    Under autocast the loss is that of fp32 logits. A CPU casts them by itself; on
    a GPU write ``F.cross_entropy(logits.float(), targets)``, or the log-softmax is
    rounded to bf16, and saved in both dtypes.

    Raises ValueError for a size or a choice that cannot be.
    """
    step = _Step(config, batch_size, seq_len, attention, precision)
    if checkpointing:
        block = [step.stream("block_inputs", "input")]
    else:
        block = [*_block(step)]
    repeated = (replace(t, copies=t.copies * config.num_layers) for t in block)
    return (*_embeddings(step), *repeated, *_head_and_loss(step))


def block_saved_tensors(
    config: ModelConfig,
    batch_size: int,
    seq_len: int | None = None,
    *,
    attention: str = "fused",
    precision: str = "fp32",
) -> tuple[SavedTensor, ...]:
    """Return what one block saves: with checkpointing, once more in backward.

    The arguments are those of ``saved_tensors``.
    """
    step = _Step(config, batch_size, seq_len, attention, precision)
    return tuple(_block(step))


def loss_workspace(
    config: ModelConfig,
    batch_size: int,
    seq_len: int | None = None,
    *,
    precision: str = "fp32",
) -> int:
    """Return the bytes that the loss works with, on top of those it saves.

    When backward begins there are the logits, which their caller still holds, the
    gradient of the log-probabilities, and the gradient of the logits made from it:
    with a large vocabulary the peak of the step. The arguments are those of
    ``saved_tensors``.
    """
    step = _Step(config, batch_size, seq_len, ATTENTIONS[0], precision)
    logits = ITEM_SIZES[step.product_dtype]
    gradient = ITEM_SIZES[step.stream_dtype]
    return step.rows * config.vocab_size * (logits + 2 * gradient)


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a training step: those saved for backward, and those it works with.

    ``working`` is the loss's workspace, or what a checkpointed block saves when it
    runs again, whichever is larger: the one is over when the other begins. What a
    single operation needs while it runs is in neither, such as the gradients of all
    T×T weights in the backward of "math" attention.
    """

    activations: Activations
    working: int

    @property
    def total(self) -> int:
        """The peak of the step, parameters apart, where the loss is its peak."""
        return self.activations.total + self.working


def step_memory(
    config: ModelConfig,
    batch_size: int,
    seq_len: int | None = None,
    *,
    attention: str = "fused",
    precision: str = "fp32",
    checkpointing: bool = False,
) -> StepMemory:
    """Return the bytes of a training step, told as to ``saved_tensors``."""
    sizes = (config, batch_size, seq_len)
    how = {"attention": attention, "precision": precision}
    saved = saved_tensors(*sizes, **how, checkpointing=checkpointing)
    working = loss_workspace(*sizes, precision=precision)
    if checkpointing:
        block = bytes_by_component(block_saved_tensors(*sizes, **how)).total
        working = max(working, block)
    return StepMemory(bytes_by_component(saved), working)


@dataclass(frozen=True)
class _Step:
    """One training step: its sizes, and in which dtype it computes."""

    config: ModelConfig
    batch_size: int
    seq_len: int | None
    attention: str
    precision: str

    def __post_init__(self) -> None:
        longest = self.config.context_length
        seq_len = longest if self.seq_len is None else self.seq_len
        check_size("batch_size", self.batch_size)
        if check_size("seq_len", seq_len) > longest:
            raise ValueError(
                f"seq_len is {seq_len}, beyond the context_length of {longest}: "
                "choose a shorter sequence or a longer context."
            )
        _check_choice("attention", self.attention, ATTENTIONS)
        _check_choice("precision", self.precision, PRECISIONS)
        object.__setattr__(self, "seq_len", seq_len)

    @property
    def rows(self) -> int:
        """Tokens of the batch, B·T."""
        return self.batch_size * self.seq_len

    @property
    def casts(self) -> bool:
        """Whether autocast makes a bf16 copy of what enters a product."""
        return self.precision == "bf16-autocast"

    @property
    def stream_dtype(self) -> str:
        """Of the residual stream, norms and loss; autocast leaves them in fp32."""
        return "bfloat16" if self.precision == "bf16" else "float32"

    @property
    def product_dtype(self) -> str:
        """Of the result of a linear layer, and of what it reads."""
        return "float32" if self.precision == "fp32" else "bfloat16"

    @property
    def kv_size(self) -> int:
        """Elements of all keys of a token, G·K, or of all its values."""
        return self.config.num_kv_heads * self.config.head_size

    def stream(self, component: str, name: str, width: int = 0) -> SavedTensor:
        """A row for each token, of D elements if nothing else is said."""
        numel = self.rows * (width or self.config.d_model)
        return SavedTensor(component, name, numel, self.stream_dtype)

    def product(
        self, component: str, name: str, width: int = 0, copies: int = 1
    ) -> SavedTensor:
        """The same in the dtype of products."""
        numel = self.rows * (width or self.config.d_model)
        return SavedTensor(component, name, numel, self.product_dtype, copies)


def _embeddings(step: _Step) -> Iterator[SavedTensor]:
    """A look-up's gradient goes to the rows that were looked up: ids are saved."""
    config, seq_len = step.config, step.seq_len
    yield SavedTensor("embeddings", "token ids", step.rows, "int64")
    if config.position == "learned":
        yield SavedTensor("embeddings", "positions", seq_len, "int64")
    else:  # cosine and sine of K/2 angles, which turn the gradient back
        angles = seq_len * config.head_size // 2
        yield SavedTensor("embeddings", "cosines and sines", 2 * angles, "float32")
    if config.dropout:
        yield step.stream("embeddings", "dropout mask")


def _block(step: _Step) -> Iterator[SavedTensor]:
    yield from _norm(step)
    yield from _attention(step)
    yield from _norm(step)
    yield from _mlp(step)


def _norm(step: _Step) -> Iterator[SavedTensor]:
    """Both norms save their input and, for each token, what they divide it by.

    PyTorch's LayerNorm is one operation. Our RMSNorm is several, in fp32, and its
    last one, ``weight * normed``, needs the normed input for the weight's gradient.
    """
    rows, d_model = step.rows, step.config.d_model
    if step.config.norm == "layernorm":
        yield step.stream("norms", "input")
        yield step.stream("norms", "mean and 1/σ", width=2)
    else:
        yield SavedTensor("norms", "input in fp32", rows * d_model, "float32")
        yield SavedTensor("norms", "1/rms", rows, "float32")
        yield step.stream("norms", "normed input")


def _attention(step: _Step) -> Iterator[SavedTensor]:
    """Queries, keys and values read one input; autocast casts it for each anew.

    Autocast remembers a cast only of a parameter.
    """
    config = step.config
    readers = 3
    yield step.product("attention", "input", copies=readers if step.casts else 1)
    yield from _math(step) if step.attention == "math" else _fused(step)
    if config.dropout:
        yield step.product("attention", "dropout mask")
    if step.casts:
        matrices = 2 * config.d_model * (config.d_model + step.kv_size)
        yield _weight_copies("attention", matrices)


def _math(step: _Step) -> Iterator[SavedTensor]:
    """``softmax(q @ kᵀ) @ v`` step by step, in fp32 whatever the dtype.

    Each product saves both its factors: scaled queries and keys, weights and
    values, where grouped keys and values are repeated for all heads. The softmax
    saves its result, which is the same weights, unless dropout comes between.
    """
    rows, d_model = step.rows, step.config.d_model
    weights = step.config.num_heads * step.rows * step.seq_len  # B·H·T·T
    for name in ("scaled queries", "scaled keys", "values"):
        yield SavedTensor("attention", name, rows * d_model, "float32")
    yield SavedTensor("attention", "softmax weights", weights, "float32")
    if step.config.dropout:
        yield SavedTensor("attention", "mask of weights", weights, "float32")
        yield SavedTensor("attention", "weights kept", weights, "float32")
    yield step.product("attention", "result with merged heads")


def _fused(step: _Step) -> Iterator[SavedTensor]:
    """Flash attention: weights are computed again, from the logarithm of their sum.

    The result is laid out as the queries are. If they come straight from their
    projection, a token's heads lie side by side, and to merge them is a view;
    ``rotate`` makes new ones, head by head, and merging then copies, unless there
    is one head or one token. Source: Dao 2023 (FlashAttention-2), section 3.1.
    """
    config = step.config
    sums = config.num_heads * step.rows
    yield step.product("attention", "queries")
    yield step.product("attention", "keys", width=step.kv_size)
    yield step.product("attention", "values", width=step.kv_size)
    yield step.product("attention", "result")
    yield SavedTensor("attention", "log of sums", sums, "float32")
    if config.position == "rope" and config.num_heads > 1 and step.seq_len > 1:
        yield step.product("attention", "result with merged heads")


def _mlp(step: _Step) -> Iterator[SavedTensor]:
    """An activation function saves its input, and the next layer its result.

    SwiGLU's product of two branches saves both.
    """
    config = step.config
    swiglu = config.mlp == "swiglu"
    readers = 2 if swiglu else 1
    yield step.product("mlp", "input", copies=readers if step.casts else 1)
    names = ("gate", "silu of gate", "up", "product") if swiglu else ("up", "gelu")
    for name in names:
        yield step.product("mlp", name, width=config.d_ff)
    if config.dropout:
        yield step.product("mlp", "dropout mask")
    if step.casts:
        matrices = (readers + 1) * config.d_model * config.d_ff
        yield _weight_copies("mlp", matrices)


def _head_and_loss(step: _Step) -> Iterator[SavedTensor]:
    """The gradient of cross-entropy is the probabilities, less 1 for each target.

    It is made from the log-probabilities; nobody saves the logits themselves.
    """
    yield from _norm(step)
    yield step.product("head", "input")
    if step.casts:
        yield _weight_copies("head", step.config.d_model * step.config.vocab_size)
    yield step.stream("loss", "log-probabilities", width=step.config.vocab_size)
    yield SavedTensor("loss", "targets", step.rows, "int64")
    yield SavedTensor("loss", "number of targets", 1, step.stream_dtype)


def _weight_copies(name: str, numel: int) -> SavedTensor:
    return SavedTensor("weight_copies", name, numel, "bfloat16")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {known}, not {value!r}.")


# --- the deep linear model ------------------------------------------------------


def cruncher_saved_tensors(
    batch_size: int, dim: int, num_layers: int
) -> tuple[SavedTensor, ...]:
    """Return what ``Cruncher`` and ``F.mse_loss`` save: B·D·(L+1) + 2·B numbers.

    Each of the L layers saves its input, and so does the final one, whose input is
    the last layer's result. The loss saves predictions and targets.
    """
    sizes = {"batch_size": batch_size, "dim": dim, "num_layers": num_layers}
    batch_size, dim, num_layers = (check_size(*item) for item in sizes.items())
    inputs = num_layers + 1
    return (
        SavedTensor("layers", "input", batch_size * dim, "float32", inputs),
        SavedTensor("loss", "predictions", batch_size, "float32"),
        SavedTensor("loss", "targets", batch_size, "float32"),
    )
