"""Number formats drawn: their bits, where their values lie, and what they lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from lmlib.dtypes import FloatFormat, get_format
from lmlib.plotting.style import FIGURE_WIDTH, ROW_COLORS, TEXT_COLOR

FORMAT_COLORS = {
    "fp64": TEXT_COLOR,
    "fp32": ROW_COLORS[0],
    "tf32": ROW_COLORS[5],
    "bf16": ROW_COLORS[2],
    "fp16": ROW_COLORS[1],
    "fp8_e5m2": ROW_COLORS[4],
    "fp8_e4m3fn": ROW_COLORS[3],
}
"""The color of each number format."""
FIELD_COLORS = {
    "sign": TEXT_COLOR,
    "exponent": ROW_COLORS[0],
    "fraction": ROW_COLORS[4],
}
MAX_FRACTION_BITS = 23  # what is drawn of a fraction; fp64 has more


def format_color(name: str) -> str:
    """Colour of a format in every figure; grey for one that has none."""
    return FORMAT_COLORS.get(name, TEXT_COLOR)


# --- bits -------------------------------------------------------------------------


def draw_bit_fields(value: float, formats: Iterable[FloatFormat]) -> Figure:
    """Draw the bits of a value in several formats, and the value that each holds.

    The rows are aligned where the fraction begins, so that equal bits stand beneath
    one another. Of a long fraction the first bits are drawn.
    """
    formats = _at_least_one(formats)
    exponents = max(each.exponent_bits for each in formats)
    fractions = min(max(each.fraction_bits for each in formats), MAX_FRACTION_BITS)
    names, gap = 9.5, 0.4
    start = names + 1 + gap + exponents + gap  # of the fraction
    width, row = start + fractions + 2.6, 2.4
    height = row * len(formats) + 1.1
    figsize = FIGURE_WIDTH, FIGURE_WIDTH * height / width
    figure, ax = plt.subplots(figsize=figsize, layout="none")
    ax.set(xlim=(0, width), ylim=(height, 0), position=(0, 0, 1, 1))
    ax.set_axis_off()

    heads = {
        "sign": (start - gap - exponents - gap - 0.1, "right"),
        "exponent": (start - gap - exponents / 2, "center"),
        "fraction": (start + fractions / 2, "center"),
    }
    for part, (x, align) in heads.items():
        ax.text(x, 0.6, part, ha=align, va="center", color=FIELD_COLORS[part])
    for number, each in enumerate(formats):
        y = 1.1 + row * number
        bits = each.bit_fields(value)
        ax.text(0.1, y + 0.45, each.name, va="center", weight="bold", fontsize=9)
        held = f"{each.round(value):.9g}"
        ax.text(0.1, y + 1.5, held, va="center", fontsize=8)
        exponent_start = start - gap - each.exponent_bits
        _draw_bits(ax, exponent_start - gap - 1, y, bits.sign, "sign")
        _draw_bits(ax, exponent_start, y, bits.exponent, "exponent")
        _draw_bits(ax, start, y, bits.fraction[:fractions], "fraction")
        left_out = each.fraction_bits - fractions
        if left_out > 0:
            x = start + fractions + 0.2
            ax.text(x, y + 0.95, f"+ {left_out}", va="center", fontsize=8.5)
    return figure


def _draw_bits(ax: Axes, x: float, y: float, bits: str, part: str) -> None:
    color = FIELD_COLORS[part]
    for place, bit in enumerate(bits):
        box = Rectangle(
            (x + place + 0.06, y + 0.25),
            0.88,
            1.4,
            facecolor=to_rgba(color, 0.35 if bit == "1" else 0.06),
            edgecolor=to_rgba(color, 0.8),
            linewidth=0.7,
        )
        ax.add_patch(box)
        middle = {"ha": "center", "va": "center"}
        ax.text(x + place + 0.5, y + 0.97, bit, fontsize=8, **middle)


# --- range and spacing ------------------------------------------------------------


def draw_ranges(
    formats: Iterable[FloatFormat], marks: Mapping[str, float] | None = None
) -> Figure:
    """Draw where the positive values of formats lie, on an axis of powers of two.

    A bar is full where numbers are normal and pale where they are subnormal; beside
    it stand the smallest and the largest value. A format that reaches beyond the
    page, such as fp64, is an arrow. ``marks`` are numbers to draw a line at, each
    under its name.
    """
    formats = _at_least_one(formats)
    left, right = -155, 190  # powers of two
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 0.45 * len(formats) + 1.1))
    for y, each in enumerate(formats):
        color = format_color(each.name)
        low = each.min_exponent - each.fraction_bits
        high = np.log2(each.max)
        largest = f"{each.max:.6g}" if high < 20 else f"$2^{{{round(high)}}}$"
        reach = f"$2^{{{low}}}$ to {largest}"
        if low < left or high > right:
            arrow = {"arrowstyle": "<->", "color": color, "linewidth": 1.6}
            ax.annotate("", (left, y), (right, y), arrowprops=arrow)
            middle = {"ha": "center", "va": "bottom", "fontsize": 9}
            ax.text(80, y - 0.05, reach, **middle)
            continue
        normal = high - each.min_exponent
        ax.barh(y, normal, 0.5, left=each.min_exponent, color=color)
        subnormal = each.fraction_bits
        ax.barh(y, subnormal, 0.5, left=low, color=to_rgba(color, 0.35))
        ax.text(high + 3, y, reach, va="center", fontsize=9)
    for name, value in (marks or {}).items():
        x = np.log2(value)
        line = {"color": TEXT_COLOR, "linewidth": 1, "linestyle": ":", "zorder": 0}
        ax.plot([x, x], [-0.7, len(formats) - 0.5], **line)
        ax.text(x, -1, name, ha="center", va="center", fontsize=9)
    ax.set_yticks(range(len(formats)), [each.name for each in formats])
    _label_powers(ax, "x", range(-150, 151, 50))
    ax.set(xlim=(left, right), ylim=(len(formats) - 0.5, -1.4))
    ax.tick_params(axis="y", left=False)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("positive values that the format holds")
    return figure


def draw_relative_spacing(
    formats: Iterable[FloatFormat], low: int = -28, high: int = 20
) -> Figure:
    """Draw the distance to the next value, relative to the value, over their range.

    From the power of two ``low`` to ``high``: a band from half of eps to eps where
    numbers are normal, since it halves within each octave and then starts again; a
    slope up to 1 where they are subnormal, and nothing elsewhere.
    """
    formats = _at_least_one(formats)
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 4.2))
    for each in formats:
        color = format_color(each.name)
        normal = max(each.min_exponent, low), min(np.log2(each.max), high)
        eps = -each.fraction_bits
        ax.fill_between(
            normal, eps - 1, eps, color=to_rgba(color, 0.6), linewidth=0
        )
        smallest = each.min_exponent - each.fraction_bits
        place = {"x": high + 0.4, "y": eps - 0.5, "va": "center"}
        if smallest > low:
            ax.plot([smallest, each.min_exponent], [0, eps], color=color)
            place = {"x": smallest, "y": 0.4, "ha": "center", "va": "bottom"}
        ax.text(s=each.name, color=color, fontsize=8.5, **place)
    _label_powers(ax, "x", range(low - low % -8, high + 1, 8))
    _label_powers(ax, "y", range(-24, 1, 4))
    ax.set(xlim=(low, high), ylim=(-25, 1.5))
    ax.set_xlabel("value")
    ax.set_ylabel("spacing / value")
    return figure


# --- what is lost -----------------------------------------------------------------


def draw_sum_errors(
    lengths: Sequence[int], errors: Mapping[str, Mapping[str, Sequence[float]]]
) -> Figure:
    """Draw the relative error of sums against their length, one panel a format.

    ``errors[format][algorithm]`` has one number for each length; an algorithm has
    the same colour in every panel.
    """
    algorithms = list(
        dict.fromkeys(name for each in errors.values() for name in each)
    )
    figure, panels = _panels(len(errors), height=3)
    lines = {}
    for ax, (name, by_algorithm) in zip(panels, errors.items(), strict=True):
        for algorithm, error in by_algorithm.items():
            color = ROW_COLORS[algorithms.index(algorithm)]
            (line,) = ax.loglog(lengths, error, color=color, linewidth=1.8)
            lines.setdefault(algorithm, line)
        ax.set_xscale("log", base=2)
        ax.minorticks_off()
        ax.set_title(name)
        ax.set_xlabel("numbers summed")
        ax.grid(axis="y")
    panels[0].set_ylabel("relative error of the sum")
    _name_lines(figure, lines)
    return figure


@dataclass(frozen=True)
class Loss:
    """Share of the true result that is left in each of several formats."""

    title: str
    xlabel: str
    x: ArrayLike
    shares: Mapping[str, ArrayLike]  # format: share left, one for each x


def draw_losses(losses: Sequence[Loss]) -> Figure:
    """Draw shares of true results, one panel a loss; a format keeps its colour."""
    figure, panels = _panels(len(losses), height=2.8)
    lines = {}
    for ax, loss in zip(panels, losses, strict=True):
        for name, share in loss.shares.items():
            (line,) = ax.semilogx(
                loss.x, share, color=format_color(name), alpha=0.9
            )
            lines.setdefault(name, line)
        ax.set_title(loss.title)
        ax.set_xlabel(loss.xlabel)
        ax.set_yticks([0, 1, 2], ["0 %", "100 %", "200 %"])
        ax.set_ylim(-0.1, 2.1)
        ax.grid(axis="y")
    panels[0].set_ylabel("share of the true result")
    _name_lines(figure, lines)
    return figure


def draw_loss_scales(
    powers: Sequence[int], errors: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw the relative error of a gradient against the power of two of its scale.

    ``errors[format]`` has one number for each power; a cross at the top stands
    where it is not finite.
    """
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 2.8))
    for name, error in errors.items():
        color, is_finite = format_color(name), np.isfinite(error)
        ax.semilogy(powers, error, "o-", markersize=4, color=color)
        beyond = np.asarray(powers)[~is_finite]
        ax.plot(beyond, np.ones(len(beyond)), "x", color=color)
        if len(beyond):
            end = {"ha": "right", "va": "center", "color": color}
            ax.text(beyond[0] - 1, 1, "infinite or NaN", **end)
        last = np.flatnonzero(is_finite)[-1]
        label = {"ha": "right", "va": "bottom", "color": color}
        ax.text(powers[last], error[last] * 1.15, name, **label)
    _label_powers(ax, "x", powers[1::2])
    ax.set_yticks([0.001, 0.01, 0.1, 1], ["0.1 %", "1 %", "10 %", "100 %"])
    ax.set_ylim(np.nanmin(np.concatenate([*errors.values()])) / 2, 2)
    ax.set_xlabel("loss scale")
    ax.set_ylabel("error of the gradient")
    return figure


