"""lmlib.plotting.axes: every number in its cell, on the colour of its group, under the names of its axes."""

import pytest
import torch
from einops import rearrange
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from lmlib.plotting import ROW_COLORS, draw_blocks, draw_readings

pytestmark = pytest.mark.usefixtures("book_style")


def drawn(figure):
    """Texts and the cells' edge colours of a figure of one set of axes, by position from top left."""
    (ax,) = figure.axes
    cells = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    colors = [ROW_COLORS.index(color_name(cell)) for cell in cells]
    return [text.get_text() for text in ax.texts], colors


def color_name(cell):
    return next(color for color in ROW_COLORS if to_rgb(color) == cell.get_edgecolor()[:3])


def numbers(texts):
    return [int(text) for text in texts if text.isdigit()]


# --- readings --------------------------------------------------------------------------------------------


def test_each_reading_colours_the_same_row():
    readings = {"(heads size)": [0, 0, 0, 1, 1, 1], "(size heads)": [0, 1, 0, 1, 0, 1]}
    texts, colors = drawn(draw_readings(readings, group="head"))
    assert sorted(readings) == [text for text in texts if text.startswith("(")][::-1]
    assert colors == readings["(size heads)"] + readings["(heads size)"]  # drawn from below
    assert texts.count("head 0") == texts.count("head 1") == 1  # a run of three is named in full
    assert numbers(texts) == [*range(6), 0, 1, 0, 1, 0, 1, *range(6)]  # cells, short runs, cells


@pytest.mark.parametrize("readings", [{}, {"a": []}, {"a": [0, 1], "b": [0]}])
def test_readings_of_no_single_row_are_refused(readings):
    with pytest.raises(ValueError, match="readings of one row"):
        draw_readings(readings, group="head")


# --- blocks ----------------------------------------------------------------------------------------------


def test_blocks_show_each_number_on_its_groups_colour():
    x = torch.arange(12).view(2, 6)
    split = rearrange(x, "seq (heads size) -> heads seq size", heads=3)
    group_of = [i % 6 // 2 for i in range(12)]
    panels = {"x": ("seq (heads size)", x), "split": ("heads seq size", split)}
    texts, colors = drawn(draw_blocks(panels, group_of))
    assert numbers(texts) == x.flatten().tolist() + split.flatten().tolist()
    assert colors == [group_of[number] for number in numbers(texts)]
    assert colors[12:] == [0] * 4 + [1] * 4 + [2] * 4
    assert {"x", "split", "(heads size) →", "size →", "← seq"} <= set(texts)
    assert {f"heads = {head}" for head in range(3)} <= set(texts)
    assert {"shape (2, 6)\nstrides (6, 1)", "shape (3, 2, 2)\nstrides (2, 6, 1)"} <= set(texts)


@pytest.mark.parametrize(
    ("names", "shape"), [("seq", (4,)), ("a b c", (2, 2)), ("a (b c)", (2, 2, 2)), ("a b c d", (1, 1, 1, 1))]
)
def test_names_that_do_not_fit_the_axes_are_refused(names, shape):
    with pytest.raises(ValueError, match=r"names \d axes, and the tensor has \d: give two or three"):
        draw_blocks({"x": (names, torch.zeros(shape, dtype=torch.int64))}, [0])


def test_no_block_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one tensor"):
        draw_blocks({}, [])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_readings({"(heads size)": [0] * 12, "(size heads)": [0, 1, 2] * 4}, "head"),
        lambda: draw_blocks(
            {
                "x": ("seq (heads size)", torch.arange(24).view(4, 6)),
                'rearrange(x, "seq (heads size) -> heads seq size", heads=3)': (
                    "heads seq size",
                    torch.arange(24).view(3, 4, 2),
                ),
            },
            [0] * 24,
        ),
    ],
    ids=["readings", "blocks"],
)
def test_no_text_is_cut_off(draw):
    figure = draw()
    figure.canvas.draw()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
