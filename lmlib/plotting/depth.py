"""Drawing of what the layers of a network do to the scale of what they pass on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS


def draw_depth(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    quantity: str = "root mean square",
    limits: tuple[float, float] = (1e-6, 1e6),
) -> Figure:
    """Scale after each layer, on one logarithmic axis, a panel for each network.

    ``panels`` maps the name of a network to its curves, and these the name of a
    line to the scale of the input and of what each layer makes of it. Lines of one
    name have one colour, in which the name stands above. A curve that leaves
    ``limits`` says at their edge where it ends.

    Raises ValueError without a panel, for more names than there are colours, and
    for a curve of fewer than two values, with values that are not above 0, or that
    begins outside ``limits``.
    """
    names = list(
        dict.fromkeys(name for curves in panels.values() for name in curves)
    )
    _check(panels, names, limits)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(FIGURE_WIDTH, 3.1), sharey=True, squeeze=False
    )
    colors = dict(zip(names, ROW_COLORS, strict=False))
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        ax.set_title(title)
        ax.set_yscale("log")
        ax.set_ylim(limits)
        ax.set_yticks(_decades(*limits))
        ax.minorticks_off()
        ax.axhline(1, color=COLORS["prediction"], linewidth=1, alpha=0.5)
        for name, scales in curves.items():
            _draw_curve(ax, scales, limits, colors[name], name)
        ax.set_xlabel("layers passed")
    axes[0, 0].set_ylabel(quantity)
    handles = {line.get_label(): line for ax in axes[0] for line in ax.lines}
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside upper left",
        ncols=len(names),
        frameon=False,
        labelcolor="linecolor",
        handlelength=0,
        handletextpad=0,
        columnspacing=1.3,
        borderaxespad=0,
        fontsize=9.5,
    )
    return figure


def _draw_curve(
    ax: Axes,
    scales: Sequence[float],
    limits: tuple[float, float],
    color: str,
    name: str,
) -> None:
    ax.plot(range(len(scales)), scales, color=color, label=name)
    lowest, highest = limits
    if lowest <= scales[-1] <= highest:
        return
    upwards = scales[-1] > highest
    place = _crossing(scales, highest if upwards else lowest)
    ax.annotate(
        f"$10^{{{math.floor(math.log10(scales[-1]))}}}$",
        (place, highest if upwards else lowest),
        xytext=(4, -3 if upwards else 3),
        textcoords="offset points",
        va="top" if upwards else "bottom",
        color=color,
        fontsize=9.5,
    )


def _decades(lowest: float, highest: float) -> list[float]:
    """About six evenly spaced powers of ten, 1 among them if it lies between."""
    first, last = math.ceil(math.log10(lowest)), math.floor(math.log10(highest))
    step = max(1, (last - first) // 6)
    return [10.0**k for k in range(first, last + 1) if k % step == 0]


def _crossing(scales: Sequence[float], limit: float) -> float:
    """The last place at which a curve, straight on a log axis, passes a limit."""
    logs = [math.log(scale / limit) for scale in scales]
    outwards = 1 if logs[-1] > 0 else -1
    before = max(i for i, log in enumerate(logs) if log * outwards <= 0)
    return before + logs[before] / (logs[before] - logs[before + 1])


def _check(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    names: Sequence[str],
    limits: tuple[float, float],
) -> None:
    if not panels:
        raise ValueError("draw_depth needs at least one panel")
    if len(names) > len(ROW_COLORS):
        raise ValueError(
            f"there are {len(ROW_COLORS)} colours, and {len(names)} names of curves"
        )
    for title, curves in panels.items():
        for name, scales in curves.items():
            if len(scales) < 2:
                raise ValueError(
                    f"the curve {name!r} of {title!r} has {len(scales)} values: "
                    "pass the scale of the input and of each layer"
                )
            if not all(0 < scale < math.inf for scale in scales):
                raise ValueError(
                    f"the curve {name!r} of {title!r} has values that no "
                    "logarithmic axis can show: all must be finite and above 0"
                )
            if not limits[0] <= scales[0] <= limits[1]:
                raise ValueError(
                    f"the curve {name!r} of {title!r} begins at {scales[0]:g}, "
                    f"outside the limits {limits[0]:g} and {limits[1]:g}"
                )