def draw_outlier_damage(
    sizes: Sequence[float], damage: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw the relative error of weights against the size of an outlier among them.

    ``damage[name]`` has one number for each size. A name begins with that of its
    format, and what follows it ("int8 per row") makes the line a dashed one.
    """
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 3))
    ends = {name: error[-1] for name, error in damage.items()}
    for name, error in damage.items():
        format_name, *variant = name.split()
        color = ROW_COLORS[5]  # of integers, which are no FloatFormat
        if format_name != "int8":
            color = format_color(get_format(format_name).name)
        ax.loglog(sizes, error, "--" if variant else "-", color=color)
        near = [end for end in ends.values() if 0 < abs(end / error[-1] - 1) < 0.3]
        align = "center"
        if near:
            align = "bottom" if error[-1] > near[0] else "top"
        label = {"color": color, "va": align, "fontsize": 9.5}
        ax.text(sizes[-1] * 1.15, error[-1], name, **label)
    ax.set_xscale("log", base=2)
    ax.set_yticks([0.01, 0.1, 1], ["1 %", "10 %", "100 %"])
    ax.set_xlabel("one outlier, in standard deviations of the others")
    ax.set_ylabel("error of the others")
    return figure


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    if count < 1:
        raise ValueError("give at least one panel to draw")
    size = FIGURE_WIDTH, height
    figure, axes = plt.subplots(1, count, sharey=True, figsize=size, squeeze=False)
    return figure, list(axes[0])


def _name_lines(figure: Figure, lines: Mapping[str, Line2D]) -> None:
    """Write the names of lines that several panels share above all of them."""
    where = {"loc": "outside upper center", "ncols": len(lines), "frameon": False}
    legend = figure.legend(lines.values(), lines.keys(), handlelength=1.2, **where)
    for text, line in zip(legend.get_texts(), lines.values(), strict=True):
        text.set_color(line.get_color())


def _label_powers(ax: Axes, axis: str, exponents: Iterable[int]) -> None:
    """Ticks at powers of two, for an axis that counts exponents."""
    labels = {x: "1" if x == 0 else f"$2^{{{x}}}$" for x in exponents}
    ticks = getattr(ax, f"set_{axis}ticks")
    ticks(list(labels), list(labels.values()))


def _at_least_one(formats: Iterable[FloatFormat]) -> tuple[FloatFormat, ...]:
    formats = tuple(formats)
    if not formats:
        raise ValueError("give at least one format to draw")
    return formats
