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

_COLUMNS = 4
_SAME, _OTHER = ROW_COLORS[2], ROW_COLORS[1]
_LATER = [ROW_COLORS[1], ROW_COLORS[0], ROW_COLORS[2], *ROW_COLORS[3:]]
_SMALLEST = 1e-4  # of the differences that are drawn, in nats


def draw_resumes(
    unbroken: Sequence[float], resumed: Mapping[str, Sequence[float]]
) -> Figure:
    """Losses of runs that go on from one checkpoint, over those of a run unbroken.

    ``resumed`` has for each title the losses from the checkpoint to the end, as
    many as the last of ``unbroken``. Above are all of them, and the name of the one
    that is farthest off; below, for each, how far it is off after each step, on a
    logarithmic axis, with a dot at the first difference.

    Raises ValueError without a resumed run, and for one that is empty or longer
    than the unbroken.
    """
    lengths = {len(losses) for losses in resumed.values()}
    if len(lengths) != 1 or not 0 < min(lengths) <= len(unbroken):
        raise ValueError(
            "give resumed runs of one length, not longer than the unbroken"
        )
    saved = len(unbroken) - lengths.pop()
    off = {
        title: np.abs(np.asarray(losses) - np.asarray(unbroken[saved:]))
        for title, losses in resumed.items()
    }
    rows = math.ceil(len(resumed) / _COLUMNS)
    figure = plt.figure(figsize=(FIGURE_WIDTH, 2.4 + 1.35 * rows))
    above, below = figure.subfigures(2, height_ratios=[2.1, 0.3 + 1.35 * rows])
    _draw_losses(above.subplots(), unbroken, resumed, off)
    grid = below.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat[len(resumed) :]:
        ax.remove()
    for ax, (title, differences) in zip(grid.flat, off.items(), strict=False):
        _draw_differences(ax, differences)
        ax.set_title(title, fontsize=10)
    below.supxlabel("step after the checkpoint", fontsize=10, color=TEXT_COLOR)
    below.supylabel("off by (nats)", fontsize=10, color=TEXT_COLOR)
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


def _draw_losses(
    ax: Axes,
    unbroken: Sequence[float],
    resumed: Mapping[str, Sequence[float]],
    off: Mapping[str, np.ndarray],
) -> None:
    """All losses in one panel, as one would look at them."""
    ax.plot(
        range(1, len(unbroken) + 1),
        unbroken,
        color=TEXT_COLOR,
        linewidth=4,
        alpha=0.35,
    )
    for title, losses in resumed.items():
        saved = len(unbroken) - len(losses)
        color = _OTHER if off[title].any() else _SAME
        steps = range(saved + 1, len(unbroken) + 1)
        ax.plot(steps, losses, color=color, linewidth=1)
    ax.axvline(saved + 0.5, color=TEXT_COLOR, linewidth=1, linestyle=":")
    ax.text(saved + 0.5, 1.02, "checkpoint", transform=ax.get_xaxis_transform(),
            ha="center", va="bottom", fontsize=9)  # fmt: skip
    farthest = max(off, key=lambda title: off[title].max())
    if off[farthest].any():
        at = int(off[farthest].argmax())
        ax.annotate(
            farthest,
            (saved + 1 + at, resumed[farthest][at]),
            xytext=(28, -4),
            textcoords="offset points",
            color=_OTHER,
            fontsize=9,
        )
    ax.set(xlabel="step", ylabel="loss (nats)")


def _draw_differences(ax: Axes, differences: np.ndarray) -> None:
    """How far one run is off after each step, where it is off at all."""
    steps = np.arange(1, len(differences) + 1)
    ax.set_yscale("log")
    ax.set_ylim(_SMALLEST, 10)
    ax.set_xlim(0, len(differences) + 1)
    ax.set_yticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"])
    ax.minorticks_off()
    if not differences.any():
        ax.text(0.5, 0.5, "0 at every step", transform=ax.transAxes, ha="center",
                va="center", fontsize=9, color=_SAME)  # fmt: skip
        return
    is_off = differences > 0
    drawn = np.where(is_off, np.maximum(differences, _SMALLEST), np.nan)
    first = int(is_off.argmax())
    ax.plot(steps, drawn, color=_OTHER, linewidth=1.4)
    ax.plot(steps[first], drawn[first], "o", color=_OTHER, markersize=5)
    ax.text(0.98, 0.03, f"from step {steps[first]}", transform=ax.transAxes,
            ha="right", va="bottom", fontsize=8.5, color=_OTHER)  # fmt: skip
