"""Tensors drawn as a storage and the walk through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from torch import Tensor

from lmlib.plotting.cells import CENTRED, canvas, draw_cell, row_color
from lmlib.plotting.style import FIGURE_WIDTH
from lmlib.tensors import describe

MAX_CELLS, MAX_ROWS, MAX_COLUMNS = 24, 6, 8  # what is drawn of a large tensor


def draw_tensor(tensor: Tensor) -> Figure:
    """Draw a strided tensor twice: its index grid and its walk through the storage.

    Every number is an index into the storage. Above the storage run the steps along
    a row, beneath it the steps from one row to the next. Of a large tensor the
    first rows and columns are drawn.
    """
    walk = _Walk(tensor)
    gaps = (len(walk.rows) - 1) // walk.rows_in_block
    grid_height = len(walk.rows) + walk.gap * gaps + 0.6
    top = 1 + walk.above + grid_height
    figure, ax = canvas(walk.width, bottom=-walk.below, top=top)
    walk.draw(ax)
    for number, row in enumerate(walk.rows):
        y = top - 1 - number - walk.gap * (number // walk.rows_in_block)
        for column, index in enumerate(row):
            draw_cell(ax, column, y, str(index), row_color(number), walk.fontsize)
        if walk.columns_left_out:
            ax.text(len(row) + 0.3, y + 0.4, "…")
    facts = "\n".join(_facts(tensor))
    ax.text(walk.rows.shape[1] + 1.2, top, facts, va="top", linespacing=1.7)
    if walk.rows_left_out:
        ax.text(0.2, top - grid_height + 0.2, "⋮")
    return figure


def draw_walks(tensors: Mapping[str, Tensor]) -> Figure:
    """Draw several tensors' walks beneath one another, each under its name."""
    if not tensors:
        raise ValueError("give at least one tensor to draw, under its name")
    walks = [_Walk(tensor) for tensor in tensors.values()]
    title_room = 1.0
    height = sum(title_room + walk.height for walk in walks)
    figure, ax = canvas(max(walk.width for walk in walks), bottom=0, top=height)
    y = height
    for name, tensor, walk in zip(tensors, tensors.values(), walks, strict=True):
        y -= title_room
        ax.text(0, y + 0.2, name, family="monospace", weight="bold")
        facts = ", ".join(_facts(tensor))
        ax.text(walk.width - 0.3, y + 0.2, facts, ha="right", fontsize=9.5)
        walk.draw(ax, y - walk.above - 1)
        y -= walk.height
    return figure


def _facts(tensor: Tensor) -> list[str]:
    layout = describe(tensor)
    return [
        f"shape {layout.shape}",
        f"strides {layout.strides}",
        f"offset {layout.offset}",
    ]


class _Walk:
    """The part of a tensor's walk that is drawn.

    Its first rows, as storage indices, and a window of the storage.
    """

    gap = 0.4  # between the blocks of a tensor with more than two dimensions

    def __init__(self, tensor: Tensor) -> None:
        layout = describe(tensor)
        if tensor.numel() == 0:
            raise ValueError(
                f"a tensor of shape {layout.shape} has no elements to draw"
            )
        *outer, columns = layout.shape or (1,)
        self.rows = _first_rows(tensor)
        self.rows_left_out = prod(outer) > MAX_ROWS
        self.columns_left_out = columns > MAX_COLUMNS
        self.rows_in_block = outer[-1] if len(outer) > 1 else MAX_ROWS
        size = layout.storage_nbytes // layout.element_size
        self.start = 0 if size <= MAX_CELLS else int(self.rows[0].min())
        self.stop = min(size, self.start + MAX_CELLS)
        self.cut_before, self.cut_after = self.start > 0, self.stop < size
        self.width = max(16, self.stop - self.start) + 0.4
        self.steps_along = [
            (a, b, number)
            for number, row in enumerate(self.rows)
            for a, b in pairwise(row.tolist())
        ]
        self.steps_down = [
            (a, b, number)
            for number, (a, b) in enumerate(pairwise(self.rows[:, 0].tolist()), 1)
        ]
        self.above = _arc_room(self.steps_along)
        self.below = _arc_room(self.steps_down)
        self.height = self.above + 1 + self.below
        points_per_cell = 72 * FIGURE_WIDTH / self.width
        digits = len(str(max(self.stop, self.rows.max())))
        self.fontsize = min(9.5, 1.1 * points_per_cell / digits)

    def draw(self, ax: Axes, y: float = 0) -> None:
        """Draw the storage, a strip of cells standing on ``y``, and the steps."""
        visits = Counter(self.rows.ravel().tolist())
        first_visitor: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            for index in row.tolist():
                first_visitor.setdefault(index, number)
        for index in range(self.start, self.stop):
            color = row_color(first_visitor[index]) if index in visits else None
            text = f"{index}\n×{visits[index]}" if visits[index] > 1 else str(index)
            draw_cell(ax, index - self.start, y, text, color, self.fontsize)
        if self.cut_before:
            ax.text(-0.1, y + 0.4, "…", ha="right")
        if self.cut_after:
            ax.text(self.stop - self.start + 0.1, y + 0.4, "…")
        self._draw_steps(ax, self.steps_along, y + 1, direction=1)
        self._draw_steps(ax, self.steps_down, y, direction=-1)

    def _draw_steps(
        self, ax: Axes, steps: list[tuple[int, int, int]], y: float, direction: int
    ) -> None:
        labelled = set()
        first_row = {(a, b): row for a, b, row in reversed(steps)}
        for (a, b), row in reversed(first_row.items()):
            if not (self.start <= a < self.stop and self.start <= b < self.stop):
                continue
            start, end = a - self.start + 0.5, b - self.start + 0.5
            peak = _draw_arc(ax, start, end, y, direction, row_color(row))
            if b - a not in labelled:
                labelled.add(b - a)
                x, label_y = (start + end) / 2, peak + 0.28 * direction
                ax.text(x, label_y, f"{b - a:+d}", fontsize=8.5, **CENTRED)


def _first_rows(tensor: Tensor) -> np.ndarray:
    """Storage indices of the elements that are drawn, a line for each row."""
    if tensor.dim() == 0:
        tensor = tensor[None]
    layout = describe(tensor)
    *outer, columns = layout.shape
    columns = range(min(columns, MAX_COLUMNS))
    rows = [np.unravel_index(n, outer) for n in range(min(prod(outer), MAX_ROWS))]
    return np.array(
        [[layout.index(*row, column) for column in columns] for row in rows]
    )


def _arc_height(distance: int) -> float:
    return min(0.45 + 0.12 * abs(distance), 1.5)


def _arc_room(steps: Sequence[tuple[int, int, int]]) -> float:
    """Height that the highest of the arcs and its label take up."""
    return max((_arc_height(b - a) + 0.7 for a, b, _ in steps), default=0)


def _draw_arc(
    ax: Axes, start: float, end: float, y: float, direction: int, color: str
) -> float:
    """Draw an arrow from a cell to another or itself; return its peak's ``y``."""
    peak = _arc_height(int(end - start))
    # a step of 0 leaves and enters the same cell
    reach = 0.22 if start == end else 0
    control_y = y + direction * peak * 4 / 3
    points = [
        (start - reach, y),
        (start - 2.2 * reach, control_y),
        (end + 2.2 * reach, control_y),
        (end + reach, y),
    ]
    arrow = FancyArrowPatch(
        path=Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]),
        arrowstyle="-|>",
        mutation_scale=7,
        color=color,
        linewidth=1.1,
    )
    ax.add_patch(arrow)
    return y + direction * peak
