"""Rooflines and FLOPs by context: what is given is drawn, with its name, and nothing is cut off."""

from itertools import combinations

import pytest

from lmlib.hardware import Roofline, get_accelerator
from lmlib.plotting import draw_context_flops, draw_roofline

pytestmark = pytest.mark.usefixtures("book_style")

MACHINE = Roofline(peak_flops=1e11, bandwidth=2e10)
SERIES = {
    "rows": {"1 row": (0.5, 9e9), "16": (8, 4e10), "256": (114, 9e10)},
    "other": {"add": (1 / 12, 1e9), "softmax": (5 / 8, 3e9)},
}
LENGTHS = [128, 512, 2048, 8192]
FLOPS = {"MLP": [4e7] * 4, "attention": [1e6, 4e6, 16e6, 64e6]}


def test_limits_and_points_are_drawn_where_they_are():
    (ax,) = draw_roofline(MACHINE, SERIES).axes
    limits, ridge, joined, loose = ax.lines
    assert list(limits.get_ydata()) == [MACHINE.limit(x) for x in limits.get_xdata()]
    assert limits.get_xdata()[1] == ridge.get_xdata()[0] == MACHINE.ridge == 5
    assert list(zip(joined.get_xdata(), joined.get_ydata(), strict=True)) == list(SERIES["rows"].values())
    assert joined.get_linestyle() == "-"
    assert loose.get_linestyle() == "None"
    assert joined.get_color() != loose.get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    texts = {text.get_text() for text in ax.texts}
    assert {"1 row", "16", "256", "add", "softmax", "peak: 100 GFLOP/s", "bandwidth: 20 GB/s"} <= texts


CROWDED = {
    "rows": {"1 row": (0.5, 2.2e9), "4 rows": (2, 3.4e9), "16 rows": (7.9, 5e9)},
    "other": {"add": (1 / 12, 4.6e8), "softmax": (5 / 8, 1.1e9), "layer norm": (7 / 8, 3.2e9)},
}


@pytest.mark.parametrize("series", [SERIES, CROWDED], ids=["far apart", "crowded"])
def test_names_cover_neither_each_other_nor_a_point(series):
    figure = draw_roofline(Roofline(peak_flops=3e10, bandwidth=8e9), series)
    figure.canvas.draw()
    (ax,) = figure.axes
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    places = [place for points in series.values() for place in points.values()]
    for (one, box), (other, beside) in combinations(boxes.items(), 2):
        assert not box.overlaps(beside), (one, other)
    for name, box in boxes.items():
        assert not box.count_contains(ax.transData.transform(places)), name


def test_points_lie_within_the_axes():
    far = {"points": {"low": (1e-3, 1e5), "high": (1e4, 1e13)}}
    (ax,) = draw_roofline(MACHINE, far).axes
    for x, y in far["points"].values():
        assert ax.get_xlim()[0] < x < ax.get_xlim()[1]
        assert ax.get_ylim()[0] < y < ax.get_ylim()[1]


@pytest.mark.parametrize("series", [{}, {"empty": {}}, {"zero": {"a": (0, 1)}}, {"nan": {"a": (1, float("nan"))}}])
def test_points_that_cannot_be_drawn_are_refused(series):
    with pytest.raises(ValueError, match="at least one point, with both values above 0"):
        draw_roofline(MACHINE, series)


def test_components_are_drawn_over_the_context():
    (ax,) = draw_context_flops(LENGTHS, FLOPS, {1234: "crossing"}).axes
    *lines, crossing = ax.lines
    assert [list(line.get_ydata()) for line in lines] == list(FLOPS.values())
    assert all(list(line.get_xdata()) == LENGTHS for line in lines)
    assert list(crossing.get_xdata()) == [1234, 1234]
    assert [text.get_text() for text in ax.texts] == ["MLP", "attention", "crossing"]


def test_a_component_has_a_value_for_each_length():
    with pytest.raises(ValueError, match="one value for each length"):
        draw_context_flops(LENGTHS, {"MLP": [1.0]}, {})


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_roofline(MACHINE, SERIES),
        lambda: draw_roofline(get_accelerator("h200").roofline(), {"all": {"matrix-vector": (1, 4e12)}}),
        lambda: draw_context_flops(LENGTHS, FLOPS, {1234: "T = 6·D", 5000: "T = 12·D"}),
    ],
    ids=["machine", "accelerator", "context"],
)
def test_no_text_is_cut_off(draw):
    figure = draw()
    figure.canvas.draw()
    (ax,) = figure.axes
    for text in [*ax.texts, ax.xaxis.label, ax.yaxis.label]:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
