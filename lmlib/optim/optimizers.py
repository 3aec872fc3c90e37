"""SGD, AdaGrad, RMSProp, Adam and AdamW: five rules, one parameter at a time.

Each ``update`` is the rule of its paper, with the equations beside it: θ is the
parameter, g its gradient, λ the weight decay. From one optimizer to the next only
those lines differ in which the rules do.

The operations are those of ``torch.optim`` with ``foreach=False``, and the results
are the same to the bit. So are the defaults and the names in the state (AdaGrad and
RMSProp count steps only for that): a state dict goes both ways. For long runs take
PyTorch's Adam or AdamW with ``fused=True``, which reads and writes a tensor once.

``a.add_(b, alpha=c)`` is a + c·b, ``a.addcmul_(b, d, value=c)`` a + c·b·d,
``a.addcdiv_(b, d, value=c)`` a + c·b/d and ``a.lerp_(b, c)`` a + c·(b − a), each in
place and without a tensor for what is added.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lmlib.checks import check, is_nonnegative, is_share

__all__ = ["SGD", "AdaGrad", "Adam", "AdamW", "RMSProp", "SingleTensorOptimizer"]

Values = Float[Tensor, "*shape"]  # of a parameter, and of its gradient
Options = dict[str, Any]  # of a parameter group
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Options]


class SingleTensorOptimizer(torch.optim.Optimizer):
    """Updates each parameter that has a gradient, by a rule that a subclass adds.

    Raises ValueError for an option out of range, in any group, and for a state that
    it could not continue, of which nothing is loaded; RuntimeError for a sparse or
    complex gradient, before any parameter has changed.
    """

    keeps: ClassVar[tuple[str, ...]] = ()
    """Names of what is kept for each parameter from one step to the next."""

    fixed: ClassVar[Options] = {}
    """Options that only PyTorch's optimizer has, with the value that means none."""

    def __init__(self, params: Params, **options: Any) -> None:
        super().__init__(params, options | self.fixed)

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Change a parameter in place, with the options of its group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        A ``closure``, if given, is called first: it computes the gradients and
        returns the loss, which is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        updates = [
            (param, param.grad, group)
            for group in self.param_groups
            for param in group["params"]
            if param.grad is not None
        ]
        _check_gradients(grad for _, grad, _ in updates)
        for param, grad, group in updates:
            self.update(param, grad, group)
        return loss

    def kept(self, param: Values) -> list[Tensor]:
        """What is kept for a parameter, in the order of ``keeps``; at first zeros.

        ``"step"`` is a single number, the others are like the parameter.
        """
        state = self.state[param]
        if not state:
            for name in self.keeps:
                state[name] = torch.zeros_like(param)
            if "step" in state:  # in 16 bits it would not count far
                state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
        return [state[name] for name in self.keeps]

    def add_param_group(self, param_group: Options) -> None:
        """Add parameters; options that the group does not name are the defaults."""
        self._check_options(self.defaults | param_group)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in _OPTIONS.keys() & group.keys():
            group[name] = _plain(group[name])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state of this optimizer, or of PyTorch's of that name."""
        if not {"state", "param_groups"} <= set(state_dict):
            keys = ", ".join(map(repr, [*state_dict][:3]))
            raise ValueError(
                "The state dict of an optimizer has 'state' and 'param_groups'; "
                f"this one has {keys or 'nothing'}."
            )
        for group in state_dict["param_groups"]:
            self._check_options(group)
        saved, mine = (
            [param for group in groups for param in group["params"]]
            for groups in (state_dict["param_groups"], self.param_groups)
        )
        params = dict(
            zip(saved, mine, strict=False)
        )  # PyTorch compares the lengths
        state = {
            index: self._checked_state(state, params.get(index))
            for index, state in state_dict["state"].items()
        }
        super().load_state_dict(state_dict | {"state": state})

    def _checked_state(self, state: Options, param: Tensor | None) -> Options:
        """A parameter's state, in today's form if an older PyTorch wrote it."""
        if foreign := [name for name in state if name not in self.keeps]:
            self._refuse(f"with {', '.join(foreign)} in its state")
        state = {name: value for name, value in state.items() if value is not None}
        if state and (
            missing := [name for name in self.keeps if name not in state]
        ):
            self._refuse(f"without {', '.join(missing)} in its state")
        if "step" in state:
            step = float(state["step"])
            check(is_nonnegative(step), "step", "a finite number from 0 on", step)
            state["step"] = torch.tensor(step, dtype=torch.float32, device="cpu")
        for name in state.keys() - {"step"}:
            if param is not None and state[name].shape != param.shape:
                shapes = f"{tuple(state[name].shape)} for {tuple(param.shape)}"
                self._refuse(
                    f"with {name} of another shape, {shapes}, in its state"
                )
        return state

    def _check_options(self, group: Options) -> None:
        for name, (is_right, wanted) in _OPTIONS.items():
            if name in self.defaults and name not in group:
                self._refuse(f"without {name} in its options")
            if name in group:
                check(is_right(group[name]), name, wanted, group[name])
        for name, none in self.fixed.items():
            if group.get(name, none) != none:
                self._refuse(f"with {name}={group[name]!r} in its options")

    def _refuse(self, what: str) -> None:
        raise ValueError(
            f"{type(self).__name__} does not work {what}: use the optimizer that "
            "this belongs to."
        )


