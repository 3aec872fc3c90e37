"""lmlib.flops: the formulas are what PyTorch's counter counts, to the last FLOP."""

import subprocess
import sys
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from lmlib.config import MODEL_SHAPES, ModelConfig, named_config
from lmlib.flops import (
    attention_flops,
    count_flops,
    estimated_step_flops,
    forward_flops,
    linear_backward_flops,
    linear_flops,
    linear_intensity,
    mfu,
    step_flops,
    working_parameters,
)
from lmlib.hardware import get_accelerator
from lmlib.model import Cruncher, TransformerLM

GPT2_LIKE = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True, "tie_embeddings": True}
LLAMA_LIKE = {"num_kv_heads": 2}
CONFIGS = [
    ModelConfig(vocab_size=97, context_length=64, d_model=48, num_layers=layers, num_heads=4, **switches)
    for layers, switches in product(
        [1, 3], [GPT2_LIKE, LLAMA_LIKE, LLAMA_LIKE | {"tie_embeddings": True}, {"d_ff": 50}]
    )
]
SIZES = [(1, 1), (1, 64), (2, 17), (5, 33)]  # batch, sequence


def run_forward(model, batch_size, seq_len, device):
    ids = torch.zeros(batch_size, seq_len, dtype=torch.long, device=device)
    return model(ids)


def run_step(model, batch_size, seq_len, device):
    run_forward(model, batch_size, seq_len, device).sum().backward()


# --- parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "d_in", "d_out"), [(1, 1, 1), (7, 5, 3), (64, 100, 10)])
def test_linear(rows, d_in, d_out):
    x, w = torch.ones(rows, d_in), torch.ones(d_in, d_out)
    assert count_flops(lambda: x @ w) == linear_flops(rows, d_in, d_out)
    by_hand = sum(2 for _ in range(rows) for _ in range(d_out) for _ in range(d_in))  # one product, one sum
    assert linear_flops(rows, d_in, d_out) == by_hand


MATRIX, VECTOR, COLUMN = torch.ones(7, 5), torch.ones(5), torch.ones(7)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("product", "factors", "size"),
    [
        (torch.matmul, (MATRIX, VECTOR), (7, 5, 1)),
        (torch.matmul, (COLUMN, MATRIX), (1, 7, 5)),
        (torch.matmul, (torch.ones(3, 7, 5), VECTOR), (21, 5, 1)),
        (torch.mv, (MATRIX, VECTOR), (7, 5, 1)),
        (torch.addmv, (COLUMN, MATRIX, VECTOR), (7, 5, 1)),
        (torch.dot, (VECTOR, VECTOR), (1, 5, 1)),
        (torch.vdot, (VECTOR, VECTOR), (1, 5, 1)),
        (torch.inner, (VECTOR, VECTOR), (1, 5, 1)),
        (torch.einsum, ("ij,j->i", MATRIX, VECTOR), (7, 5, 1)),
        (torch.einsum, ("i,i->", VECTOR, VECTOR), (1, 5, 1)),
        (F.linear, (VECTOR, MATRIX), (1, 5, 7)),
        (F.linear, (VECTOR, MATRIX, COLUMN), (1, 5, 7)),
    ],
)
def test_products_with_a_vector(product, factors, size, device):
    """They are products of matrices with one row or column, which torch's own table does not all know."""
    factors = [factor.to(device) if torch.is_tensor(factor) else factor for factor in factors]
    assert count_flops(product, *factors) == linear_flops(*size)


def test_outer_products_count_as_products_of_elements_do():
    """Alone or as the gradient of a matrix that met a vector; a column makes of it a matrix product."""
    matrix, vector = MATRIX.clone().requires_grad_(), VECTOR.clone().requires_grad_()
    assert count_flops(torch.outer, COLUMN, VECTOR) == count_flops(torch.mul, COLUMN, COLUMN) == 0
    backward = count_flops((matrix @ vector).sum().backward)
    assert backward == linear_backward_flops(1, 5, 7) - linear_flops(7, 1, 5) == linear_flops(7, 5, 1)
    assert count_flops((matrix @ vector[:, None]).sum().backward) == linear_backward_flops(1, 5, 7)


