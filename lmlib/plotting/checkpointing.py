"""Runs that go on from a checkpoint, and the learning rates they go on with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmlib.plotting.style import FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

__all__ = ["draw_rates", "draw_resumes"]

_COLUMNS = 3
_SAME, _OTHER = ROW_COLORS[2], ROW_COLORS[1]
_LATER = [ROW_COLORS[1], ROW_COLORS[0], ROW_COLORS[2], *ROW_COLORS[3:]]


def draw_resumes(
    unbroken: Sequence[float], resumed: Mapping[str, Sequence[float]]
) -> Figure:
    """Losses of runs that go on from one checkpoint, over those of a run unbroken.

    ``resumed`` has for each title the losses from the checkpoint to the end, as
    many as the last of ``unbroken``. In each panel stands the largest difference.

    Raises ValueError without a resumed run, and for one that is empty or longer
    than the unbroken.
    """
    lengths = {len(losses) for losses in resumed.values()}
    if len(lengths) != 1 or not 0 < min(lengths) <= len(unbroken):
        raise ValueError(
            "give resumed runs of one length, not longer than the unbroken"
        )
    saved = len(unbroken) - lengths.pop()
    rows = math.ceil(len(resumed) / _COLUMNS)
    figure, grid = plt.subplots(
        rows,
        min(_COLUMNS, len(resumed)),
        figsize=(FIGURE_WIDTH, 0.5 + 1.5 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax in grid.flat[len(resumed) :]:
        ax.remove()
    for ax, (title, losses) in zip(grid.flat, resumed.items(), strict=False):
        _draw_resume(ax, unbroken, losses, saved)
        ax.set_title(title, fontsize=10)
    lowest, highest = grid[0, 0].get_ylim()
    grid[0, 0].set_ylim(lowest - (highest - lowest) / 4, highest)  # for the words
    figure.supxlabel("step", fontsize=10, color=TEXT_COLOR)
    figure.supylabel("loss (nats)", fontsize=10, color=TEXT_COLOR)
    return figure


def draw_rates(
    steps: Sequence[float],
    rates: Sequence[float],
    crash: float,
    resumed: Mapping[str, tuple[Sequence[float], Sequence[float]]],
) -> Figure:
    """A schedule in shares of its peak, and how runs go on after a crash.

    ``resumed`` has for each label the steps and the rates from the crash on. The
    label stands at the end of its curve.

    Raises ValueError without a resumed run, and where steps and rates differ in
    number.
    """
    curves = [(steps, rates), *resumed.values()]
    if not resumed or any(len(x) != len(y) or not len(x) for x, y in curves):
        raise ValueError("give resumed runs, each with a rate for every step")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.2))
    ax.plot(steps, rates, color=TEXT_COLOR, linewidth=5, alpha=0.35)
    ax.axvline(crash, color=TEXT_COLOR, linewidth=1, linestyle=":")
    ax.text(crash, 1.04, "crash", ha="center", va="bottom", fontsize=9)
    for color, (label, (x, y)) in zip(_LATER, resumed.items(), strict=False):
        ax.plot(x, y, color=color, label=label)
        ax.annotate(
            label,
            (x[-1], y[-1]),
            xytext=(6, -4),  # above the point: ends may be close to each other
            textcoords="offset points",
            va="bottom",
            color=color,
            fontsize=9,
            annotation_clip=False,
        )
    ax.set_xlim(0, max(max(x) for x, _ in curves))
    ax.set_ylim(-0.02, 1.02)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set(xlabel="step", ylabel="learning rate (of its peak)")
    return figure


def _draw_resume(
    ax: Axes, unbroken: Sequence[float], losses: Sequence[float], saved: int
) -> None:
    differences = np.abs(np.asarray(losses) - np.asarray(unbroken[saved:]))
    is_same = not differences.any()
    steps = np.arange(1, len(unbroken) + 1)
    ax.plot(steps, unbroken, color=TEXT_COLOR, linewidth=3.5, alpha=0.35)
    ax.plot(
        steps[saved:], losses, color=_SAME if is_same else _OTHER, linewidth=1.4
    )
    ax.axvline(saved + 0.5, color=TEXT_COLOR, linewidth=1, linestyle=":")
    ax.text(
        0.98,
        0.03,
        "identical" if is_same else f"off by ≤ {differences.max():.2g}",
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        fontsize=8.5,
        color=_SAME if is_same else _OTHER,
    )
