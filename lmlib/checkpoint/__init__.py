"""Checkpoints that are complete, atomic and verified, so that a run can go on."""

from lmlib.checkpoint.compatibility import ConfigMismatch, check_config
from lmlib.checkpoint.errors import CorruptCheckpoint
from lmlib.checkpoint.records import Checkpoint, Meta, TrainingState
from lmlib.checkpoint.rng import capture_rng, restore_rng
from lmlib.checkpoint.store import CheckpointStore, CheckpointWarning

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "CheckpointWarning",
    "ConfigMismatch",
    "CorruptCheckpoint",
    "Meta",
    "TrainingState",
    "capture_rng",
    "check_config",
    "restore_rng",
]
