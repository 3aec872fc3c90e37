"""Drawings of mixed precision: saved bytes by dtype, runs that stall, gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from lmlib.dtypes import FP16
from lmlib.plotting.formats import FORMAT_COLORS
from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

DTYPE_COLORS = {
    "float32": FORMAT_COLORS["fp32"],
    "bfloat16": FORMAT_COLORS["bf16"],
    "int64": TEXT_COLOR,
}
"""One colour for one dtype, that of its format."""

_RUN_COLORS = (
    FORMAT_COLORS["fp16"],
    ROW_COLORS[3],
    FORMAT_COLORS["bf16"],
    FORMAT_COLORS["fp32"],
)

# Runs that learn alike lie on one another: the later ones are wide, beneath.
_RUN_LOOKS = (
    {"linestyle": "-", "linewidth": 2},
    {"linestyle": ":", "linewidth": 2},
    {"linestyle": "--", "linewidth": 2.6},
    {"linestyle": "-", "linewidth": 6, "alpha": 0.3},
)
_SUBSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_saved(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Figure:
    """Bytes saved for backward by component, each bar cut by dtype, in GB.

    ``panels`` maps the name of a mode to its components, and these to bytes by
    dtype, which is named as in torch. All panels have the rows of the first, and
    their titles the totals.

    Raises ValueError without a panel, for panels of other components than the
    first, and for a dtype without a colour.
    """
    rows = list(next(iter(panels.values()), {}))
    if not rows or any(list(parts) != rows for parts in panels.values()):
        raise ValueError("give each mode bytes of the same components")
    dtypes = {d for parts in panels.values() for p in parts.values() for d in p}
    if unknown := sorted(dtypes - DTYPE_COLORS.keys()):
        raise ValueError(f"there is no colour for {unknown[0]!r}")
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(FIGURE_WIDTH, 1.2 + 0.3 * len(rows)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, (mode, parts) in zip(axes[0], panels.items(), strict=True):
        _draw_stacks(ax, list(parts.values()))
        total = sum(sum(part.values()) for part in parts.values())
        ax.set_title(f"{mode}\n{total / 1e9:.2f} GB", fontsize=10)
        ax.set_xlabel("GB")
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(range(len(rows)), [r.replace("_", " ") for r in rows])
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)  # from top to bottom
    drawn = [dtype for dtype in DTYPE_COLORS if dtype in dtypes]
    handles = [plt.Rectangle((0, 0), 1, 1, color=DTYPE_COLORS[d]) for d in drawn]
    _colored_legend(figure, handles, drawn)
    return figure


def _draw_stacks(ax: Axes, parts: Sequence[Mapping[str, float]]) -> None:
    left = np.zeros(len(parts))
    for dtype, color in DTYPE_COLORS.items():
        widths = np.array([part.get(dtype, 0) for part in parts]) / 1e9
        ax.barh(range(len(parts)), widths, left=left, height=0.6, color=color)
        left += widths


def draw_stall(
    curves: Mapping[str, Sequence[float]],
    tokens: Sequence[int],
    ends: Sequence[float],
    guess: float,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Losses of runs over their steps, and where the first one ends over tokens.

    ``ends`` has a loss for each number of ``tokens`` in a batch. ``guess`` is the
    loss of a guess at random, dashed. ``marks`` are named numbers of tokens. Both
    axes of losses are logarithmic, and the same.

    Raises ValueError without a curve, for more than there are line styles, and
    where there is not one loss for each number of tokens.
    """
    if not 0 < len(curves) <= len(_RUN_LOOKS):
        raise ValueError(f"give 1 to {len(_RUN_LOOKS)} runs to draw")
    if len(ends) != len(tokens):
        raise ValueError("give one loss for each number of tokens")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(FIGURE_WIDTH, 3.4), sharey=True
    )
    looks = [
        {**look, "color": color, "zorder": 3 - place / 10}
        for place, (look, color) in enumerate(
            zip(_RUN_LOOKS, _RUN_COLORS, strict=True)
        )
    ]
    lines = [
        left.plot(curve, **look)[0]
        for curve, look in zip(curves.values(), looks, strict=False)
    ]
    right.plot(tokens, ends, marker="o", markersize=4, **looks[0])
    for ax in (left, right):
        ax.axhline(guess, color=COLORS["prediction"], linewidth=1, linestyle="--")
    left.annotate(
        "a guess",
        (1, guess),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9,
    )
    for name, number in (marks or {}).items():
        right.axvline(number, color=TEXT_COLOR, linewidth=1, linestyle=":")
        right.annotate(
            name,
            (number, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-2, -2),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            fontsize=9,
        )
    left.set(xlabel="steps", ylabel="loss (nats)", yscale="log")
    left.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    left.minorticks_off()
    right.set_xscale("log", base=2)
    right.set_xticks(tokens, [_power_of_two(n) for n in tokens])
    right.minorticks_off()
    right.set_xlabel("tokens in a batch")
    _colored_legend(figure, lines, list(curves), handlelength=1.8)
    return figure


