"""How weights begin: random, and of a size that keeps activations as they come.

A linear layer adds up ``fan_in`` products, so that independent weights of standard
deviation σ multiply the scale of what passes through by σ·√fan_in. Every rule here
follows from var(a·X) = a²·var(X); they differ in what they want to keep.

The functions fill a weight in place and return it. A matrix has the shape
``(fan_out, fan_in)``, as ``torch.nn.Linear`` holds it. Nothing is seeded: pass a
``generator`` to draw the same numbers again.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from lmlib.checks import check, check_positive, check_size, is_nonnegative

__all__ = [
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "residual_scale",
    "truncated_normal_",
    "truncated_std",
    "xavier_normal_",
    "xavier_uniform_",
]

Matrix = Float[Tensor, "fan_out fan_in"]


def normal_(
    weight: Float[Tensor, "..."],
    std: float = 1.0,
    *,
    generator: Generator | None = None,
) -> Float[Tensor, "..."]:
    """Normal with mean 0; without a ``std`` the standard normal.

    Raises ValueError for a ``std`` that is not a finite number from 0 on.
    """
    check(is_nonnegative(std), "std", "a finite number from 0 on", std)
    with torch.no_grad():
        return weight.normal_(0, std, generator=generator)


def xavier_normal_(
    weight: Matrix, gain: float = 1.0, *, generator: Generator | None = None
) -> Matrix:
    """Normal with σ = gain·√(2 / (fan_in + fan_out)), between forward and backward.

    Source: Glorot & Bengio 2010, eq. 12. ValueError for a ``gain`` not above 0.
    """
    return normal_(weight, _xavier_std(weight, gain), generator=generator)


def xavier_uniform_(
    weight: Matrix, gain: float = 1.0, *, generator: Generator | None = None
) -> Matrix:
    """Uniform on ±gain·√(6 / (fan_in + fan_out)), of the same σ as the normal one.

    Source: Glorot & Bengio 2010, eq. 16. ValueError for a ``gain`` not above 0.
    """
    return _uniform_(weight, _xavier_std(weight, gain), generator)


def kaiming_normal_(
    weight: Matrix,
    gain: float = math.sqrt(2),
    *,
    generator: Generator | None = None,
) -> Matrix:
    """Normal with σ = gain/√fan_in, which keeps the scale of what goes forward.

    ReLU halves the mean square, hence a ``gain`` of √2; without a nonlinearity it
    is 1. Source: He et al. 2015, eq. 10. ValueError for a ``gain`` not above 0.
    """
    return normal_(weight, _kaiming_std(weight, gain), generator=generator)


def kaiming_uniform_(
    weight: Matrix,
    gain: float = math.sqrt(2),
    *,
    generator: Generator | None = None,
) -> Matrix:
    """Uniform on ±gain·√(3/fan_in), of the same σ as the normal one.

    Source: He et al. 2015, eq. 10. ValueError for a ``gain`` not above 0.
    """
    return _uniform_(weight, _kaiming_std(weight, gain), generator)


def truncated_normal_(
    weight: Float[Tensor, "..."],
    std: float = 1.0,
    bound: float = 3.0,
    *,
    generator: Generator | None = None,
) -> Float[Tensor, "..."]:
    """Normal of scale ``std`` without its tails beyond ``bound`` times ``std``.

    The bound is in units of σ. That of ``torch.nn.init.trunc_normal_`` is absolute:
    with its default of ±2 and a ``std`` of 0.02 it cuts at 100σ, which is nowhere.
    What is left has a standard deviation of ``std * truncated_std(bound)``.

    Raises ValueError unless ``std`` and ``bound`` are finite numbers above 0.
    """
    check_positive("std", std)
    check_positive("bound", bound)
    limit = bound * std
    return torch.nn.init.trunc_normal_(
        weight, std=std, a=-limit, b=limit, generator=generator
    )


def truncated_std(bound: float) -> float:
    """Standard deviation of a standard normal without its tails beyond ±``bound``.

    √(1 − 2·b·φ(b) / (2·Φ(b) − 1)), with the normal density φ and distribution Φ:
    0.9866 at 3, 0.8796 at 2. Divide a ``std`` by it to draw just that. Source:
    Johnson, Kotz & Balakrishnan 1994, chapter 13, section 10.1.

    Raises ValueError unless ``bound`` is a finite number above 0.
    """
    check_positive("bound", bound)
    if bound < 1e-4:  # so near to 0 the normal is uniform, and the formula cancels
        return bound / math.sqrt(3)
    if bound > 40:  # nothing is cut off that a float could tell
        return 1.0
    density = math.exp(-(bound**2) / 2) / math.sqrt(2 * math.pi)
    inside = math.erf(bound / math.sqrt(2))
    return math.sqrt(1 - 2 * bound * density / inside)


def residual_scale(num_layers: int) -> float:
    """1/√(2·layers), GPT-2's factor for the weights that write to the residual.

    Each layer adds twice to the residual stream, by attention and by MLP. So
    scaled, all these additions together vary as much as one unscaled.
    Source: Radford et al. 2019, section 2.3, where 2·layers is called N.

    Raises ValueError unless ``num_layers`` is a whole number from 1 on.
    """
    return 1 / math.sqrt(2 * check_size("num_layers", num_layers))


def _uniform_(weight: Matrix, std: float, generator: Generator | None) -> Matrix:
    limit = math.sqrt(3) * std  # uniform on ±limit has the variance limit²/3
    with torch.no_grad():
        return weight.uniform_(-limit, limit, generator=generator)


def _xavier_std(weight: Matrix, gain: float) -> float:
    fan_out, fan_in = _fans(weight)
    check_positive("gain", gain)
    return gain * math.sqrt(2 / (fan_in + fan_out))


def _kaiming_std(weight: Matrix, gain: float) -> float:
    _, fan_in = _fans(weight)
    check_positive("gain", gain)
    return gain / math.sqrt(fan_in)


def _fans(weight: Tensor) -> tuple[int, int]:
    if weight.ndim != 2 or not weight.numel():
        raise ValueError(
            f"A weight of shape {tuple(weight.shape)} has no fan-in: pass a matrix "
            "(fan_out, fan_in) that is not empty."
        )
    return weight.shape[0], weight.shape[1]
