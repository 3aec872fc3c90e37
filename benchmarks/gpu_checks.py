"""Is what a GPU computes right? Against the CPU, the formulas of lmlib.memory, and itself after a break."""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from gpu_shapes import PRECISION, Scale
from torch import Generator, Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lmlib.config import ModelConfig
from lmlib.data import TokenFile, open_tokens
from lmlib.distributed import World
from lmlib.memory import bytes_by_dtype, gpu_bytes, saved_tensor_bytes, saved_tensors
from lmlib.model import TransformerLM
from lmlib.precision import precision_context
from lmlib.train import Dataset, NextTokenLoss, TrainConfig, Trainer

FP32_TOLERANCE = 5e-5  # products in tf32 are off by some 3e-4
BF16_FACTOR = 2  # the rounding of a GPU may add up to so many times the CPU's
BYTES_TOLERANCE = 0.02
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

Figures = dict[str, object]


class Skipped(Exception):
    """A check that says nothing here; why, in a sentence."""


# --- the device against the CPU ---------------------------------------------------------------------------------


def check_fp32(device: torch.device, scale: Scale) -> tuple[bool, Figures]:
    """In fp32, logits and gradients are those of the CPU."""
    errors = {
        name: _errors(_logits_and_gradients(config, scale, device, "fp32"), _on_cpu(config, scale, "fp32"))
        for name, config in scale.compared.items()
    }
    worst = max(max(each.values()) for each in errors.values())
    return worst <= FP32_TOLERANCE, {"relative_errors": errors, "tolerance": FP32_TOLERANCE}


def check_bf16(device: torch.device, scale: Scale) -> tuple[bool, Figures]:
    """Under autocast, they are about as near to the CPU's in fp32 as the CPU's own under autocast."""
    errors, passed = {}, True
    for name, config in scale.compared.items():
        right = _on_cpu(config, scale, "fp32")
        here = _errors(_logits_and_gradients(config, scale, device, PRECISION), right)
        on_cpu = _errors(_on_cpu(config, scale, PRECISION), right)
        errors[name] = {"here": here, "on the CPU": on_cpu}
        passed &= all(here[what] <= BF16_FACTOR * on_cpu[what] for what in here)
    return passed, {"relative_errors": errors, "factor": BF16_FACTOR}


def _on_cpu(config: ModelConfig, scale: Scale, precision: str) -> tuple[Tensor, Tensor]:
    return _logits_and_gradients(config, scale, torch.device("cpu"), precision)


def _logits_and_gradients(
    config: ModelConfig, scale: Scale, device: torch.device, precision: str
) -> tuple[Tensor, Tensor]:
    """Return the logits and all gradients of a step, as two rows of numbers on the CPU."""
    loss, batch = _loss(config, device), _batch(config, scale.batch_size, device)
    logits = []
    loss.model.register_forward_hook(lambda *call: logits.append(call[-1]))
    with precision_context(precision, device):
        total = loss(*batch)
    total.backward()
    gradients = [parameter.grad.flatten() for parameter in loss.parameters()]
    return logits[0].detach().float().flatten().cpu(), torch.cat(gradients).cpu()


