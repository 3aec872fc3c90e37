"""lmlib.plotting.memory: bars, areas, steps and maps of what they are given, each component in its colour."""

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from lmlib.plotting import COLORS, DominanceMap, draw_dominance, draw_ledgers, draw_memory_growth, draw_timelines

pytestmark = pytest.mark.usefixtures("book_style")


def color_of(name):
    return to_rgba(COLORS[name])[:3]


def names_in(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def is_inside(figure):
    """Whether the legend is not cut off."""
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    return figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


# --- ledgers ---------------------------------------------------------------------------------------------

ROWS = {
    "bf16": {"parameters": 2, "gradients": 2, "optimizer state": 4, "master weights": 0},
    "master": {"parameters": 2, "gradients": 2, "optimizer state": 8, "master weights": 4},
}


def test_a_bar_is_its_components_end_to_end():
    figure = draw_ledgers(ROWS, "bytes per parameter")
    (ax,) = figure.axes
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [
        *[(0, 2), (2, 2), (4, 4)],
        *[(0, 2), (2, 2), (4, 8), (12, 4)],
    ]
    assert bars[1].get_facecolor()[:3] == color_of("gradients")
    assert bars[-1].get_facecolor()[:3] == color_of("parameters")  # a copy of them
    assert bars[-1].get_facecolor()[3] < bars[0].get_facecolor()[3]
    assert [text.get_text() for text in ax.texts] == ["2", "2", "4", "8", "2", "2", "8", "4", "16"]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(ROWS)
    assert ax.yaxis_inverted()
    assert names_in(figure) == list(ROWS["bf16"])
    assert is_inside(figure)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [({}, "at least one component"), ({"a": {"buffers": 1}}, "no colour for 'buffers'; there is one for parameters")],
)
def test_ledgers_that_cannot_be_drawn_are_refused(rows, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_ledgers(rows, "bytes")


# --- growth ----------------------------------------------------------------------------------------------

GROWING = {"parameters": [5e6, 5e6, 5e6], "blocks": [1e6, 2e6, 4e6]}
LARGER = {"parameters": [5e6, 5e6, 5e6], "blocks": [1e6, 4e6, 16e6]}


def test_areas_lie_on_each_other_and_dots_on_their_edges():
    ends = {name: line[::2] for name, line in LARGER.items()}
    figure = draw_memory_growth(
        {
            "batch": ([1, 2, 4], GROWING, [1, 2, 4], GROWING),
            "context": ([8, 16, 32], LARGER, [8, 32], ends),
        }
    )
    left, right = figure.axes
    assert [ax.get_xlabel() for ax in (left, right)] == ["batch", "context"]
    for ax, tops, dots in ((left, [6, 7, 9], [6, 7, 9]), (right, [6, 9, 21], [6, 21])):
        areas = [each for each in ax.collections if isinstance(each, FillBetweenPolyCollection)]
        assert [area.get_facecolor()[0][:3].tolist() for area in areas] == [
            list(color_of("parameters")),
            list(color_of("activations")),
        ]
        assert set(tops) <= set(areas[1].get_paths()[0].vertices[:, 1])
        parameters, everything = ax.lines
        assert list(parameters.get_ydata()) == [5] * len(dots)
        assert list(everything.get_ydata()) == dots
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] > 21  # for both
    assert names_in(figure) == ["parameters", "blocks", "measured"]
    assert is_inside(figure)


@pytest.mark.parametrize(
    ("panels", "complaint"),
    [
        ({}, "at least one component"),
        ({"x": ([1, 2], GROWING, [1, 2, 4], GROWING)}, "once for each value"),
        ({"x": ([1, 2, 4], GROWING, [1, 2], GROWING)}, "once for each value"),
        ({"x": ([1, 2, 4], GROWING, [1, 2, 4], {"blocks": [1, 2, 4]})}, "each component by both"),
        ({"x": ([1], {"buffers": [1]}, [1], {"buffers": [1]})}, "no colour for 'buffers'"),
    ],
)
def test_growth_that_cannot_be_drawn_is_refused(panels, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_memory_growth(panels)


# --- timelines -------------------------------------------------------------------------------------------


def test_a_timeline_is_a_staircase_under_its_levels():
    held = [0, 4e6, 9e6, 3e6]
    figure = draw_timelines({"plain": (held, {"saved": 9e6}), "other": ([0, 1e6], {"saved": 1e6, "peak": 20e6})})
    left, right = figure.axes
    stairs, saved = left.lines
    assert stairs.get_drawstyle() == "steps-post"
    assert list(stairs.get_ydata()) == [0, 4, 9, 3]
    assert set(saved.get_ydata()) == {9}
    assert [text.get_text() for text in right.texts] == ["saved", "peak"]
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["plain", "other"]
    assert left.get_ylim() == right.get_ylim()
    assert left.get_ylim()[1] > 20


@pytest.mark.parametrize("panels", [{}, {"a": ([0], {})}])
def test_timelines_without_a_change_are_refused(panels):
    with pytest.raises(ValueError, match="at least one timeline"):
        draw_timelines(panels)


# --- the map ---------------------------------------------------------------------------------------------

BATCHES, CONTEXTS = [1, 2, 4], [128, 256, 512, 1024]
TOKENS = np.outer(BATCHES, CONTEXTS)
LARGEST = [["optimizer state" if n < 512 else "MLPs" for n in row] for row in TOKENS]


def drawn(memory_bytes=1500, **maps):
    made = maps or {"a": DominanceMap(LARGEST, TOKENS, TOKENS + 512)}
    return draw_dominance(BATCHES, CONTEXTS, made, memory_bytes)


def test_a_cell_has_the_colour_of_its_component():
    (ax,) = drawn().axes
    (image,) = ax.images
    pixels = np.asarray(image.get_array())
    assert pixels.shape == (3, 4, 4)
    for row, names in enumerate(LARGEST):
        for column, name in enumerate(names):
            expected = color_of("activations" if name == "MLPs" else name)
            assert pixels[row, column, :3].tolist() == pytest.approx(list(expected))
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (6.5, 10.5, -0.5, 2.5)
    assert image.origin == "lower"


def test_lines_are_where_both_are_equal_and_where_memory_ends():
    figure = drawn()
    (ax,) = figure.axes
    for lines, tokens in zip(ax.collections, (512, 1500 - 512), strict=True):
        points = np.concatenate([path.vertices for path in lines.get_paths()])
        assert 2 ** points.sum(1) == pytest.approx(np.full(len(points), tokens), rel=0.08)
    assert names_in(figure) == ["optimizer state", "MLPs", "activations = all else", "1.5e-06 GB in all"]
    assert is_inside(figure)


def test_a_line_outside_of_the_map_is_left_out():
    (ax,) = drawn(memory_bytes=1e9).axes
    assert len(ax.collections) == 1


def test_every_map_has_a_panel():
    one = DominanceMap(LARGEST, TOKENS, TOKENS + 512)
    figure = drawn(a=one, b=one, c=one)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("one", "complaint"),
    [
        (DominanceMap(LARGEST, TOKENS[:2], TOKENS), "give each map 3 rows of 4 columns"),
        (DominanceMap([["buffers"] * 4] * 3, TOKENS, TOKENS + 1), "no colour for 'buffers'"),
    ],
)
def test_maps_that_cannot_be_drawn_are_refused(one, complaint):
    with pytest.raises(ValueError, match=complaint):
        drawn(a=one)


def test_no_map_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one component"):
        draw_dominance(BATCHES, CONTEXTS, {}, 1)
