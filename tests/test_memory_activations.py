"""lmlib.memory.activations: by formula what PyTorch saves for backward, to the byte."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from lmlib.config import ModelConfig, named_config
from lmlib.memory import (
    block_saved_tensors,
    bytes_by_component,
    bytes_by_dtype,
    cruncher_saved_tensors,
    gpu_bytes,
    loss_workspace,
    memory_timeline,
    saved_bytes_by_module,
    saved_tensor_bytes,
    saved_tensors,
    step_memory,
)
from lmlib.model import Cruncher, RotaryEmbedding, TransformerBlock, TransformerLM

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"vocab_size": 101, "context_length": 40, "d_model": 48, "num_layers": 2, "num_heads": 4}
GPT2_LIKE = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True, "tie_embeddings": True}
CONFIGS = {
    "gpt2": GPT2_LIKE,
    "llama": {"d_ff": 112},
    "grouped queries": {"d_ff": 112, "num_kv_heads": 2},
    "one key, biases": {"num_kv_heads": 1, "bias": True, "mlp": "gelu"},
    "one head": {"num_heads": 1},
    "layernorm with rope": {"norm": "layernorm"},
    "rmsnorm with positions": {"position": "learned", "num_kv_heads": 2, "tie_embeddings": True},
}
BATCHES = [(1, 1), (3, 1), (1, 17), (3, 17), (2, 40)]
BACKENDS = {"math": SDPBackend.MATH, "fused": SDPBackend.FLASH_ATTENTION}
PRECISIONS = ["fp32", "bf16-autocast", "bf16"]


def config(name, **changes):
    return ModelConfig(**(SIZES | CONFIGS[name] | changes))


def build(shape, precision="fp32"):
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return TransformerLM(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def autocast(precision):
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-autocast")


def forward_pass(model, batch, attention="math", precision="fp32", checkpointing=False):
    """A function that runs a model and its loss, and returns loss and logits."""
    ids = torch.randint(model.config.vocab_size, batch)
    targets = torch.randint(model.config.vocab_size, batch)
    if checkpointing:
        for block in model.blocks:
            block.forward = checkpointed(block.forward)

    def run():
        with sdpa_kernel(BACKENDS[attention]), autocast(precision):
            logits = model(ids)
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits

    return run


def checkpointed(forward):
    return lambda *inputs: checkpoint(forward, *inputs, use_reentrant=False)


# --- equal to what is measured ------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_training_step(name, attention, precision):
    shape = config(name)
    model = build(shape, precision)
    for batch in BATCHES:
        run = forward_pass(model, batch, attention, precision)
        measured = saved_tensor_bytes(run, parameters=model.parameters())
        formula = saved_tensors(shape, *batch, attention=attention, precision=precision)
        assert measured.by_dtype == bytes_by_dtype(formula), batch
        assert measured.total == bytes_by_component(formula).total


def test_autocast_casts_the_logits_of_a_cross_entropy_on_a_cpu_only():
    """On a GPU it casts what cross_entropy is made of, of which log_softmax is told its dtype already."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has_kernel("aten::cross_entropy_loss", "AutocastCPU")
    assert not has_kernel("aten::cross_entropy_loss", "AutocastCUDA")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "grouped queries"])
def test_a_gpus_allocator(name, attention, precision):
    shape = config(name, vocab_size=4096, d_model=256, context_length=128, d_ff=640)
    model = build(shape, precision).cuda()
    ids = torch.randint(shape.vocab_size, (4, 129), device="cuda")
    backends = [BACKENDS[attention], *([SDPBackend.EFFICIENT_ATTENTION] if attention == "fused" else [])]

    def run():
        inputs, targets = ids[:, :-1].clone(), ids[:, 1:].clone()
        autocast = torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16-autocast")
        with sdpa_kernel(backends), autocast:
            logits = model(inputs)
            logits = logits.float() if precision == "bf16-autocast" else logits
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    run()
    formula = saved_tensors(shape, 4, 128, attention=attention, precision=precision)
    assert gpu_bytes(run).requested == pytest.approx(bytes_by_component(formula).total, rel=0.02)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["gpt2", "grouped queries"])
