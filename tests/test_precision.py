"""lmlib.precision: what each mode computes and keeps, what it refuses, and int8 weights."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmlib.config import ModelConfig
from lmlib.memory import bytes_by_dtype, saved_tensor_bytes, saved_tensors
from lmlib.model import TransformerLM
from lmlib.precision import (
    PRECISIONS,
    Int8Linear,
    get_precision,
    make_scaler,
    precision_context,
    quantize_rows,
    to_precision,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ON_A_CPU = [mode for mode in PRECISIONS if mode != "tf32"]


def cast(model, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_precision(model, mode)


# --- modes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "result", "gradient"),
    [
        ("fp32", torch.float32, torch.float32),
        ("bf16-autocast", torch.bfloat16, torch.float32),
        ("fp16-autocast", torch.float16, torch.float32),
        ("bf16", torch.bfloat16, torch.bfloat16),
    ],
)
def test_products_and_gradients(mode, result, gradient):
    """Autocast computes in 16 bits; gradients are those of the parameters."""
    layer = cast(nn.Linear(8, 8), mode)
    optimizer = torch.optim.AdamW(layer.parameters())
    scaler = make_scaler(mode)
    with precision_context(mode, scaler=scaler):
        y = layer(torch.randn(2, 8, dtype=layer.weight.dtype))
        loss = y.float().square().mean()
    assert y.dtype == result
    scaler.scale(loss).backward()
    assert layer.weight.grad.dtype == gradient == PRECISIONS[mode].parameters
    scaler.step(optimizer)
    assert optimizer.state[layer.weight]["exp_avg"].dtype == gradient


@pytest.mark.parametrize("mode", ["fp32", "bf16-autocast", "bf16"])
def test_what_a_mode_saves_is_what_the_formula_says(mode):
    config = ModelConfig(vocab_size=101, context_length=32, d_model=48, num_layers=2, num_heads=4, num_kv_heads=2)
    model = cast(TransformerLM(config), mode)
    ids, targets = torch.randint(101, (2, 17)), torch.randint(101, (2, 17))

    def run():
        with precision_context(mode):
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())

    measured = saved_tensor_bytes(run, parameters=model.parameters()).by_dtype
    assert measured == bytes_by_dtype(saved_tensors(config, 2, 17, attention="fused", precision=mode))


def test_a_mode_is_over_when_its_context_is():
    layer, x = nn.Linear(4, 4), torch.randn(2, 4)
    with precision_context("bf16-autocast"):
        assert layer(x).dtype == torch.bfloat16
        with precision_context("fp32"):
            assert layer(x).dtype == torch.float32
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32


def test_tf32_is_set_and_set_back():
    before = torch.get_float32_matmul_precision()
    with precision_context("tf32", "cuda"):
        assert torch.get_float32_matmul_precision() == "high"
        with precision_context("fp32", "cuda"):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(KeyError), precision_context("tf32", "cuda"):
        raise KeyError
    assert torch.get_float32_matmul_precision() == before


# --- warnings and refusals ----------------------------------------------------------------------------------------


def test_pure_bf16_warns_of_what_happens():
    model = nn.Linear(4, 4)
    with pytest.warns(UserWarning, match="below 1/512 of its weight is rounded away"):
        to_precision(model, "bf16")
    for weight in (1.0, 1.99, 0.03):
        parameter = torch.tensor(weight, dtype=torch.bfloat16)
        for update in (parameter / 520, -parameter / 520):
            assert parameter + update == parameter
            assert parameter.float() + update.float() != parameter.float()


@pytest.mark.parametrize("mode", [mode for mode in PRECISIONS if mode != "bf16"])
def test_other_modes_keep_fp32_without_a_warning(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = to_precision(nn.Linear(4, 4).bfloat16(), mode)
    assert model.weight.dtype == torch.float32


def test_fp16_needs_a_scaler():
    for scaler in (None, make_scaler("fp32"), torch.amp.GradScaler("cpu", enabled=False)):
        with (
            pytest.raises(ValueError, match="become 0, and training stalls: pass the scaler"),
            precision_context("fp16-autocast", scaler=scaler),
        ):
            pass
    with torch.no_grad(), precision_context("fp16-autocast"):  # there is nothing to scale
        assert nn.Linear(4, 4)(torch.randn(2, 4)).dtype == torch.float16


@pytest.mark.parametrize("mode", PRECISIONS)
def test_only_fp16_is_scaled(mode):
    assert make_scaler(mode).is_enabled() == (mode == "fp16-autocast")


def test_tiny_gradients_survive_only_with_the_scaler():
    layer, x = nn.Linear(4, 1, bias=False), torch.ones(1, 4)
    with torch.autocast("cpu", torch.float16):
        (layer(x).float() * 1e-8).sum().backward()
    assert not layer.weight.grad.any()  # this is what is refused
    layer.weight.grad = None
    scaler = make_scaler("fp16-autocast")
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    with precision_context("fp16-autocast", scaler=scaler):
        loss = (layer(x).float() * 1e-8).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.testing.assert_close(layer.weight.grad, torch.full((1, 4), 1e-8), rtol=1e-3, atol=0)


@pytest.mark.parametrize("function", [get_precision, make_scaler, lambda mode: to_precision(nn.Linear(1, 1), mode)])
def test_an_unknown_mode(function):
    with pytest.raises(ValueError, match="no precision 'fp8': choose one of fp32, tf32"):
        function("fp8")


def test_tf32_is_for_gpus():
    with pytest.raises(ValueError, match="for cpu choose fp32"), precision_context("tf32"):
        pass


# --- int8 ---------------------------------------------------------------------------------------------------------


def test_a_weight_is_off_by_half_a_step_at_most():
    weight = torch.randn(7, 33) * torch.logspace(-6, 3, 7)[:, None]
    quantized, scales = quantize_rows(weight)
    error = (quantized.float() * scales[:, None] - weight).abs()
    assert (error <= 0.5001 * scales[:, None]).all()
    assert quantized.abs().amax(dim=1).tolist() == [127] * 7  # each row uses the whole range


def test_a_row_of_zeros_stays_one():
    quantized, scales = quantize_rows(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert quantized.tolist() == [[0, 0], [64, -127]]
    assert scales[0] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_int8_linear(bias, dtype):
    linear = nn.Linear(65, 33, bias=bias)
    layer = Int8Linear.from_linear(linear)
    x = torch.randn(2, 5, 65, dtype=dtype)
    y = layer(x)
    assert (y.dtype, y.shape) == (dtype, (2, 5, 33))
    restored = layer.weight.float() * layer.scales[:, None]
    expected = F.linear(x.float(), restored, linear.bias)
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(y.float(), expected, rtol=tolerance, atol=tolerance)
    error = (y.float() - linear(x.float())).norm() / linear(x.float()).norm()
    assert 0.001 < error < 0.02


def test_int8_takes_a_byte_a_weight():
    layer = Int8Linear.from_linear(nn.Linear(64, 32, bias=False))
    assert sum(buffer.nbytes for buffer in layer.buffers()) == 64 * 32 + 32 * 4
    assert not [*layer.parameters()]
    again = Int8Linear.from_linear(nn.Linear(64, 32, bias=False))
    again.load_state_dict(layer.state_dict())
    x = torch.randn(3, 64)
    assert torch.equal(again(x), layer(x))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_int8_refuses_what_is_not_finite(value):
    with pytest.raises(ValueError, match="not finite"):
        quantize_rows(torch.tensor([[1.0, value]]))


def test_int8_refuses_what_fp32_cannot_hold():
    with pytest.raises(ValueError, match="not finite"):
        quantize_rows(torch.tensor([[1e300, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(3,), (3, 0), (2, 3, 4), ()])
def test_int8_refuses_what_has_no_rows(shape):
    with pytest.raises(ValueError, match=r"has no rows to be rounded: pass a matrix \(d_out, d_in\)"):
        quantize_rows(torch.zeros(shape))


def test_int8_of_no_rows_is_none():
    quantized, scales = quantize_rows(torch.zeros(0, 3))
    assert (quantized.shape, scales.shape) == ((0, 3), (0,))
