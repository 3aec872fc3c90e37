"""lmlib.init: equal to torch where torch has the same, and what each does to activations through 24 layers."""

import math

import pytest
import torch
from torch.nn import functional as F

from lmlib.init import (
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    residual_scale,
    truncated_normal_,
    truncated_std,
    xavier_normal_,
    xavier_uniform_,
)

pytestmark = pytest.mark.usefixtures("one_thread")


INITIALIZERS = [normal_, xavier_normal_, xavier_uniform_, kaiming_normal_, kaiming_uniform_, truncated_normal_]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- the same numbers as torch ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 256), (256, 64), (1, 7)])
@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (lambda w, g: normal_(w, generator=g), "normal_", {}),
        (lambda w, g: normal_(w, 0.02, generator=g), "normal_", {"std": 0.02}),
        (lambda w, g: xavier_normal_(w, generator=g), "xavier_normal_", {}),
        (lambda w, g: xavier_uniform_(w, 1.5, generator=g), "xavier_uniform_", {"gain": 1.5}),
        (lambda w, g: kaiming_normal_(w, generator=g), "kaiming_normal_", {"nonlinearity": "relu"}),
        (lambda w, g: kaiming_normal_(w, 1.0, generator=g), "kaiming_normal_", {"nonlinearity": "linear"}),
        (lambda w, g: kaiming_uniform_(w, generator=g), "kaiming_uniform_", {"nonlinearity": "relu"}),
        (
            lambda w, g: truncated_normal_(w, 0.02, 2.5, generator=g),
            "trunc_normal_",
            {"std": 0.02, "a": -0.05, "b": 0.05},
        ),
    ],
)
def test_equal_to_torch(shape, ours, theirs, options):
    expected = getattr(torch.nn.init, theirs)(torch.empty(shape), **options, generator=seeded())
    torch.testing.assert_close(ours(torch.empty(shape), seeded()), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("initialize", INITIALIZERS)
def test_a_generator_repeats_and_leaves_the_global_state_alone(initialize):
    before = torch.get_rng_state()
    weights = [initialize(torch.empty(5, 3), generator=seeded(seed)) for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("initialize", INITIALIZERS)
def test_it_fills_a_parameter_in_place(initialize):
    weight = torch.nn.Parameter(torch.full((4, 6), math.nan))
    assert initialize(weight) is weight
    assert weight.isfinite().all()
    assert weight.requires_grad
    assert weight.is_leaf
    assert initialize(torch.empty(4, 6, device="meta"), generator=seeded()).is_meta


# --- truncation ------------------------------------------------------------------------------------------


def test_the_bound_is_in_units_of_sigma():
    std = 1 / math.sqrt(16_384)
    weight = truncated_normal_(torch.empty(500, 500), std, 3, generator=seeded())
    assert 2.9 < weight.abs().max() / std <= 3
    # torch's bounds are absolute: ±3 cuts nothing here
    absolute = torch.nn.init.trunc_normal_(torch.empty(500, 500), std=std, a=-3, b=3, generator=seeded())
    assert absolute.abs().max() / std > 4


@pytest.mark.parametrize("bound", [0.5, 1, 2, 3, 5])
def test_what_truncation_leaves_of_sigma(bound):
    drawn = truncated_normal_(torch.empty(400_000, dtype=torch.float64), 0.1, bound, generator=seeded())
    assert drawn.std().item() == pytest.approx(0.1 * truncated_std(bound), rel=5e-3)


def test_truncated_std_between_its_limits():
    assert [round(truncated_std(bound), 4) for bound in (2, 3)] == [0.8796, 0.9866]
    assert truncated_std(50) == 1
    for bound in [1e-12, 0.99e-4, 1.01e-4, 1e-3]:  # uniform, so near to 0
        assert truncated_std(bound) == pytest.approx(bound / math.sqrt(3), rel=1e-6)


# --- through 24 layers -----------------------------------------------------------------------------------

WIDTH = 256
DEPTH = 24


def matrix(initialize, *arguments):
    return lambda generator: initialize(torch.empty(WIDTH, WIDTH), *arguments, generator=generator)


def scale_through_depth(draw, activation=lambda x: x):
    """Root mean square of what 24 layers make of standard normal inputs."""
    generator = seeded()
    x = torch.randn(64, WIDTH, generator=generator)
    for _ in range(DEPTH):
        x = activation(x) @ draw(generator).T
    return x.double().square().mean().sqrt().item()


LINEAR_STD = 1 / math.sqrt(WIDTH)


@pytest.mark.parametrize(
    ("draw", "activation"),
    [
        (matrix(xavier_normal_), lambda x: x),
        (matrix(xavier_uniform_), lambda x: x),
        (matrix(kaiming_normal_, 1.0), lambda x: x),
        (matrix(kaiming_uniform_, 1.0), lambda x: x),
        (matrix(truncated_normal_, LINEAR_STD, 3), lambda x: x),
        (matrix(truncated_normal_, LINEAR_STD / truncated_std(2), 2), lambda x: x),
        (matrix(kaiming_normal_), F.relu),
        (matrix(kaiming_uniform_), F.relu),
    ],
)
def test_the_right_ones_hold_the_scale(draw, activation):
    assert 1 / 2 < scale_through_depth(draw, activation) < 2


@pytest.mark.parametrize(
    ("draw", "activation", "factor"),  # of one layer
    [
        (matrix(normal_), lambda x: x, math.sqrt(WIDTH)),  # explodes
        (matrix(normal_, 0.02), lambda x: x, 0.02 * math.sqrt(WIDTH)),  # right for a width of 2500
        (matrix(truncated_normal_, LINEAR_STD, 2), lambda x: x, truncated_std(2)),
        (matrix(kaiming_normal_), lambda x: x, math.sqrt(2)),  # made for ReLU
        (matrix(kaiming_normal_, 1.0), F.relu, math.sqrt(1 / 2)),  # not made for it
        (matrix(xavier_normal_), F.relu, math.sqrt(1 / 2)),
    ],
)
def test_the_wrong_ones_leave_it_as_predicted(draw, activation, factor):
    scale = scale_through_depth(draw, activation)
    assert not 1 / 2 < scale < 2
    assert math.log(scale) == pytest.approx(DEPTH * math.log(factor), abs=math.log(2))


@pytest.mark.parametrize(
    ("draw", "activation", "factor"),  # of one layer, backwards
    [
        (matrix(xavier_normal_), lambda x: x, 1),
        (matrix(kaiming_normal_), F.relu, 1),
        (matrix(normal_, 0.02), F.relu, 0.02 * math.sqrt(WIDTH / 2)),  # vanishes
        (matrix(kaiming_normal_), lambda x: x, math.sqrt(2)),  # explodes
    ],
)
def test_gradients_keep_their_scale_with_the_activations(draw, activation, factor):
    generator = seeded()
    start = torch.randn(64, WIDTH, generator=generator, requires_grad=True)
    x = start
    for _ in range(DEPTH):
        x = activation(x @ draw(generator).T)
    (gradient,) = torch.autograd.grad(x, start, torch.randn(64, WIDTH, generator=generator))
    scale = gradient.double().square().mean().sqrt().item()
    assert math.log(scale) == pytest.approx(DEPTH * math.log(factor), abs=math.log(2))


def scale_of_residual(scale):
    """Root mean square of a residual stream to which 24 layers add twice, each time of scale 1 before scaling."""
    generator = seeded()
    x = torch.randn(64, WIDTH, generator=generator)
    for _ in range(2 * DEPTH):
        weight = kaiming_normal_(torch.empty(WIDTH, WIDTH), 1.0, generator=generator)
        x = x + F.rms_norm(x, (WIDTH,)) @ (scale * weight).T
    return x.square().mean().sqrt().item()


def test_residual_scaling_holds_the_residual_stream():
    assert scale_of_residual(residual_scale(DEPTH)) == pytest.approx(math.sqrt(1 + 1), rel=0.05)
    assert scale_of_residual(1) == pytest.approx(math.sqrt(1 + 2 * DEPTH), rel=0.05)


def test_residual_scale_of_gpt2():
    assert residual_scale(12) == 1 / math.sqrt(24)


def test_a_bound_beyond_all_that_is_drawn_cuts_nothing():
    assert truncated_std(1e300) == truncated_std(50) == truncated_std(39) == 1


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initialize", [xavier_normal_, xavier_uniform_, kaiming_normal_, kaiming_uniform_])
def test_a_fan_needs_a_matrix_and_a_gain_above_0(initialize):
    for shape in [(3,), (2, 3, 4), (0, 3), (3, 0)]:
        with pytest.raises(ValueError, match=r"has no fan-in: pass a matrix \(fan_out, fan_in\)"):
            initialize(torch.empty(shape))
    for gain in [0, -1, math.nan, math.inf, "relu", True, 10**400]:
        with pytest.raises(ValueError, match="gain must be a finite number above 0"):
            initialize(torch.empty(2, 2), gain)


def test_bad_numbers_leave_the_weight_alone():
    weight = torch.zeros(2, 2)
    for std in [-1, math.nan, math.inf, "0.02", True]:
        with pytest.raises(ValueError, match="std must be a finite number"):
            normal_(weight, std)
        with pytest.raises(ValueError, match="std must be a finite number"):
            truncated_normal_(weight, std)
    for bound in [0, -3, math.nan, math.inf]:
        with pytest.raises(ValueError, match="bound must be a finite number above 0"):
            truncated_normal_(weight, 1, bound)
        with pytest.raises(ValueError, match="bound must be a finite number above 0"):
            truncated_std(bound)
    for layers in [0, -2, math.nan, 2.5, "12", True]:
        with pytest.raises(ValueError, match="num_layers must be a whole number from 1 on"):
            residual_scale(layers)
    assert torch.equal(weight, torch.zeros(2, 2))