def test_dropout(name, precision):
    """With its masks, in the dtype of what they mask; a CPU has no fused attention with dropout."""
    shape = config(name, dropout=0.1)
    model = build(shape, precision)
    for checkpointing in (False, True):
        run = forward_pass(model, (3, 17), "math", precision, checkpointing)
        measured = saved_tensor_bytes(run, parameters=model.parameters())
        formula = saved_tensors(shape, 3, 17, attention="math", precision=precision, checkpointing=checkpointing)
        assert measured.by_dtype == bytes_by_dtype(formula), checkpointing


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("name", ["gpt2", "grouped queries"])
def test_checkpointing(name, attention, precision):
    shape = config(name, num_layers=3)
    model = build(shape, precision)
    run = forward_pass(model, (3, 17), attention, precision, checkpointing=True)
    measured = saved_tensor_bytes(run, parameters=model.parameters())
    formula = saved_tensors(shape, 3, 17, attention=attention, precision=precision, checkpointing=True)
    assert measured.by_dtype == bytes_by_dtype(formula)
    assert bytes_by_component(formula).block_inputs == 3 * (3 * 17 * 48) * (2 if precision == "bf16" else 4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("attention", BACKENDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_block(name, attention, precision):
    shape = config(name)
    block = TransformerBlock(shape).to(torch.bfloat16 if precision == "bf16" else torch.float32)
    x = torch.randn(3, 17, 48, dtype=torch.bfloat16 if precision == "bf16" else torch.float32, requires_grad=True)
    rotation = RotaryEmbedding(shape.head_size)(torch.arange(17)) if shape.position == "rope" else None

    def run():
        with sdpa_kernel(BACKENDS[attention]), autocast(precision):
            block(x, rotation)

    own = [*block.parameters(), *([] if rotation is None else [rotation])]
    formula = block_saved_tensors(shape, 3, 17, attention=attention, precision=precision)
    assert saved_tensor_bytes(run, parameters=own).by_dtype == bytes_by_dtype(formula)


def test_a_published_shape():
    shape = replace(named_config("gpt2-124m"), num_layers=2)
    model = build(shape)
    measured = saved_tensor_bytes(forward_pass(model, (1, 65), "fused"), parameters=model.parameters())
    assert measured.by_dtype == bytes_by_dtype(saved_tensors(shape, 1, 65))


@pytest.mark.parametrize(("batch_size", "dim", "num_layers"), [(2, 4, 2), (1, 1, 1), (7, 5, 3)])
def test_the_deep_linear_model(batch_size, dim, num_layers):
    model = Cruncher(dim, num_layers)
    x, y = torch.randn(batch_size, dim), torch.randn(batch_size)
    measured = saved_tensor_bytes(lambda: F.mse_loss(model(x), y), parameters=model.parameters())
    formula = cruncher_saved_tensors(batch_size, dim, num_layers)
    numbers = sum(tensor.copies * tensor.numel for tensor in formula)
    assert numbers == batch_size * dim * (num_layers + 1) + 2 * batch_size
    assert measured.total == 4 * numbers == sum(tensor.nbytes for tensor in formula)


def test_the_lectures_example_saves_28_numbers():
    assert sum(tensor.nbytes for tensor in cruncher_saved_tensors(2, 4, 2)) == 4 * 28
    assert 2 * 4 * 2 == 16  # B·D·L


# --- components ---------------------------------------------------------------------------------------------------

COMPONENTS = {"attention_norm": "norms", "mlp_norm": "norms", "final_norm": "norms", "dropout": "embeddings"}
COMPONENTS |= {"token_embedding": "embeddings", "position_embedding": "embeddings", "": "head"}


def component_of(module):
    """The component of a module by its name, such as blocks.0.attention.query; the loss is outside of the model."""
    if module is None:
        return "loss"
    name = module.removeprefix("blocks.").lstrip("0123456789.").split(".")[0]
    return COMPONENTS.get(name, name)


def measured_components(model, batch, precision):
    """Bytes by the module that runs when they are first saved."""
    nbytes = Counter()
    run = forward_pass(model, batch, "math", precision)
    for module, saved in saved_bytes_by_module(run, model=model).items():
        nbytes[component_of(module)] += saved
    return nbytes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "dropout"), [("gpt2", 0.1), ("gpt2", 0.0), ("rmsnorm with positions", 0.0)])
def test_components(name, dropout, precision):
    shape = config(name, dropout=dropout)
    model = build(shape, precision)
    measured = measured_components(model, (3, 17), precision)
    formula = bytes_by_component(saved_tensors(shape, 3, 17, attention="math", precision=precision))
    assert measured == {name: nbytes for name, nbytes in vars(formula).items() if nbytes}


@pytest.mark.parametrize("name", CONFIGS)
def test_autocast_copies_each_matrix_once(name):
    shape = config(name)
    model = build(shape)
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    if shape.tie_embeddings:
        matrices.append(model.token_embedding.weight)
    formula = bytes_by_component(saved_tensors(shape, 3, 17, precision="bf16-autocast"))
    assert formula.weight_copies == 2 * sum(p.numel() for p in matrices)
    checkpointed = bytes_by_component(saved_tensors(shape, 3, 17, precision="bf16-autocast", checkpointing=True))
    assert checkpointed.weight_copies == 2 * 101 * 48  # in forward, only the head keeps its copy
    assert bytes_by_component(saved_tensors(shape, 3, 17)).weight_copies == 0


