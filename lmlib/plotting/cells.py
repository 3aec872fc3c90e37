"""Cells with a number in them, of which drawings of tensors are made."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lmlib.plotting.style import FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

CENTRED = {"ha": "center", "va": "center"}


def canvas(width: float, bottom: float, top: float) -> tuple[Figure, Axes]:
    """Empty axes on which a cell is one unit wide and one high."""
    margin = 0.4
    across, high = width + 2 * margin, top - bottom + 2 * margin
    figsize = FIGURE_WIDTH, FIGURE_WIDTH * high / across
    figure, ax = plt.subplots(figsize=figsize, layout="none")
    ax.set(
        xlim=(-margin, width + margin),
        ylim=(bottom - margin, top + margin),
        position=(0, 0, 1, 1),
    )
    ax.set_axis_off()
    return figure, ax


def row_color(row: int) -> str:
    """The colour of a row, or of what stands for one: a head, a group."""
    return ROW_COLORS[row % len(ROW_COLORS)]


def draw_cell(
    ax: Axes, x: float, y: float, text: str, color: str | None, fontsize: float
) -> None:
    """Draw a cell with its text, tinted unless its colour is None."""
    edge = color or TEXT_COLOR
    box = Rectangle(
        (x + 0.06, y + 0.06),
        0.88,
        0.88,
        facecolor=to_rgba(edge, 0.22 if color else 0),
        edgecolor=to_rgba(edge, 1 if color else 0.5),
        linewidth=1.2 if color else 0.8,
    )
    ax.add_patch(box)
    size = fontsize * 0.85 if "\n" in text else fontsize
    ax.text(x + 0.5, y + 0.48, text, fontsize=size, linespacing=1.05, **CENTRED)
