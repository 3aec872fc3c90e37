"""A roofline with what was measured beneath it."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from lmlib.hardware import Roofline
from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS

Points = Mapping[str, tuple[float, float]]

SIDES = [  # of a point, where its name may stand, best first
    {"position": (x, y), "ha": ha, "va": va}
    for y, va in ((-4, "top"), (4, "bottom"), (-15, "top"))  # points of type
    for x, ha in ((6, "left"), (-6, "right"), (0, "center"))
]


def draw_roofline(roofline: Roofline, series: Mapping[str, Points]) -> Figure:
    """Draw the two limits, dashed, and points (FLOPs per byte, FLOP/s) by name.

    Each series of points has a colour. Those of the first are joined by a line.
    Both axes are logarithmic.

    Raises ValueError without a point, and for one that is not above 0.
    """
    places = [place for points in series.values() for place in points.values()]
    if not places or not all(value > 0 for place in places for value in place):
        raise ValueError("give at least one point, with both values above 0")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.9))
    intensities, rates = np.array(places).T
    ends = (
        min(*intensities, roofline.ridge) / 3,
        max(*intensities, roofline.ridge) * 4,
    )
    _draw_limits(ax, roofline, ends)
    for i, (points, color) in enumerate(
        zip(series.values(), ROW_COLORS, strict=False)
    ):
        style = "o-" if i == 0 else "o"
        xs, ys = np.array(list(points.values())).T
        ax.plot(xs, ys, style, color=color, markersize=5, linewidth=1)
    lowest = min(*rates, roofline.limit(ends[0]))
    ax.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=(lowest / 2, 3 * max(*rates, roofline.peak_flops)),
        xlabel="arithmetic intensity (FLOPs per byte)",
        ylabel="speed (FLOP/s)",
    )
    ax.grid(which="major")
    _name_points(ax, series)
    return figure


def _draw_limits(ax: Axes, roofline: Roofline, ends: tuple[float, float]) -> None:
    """Draw both limits, each with its name, and a line down from the ridge."""
    corners = [ends[0], roofline.ridge, ends[1]]
    color = COLORS["prediction"]
    ax.plot(corners, [roofline.limit(x) for x in corners], "--", color=color)
    ax.axvline(roofline.ridge, color=color, linewidth=0.8, linestyle=":")
    beside = {"color": color, "fontsize": 9, "textcoords": "offset points"}
    ax.annotate(
        f"peak: {_rate(roofline.peak_flops)}FLOP/s",
        (ends[1], roofline.peak_flops),
        xytext=(-4, 5),
        ha="right",
        **beside,
    )
    high = roofline.ridge / 3  # on the slope, above whatever lies under it
    ax.annotate(
        f"bandwidth: {_rate(roofline.bandwidth)}B/s",
        (high, roofline.limit(high)),
        xytext=(-8, 4),
        ha="right",
        **beside,
    )
    ax.annotate(
        f"ridge: {roofline.ridge:.3g} FLOPs per byte",
        (roofline.ridge, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-5, 6),
        ha="right",
        **beside,
    )


def _name_points(ax: Axes, series: Mapping[str, Points]) -> None:
    """Name each point, on the side where its name covers least."""
    ax.figure.draw_without_rendering()  # from here on every place is final
    names = [text.get_window_extent() for text in ax.texts]
    limits, _, joined, *loose = (
        line.get_transform().transform(line.get_xydata()) for line in ax.lines
    )
    drawn = np.concatenate([_along(limits), _along(joined), *loose])
    for points, color in zip(series.values(), ROW_COLORS, strict=False):
        for name, place in points.items():
            label = ax.annotate(
                name,
                place,
                (0, 0),
                textcoords="offset points",
                color=color,
                fontsize=9,
            )

            def covered(side: Mapping[str, object], label: Text = label) -> float:
                label.set(**side)
                box = label.get_window_extent()
                within = box.count_contains(drawn)
                inside = ax.bbox.containsx(box.x0) and ax.bbox.containsx(box.x1)
                return within + 1000 * (box.count_overlaps(names) + (not inside))

            label.set(**min(SIDES, key=covered))
            names.append(label.get_window_extent())


def _along(corners: np.ndarray) -> np.ndarray:
    """Points along a line on the screen, a few pixels apart."""
    steps = np.linspace(0, len(corners) - 1, 100 * len(corners))
    return np.column_stack(
        [np.interp(steps, range(len(corners)), values) for values in corners.T]
    )


def _rate(value: float) -> str:
    """A rate with the prefix of its unit, such as ``989 T``."""
    for prefix, size in {"P": 1e15, "T": 1e12, "G": 1e9}.items():
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value / 1e6:.3g} M"
