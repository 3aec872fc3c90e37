"""Drawings of training runs: a sweep of learning rates, and the curves of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

__all__ = ["draw_rate_sweep", "draw_run"]

_MARKS = [0.01, 0.1, 0.3, 1, 3, 10, 100, 1000]  # of gradient norms


def draw_rate_sweep(
    rates: Sequence[float],
    losses: Mapping[str, Sequence[float]],
    predicted: Sequence[float],
    marked: Sequence[float] = (),
    highest: float = 3.0,
) -> Figure:
    """Loss after a short run over its learning rate, a curve for each model.

    Losses are shares of the first one, so that 1 is nothing learned. A dot marks
    the best rate of each model. A curve is cut where it rises above ``highest``, as
    for a loss that is infinite or not a number. ``predicted``, a loss for each
    rate, is dashed. Rates that are ``marked`` have a thin vertical line.

    Raises ValueError without a curve, for more curves than there are colours, and
    for a curve that has not one loss for each rate, or none below ``highest``.
    """
    if not 1 <= len(losses) <= len(ROW_COLORS):
        raise ValueError(f"give from 1 to {len(ROW_COLORS)} curves, by their names")
    for name, values in [*losses.items(), ("predicted", predicted)]:
        if len(values) != len(rates):
            raise ValueError(f"give {name!r} one loss for each learning rate")
        if not any(value < highest for value in values):
            raise ValueError(f"no loss of {name!r} is below {highest:g}")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.3))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.axhline(1, color=TEXT_COLOR, linewidth=1, alpha=0.5)
    lowest = math.inf
    for (name, values), color in zip(losses.items(), ROW_COLORS, strict=False):
        seen = _cut(values, highest)
        ax.plot(rates, seen, color=color, label=name)
        best = int(np.argmin(seen))
        ax.plot(rates[best], seen[best], "o", color=color)
        lowest = min(lowest, seen[best])
    ax.plot(
        rates,
        _cut(predicted, highest),
        "--",
        color=COLORS["prediction"],
        label="no layer, by the formula",
    )
    for rate in marked:
        ax.axvline(rate, color=TEXT_COLOR, linewidth=1, alpha=0.5)
    marks = [mark for mark in (0.01, 0.03, 0.1, 0.3, 1, 3) if mark <= highest]
    ax.set_yticks(marks, [f"{mark:g}" for mark in marks])
    ax.minorticks_off()
    ax.set_ylim(lowest / 1.5, highest)
    ax.set(xlabel="learning rate", ylabel="loss (at the start = 1)")
    _name_above(figure, ax)
    return figure


def draw_run(
    records: Sequence[Mapping[str, Any]],
    references: Mapping[str, float],
    max_norm: float | None = None,
) -> Figure:
    """Curves of a run from its metrics: losses, learning rate, gradient norms.

    ``records`` are those of ``read_metrics``. ``references`` are losses in nats to
    compare with, each a dashed line with its name, which stands below the line if
    all losses are above it. ``max_norm`` is where gradients are clipped, also
    dashed.

    Raises ValueError without a record of a step.
    """
    steps = [record for record in records if "loss" in record]
    if not steps:
        raise ValueError("give the metrics of one step or more")
    places = [record["step"] for record in steps]
    figure, (ax, rate, norm) = plt.subplots(
        3,
        1,
        figsize=(FIGURE_WIDTH, 5.4),
        sharex=True,
        height_ratios=[2.6, 1, 1],
    )
    losses = [record["loss"] for record in steps]
    for name, loss in references.items():
        is_below = loss < min(losses)
        ax.axhline(loss, linestyle="--", color=COLORS["prediction"], linewidth=1.2)
        ax.annotate(
            name,
            (1, loss),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3 if is_below else 2),
            textcoords="offset points",
            ha="right",
            va="top" if is_below else "bottom",
        )
    held_out = [record for record in records if "validation_loss" in record]
    ax.plot(places, losses, color=COLORS["data"], linewidth=0.8)
    ax.plot(
        [record["step"] for record in held_out],
        [record["validation_loss"] for record in held_out],
        "o",
        color=ROW_COLORS[3],
        markersize=5,
    )
    ax.margins(y=0.08)
    ax.set_ylabel("loss\n(nats per token)")
    names = ("training batch", 0.82), ("validation", 0.7)
    for (name, height), line in zip(names, ax.lines[-2:], strict=True):
        ax.text(0.22, height, name, color=line.get_color(), transform=ax.transAxes)
    rates = [record["lr"] for record in steps]
    rate.plot(places, rates, color=COLORS["optimizer state"])
    rate.set_ylim(bottom=0)
    rate.set_ylabel("learning\nrate")
    norms = [record["grad_norm"] for record in steps]
    norm.plot(places, norms, color=COLORS["gradients"], linewidth=0.8)
    norm.set_yscale("log")
    if max_norm is not None:
        norm.axhline(
            max_norm, linestyle="--", color=COLORS["prediction"], linewidth=1.2
        )
    lowest, highest = norm.get_ylim()
    marks = [mark for mark in _MARKS if lowest <= mark <= highest]
    norm.set_yticks(marks, [f"{mark:g}" for mark in marks])
    norm.minorticks_off()
    norm.set_ylim(lowest, highest)
    norm.set(ylabel="gradient\nnorm", xlabel="step")
    return figure


def _cut(values: Sequence[float], highest: float) -> list[float]:
    """Values; those too high, or not a number, far above the edge.

    So a line leaves steeply, and says that it goes on.
    """
    return [value if value < 9 * highest else 9 * highest for value in values]


def _name_above(figure: Figure, ax: Axes) -> None:
    """Write the names of all curves above, in their colours."""
    handles = [line for line in ax.lines if not line.get_label().startswith("_")]
    figure.legend(
        loc="outside upper left",
        handles=handles,
        ncols=len(handles),
        frameon=False,
        labelcolor="linecolor",
        handlelength=0,
        handletextpad=0,
        columnspacing=1.3,
        borderaxespad=0,
    )