def _errors(here: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the length of the difference, as a share of the length of what is right."""
    pairs = zip(("logits", "gradients"), here, right, strict=True)
    return {name: ((a - b).norm() / b.norm()).item() for name, a, b in pairs}


def _loss(config: ModelConfig, device: torch.device) -> NextTokenLoss:
    """Return a model with its loss; the same on every device."""
    return NextTokenLoss(TransformerLM(config, generator=Generator().manual_seed(0))).to(device)


def _batch(config: ModelConfig, batch_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    shape = (2, batch_size, config.context_length)
    inputs, targets = torch.randint(config.vocab_size, shape, generator=Generator().manual_seed(1)).to(device)
    return inputs.clone(), targets.clone()


# --- dtypes and bytes -------------------------------------------------------------------------------------------


def check_dtypes(device: torch.device, scale: Scale) -> tuple[bool, Figures]:
    """Under autocast products are bf16, stream and gradients fp32; backward keeps of each what the formula says."""
    passed, figures = True, {}
    for name, config in scale.remembered.items():
        loss = _loss(config, device)
        activations = _activation_dtypes(loss.model)
        saved = saved_tensor_bytes(_forward(loss, scale, PRECISION), parameters=loss.parameters())
        _forward(loss, scale, PRECISION)().backward()
        gradients = sorted({_name(parameter.grad.dtype) for parameter in loss.parameters()})
        formula = bytes_by_dtype(saved_tensors(config, scale.batch_size, precision=PRECISION))
        figures[name] = {
            "activations": activations,
            "gradients": gradients,
            "saved_bytes": saved.by_dtype,
            "formula_bytes": formula,
        }
        passed &= activations == {"a product": "bfloat16", "the residual stream": "float32", "logits": "bfloat16"}
        passed &= gradients == ["float32"]
        passed &= all(_close(saved.by_dtype.get(dtype, 0), formula[dtype]) for dtype in ("float32", "bfloat16"))
    return passed, figures


def check_allocator(device: torch.device, scale: Scale) -> tuple[bool, Figures]:
    """What the allocator hands out for a forward pass is what the formula says, rounded to its blocks."""
    if device.type != "cuda":
        raise Skipped("A CPU has no such allocator.")
    passed, figures = True, {}
    for name, precision in (("GPT-2", "fp32"), ("GPT-2", PRECISION), ("Llama", PRECISION)):
        config = scale.remembered[name]
        forward = _forward(_loss(config, device), scale, precision)
        forward()  # the first product brings a workspace
        release_memory(device)
        found = gpu_bytes(forward)
        saved = saved_tensors(config, scale.batch_size, precision=precision)
        requested, allocated = sum(each.nbytes for each in saved), sum(each.allocated_nbytes for each in saved)
        figures[f"{name}, {precision}"] = {
            "requested": found.requested,
            "by_formula": requested,
            "allocated": found.allocated,
            "by_formula_in_blocks": allocated,
        }
        passed &= _close(found.requested, requested) and _close(found.allocated, allocated)
    return passed, {**figures, "tolerance": BYTES_TOLERANCE}


def _forward(loss: NextTokenLoss, scale: Scale, precision: str) -> Callable[[], Tensor]:
    """Return a forward pass with fused attention, which makes its own ids and targets."""
    config, device = loss.model.config, loss.model.token_embedding.weight.device

    def forward() -> Tensor:
        batch = _batch(config, scale.batch_size, device)
        with sdpa_kernel(FUSED), precision_context(precision, device):
            return loss(*batch)

    return forward


def _activation_dtypes(model: TransformerLM) -> dict[str, str]:
    """Return a dictionary that the next forward pass fills with the dtypes of what modules return."""
    dtypes: dict[str, str] = {}
    modules = {"a product": model.blocks[0].mlp.up, "the residual stream": model.blocks[-1], "logits": model}
    for name, module in modules.items():
        module.register_forward_hook(lambda *call, name=name: dtypes.update({name: _name(call[-1].dtype)}))
    return dtypes


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _close(measured: int, formula: int) -> bool:
    return abs(measured - formula) <= BYTES_TOLERANCE * formula


def release_memory(device: torch.device) -> None:
    """Give back what the allocator keeps of what was freed."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


# --- a run that was interrupted ---------------------------------------------------------------------------------


def check_resume(device: torch.device, scale: Scale) -> tuple[bool, Figures]:
    """A run that goes on from a checkpoint ends in the same bits, where kernels add in a fixed order.

    Some of the fastest do not. Whether these, too, ended in the same bits is told beside it.
    """
    model = replace(scale.compared["GPT-2"], dropout=0.1)  # whose random numbers are the device's
    with _deterministic():
        fixed = _resumes_to_the_bit(model, device)
    return fixed, {"fixed_order": fixed, "as_usual": _resumes_to_the_bit(model, device)}


@contextmanager
def _deterministic() -> Iterator[None]:
    """Choose kernels that add in a fixed order, where there is one; the bits will tell."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _resumes_to_the_bit(model: ModelConfig, device: torch.device) -> bool:
    """Train 6 steps, then the last 3 of them again from the checkpoint between."""
    config = TrainConfig(
        model=model,
        steps=6,
        batch_size=4,
        micro_batch_size=2,
        device=str(device),
        precision=PRECISION,
        compile=False,
        eval_windows=8,
        sample_tokens=0,
        save_every=3,
    )
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*determinis")  # of what has no fixed order
        tokens = random_tokens(Path(folder), model.vocab_size, 100 * model.context_length)
        data = Dataset(*tokens.split(0.25), tokenizer=None)
        run = Path(folder, "run")
        ends = [_end(Trainer(config, data, run, world=World(device), resume=step, quiet=True)) for step in (None, 3)]
    return all(_same(ends[0][part], ends[1][part]) for part in ends[0])


def _end(trainer: Trainer) -> Mapping[str, object]:
    """Train, and return what came out: the weights, the state of the optimizer, the validation loss."""
    result = trainer.run()
    state = trainer.optimizer.state_dict()["state"]
    return {"model": trainer.model.state_dict(), "optimizer": state, "loss": result.validation_loss}


def _same(a: object, b: object) -> bool:
    """Whether two trees of tensors and numbers are equal, to the bit."""
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


def random_tokens(folder: Path, vocab_size: int, count: int) -> TokenFile:
    """Write a file of random ids, and map it as the trainer does."""
    path = folder / "tokens.bin"
    np.random.default_rng(0).integers(vocab_size, size=count, dtype=np.uint16).tofile(path)
    return open_tokens(path, vocab_size=vocab_size)


CHECKS = {
    "fp32 as on the CPU": check_fp32,
    "bf16 autocast as on the CPU": check_bf16,
    "dtypes under autocast": check_dtypes,
    "the allocator's bytes by formula": check_allocator,
    "a resumed run ends in the same bits": check_resume,
}
