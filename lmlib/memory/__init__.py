"""Memory in bytes, by formula, which needs no torch, and measured."""

from lmlib.memory.activations import (
    Activations,
    SavedTensor,
    StepMemory,
    block_saved_tensors,
    bytes_by_component,
    bytes_by_dtype,
    cruncher_saved_tensors,
    loss_workspace,
    saved_tensors,
    step_memory,
)
from lmlib.memory.kv_cache import kv_cache_bytes
from lmlib.memory.recipes import RECIPES, Ledger, Recipe, ledger, measured_ledger
from lmlib.memory.saved import (
    GpuBytes,
    SavedBytes,
    gpu_bytes,
    memory_timeline,
    saved_bytes_by_module,
    saved_tensor_bytes,
)
from lmlib.memory.sharding import largest_sharded_model, sharded_ledger

__all__ = [
    "RECIPES",
    "Activations",
    "GpuBytes",
    "Ledger",
    "Recipe",
    "SavedBytes",
    "SavedTensor",
    "StepMemory",
    "block_saved_tensors",
    "bytes_by_component",
    "bytes_by_dtype",
    "cruncher_saved_tensors",
    "gpu_bytes",
    "kv_cache_bytes",
    "largest_sharded_model",
    "ledger",
    "loss_workspace",
    "measured_ledger",
    "memory_timeline",
    "saved_bytes_by_module",
    "saved_tensor_bytes",
    "saved_tensors",
    "sharded_ledger",
    "step_memory",
]
