"""lmlib.optim.clipping: as torch.nn.utils.clip_grad_norm_, and right for 16 bits where that is not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lmlib.optim import clip_grad_norm_
from tests.typechecking import typechecked

clipping = typechecked("lmlib.optim.clipping")

pytestmark = pytest.mark.usefixtures("one_thread")


def parameters(shapes, scale=1.0, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape in shapes:
        param = nn.Parameter(torch.zeros(shape or (), dtype=dtype))
        if shape is not None:  # None stands for a parameter without a gradient
            param.grad = (torch.randn(shape, generator=generator) * scale).to(dtype)
        made.append(param)
    return made


def gradients(params):
    return [param.grad for param in params if param.grad is not None]


def norm_in_fp64(params):
    return math.sqrt(sum(grad.double().square().sum().item() for grad in gradients(params)))


# --- equal to PyTorch's ---------------------------------------------------------------------------------


@given(
    shapes=st.lists(st.sampled_from([None, (), (0,), (5,), (3, 4), (2, 1, 6)]), max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scale=st.sampled_from([0.0, 1e-20, 1e-3, 1.0, 1e4]),
    max_norm=st.sampled_from([1e-3, 1.0, 50.0, math.inf]),
    seed=st.integers(0, 2**31),
)
def test_equal_to_pytorch(shapes, dtype, scale, max_norm, seed):
    params, peers = (parameters(shapes, scale, dtype, seed) for _ in range(2))
    norm = clipping.clip_grad_norm_(params, max_norm)
    expected = nn.utils.clip_grad_norm_(peers, max_norm, foreach=False)
    torch.testing.assert_close(norm, expected, rtol=0, atol=0)
    torch.testing.assert_close(gradients(params), gradients(peers), rtol=0, atol=0)


@pytest.mark.parametrize("spoiled", [math.nan, math.inf])
def test_equal_to_pytorch_for_a_norm_that_is_not_finite(spoiled):
    params, peers = parameters([(3,), (2, 2)]), parameters([(3,), (2, 2)])
    for some in (params, peers):
        some[1].grad[0, 0] = spoiled
    norms = clipping.clip_grad_norm_(params, 1.0), nn.utils.clip_grad_norm_(peers, 1.0)
    torch.testing.assert_close(*norms, equal_nan=True)
    torch.testing.assert_close(gradients(params), gradients(peers), equal_nan=True)


# --- what it does ---------------------------------------------------------------------------------------


@given(st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_what_is_too_long_becomes_as_long_as_allowed_in_the_same_direction(max_norm, seed):
    params = parameters([(4, 4), (), None, (7,)], dtype=torch.float64, seed=seed)
    before = [grad.clone() for grad in gradients(params)]
    length = norm_in_fp64(params)
    assert clip_grad_norm_(params, max_norm).item() == pytest.approx(length)
    factor = min(1, max_norm / length)
    torch.testing.assert_close(gradients(params), [grad * factor for grad in before], rtol=2e-6, atol=0)
    assert clip_grad_norm_(params, math.inf).item() == pytest.approx(min(length, max_norm), rel=2e-6)


def test_what_is_short_stays_to_the_bit():
    params = parameters([(4, 4), (7,)])
    before = [grad.clone() for grad in gradients(params)]
    for max_norm in (1.01 * norm_in_fp64(params), math.inf):
        clip_grad_norm_(params, max_norm)
        assert all(map(torch.equal, gradients(params), before))


def test_a_single_tensor_a_generator_and_nothing():
    (param,) = parameters([(3, 3)], scale=10.0)
    assert clip_grad_norm_(param, 1.0) > 1
    assert clip_grad_norm_((p for p in [param]), 2.0).item() == pytest.approx(1, rel=1e-5)
    assert norm_in_fp64([param]) == pytest.approx(1, rel=1e-5)
    for nothing in ([], parameters([None, None])):
        assert clip_grad_norm_(nothing, 1.0) == 0


def test_gradients_that_have_gradients_are_clipped_outside_of_the_graph():
    (param,) = parameters([(3,)], scale=10.0)
    param.grad.requires_grad_()
    assert not clip_grad_norm_(param, 1.0).requires_grad
    assert norm_in_fp64([param]) == pytest.approx(1, rel=1e-5)


def test_a_parameter_given_twice_counts_once():
    once, twice = parameters([(4, 4), (7,)], scale=10.0), parameters([(4, 4), (7,)], scale=10.0)
    assert clip_grad_norm_([*twice, twice[0]], 1.0) == clip_grad_norm_(once, 1.0)
    assert all(map(torch.equal, gradients(twice), gradients(once)))


# --- 16 bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_added_up_in_32(dtype):
    params = parameters([(300, 7), (500,), (3, 5, 7)], dtype=dtype)
    exact = norm_in_fp64(params)
    norm = clipping.clip_grad_norm_(params, 1.0)
    assert norm.dtype == torch.float32
    assert norm.item() == pytest.approx(exact, rel=1e-5)
    assert norm_in_fp64(params) == pytest.approx(1, rel=0.01)
    assert {grad.dtype for grad in gradients(params)} == {dtype}
    theirs = nn.utils.clip_grad_norm_(parameters([(300, 7), (500,), (3, 5, 7)], dtype=dtype), 1.0)
    assert abs(theirs.item() - exact) > 1e-5 * exact


def test_a_norm_beyond_fp16_is_clipped_not_lost():
    def large():
        return parameters([(100, 100), (50, 50)], scale=1000.0, dtype=torch.float16)

    params, peers = large(), large()
    assert norm_in_fp64(params) > torch.finfo(torch.float16).max
    clip_grad_norm_(params, 1.0)
    assert norm_in_fp64(params) == pytest.approx(1, rel=0.01)
    nn.utils.clip_grad_norm_(peers, 1.0)  # whose norm is infinite
    assert norm_in_fp64(peers) == 0


def test_gradients_of_several_dtypes():
    params = [*parameters([(4, 4)]), *parameters([(5,)], dtype=torch.bfloat16, seed=1)]
    params += parameters([(6,)], dtype=torch.float64, seed=2)
    exact = norm_in_fp64(params)
    norm = clip_grad_norm_(params, 0.5)
    assert norm.dtype == torch.float64
    assert norm.item() == pytest.approx(exact, rel=1e-6)
    assert norm_in_fp64(params) == pytest.approx(0.5, rel=0.01)


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [0, -1.0, math.nan, "1", None, True, 10**400, torch.tensor([1.0])])
def test_a_max_norm_that_is_none(max_norm):
    params = parameters([(3,)])
    before = params[0].grad.clone()
    with pytest.raises(ValueError, match=r"max_norm must be a number above 0, such as 1\.0, not "):
        clip_grad_norm_(params, max_norm)
    assert torch.equal(params[0].grad, before)


@pytest.mark.parametrize("spoiled", [math.nan, math.inf, -math.inf])
def test_error_if_nonfinite(spoiled):
    params = parameters([(3,), (2, 2)])
    params[1].grad[0, 0] = spoiled
    before = [grad.clone() for grad in gradients(params)]
    with pytest.raises(RuntimeError, match=rf"norm of the gradients is {abs(spoiled)}, .* skip this step"):
        clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    torch.testing.assert_close(gradients(params), before, rtol=0, atol=0, equal_nan=True)


def test_a_sparse_gradient():
    dense, embedding = parameters([(3,)])[0], nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    before = dense.grad.clone()
    with pytest.raises(RuntimeError, match=r"A gradient is sparse, .* make it dense"):
        clip_grad_norm_([dense, embedding.weight], 1e-3)
    assert torch.equal(dense.grad, before)