def test_what_grows_with_the_square_of_the_sequence():
    shape = named_config("gpt2-124m")

    def attention_bytes(attention, length):
        return bytes_by_component(saved_tensors(shape, 1, length, attention=attention)).attention

    fused, by_math = ([attention_bytes(each, length) for length in (256, 512, 1024)] for each in ("fused", "math"))
    assert fused == [fused[0], 2 * fused[0], 4 * fused[0]]
    squares = by_math[2] - 2 * by_math[1]  # a·(2T)² + b·2T, less twice a·T² + b·T, is 2a·T²
    assert squares == 2 * 12 * 12 * 512**2 * 4
    assert by_math[2] > 3 * fused[2]


# --- the peak -----------------------------------------------------------------------------------------------------


def peak_bytes(function):
    """The most bytes that a function holds at once on a CPU, by the events of its allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        function()
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["gpt2", "grouped queries"])
def test_the_loss_is_the_peak(name, precision):
    shape = config(name, vocab_size=2003)
    model = build(shape, precision)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run = forward_pass(model, (3, 37), "fused", precision)

    def step():
        loss, logits = run()
        loss.backward()
        del logits

    saved = bytes_by_component(saved_tensors(shape, 3, 37, precision=precision)).total
    inputs = 2 * 3 * 37 * 8  # ids and targets, which are there before
    expected = saved - inputs + loss_workspace(shape, 3, 37, precision=precision)
    assert peak_bytes(step) == pytest.approx(expected, rel=0.01)
    assert max(memory_timeline(step)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("vocab_size", [101, 2003])
def test_the_memory_of_a_step(vocab_size, precision):
    """Backward works with the loss or, under checkpointing, with a block that is larger."""
    shape = config("gpt2", vocab_size=vocab_size)
    how = {"attention": "math", "precision": precision}
    workspace = loss_workspace(shape, 3, 37, precision=precision)
    block = bytes_by_component(block_saved_tensors(shape, 3, 37, **how)).total
    assert (block > workspace) == (vocab_size == 101)
    for checkpointing in (False, True):
        step = step_memory(shape, 3, 37, **how, checkpointing=checkpointing)
        assert step.activations == bytes_by_component(saved_tensors(shape, 3, 37, **how, checkpointing=checkpointing))
        assert step.working == (max(block, workspace) if checkpointing else workspace)
        assert step.total == step.activations.total + step.working


# --- rounding, refusals, imports ----------------------------------------------------------------------------------


def test_a_gpu_rounds_each_tensor_up():
    [scalar] = [t for t in saved_tensors(config("gpt2"), 2, 3) if t.name == "number of targets"]
    assert (scalar.nbytes, scalar.allocated_nbytes) == (4, 512)
    exact = replace(scalar, numel=256, copies=3)  # of 4 bytes
    assert (exact.nbytes, exact.allocated_nbytes) == (3 * 1024, 3 * 1024)
    above = replace(exact, numel=257)
    assert above.allocated_nbytes == 3 * 1536


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1"),
        ({"batch_size": 1.5}, "batch_size must be a whole number from 1"),
        ({"seq_len": 0}, "seq_len must be a whole number from 1"),
        ({"seq_len": 41}, "seq_len is 41, beyond the context_length of 40"),
        ({"attention": "flash"}, "attention must be one of 'math', 'fused', not 'flash'"),
        ({"precision": "fp16"}, "precision must be one of 'fp32', 'bf16-autocast', 'bf16', not 'fp16'"),
    ],
)
def test_it_refuses(arguments, message):
    arguments = {"batch_size": 1} | arguments
    for function in (saved_tensors, block_saved_tensors):
        with pytest.raises(ValueError, match=message):
            function(config("gpt2"), **arguments)


def test_the_deep_linear_model_has_sizes():
    with pytest.raises(ValueError, match="dim must be a whole number"):
        cruncher_saved_tensors(2, 0, 2)


def test_a_sequence_is_as_long_as_the_context():
    shape = config("gpt2")
    assert saved_tensors(shape, 2) == saved_tensors(shape, 2, 40)


def test_formulas_need_no_torch():
    code = "import sys; sys.modules['torch'] = None; from lmlib.config import named_config; from lmlib.memory import *"
    code += "; print(bytes_by_component(saved_tensors(named_config('gpt2-124m'), 8)).total)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == bytes_by_component(saved_tensors(named_config("gpt2-124m"), 8)).total
