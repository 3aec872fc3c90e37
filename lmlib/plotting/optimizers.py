"""Drawings of how optimizers walk, and of how they answer to a learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

OPTIMIZER_COLORS = dict(
    zip(
        ("SGD", "momentum", "AdaGrad", "RMSProp", "Adam", "AdamW"),
        ROW_COLORS,
        strict=True,
    )
)
"""One colour for one optimizer throughout a chapter."""

_COLUMNS = 3
_CONTOURS = 5  # of the loss, each a factor of 8 below the one outside
_FLOOR = 1e-6  # of the first loss, below which a loss is not drawn


def draw_trajectories(
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
    paths: Mapping[str, np.ndarray],
    limits: tuple[float, float, float, float],
) -> Figure:
    """Paths over the contours of a loss in two weights, a panel for each optimizer.

    ``loss`` takes the two weights, arrays of one shape, and returns the loss for
    each pair; it is 0 at the minimum, the origin, which a cross marks. ``paths``
    are arrays of shape (steps + 1, 2). ``limits`` are the left, right, lower and
    upper edge of a panel. The last panel has the losses of all paths over the
    steps, in the colours of the names.

    Raises ValueError without a path, for a name without a colour, and for a path of
    another shape.
    """
    _check_names(paths)
    for name, path in paths.items():
        if path.ndim != 2 or path.shape[1] != 2 or len(path) < 2:
            raise ValueError(f"the path of {name} must be of shape (steps + 1, 2)")
    rows = math.ceil((len(paths) + 1) / _COLUMNS)
    figure, grid = plt.subplots(
        rows, _COLUMNS, figsize=(FIGURE_WIDTH, 1.85 * rows), squeeze=False
    )
    *panels, last = grid.flat[: len(paths) + 1]
    for ax in grid.flat[len(paths) + 1 :]:
        ax.remove()
    for ax, (name, path) in zip(panels, paths.items(), strict=True):
        _draw_contours(ax, loss, limits)
        color = OPTIMIZER_COLORS[name]
        ax.plot(*path.T, "o-", color=color, linewidth=1.1, markersize=2)
        ax.plot(0, 0, "+", color=TEXT_COLOR, markersize=9)
        ax.set_title(name, color=color)
    last.set_title("loss (first = 1)")
    for name, path in paths.items():
        losses = loss(path[:, 0], path[:, 1])
        shown = np.clip(losses / losses[0], _FLOOR, None)
        last.semilogy(shown, color=OPTIMIZER_COLORS[name], linewidth=1.5)
    last.set_ylim(_FLOOR, 10)
    last.set_yticks([1, 1e-2, 1e-4, 1e-6])
    last.minorticks_off()
    last.set_xlabel("steps")
    return figure


def draw_sensitivity(
    rates: Sequence[float],
    losses: Mapping[str, Sequence[float]],
    highest: float,
) -> Figure:
    """Loss at the end of a run over its learning rate, a curve for each optimizer.

    A dot marks the best rate of each. A curve is cut where it rises above
    ``highest``, as it does for a loss that is infinite or not a number.

    Raises ValueError without a curve, for a name without a colour, and for a curve
    that has not one loss for each rate, or none below ``highest``.
    """
    _check_names(losses)
    for name, values in losses.items():
        if len(values) != len(rates):
            raise ValueError(f"give {name} one loss for each learning rate")
        if not any(value < highest for value in values):
            raise ValueError(f"no loss of {name} is below {highest:g}")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.3))
    for name, values in losses.items():
        color = OPTIMIZER_COLORS[name]
        # far above the edge, so that a line leaves steeply
        seen = [v if v < 9 * highest else 9 * highest for v in values]
        ax.plot(rates, seen, color=color, label=name)
        best = int(np.argmin(seen))
        ax.plot(rates[best], seen[best], "o", color=color)
    ax.set_xscale("log")
    lowest = min(min(line.get_ydata()) for line in ax.lines)
    ax.set_ylim(lowest - (highest - lowest) / 15, highest)
    ax.set(xlabel="learning rate", ylabel="loss after training (nats)")
    figure.legend(
        loc="outside upper left",
        handles=[line for line in ax.lines if line.get_label() in losses],
        ncols=len(losses),
        frameon=False,
        labelcolor="linecolor",
        handlelength=0,
        handletextpad=0,
        columnspacing=1.3,
        borderaxespad=0,
    )
    return figure


def _draw_contours(
    ax: Axes,
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
    limits: tuple[float, float, float, float],
) -> None:
    left, right, lower, upper = limits
    xs, ys = np.meshgrid(
        np.linspace(left, right, 120), np.linspace(lower, upper, 120)
    )
    heights = loss(xs, ys)
    levels = heights.max() / 8.0 ** np.arange(_CONTOURS, 0, -1)
    ax.contour(
        xs,
        ys,
        heights,
        levels=levels,
        colors=COLORS["prediction"],
        linewidths=0.7,
        alpha=0.5,
    )
    ax.set(xlim=(left, right), ylim=(lower, upper), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _check_names(named: Mapping[str, object]) -> None:
    if not named:
        raise ValueError("give at least one optimizer to draw, by its name")
    if unknown := [name for name in named if name not in OPTIMIZER_COLORS]:
        known = ", ".join(OPTIMIZER_COLORS)
        raise ValueError(f"no colour for {unknown[0]!r}; there is one for {known}")