class SGD(SingleTensorOptimizer):
    """Stochastic gradient descent, with ``momentum`` if that is above 0.

    ``nesterov`` looks ahead along the momentum. Sources: Polyak 1964; Sutskever et
    al. 2013, section 2. Their sum has lr in it; here, as in PyTorch, lr multiplies
    the sum.
    """

    keeps = ("momentum_buffer",)
    fixed: ClassVar[Options] = {"dampening": 0, "maximize": False}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and momentum == 0:
            raise ValueError("nesterov looks along the momentum: give one above 0.")
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
        )

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Go along −g, or along −b, the sum of all g, the older the smaller."""
        momentum = group["momentum"]
        grad = grad.add(param, alpha=group["weight_decay"])  # g ← g + λθ
        if momentum:
            (b,) = self.kept(param)
            b.mul_(momentum).add_(grad)  # b ← momentum·b + g
            grad = grad.add(b, alpha=momentum) if group["nesterov"] else b
        param.add_(grad, alpha=-group["lr"])  # θ ← θ − lr·g


class AdaGrad(SingleTensorOptimizer):
    """Each element goes at its own rate, divided by the root of all its g² so far.

    The sum only grows, so the rate only falls. Source: Duchi et al. 2011, section
    1.1, with the diagonal of the matrix.
    """

    keeps = ("step", "sum")
    fixed: ClassVar[Options] = {"lr_decay": 0, "maximize": False}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        *,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Go along −g, each element divided by √v, where v adds up g²."""
        step, v = self.kept(param)
        step += 1
        grad = grad.add(param, alpha=group["weight_decay"])  # g ← g + λθ
        v.addcmul_(grad, grad)  # v ← v + g²
        root = v.sqrt().add_(group["eps"])  # √v + ε
        param.addcdiv_(grad, root, value=-group["lr"])  # θ ← θ − lr·g / root


