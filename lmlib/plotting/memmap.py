"""Token files: bytes under several readings, resident memory, times, the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from lmlib.plotting.cells import canvas, draw_cell, row_color
from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS

_FONTSIZE = 9.5


def draw_bytes(data: bytes, dtypes: Sequence[str]) -> Figure:
    """Draw bytes in one row for each type, each number of that type in a colour.

    A cell has a byte in hexadecimal. Beneath its cells stands a number's value.

    Raises ValueError without a type, or where a type does not divide the bytes.
    """
    sizes = [np.dtype(dtype).itemsize for dtype in dtypes]
    if not sizes or not data or any(len(data) % size for size in sizes):
        raise ValueError("give bytes, and types whose sizes divide their number")
    room = 2.4  # a name, a row of cells and the values
    figure, ax = canvas(len(data), bottom=0, top=room * len(sizes))
    for place, (dtype, size) in enumerate(zip(dtypes, sizes, strict=True)):
        y = (len(sizes) - 1 - place) * room + 0.6
        ax.text(0, y + 1.2, f"read as {dtype}", weight="bold")
        for i, byte in enumerate(data):
            draw_cell(ax, i, y, f"{byte:02x}", row_color(i // size), _FONTSIZE)
        for i, value in enumerate(np.frombuffer(data, dtype).tolist()):
            ax.text(
                (i + 0.5) * size,
                y - 0.35,
                f"{value:,}",
                ha="center",
                va="center",
                fontsize=_FONTSIZE,
                color=row_color(i),
            )
    return figure


def draw_resident(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], file_bytes: float
) -> Figure:
    """Draw memory that a process gained over the bytes that it has read, in MB.

    ``lines`` has both in bytes for each way to read. The file's size is dashed.

    Raises ValueError without a line, or for more lines than there are colours.
    """
    if not 0 < len(lines) <= len(ROW_COLORS):
        raise ValueError(f"give 1 to {len(ROW_COLORS)} lines to draw")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.5))
    for (name, (read, gained)), color in zip(
        lines.items(), ROW_COLORS, strict=False
    ):
        ax.plot(
            np.divide(read, 1e6), np.divide(gained, 1e6), color=color, label=name
        )
    ax.axhline(
        file_bytes / 1e6, color=COLORS["prediction"], linestyle="--", linewidth=1.2
    )
    ax.annotate(
        "size of the file",
        (0.5, file_bytes / 1e6),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color=COLORS["prediction"],
        fontsize=9,
        ha="center",
    )
    ax.set(
        xlim=(0, None),
        ylim=(-0.03 * file_bytes / 1e6, 1.15 * file_bytes / 1e6),
        xlabel="tokens read, in MB of the file",
        ylabel="memory gained (MB)",
    )
    ax.grid()
    _colored_legend(figure, ncols=2)
    return figure


def draw_read_times(times: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw seconds for one read, a row for each place and a colour for each order.

    ``times`` maps the name of an order, such as "random", to the seconds by place,
    the same places in each. The axis is logarithmic, in microseconds; each point
    has its value beside it.

    Raises ValueError without a time, for one that is not above 0, and where two
    orders differ in their places.
    """
    places = [list(by_place) for by_place in times.values()]
    values = [value for by_place in times.values() for value in by_place.values()]
    if not values or any(other != places[0] for other in places):
        raise ValueError("give each order a time for each of the same places")
    if min(values) <= 0:
        raise ValueError("give times above 0: the axis is logarithmic")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 0.8 + 0.7 * len(places[0])))
    apart = 0.3 / max(1, len(times) - 1)  # two points of a row may be equal
    for i, ((order, by_place), color) in enumerate(
        zip(times.items(), ROW_COLORS, strict=False)
    ):
        rows = [row + i * apart - 0.15 for row in range(len(by_place))]
        microseconds = [seconds * 1e6 for seconds in by_place.values()]
        ax.plot(microseconds, rows, "o", color=color, label=order, markersize=7)
        for value, row in zip(microseconds, rows, strict=True):
            ax.annotate(
                f"{value:,.3g}" if value < 1000 else f"{value:,.0f}",
                (value, row),
                xytext=(8, 0),
                textcoords="offset points",
                color=color,
                fontsize=9,
                va="center",
            )
    ax.set_yticks(range(len(places[0])), places[0])
    ax.tick_params(axis="y", length=0)
    ax.set(
        xscale="log",
        xlim=(min(values) * 1e6 / 2, max(values) * 1e6 * 5),
        ylim=(len(places[0]) - 0.5, -0.5),  # from top to bottom
        xlabel="µs for a window",
    )
    ax.grid(axis="x")
    _colored_legend(figure, ncols=len(times))
    return figure


def draw_order(
    ranks: Sequence[Sequence[int]], batch_size: int, windows_per_epoch: int
) -> Figure:
    """Draw which window of the text each rank reads, step by step, over the epochs.

    ``ranks`` has for every rank its windows in the order in which they come, all of
    the same number, ``batch_size`` to a step. Those of one step stand side by side
    between two grid lines, rank by rank; ``windows_per_epoch`` of them make an
    epoch.

    Raises ValueError without a window, where two ranks differ in their number, or
    where the last batch is not whole.
    """
    if not ranks or not ranks[0] or len({len(windows) for windows in ranks}) != 1:
        raise ValueError("give every rank as many windows as the others")
    if len(ranks[0]) % batch_size:
        raise ValueError("give every rank whole batches")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3.4))
    total = sum(map(len, ranks))
    places = np.arange(total).reshape(-1, len(ranks), batch_size)
    for rank, (windows, color) in enumerate(zip(ranks, ROW_COLORS, strict=False)):
        ax.plot(
            places[:, rank].ravel(),
            windows,
            "o",
            color=color,
            markersize=5,
            label=f"rank {rank}",
        )
    for epoch in range(-(-total // windows_per_epoch)):
        place = epoch * windows_per_epoch
        if epoch:
            ax.axvline(place - 0.5, color=COLORS["prediction"], linewidth=1)
        ax.annotate(
            f"epoch {epoch}",
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2),
            textcoords="offset points",
            fontsize=9,
        )
    ax.set(
        xlim=(-1, total),
        xlabel="place in the stream of windows",
        ylabel="window of the text",
    )
    step = len(ranks) * batch_size
    shown = range(0, total + 1, step * -(-total // (10 * step)))
    ax.set_xticks([place - 0.5 for place in shown], shown)
    ax.grid()
    _colored_legend(figure, ncols=len(ranks))
    return figure


def _colored_legend(figure: Figure, ncols: int) -> None:
    """Name the lines above the axes, each in its colour."""
    legend = figure.legend(
        loc="outside upper left",
        ncols=ncols,
        frameon=False,
        labelcolor="linecolor",
        handlelength=0,
        handletextpad=0,
        columnspacing=1.3,
        borderaxespad=0,
        fontsize=9.5,
    )
    for handle in legend.legend_handles:  # the colour of the name says enough
        handle.set_visible(False)
