"""Memory of training: by component, over a step, and which component is largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, TEXT_COLOR

__all__ = [
    "DominanceMap",
    "draw_dominance",
    "draw_ledgers",
    "draw_memory_growth",
    "draw_timelines",
]

# Parts of one thing share its colour, and differ in how much of it they take.
_TINTS = {
    "parameters": ("parameters", 0.5),
    "master weights": ("parameters", 0.25),
    "gradients": ("gradients", 0.5),
    "optimizer state": ("optimizer state", 0.5),
    "activations": ("activations", 0.5),
    "blocks": ("activations", 0.6),
    "head and loss": ("activations", 0.3),
    "attention": ("activations", 0.6),
    "MLPs": ("activations", 0.25),
}


def draw_ledgers(rows: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """Draw a bar for each row, cut into its components, with the sum at its end.

    Each row maps components, such as "gradients", to their sizes in ``unit``.

    Raises ValueError without a row, and for a component without a colour.
    """
    _check_names([name for parts in rows.values() for name in parts])
    longest = max(sum(parts.values()) for parts in rows.values())
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 0.9 + 0.42 * len(rows)))
    for place, parts in enumerate(rows.values()):
        start = 0.0
        for name, size in parts.items():
            if not size:
                continue
            ax.barh(place, size, left=start, color=_tint(name), height=0.72)
            middle = start + size / 2
            ax.text(middle, place, f"{size:g}", ha="center", va="center")
            start += size
        ax.text(
            start + longest / 60, place, f"{start:g}", va="center", weight="bold"
        )
    ax.set_yticks(range(len(rows)), rows)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel=unit, ylim=(len(rows) - 0.5, -0.5), xlim=(0, 1.08 * longest))
    ax.spines["left"].set_visible(False)
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    _legend(figure, names)
    return figure


def draw_memory_growth(
    panels: Mapping[str, tuple[Sequence[int], Mapping, Sequence[int], Mapping]],
) -> Figure:
    """Draw what each component takes as something grows, on top of each other.

    ``panels`` has for the label of each x axis the values of the formula and its
    bytes by component, which are areas, then the values that were measured and
    their bytes, which are dots on the edges of the areas. All panels share the y
    axis, in MB.

    Raises ValueError without a panel, for a component without a colour, and where
    formula and measurement differ in components, or bytes and values in number.
    """
    for values, formula, points, measured in panels.values():
        if (
            list(formula) != list(measured)
            or not _all_as_long(values, formula)
            or not _all_as_long(points, measured)
        ):
            raise ValueError("give each component by both, and once for each value")
    _check_names([name for _, formula, *_ in panels.values() for name in formula])
    figure, row = plt.subplots(
        1,
        len(panels),
        figsize=(FIGURE_WIDTH, 3.5),
        sharey=True,
        squeeze=False,
    )
    for ax, (label, (values, formula, points, measured)) in zip(
        row[0], panels.items(), strict=True
    ):
        edges = np.cumsum([[0] * len(values), *formula.values()], axis=0) / 1e6
        for name, lower, upper in zip(formula, edges, edges[1:], strict=False):
            ax.fill_between(values, lower, upper, color=_tint(name), linewidth=0)
        dots = np.cumsum(list(measured.values()), axis=0) / 1e6
        for heights in dots:
            ax.plot(points, heights, "o", color=TEXT_COLOR, markersize=3.5)
        ax.set(xlabel=label, xlim=(0, 1.04 * values[-1]))
        ax.set_xticks(points)
    row[0][0].set(ylabel="memory (MB)", ylim=(0, None))
    _legend(figure, list(formula), [_line("measured", "", marker="o")])
    return figure


def draw_timelines(
    panels: Mapping[str, tuple[Sequence[int], Mapping[str, int]]],
) -> Figure:
    """Draw the bytes held over a step, a panel for each way to take it, in MB.

    ``panels`` has for each title the bytes after every change, and levels to mark,
    each by its name. All panels share the y axis.

    Raises ValueError without a panel, or for a timeline without a change.
    """
    if not panels or any(len(held) < 2 for held, _ in panels.values()):
        raise ValueError("give at least one timeline, each with a change in it")
    figure, row = plt.subplots(
        1,
        len(panels),
        figsize=(FIGURE_WIDTH, 3.2),
        sharey=True,
        squeeze=False,
    )
    for ax, (title, (held, levels)) in zip(row[0], panels.items(), strict=True):
        heights = np.divide(held, 1e6)
        color = COLORS["activations"]
        ax.fill_between(
            range(len(held)), heights, step="post", color=color, alpha=0.35, lw=0
        )
        ax.step(range(len(held)), heights, where="post", color=color, linewidth=1)
        for name, level in levels.items():
            style = {"color": COLORS["prediction"], "linestyle": "--"}
            ax.axhline(level / 1e6, linewidth=1.2, **style)
            ax.annotate(
                name,
                (0.02, level / 1e6),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=9,
            )
        ax.set(xlabel="allocations and releases", xlim=(0, len(held)))
        ax.set_title(title)
    ceiling = max(
        max([*held, *levels.values()]) for held, levels in panels.values()
    )
    row[0][0].set(ylabel="memory held (MB)", ylim=(0, 1.12 * ceiling / 1e6))
    return figure


@dataclass(frozen=True)
class DominanceMap:
    """Which component is largest for each batch and context, and two lines.

    ``largest`` has a row for each batch size and a column for each context length,
    with names of components; ``total`` has the bytes of everything, ``activations``
    those of all activations, in the same shape.
    """

    largest: Sequence[Sequence[str]]
    activations: np.ndarray
    total: np.ndarray


def draw_dominance(
    batch_sizes: Sequence[int],
    context_lengths: Sequence[int],
    maps: Mapping[str, DominanceMap],
    memory_bytes: float,
) -> Figure:
    """Draw for each map which component is largest, by its colour.

    Sizes are ascending powers of two. A dashed line is where activations weigh as
    much as all else, and a solid one where the total is ``memory_bytes``.

    Raises ValueError without a map, for a map of another shape, and for a component
    without a colour.
    """
    shape = (len(batch_sizes), len(context_lengths))
    for each in maps.values():
        arrays = (each.largest, each.activations, each.total)
        if any(np.shape(array) != shape for array in arrays):
            raise ValueError(f"give each map {shape[0]} rows of {shape[1]} columns")
    found = [np.unique(each.largest).tolist() for each in maps.values()]
    _check_names([name for some in found for name in some])
    names = [name for name in _TINTS if any(name in some for some in found)]
    rows = -(-len(maps) // 2)
    figure, grid = plt.subplots(
        rows,
        2,
        figsize=(FIGURE_WIDTH, 2.7 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    x, y = np.log2(context_lengths), np.log2(batch_sizes)
    for ax in grid.flat[len(maps) :]:
        ax.remove()
    for ax, (title, each) in zip(grid.flat, maps.items(), strict=False):
        _draw_map(ax, x, y, each, memory_bytes)
        ax.set_title(title)
        ax.set_xticks(x[::2], [f"{length:,}" for length in context_lengths[::2]])
        ax.set_yticks(y[::2], batch_sizes[::2])
        ax.tick_params(labelsize=9)
    for ax in grid[-1]:
        ax.set_xlabel("context (tokens)")
    for ax in grid[:, 0]:
        ax.set_ylabel("batch (sequences)")
    _legend(
        figure,
        names,
        [
            _line("activations = all else", "--"),
            _line(f"{memory_bytes / 1e9:g} GB in all", "-"),
        ],
    )
    return figure


def _draw_map(
    ax: Axes, x: np.ndarray, y: np.ndarray, each: DominanceMap, memory_bytes: float
) -> None:
    largest = np.asarray(each.largest)
    colors = np.array([[to_rgba(_tint(name)) for name in row] for row in largest])
    ax.imshow(
        colors,
        extent=(x[0] - 0.5, x[-1] + 0.5, y[0] - 0.5, y[-1] + 0.5),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    # From one power of two to the next both ratios grow by a factor, so that their
    # logarithm is what a contour can interpolate.
    share = np.log(each.activations / (each.total - each.activations))
    lines = {"dashed": share, "solid": np.log(each.total / memory_bytes)}
    for style, heights in lines.items():
        if heights.min() < 0 < heights.max():
            ax.contour(x, y, heights, [0], colors=TEXT_COLOR, linestyles=style)


def _tint(name: str) -> tuple[float, float, float, float]:
    of, strength = _TINTS[name]
    return to_rgba(COLORS[of], strength)


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("give at least one component to draw")
    if unknown := [name for name in names if name not in _TINTS]:
        known = ", ".join(_TINTS)
        raise ValueError(f"no colour for {unknown[0]!r}; there is one for {known}")


def _all_as_long(values: Sequence[int], by_component: Mapping) -> bool:
    return all(len(line) == len(values) for line in by_component.values())


def _line(name: str, style: str, marker: str = "") -> Line2D:
    return Line2D(
        [],
        [],
        label=name,
        linestyle=style,
        marker=marker,
        color=TEXT_COLOR,
        markersize=3.5,
    )


def _legend(
    figure: Figure, names: Sequence[str], lines: Sequence[Line2D] = ()
) -> None:
    """Name the colours above the axes, and what else is drawn, in one row."""
    patches = [Patch(color=_tint(name), label=name) for name in names]
    figure.legend(
        handles=[*patches, *lines],
        loc="outside upper left",
        ncols=len(patches) + len(lines),
        frameon=False,
        handlelength=1.2,
        handletextpad=0.4,
        columnspacing=1.2,
        borderaxespad=0,
        fontsize=9,
    )
