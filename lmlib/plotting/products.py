"""Products of a training step drawn as shapes, parameters of a model as bars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lmlib.checks import check_size
from lmlib.config import ModelConfig
from lmlib.flops import working_parameters
from lmlib.plotting.style import COLORS, FIGURE_WIDTH, ROW_COLORS

__all__ = ["draw_parameter_shares", "draw_products"]

_CENTRED = {"ha": "center", "va": "center"}


# --- products ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Matrix:
    """A matrix as it is drawn: its name, the letters of its sides, its colour."""

    name: str
    rows: str
    columns: str
    color: str


@dataclass(frozen=True)
class _Product:
    left: _Matrix
    right: _Matrix
    result: _Matrix
    needed: bool = True

    @property
    def matrices(self) -> tuple[_Matrix, _Matrix, _Matrix]:
        return self.left, self.right, self.result

    @property
    def flops(self) -> str:
        """Two for each triple of indices, in one order of the letters."""
        letters = [self.left.rows, self.left.columns, self.right.columns]
        return "·".join(["2", *sorted(letters)])


_COLUMNS = ["forward", "backward: weights", "backward: input"]
_OPERATOR_ROOM, _COLUMN_ROOM, _MARGIN = 0.2, 0.22, 0.06  # inches
_TEXT_ROOM, _HEAD_ROOM = 0.52, 0.34


def draw_products(num_points: int, width: int, num_outputs: int) -> Figure:
    """Draw the matrix products of a two-layer linear net, with sides to scale.

    B points of D elements pass a D×D matrix, then a D×K matrix: a row for each
    layer, with its product forward and its two products backward. The gradient of
    the data is dashed, because nobody needs it.

    Raises ValueError for a size that is no whole number from 1 on.
    """
    sides = {
        "B": check_size("num_points", num_points),
        "D": check_size("width", width),
        "K": check_size("num_outputs", num_outputs),
    }
    layers = [
        _layer_products(("x", "data"), "₁", ("D", "D"), input_wanted=False),
        _layer_products(("h₁", "activations"), "₂", ("D", "K")),
    ]
    columns = list(zip(*layers, strict=True))
    widths = [max(_units(p, sides) for p in column) for column in columns]
    inches = FIGURE_WIDTH - 2 * _MARGIN - 2 * _COLUMN_ROOM - 6 * _OPERATOR_ROOM
    scale = inches / sum(widths)
    heights = [
        max(sides[m.rows] for product in layer for m in product.matrices) * scale
        for layer in layers
    ]
    height = _HEAD_ROOM + sum(heights) + _TEXT_ROOM * len(layers) - 0.06
    figure, ax = _canvas(height)
    x = _MARGIN
    for title, column, units in zip(_COLUMNS, columns, widths, strict=True):
        room = units * scale + 2 * _OPERATOR_ROOM
        ax.text(x + room / 2, height - 0.14, title, weight="bold", **_CENTRED)
        y = height - _HEAD_ROOM
        for product, high in zip(column, heights, strict=True):
            own = _units(product, sides) * scale + 2 * _OPERATOR_ROOM
            start = x + (room - own) / 2
            _draw_product(ax, product, start, y - high / 2, scale, sides)
            text = f"{product.flops} FLOPs"
            if not product.needed:
                text += ", not needed"
            ax.text(x + room / 2, y - high - 0.3, text, fontsize=8.5, **_CENTRED)
            y -= high + _TEXT_ROOM
        x += room + _COLUMN_ROOM
    return figure


def _layer_products(
    source: tuple[str, str],
    index: str,
    sides: tuple[str, str],
    input_wanted: bool = True,
) -> list[_Product]:
    """Forward, then backward to the weights and to the input, of one layer."""
    (name, kind), (inner, outer) = source, sides
    weights = _Matrix(f"w{index}", inner, outer, COLORS["parameters"])
    turned_weights = _Matrix(f"w{index}ᵀ", outer, inner, COLORS["parameters"])
    inputs = _Matrix(name, "B", inner, COLORS[kind])
    turned_inputs = _Matrix(f"{name}ᵀ", inner, "B", COLORS[kind])
    outputs = _Matrix(f"h{index}", "B", outer, COLORS["activations"])
    to_outputs = _Matrix(f"∂h{index}", "B", outer, COLORS["gradients"])
    to_weights = _Matrix(f"∂w{index}", inner, outer, COLORS["gradients"])
    to_inputs = _Matrix(f"∂{name}", "B", inner, COLORS["gradients"])
    return [
        _Product(inputs, weights, outputs),
        _Product(turned_inputs, to_outputs, to_weights),
        _Product(to_outputs, turned_weights, to_inputs, needed=input_wanted),
    ]


def _units(product: _Product, sides: Mapping[str, int]) -> int:
    return sum(sides[matrix.columns] for matrix in product.matrices)


def _draw_product(
    ax: Axes,
    product: _Product,
    x: float,
    middle: float,
    scale: float,
    sides: Mapping[str, int],
) -> None:
    for matrix, operator in zip(product.matrices, ["·", "=", ""], strict=True):
        wide, high = sides[matrix.columns] * scale, sides[matrix.rows] * scale
        wanted = product.needed or matrix is not product.result
        box = Rectangle(
            (x, middle - high / 2),
            wide,
            high,
            facecolor=to_rgba(matrix.color, 0.22 if wanted else 0),
            edgecolor=matrix.color,
            linewidth=1.2,
            linestyle="-" if wanted else (0, (3, 2)),
        )
        ax.add_patch(box)
        ax.text(x + wide / 2, middle, matrix.name, fontsize=9.5, **_CENTRED)
        shape = f"{matrix.rows}×{matrix.columns}"
        below = middle - high / 2 - 0.08
        ax.text(x + wide / 2, below, shape, fontsize=8, **_CENTRED)
        if operator:
            ax.text(x + wide + _OPERATOR_ROOM / 2, middle, operator, **_CENTRED)
        x += wide + _OPERATOR_ROOM


def _canvas(height: float) -> tuple[Figure, Axes]:
    """Empty axes in inches."""
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, height), layout="none")
    ax.set(xlim=(0, FIGURE_WIDTH), ylim=(0, height), position=(0, 0, 1, 1))
    ax.set_axis_off()
    return figure, ax


# --- parameters -------------------------------------------------------------------

_EMBEDDING_COLOR = ROW_COLORS[4]  # and the head's, which may be the same matrix
_COMPONENTS = {  # field of ParameterCounts: name, colour
    "token_embedding": ("embedding", _EMBEDDING_COLOR),
    "position_embedding": ("positions", ROW_COLORS[3]),
    "attention": ("attention", ROW_COLORS[0]),
    "mlp": ("MLP", ROW_COLORS[2]),
    "norms": ("norms", ROW_COLORS[1]),
    "head": ("head", _EMBEDDING_COLOR),
}
_NARROW, _INVISIBLE = 0.05, 0.003  # shares of a bar: no room for a name, not seen
_BAR = (-0.34, 0.2)  # from its row, downwards


def draw_parameter_shares(models: Mapping[str, ModelConfig]) -> Figure:
    """Draw which share of its parameters each model has where, a bar for each.

    What a token is multiplied with is tinted, and adds up to the N beside the name;
    what is only looked up is dashed.

    Raises ValueError if there is no model.
    """
    if not models:
        raise ValueError("give at least one model to draw, under its name")
    figure, ax = plt.subplots(figsize=(FIGURE_WIDTH, 0.55 + 0.8 * len(models)))
    for row, (name, config) in enumerate(models.items()):
        counts, start = config.parameter_counts, 0.0
        for component, (label, color) in _COMPONENTS.items():
            share = getattr(counts, component) / counts.total
            tied = component == "token_embedding" and config.tie_embeddings
            works = tied or not component.endswith("_embedding")
            if share > _INVISIBLE:
                label = f"{label} = head" if tied else label
                _draw_share(ax, start, row, share, color, works)
                _name_share(ax, start, row, share, label)
            start += share
        above = row + _BAR[0] - 0.03
        working = f"N = {_rounded(working_parameters(config))}"
        ax.text(0, above, name, va="bottom", weight="bold")
        total = f"{working} of {_rounded(counts.total)}"
        ax.text(1, above, total, ha="right", va="bottom")
    ax.set(xlim=(-0.005, 1.005), ylim=(len(models) - 0.5, -0.68))
    ax.set_yticks([])
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ax.set_xlabel("share of all parameters")
    ax.spines["left"].set_visible(False)
    return figure


def _draw_share(
    ax: Axes, start: float, row: int, share: float, color: str, works: bool
) -> None:
    top, bottom = _BAR
    box = Rectangle(
        (start, row + top),
        share,
        bottom - top,
        facecolor=to_rgba(color, 0.25 if works else 0),
        edgecolor=color,
        linewidth=1.0,
        linestyle="-" if works else (0, (3, 2)),
    )
    ax.add_patch(box)


def _name_share(ax: Axes, start: float, row: int, share: float, label: str) -> None:
    top, bottom = _BAR
    if share > _NARROW:
        place = (start + share / 2, row + (top + bottom) / 2)
        ax.text(*place, f"{label}\n{100 * share:.0f} %", fontsize=8.5, **_CENTRED)
        return
    left = start < 0.5
    ax.text(
        start if left else start + share,
        row + bottom + 0.02,
        f"{label} {100 * share:.1f} %",
        fontsize=8,
        ha="left" if left else "right",
        va="top",
    )


def _rounded(count: int) -> str:
    """The count in millions or billions."""
    if count < 10**9:
        return f"{count / 10**6:.1f}M"
    return f"{count / 10**9:.2f}B"
