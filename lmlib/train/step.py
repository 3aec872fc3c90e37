"""One step of the optimizer: forward, backward, clip, look, and only then move."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lmlib.data.batches import Batch
from lmlib.distributed import World, sum_over_ranks, sync_gradients, whole
from lmlib.optim import clip_grad_norm_
from lmlib.precision import precision_context

__all__ = ["IGNORED", "NextTokenLoss", "StepReport", "train_step"]

IGNORED = -100  # a target that is none, as PyTorch's cross_entropy has it


class NextTokenLoss(nn.Module):
    """A language model together with its loss, so that both are compiled as one.

    The loss is the sum of −ln p over all targets, in nats: who adds up several
    batches divides once, by the targets of all. Those that are ``IGNORED`` do not
    count. Log-probabilities are fp32: bf16 keeps but three digits of them.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, inputs: Int[Tensor, "batch seq"], targets: Int[Tensor, "batch seq"]
    ) -> Float[Tensor, ""]:
        """The summed loss of the model's prediction of each target."""
        logits = self.model(inputs).float()  # (B, T, V)
        return F.cross_entropy(
            logits.flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )


@dataclass(frozen=True)
class StepReport:
    """What a step saw, the same on every rank, and whether it was made.

    ``loss`` is the mean over its targets in nats, ``grad_norm`` that of all
    gradients before clipping. It is not made if one of them is not finite.
    ``overflowed`` tells the harmless case: the loss was finite, and in fp16 its
    gradients, scaled up too far, were not.
    """

    loss: float
    grad_norm: float
    made: bool
    overflowed: bool = False


def train_step(
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    *,
    world: World,
    precision: str = "fp32",
    scaler: torch.amp.GradScaler | None = None,
    max_norm: float = math.inf,
) -> StepReport:
    """Make one step with the mean gradient over the targets of all batches.

    All batches of all ranks count as one: each target weighs the same, in however
    many pieces they come and however many targets a piece has. ``loss`` returns a
    sum, as ``NextTokenLoss`` does, and may be wrapped for several ranks.

    A loss or gradient that is not finite is found before the step, which is then
    not made: the weights and the optimizer stay as they were. In fp16, where
    gradients overflow now and then, the ``scaler`` also lowers its scale.
    """
    optimizer.zero_grad(set_to_none=True)
    scaler = scaler or torch.amp.GradScaler(world.device.type, enabled=False)
    num_targets = sum_over_ranks(_count_targets(batches), world).clamp(min=1)
    total = torch.zeros((), device=world.device)
    for place, (inputs, targets) in enumerate(batches, start=1):
        with (
            sync_gradients(loss, sync=place == len(batches)),
            _around_backward(precision, world.device),
        ):
            with precision_context(precision, world.device, scaler):
                part = loss(inputs, targets) / num_targets
            # over ranks gradients are averaged, and these are to be added
            scaler.scale(part * world.size).backward()
        total += part.detach()
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = whole(clip_grad_norm_(parameters, max_norm))
    seen = torch.stack([sum_over_ranks(total, world), norm.to(world.device)])
    mean_loss, grad_norm = seen.tolist()  # here a GPU is waited for
    made = math.isfinite(mean_loss) and math.isfinite(grad_norm)
    if made:
        scaler.step(optimizer)
    scaler.update()
    overflowed = scaler.is_enabled() and not made and math.isfinite(mean_loss)
    return StepReport(mean_loss, grad_norm, made, overflowed)


def _count_targets(batches: Sequence[Batch]) -> Float[Tensor, ""]:
    counts = [(targets != IGNORED).sum() for _, targets in batches]
    return torch.stack(counts).sum().float()


def _around_backward(
    precision: str, device: torch.device
) -> AbstractContextManager[None]:
    """Autocast ends before backward, which has its dtypes; tf32 goes on in it."""
    if precision == "tf32":
        return precision_context(precision, device)
    return nullcontext()