class RMSProp(SingleTensorOptimizer):
    """AdaGrad that forgets: a moving average of g² in place of their sum.

    Source: Tieleman & Hinton 2012, lecture 6.5.
    """

    keeps = ("step", "square_avg")
    fixed: ClassVar[Options] = {"momentum": 0, "centered": False, "maximize": False}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay
        )

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Go along −g, each element divided by √v, where v averages g²."""
        alpha = group["alpha"]
        step, v = self.kept(param)
        step += 1
        grad = grad.add(param, alpha=group["weight_decay"])  # g ← g + λθ
        v.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)  # v ← αv + (1 − α)g²
        root = v.sqrt().add_(group["eps"])  # √v + ε
        param.addcdiv_(grad, root, value=-group["lr"])  # θ ← θ − lr·g / root


class Adam(SingleTensorOptimizer):
    """RMSProp along a moving average of g, the bias of both averages corrected.

    An average that starts at 0 has after t steps the weight 1 − βᵗ, not 1: divided
    by it, m̂ and v̂ are right from the first step, which is lr·g / (|g| + ε).
    ``weight_decay`` is L2 regularisation: it goes through both averages. Source:
    Kingma & Ba 2015, Algorithm 1.
    """

    keeps = ("step", "exp_avg", "exp_avg_sq")
    fixed: ClassVar[Options] = {
        "amsgrad": False,
        "decoupled_weight_decay": False,
        "maximize": False,
    }

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Go along −m̂, each element divided by √v̂, where m averages g and v g²."""
        beta1, beta2 = group["betas"]
        step, m, v = self.kept(param)
        step += 1
        correction1 = 1 - beta1 ** step.item()
        correction2 = 1 - beta2 ** step.item()
        grad = grad.add(param, alpha=group["weight_decay"])  # g ← g + λθ
        m.lerp_(grad, 1 - beta1)  # m ← β₁m + (1 − β₁)g
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)  # v ← β₂v + (1 − β₂)g²
        root = (v.sqrt() / correction2**0.5).add_(group["eps"])  # √v̂ + ε
        rate = group["lr"] / correction1  # lr·m̂ is rate·m
        param.addcdiv_(m, root, value=-rate)  # θ ← θ − lr·m̂ / root


class AdamW(SingleTensorOptimizer):
    """Adam with decoupled weight decay: θ shrinks by lr·λθ, whatever g was.

    In Adam √v̂ divides λθ too, and what has large gradients hardly decays. Source:
    Loshchilov & Hutter 2019, Algorithm 2. There λ is multiplied by the schedule
    alone; here, as in PyTorch, by lr.
    """

    keeps = ("step", "exp_avg", "exp_avg_sq")
    fixed: ClassVar[Options] = {
        "amsgrad": False,
        "decoupled_weight_decay": True,
        "maximize": False,
    }

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )

    def update(self, param: Values, grad: Values, group: Options) -> None:
        """Go along −m̂, each element divided by √v̂, where m averages g and v g²."""
        beta1, beta2 = group["betas"]
        step, m, v = self.kept(param)
        step += 1
        correction1 = 1 - beta1 ** step.item()
        correction2 = 1 - beta2 ** step.item()
        param.mul_(1 - group["lr"] * group["weight_decay"])  # θ ← θ − lr·λθ
        m.lerp_(grad, 1 - beta1)  # m ← β₁m + (1 − β₁)g
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)  # v ← β₂v + (1 − β₂)g²
        root = (v.sqrt() / correction2**0.5).add_(group["eps"])  # √v̂ + ε
        rate = group["lr"] / correction1  # lr·m̂ is rate·m
        param.addcdiv_(m, root, value=-rate)  # θ ← θ − lr·m̂ / root


def _is_pair_of_shares(value: object) -> bool:
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    return is_pair and all(map(is_share, value))


def _plain(value: Any) -> Any:
    """An option without NumPy's numbers, which a checkpoint could not hold."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return value if isinstance(value, bool) else float(value)


_OPTIONS: dict[str, tuple[Callable[[object], bool], str]] = {
    "lr": (is_nonnegative, "a finite number from 0 on"),
    "momentum": (is_share, "a number from 0 to below 1"),
    "nesterov": (lambda value: isinstance(value, bool), "True or False"),
    "alpha": (is_share, "a number from 0 to below 1"),
    "betas": (_is_pair_of_shares, "two numbers from 0 to below 1"),
    "eps": (is_nonnegative, "a finite number from 0 on"),
    "weight_decay": (is_nonnegative, "a finite number from 0 on"),
}


def _check_gradients(gradients: Iterable[Tensor]) -> None:
    for gradient in gradients:
        if gradient.layout != torch.strided:
            raise RuntimeError(
                "A gradient is sparse: make it dense (an embedding without "
                "sparse=True), or use an optimizer of torch.optim that takes it."
            )
        if gradient.is_complex():
            raise RuntimeError(
                "A gradient is complex: optimize real and imaginary parts, as "
                "torch.view_as_real gives them."
            )