@pytest.mark.parametrize("input_gradient", [False, True])
def test_linear_backward(input_gradient):
    x, w = torch.ones(7, 5, requires_grad=input_gradient), torch.ones(5, 3, requires_grad=True)
    loss = (x @ w).sum()
    assert count_flops(loss.backward) == linear_backward_flops(7, 5, 3, input_gradient)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kv_heads", [8, 2, 1])
@pytest.mark.parametrize("seq_len", [1, 16, 33])
def test_attention(device, kv_heads, seq_len):
    """On a CPU PyTorch's counter alone would find nothing; fewer key-value heads are no less work."""
    q = torch.ones(2, 8, seq_len, 16, device=device, requires_grad=True)
    k = torch.ones(2, kv_heads, seq_len, 16, device=device, requires_grad=True)

    def attend():
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

    whole = attention_flops(2, seq_len, 8, 16)
    assert count_flops(attend) == whole == 2 * attention_flops(2, seq_len, 8, 16, causal=True)
    assert count_flops(lambda: attend().sum().backward()) == 3 * whole


def test_a_deep_linear_model_does_less_than_six_per_parameter():
    """Its first layer needs no gradient of its input: 368 FLOPs, not 432."""
    model, x = Cruncher(4, 2), torch.ones(2, 4)
    layers = [(4, 4), (4, 4), (4, 1)]
    expected = sum(linear_flops(2, *layer) for layer in layers)
    expected += sum(linear_backward_flops(2, *layer, input_gradient=i > 0) for i, layer in enumerate(layers))
    assert count_flops(lambda: model(x).sum().backward()) == expected == 368
    assert 6 * 36 * 2 == 432


def test_intensity_is_flops_over_the_bytes_of_three_matrices():
    x, w = torch.ones(7, 5, dtype=torch.bfloat16), torch.ones(5, 3, dtype=torch.bfloat16)
    y = x @ w
    assert linear_intensity(7, 5, 3) == 2 * 7 * 5 * 3 / (x.nbytes + w.nbytes + y.nbytes)
    assert linear_intensity(7, 5, 3, bytes_per_element=4) == linear_intensity(7, 5, 3) / 2
    n = 1024
    assert linear_intensity(n, n, n) == pytest.approx(n / 3)
    assert linear_intensity(1, n, n) == pytest.approx(1, abs=0.01)


# --- models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(("batch_size", "seq_len"), SIZES)
def test_a_model_is_its_formula(config, batch_size, seq_len):
    with torch.device("meta"):
        model = TransformerLM(config)
    forward = forward_flops(config, batch_size, seq_len).total
    assert count_flops(run_forward, model, batch_size, seq_len, "meta") == forward
    assert count_flops(run_step, model, batch_size, seq_len, "meta") == step_flops(config, batch_size, seq_len).total


@pytest.mark.parametrize("config", CONFIGS[:3])
def test_a_cpu_counts_what_the_meta_device_does(config):
    model = TransformerLM(config)
    assert count_flops(run_step, model, 2, 17, "cpu") == step_flops(config, 2, 17).total


@pytest.mark.parametrize("name", ["gpt2-124m", pytest.param("llama-3-8b", marks=pytest.mark.slow)])
def test_published_shapes(name):
    config = named_config(name)
    with torch.device("meta"):
        model = TransformerLM(config)
    assert count_flops(run_step, model, 1, 512, "meta") == step_flops(config, 1, 512).total


def test_components_are_counted_apart():
    config = CONFIGS[0]
    flops = forward_flops(config, 2, 17)
    with torch.device("meta"):
        block = TransformerLM(config).blocks[0]
    x = torch.ones(2, 17, config.d_model, device="meta")
    assert count_flops(block.mlp, x) == flops.mlp
    assert count_flops(block.attention, x) == flops.projections + flops.attention
    assert flops.total == flops.projections + flops.attention + flops.mlp + flops.head