def draw_gradients(panels: Mapping[str, Mapping[str, ArrayLike]]) -> Figure:
    """Sizes of gradients in powers of two, and the range in which fp16 holds them.

    ``panels`` maps a title to groups of gradients, and each becomes a histogram by
    size, drawn to a height of its own. What lies left of the shaded range rounds
    to 0 in fp16, and what lies right of it to infinity.

    Raises ValueError without a panel, and for more groups than there are colours.
    """
    names = list(
        dict.fromkeys(name for groups in panels.values() for name in groups)
    )
    if not 0 < len(names) <= len(ROW_COLORS):
        raise ValueError(f"give 1 to {len(ROW_COLORS)} groups of gradients")
    powers = np.arange(-44, 20)
    smallest = np.log2(FP16.smallest_subnormal) - 1  # half of it rounds to 0
    largest = np.log2(FP16.max)
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(FIGURE_WIDTH, 0.9 + 1.15 * len(panels)),
        sharex=True,
        squeeze=False,
    )
    colors = dict(zip(names, ROW_COLORS[1:] + ROW_COLORS[:1], strict=False))
    for ax, (title, groups) in zip(axes[:, 0], panels.items(), strict=True):
        ax.axvspan(smallest, largest, color=TEXT_COLOR, alpha=0.15, lw=0)
        for name, values in groups.items():
            sizes = np.abs(np.asarray(values, dtype=float)).ravel()
            logs = np.log2(sizes[sizes > 0])
            counts = np.histogram(logs, bins=powers)[0]
            heights = counts / max(counts.max(), 1)
            ax.stairs(heights, powers, fill=True, alpha=0.75, color=colors[name])
        ax.set_title(title, fontsize=10)
        ax.set(yticks=[], ylim=(0, 1.35))  # with room for what is written above
        ax.spines["left"].set_visible(False)
    axes[-1, 0].set_xticks(range(-40, 20, 10))
    axes[-1, 0].set_xticklabels(_power_of_two(2.0**k) for k in range(-40, 20, 10))
    axes[-1, 0].set_xlim(-44, 18)
    axes[-1, 0].set_xlabel("size of a gradient")
    for words, place in (("becomes 0", smallest), ("what fp16 holds", largest)):
        axes[0, 0].annotate(
            words,
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4, -4),
            textcoords="offset points",
            va="top",
            ha="right",
            fontsize=9,
        )
    handles = [plt.Rectangle((0, 0), 1, 1, color=colors[name]) for name in names]
    _colored_legend(figure, handles, names)
    return figure


def _power_of_two(number: float) -> str:
    """A power of two as the axes have it, such as 2⁻²⁴."""
    return "2" + str(round(np.log2(number))).translate(_SUBSCRIPTS)


def _colored_legend(
    figure: Figure,
    handles: Sequence[Artist],
    names: Sequence[str],
    handlelength: float = 0.8,
) -> None:
    """Name what is drawn above the axes, in its colour."""
    legend = figure.legend(
        handles,
        names,
        loc="outside upper left",
        ncols=len(names),
        frameon=False,
        handlelength=handlelength,
        handletextpad=0.5,
        columnspacing=1.2,
        borderaxespad=0,
        fontsize=9.5,
    )
    for text, handle in zip(legend.get_texts(), handles, strict=True):
        color = getattr(
            handle, "get_facecolor", getattr(handle, "get_color", None)
        )()
        text.set_color(color)
