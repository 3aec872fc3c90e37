"""lmlib.plotting.depth: the curves it is given, each name in one colour, and where a curve leaves the axis."""

import math

import pytest

from lmlib.plotting import ROW_COLORS, draw_depth

pytestmark = pytest.mark.usefixtures("book_style")

PANELS = {
    "linear": {"wild": [1, 1e4, 1e8, 1e12], "calm": [1, 1.1, 0.9, 1.0], "faint": [1, 1e-3, 1e-6, 1e-9]},
    "tanh": {"wild": [1, 0.9, 0.9, 0.9], "faint": [1, 0.5, 0.4, 0.3]},
}


def curves(ax):
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def test_every_curve_is_drawn_as_given():
    axes = draw_depth(PANELS).axes
    assert [ax.get_title(loc="left") for ax in axes] == list(PANELS)
    for ax, given in zip(axes, PANELS.values(), strict=True):
        assert {name: list(line.get_ydata()) for name, line in curves(ax).items()} == given
        assert all(list(line.get_xdata()) == [0, 1, 2, 3] for line in curves(ax).values())
        assert ax.get_yscale() == "log"


@pytest.mark.parametrize(
    ("limits", "powers"),
    [((1e-6, 1e6), [-6, -4, -2, 0, 2, 4, 6]), ((0.05, 20), [-1, 0, 1]), ((1e-20, 1e30), range(-16, 32, 8))],
)
def test_ticks_are_powers_of_ten_with_1_among_them(limits, powers):
    (ax,) = draw_depth({"net": {"calm": [1, 1]}}, limits=limits).axes
    assert list(ax.get_yticks()) == pytest.approx([10.0**power for power in powers])


def test_a_name_has_one_colour_and_stands_above_in_it():
    figure = draw_depth(PANELS)
    first, second = map(curves, figure.axes)
    (legend,) = figure.legends
    colors = {text.get_text(): text.get_color() for text in legend.get_texts()}
    assert list(colors) == ["wild", "calm", "faint"]
    assert len(set(colors.values())) == 3
    assert all(line.get_color() == colors[name] for name, line in [*first.items(), *second.items()])


def test_a_curve_that_leaves_says_where_it_ends():
    linear, tanh = draw_depth(PANELS, limits=(1e-6, 1e6)).axes
    assert [(text.get_text(), text.xy) for text in linear.texts] == [
        ("$10^{12}$", (pytest.approx(1.5), 1e6)),
        ("$10^{-9}$", (pytest.approx(2), 1e-6)),
    ]
    assert not tanh.texts


def test_a_curve_that_comes_back_is_met_at_its_last_crossing():
    (ax,) = draw_depth({"net": {"winding": [1, 1e4, 1, 1e4]}}, limits=(1e-2, 1e2)).axes
    assert ax.texts[0].xy == (pytest.approx(2.5), 1e2)


def test_a_curve_may_begin_at_the_edge_that_it_leaves():
    (ax,) = draw_depth({"net": {"down": [1e-2, 1e-3], "up": [1e2, 1e3]}}, limits=(1e-2, 1e2)).axes
    assert [text.xy for text in ax.texts] == [(0, 1e-2), (0, 1e2)]


@pytest.mark.parametrize(
    ("panels", "complaint"),
    [
        ({}, "at least one panel"),
        ({"net": {"short": [1]}}, "'short' of 'net' has 1 values"),
        ({"net": {"zero": [1, 0]}}, "'zero' of 'net' has values that no logarithmic axis can show"),
        ({"net": {"nan": [1, math.nan]}}, "'nan' of 'net' has values"),
        ({"net": {"infinite": [1, math.inf]}}, "'infinite' of 'net' has values"),
        ({"net": {"far": [1e9, 1]}}, r"'far' of 'net' begins at 1e\+09, outside the limits 1e-06 and 1e\+06"),
        ({"net": {str(i): [1, 1] for i in range(len(ROW_COLORS) + 1)}}, "there are 6 colours, and 7 names"),
    ],
)
def test_what_cannot_be_drawn_is_refused(panels, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_depth(panels)


def test_no_text_is_cut_off():
    figure = draw_depth(PANELS)
    figure.canvas.draw()
    texts = [text for ax in figure.axes for text in [*ax.texts, ax._left_title]]
    for text in [*texts, *figure.legends[0].get_texts()]:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