def test_checkpointing_runs_the_blocks_once_more():
    config = CONFIGS[2]
    model = TransformerLM(config)
    model.blocks = nn.ModuleList(map(Checkpointed, model.blocks))
    expected = step_flops(config, 2, 17, checkpointing=True).total
    with set_checkpoint_early_stop(False):
        assert count_flops(run_step, model, 2, 17, "cpu") == expected
    unneeded = config.num_layers * linear_flops(2 * 17, config.d_ff, config.d_model)
    assert count_flops(run_step, model, 2, 17, "cpu") == expected - unneeded


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *arguments):
        return checkpoint(self.block, *arguments, use_reentrant=False)


# --- the estimate -------------------------------------------------------------------------------------------------


def test_the_estimate_counts_the_norms_too_and_nothing_else():
    for config in [*CONFIGS, *MODEL_SHAPES.values()]:
        exact = step_flops(config, 1).total
        biases = config.bias * config.num_layers * (3 * config.d_model + config.d_model + config.d_ff + config.d_model)
        extra = 6 * (config.parameter_counts.norms + biases)  # which are added, not multiplied
        if config.num_kv_heads == config.num_heads:
            assert estimated_step_flops(config, config.context_length) - exact == extra * config.context_length
        share = abs(estimated_step_flops(config, config.context_length) / exact - 1)
        assert share < (0.001 if config in MODEL_SHAPES.values() and config.d_model > 500 else 0.05)


def test_nanogpts_shape():
    config = ModelConfig(
        50304, 1024, 768, 12, 12, norm="layernorm", mlp="gelu", position="learned", tie_embeddings=True
    )
    assert step_flops(config).total == 1024 * 854_654_976
    assert estimated_step_flops(config, 1) == 854_770_176


def test_which_parameters_work():
    gpt2 = named_config("gpt2-124m")
    assert working_parameters(gpt2) == 124_439_808 - 1024 * 768
    llama = named_config("llama-7b")
    assert working_parameters(llama) == llama.num_parameters - 32_000 * 4096


def test_utilisation():
    assert mfu(6e12, seconds=2, peak_flops_per_second=4e12) == 0.75
    nan = float("nan")
    for seconds, peak in [(0, 1), (1, 0), (-1, 1), (nan, 1), (1, nan)]:
        with pytest.raises(ValueError, match="must be positive"):
            mfu(1, seconds, peak)
    for flops in [-1, nan]:
        with pytest.raises(ValueError, match="flops must be 0 or above"):
            mfu(flops, 1, 1)


def test_palm_reported_this_utilisation():
    """540.35B parameters, 118 layers of 48 heads of 256, 2048 tokens: 46.2 % at 238.3 thousand tokens/s."""
    per_token = 6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048
    peak = 6144 * get_accelerator("tpu-v4").peak("bf16").value
    assert round(mfu(238.3e3 * per_token, seconds=1, peak_flops_per_second=peak), 3) == 0.462


@pytest.mark.parametrize("size", [0, -1, 1.5, float("nan"), "8", True, None])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("num_rows", lambda size: linear_flops(size, 2, 3)),
        ("d_in", lambda size: linear_backward_flops(1, size, 3)),
        ("d_out", lambda size: linear_intensity(1, 2, size)),
        ("bytes_per_element", lambda size: linear_intensity(1, 2, 3, size)),
        ("num_heads", lambda size: attention_flops(1, 2, size, 4)),
        ("batch_size", lambda size: forward_flops(CONFIGS[0], size)),
        ("num_tokens", lambda size: estimated_step_flops(CONFIGS[0], size)),
    ],
)
def test_a_size_is_a_whole_number_from_1_on(name, call, size):
    with pytest.raises(ValueError, match=f"{name} must be a whole number from 1 on"):
        call(size)


@pytest.mark.parametrize("function", [forward_flops, step_flops, estimated_step_flops])
def test_a_sequence_has_a_token(function):
    with pytest.raises(ValueError, match="seq_len must be a whole number from 1 on"):
        function(CONFIGS[0], 1, 0)


def test_formulas_need_no_torch():
    code = "import sys; sys.modules['torch'] = None; import lmlib.flops, lmlib.memory; lmlib.memory.ledger(1)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
