"""Axes that are split, merged and swapped: which number ends up where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lmlib.plotting.cells import CENTRED, canvas, draw_cell, row_color
from lmlib.tensors import describe

_FONTSIZE = 9.5
_GAP = 0.6  # between the blocks of a tensor with three axes
_FACTS_WIDTH = 6.5  # room beside a grid for its shape and strides


def draw_readings(readings: Mapping[str, Sequence[int]], group: str) -> Figure:
    """Draw a row of numbers once for each way to deal it out into groups.

    ``readings`` has for each name the group of every number: its colour. Beneath a
    run of numbers stands their group, as in "head 0" where ``group`` is "head".

    Raises ValueError without a reading, or where two differ in length.
    """
    lengths = {len(groups) for groups in readings.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError("give readings of one row, each a group for every number")
    (length,) = lengths
    room = 2.4  # a name, a row of cells and the names of its groups
    figure, ax = canvas(length, bottom=0, top=room * len(readings))
    for place, (name, groups) in enumerate(reversed(readings.items())):
        y = place * room + 0.6
        ax.text(0, y + 1.2, name, family="monospace", weight="bold")
        for number, index in enumerate(groups):
            draw_cell(ax, number, y, str(number), row_color(index), _FONTSIZE)
        for index, start, stop in _runs(groups):
            label = f"{group} {index}" if stop - start > 2 else str(index)
            _label(ax, (start + stop) / 2, y - 0.35, label, color=row_color(index))
    return figure


def draw_blocks(
    panels: Mapping[str, tuple[str, Tensor]], groups: Sequence[int]
) -> Figure:
    """Draw tensors of two or three axes, each number on the colour of its group.

    ``panels`` has for each title the names of the axes, such as "heads seq size",
    and the tensor; a first of three axes becomes blocks side by side. The elements
    are whole numbers, and number i belongs to ``groups[i]``.

    Raises ValueError without a panel, or where the names do not fit the axes.
    """
    if not panels:
        raise ValueError("give at least one tensor to draw, under its title")
    drawn = [_Panel(title, *panel) for title, panel in panels.items()]
    width = max(panel.width for panel in drawn) + _FACTS_WIDTH
    y = sum(panel.height for panel in drawn)
    figure, ax = canvas(width, bottom=0, top=y)
    for panel in drawn:
        y -= panel.height
        panel.draw(ax, y, groups)
    return figure


class _Panel:
    """A tensor as a grid, or as several side by side, with its axes named."""

    below, left = 1.0, 0.9  # room for names of axes

    def __init__(self, title: str, names: str, tensor: Tensor) -> None:
        self.title = title
        self.names = re.findall(r"\([^)]*\)|[^\s()]+", names)
        if not 2 <= tensor.dim() <= 3 or len(self.names) != tensor.dim():
            raise ValueError(
                f"{names!r} names {len(self.names)} axes, and the tensor has "
                f"{tensor.dim()}: give two or three axes, and a name for each"
            )
        self.layout = describe(tensor)
        self.blocks = tensor.tolist() if tensor.dim() == 3 else [tensor.tolist()]
        *_, self.rows, self.columns = tensor.shape
        self.title_room = 1.1 if tensor.dim() == 3 else 0.3
        self.step = self.columns + _GAP
        self.width = self.left + len(self.blocks) * self.step - _GAP
        self.height = self.below + self.rows + self.title_room + 0.9

    def draw(self, ax: Axes, y: float, groups: Sequence[int]) -> None:
        """Draw the panel, which stands on ``y``."""
        bottom, top = y + self.below, y + self.below + self.rows
        heading = {"family": "monospace", "weight": "bold"}
        ax.text(0, top + self.title_room, self.title, **heading)
        for number, block in enumerate(self.blocks):
            x = self.left + number * self.step
            middle = x + self.columns / 2
            if len(self.names) == 3:
                _label(ax, middle, top + 0.4, f"{self.names[0]} = {number}")
            _label(ax, middle, bottom - 0.4, f"{self.names[-1]} →")
            for row, values in enumerate(block):
                for column, value in enumerate(values):
                    place = x + column, top - 1 - row
                    color = row_color(int(groups[value]))
                    draw_cell(ax, *place, str(value), color, _FONTSIZE)
        _label(ax, 0.4, (bottom + top) / 2, f"← {self.names[-2]}", rotation=90)
        facts = f"shape {self.layout.shape}\nstrides {self.layout.strides}"
        ax.text(self.width + 0.6, top - 0.2, facts, va="top", linespacing=1.7)


def _runs(groups: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The group, start and stop of each run of equal groups."""
    start = 0
    for index, run in groupby(groups):
        stop = start + len(list(run))
        yield index, start, stop
        start = stop


def _label(ax: Axes, x: float, y: float, text: str, **style: object) -> None:
    ax.text(x, y, text, fontsize=9, **CENTRED, **style)
