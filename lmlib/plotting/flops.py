"""A model's FLOPs by component, as its context grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR


def draw_context_flops(
    lengths: Sequence[int],
    flops: Mapping[str, Sequence[float]],
    crossings: Mapping[int, str],
) -> Figure:
    """Draw FLOPs per token over the context length, a line for each component.

    Each line has its name at its end. ``crossings`` are one or two lengths to
    mark, each with what it is called. Both axes are logarithmic.

    Raises ValueError for a line that has not one value for each length.
    """
    if any(len(values) != len(lengths) for values in flops.values()):
        raise ValueError("give each component one value for each length")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 4.1))
    for (name, values), color in zip(flops.items(), ROW_COLORS, strict=False):
        ax.plot(lengths, values, color=color)
        ax.annotate(
            name,
            (lengths[-1], values[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            color=color,
            fontsize=9,
            va="center",
            annotation_clip=False,
        )
    for i, (length, name) in enumerate(sorted(crossings.items())):
        side = -1 if i == 0 else 1  # the first to the left of its line
        ax.axvline(
            length, color=COLORS["prediction"], linestyle="--", linewidth=1.2
        )
        ax.annotate(
            name,
            (length, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4 * side, -2),
            textcoords="offset points",
            color=TEXT_COLOR,
            fontsize=9,
            ha="right" if side < 0 else "left",
            va="top",
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(lengths[0], lengths[-1])
    shown = lengths[::2]
    ax.set_xticks(shown, [f"{length:,}" for length in shown])
    ax.set(xlabel="context length (tokens)", ylabel="FLOPs per token, forward")
    ax.grid(which="major")
    return figure
