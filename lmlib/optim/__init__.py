"""Optimizers in their plainest form, parameter groups, schedules and clipping."""

from lmlib.optim.clipping import clip_grad_norm_
from lmlib.optim.groups import parameter_groups
from lmlib.optim.optimizers import SGD, AdaGrad, Adam, AdamW, RMSProp
from lmlib.optim.schedules import cosine_schedule, wsd_schedule

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AdamW",
    "RMSProp",
    "clip_grad_norm_",
    "cosine_schedule",
    "parameter_groups",
    "wsd_schedule",
]
