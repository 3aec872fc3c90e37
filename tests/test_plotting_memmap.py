"""lmlib.plotting.memmap: bytes under each reading, curves, points and orders as they were given."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from lmlib.data import BatchLoader
from lmlib.plotting import ROW_COLORS, draw_bytes, draw_order, draw_read_times, draw_resident

pytestmark = pytest.mark.usefixtures("book_style")


# --- bytes -----------------------------------------------------------------------------------------------


def test_bytes_stand_in_cells_over_the_numbers_they_make():
    data = np.array([1, 258, 70_000], "<i4").tobytes()
    (ax,) = draw_bytes(data, ["<i4", "<u2"]).axes
    texts = [text.get_text() for text in ax.texts]
    assert [text for text in texts if len(text) == 2] == [f"{byte:02x}" for byte in data] * 2
    wide = texts[1 + 12 : 1 + 12 + 3]
    assert wide == ["1", "258", "70,000"]
    assert texts[-6:] == ["1", "0", "258", "0", f"{70_000 % 2**16:,}", "1"]
    assert [text for text in texts if text.startswith("read as")] == ["read as <i4", "read as <u2"]


def test_the_cells_of_a_number_share_its_colour():
    (ax,) = draw_bytes(bytes(range(8)), ["<u4", "<u2"]).axes
    colors = [p.get_edgecolor()[:3] for p in ax.patches if isinstance(p, Rectangle)]
    assert colors[:8] == [to_rgb(ROW_COLORS[i // 4]) for i in range(8)]
    assert colors[8:] == [to_rgb(ROW_COLORS[i // 2]) for i in range(8)]


@pytest.mark.parametrize(("data", "dtypes"), [(b"", ["<u2"]), (b"123", ["<u2"]), (b"12", [])])
def test_bytes_that_make_no_numbers_are_refused(data, dtypes):
    with pytest.raises(ValueError, match="types whose sizes divide"):
        draw_bytes(data, dtypes)


# --- resident memory -------------------------------------------------------------------------------------

LINES = {"mapped": ([0, 5e6, 10e6], [0, 5e6, 10e6]), "released": ([0, 5e6, 10e6], [0, 1e5, 0])}


def test_memory_is_drawn_in_megabytes_under_the_size_of_the_file():
    figure = draw_resident(LINES, file_bytes=20e6)
    (ax,) = figure.axes
    *lines, whole = ax.lines
    assert [line.get_label() for line in lines] == list(LINES)
    assert list(lines[0].get_xdata()) == list(lines[0].get_ydata()) == [0, 5, 10]
    assert list(lines[1].get_ydata()) == [0, 0.1, 0]
    assert set(whole.get_ydata()) == {20}
    assert ax.get_ylim()[1] > 20
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(LINES)
    assert [text.get_color() for text in legend.get_texts()] == [line.get_color() for line in lines]


@pytest.mark.parametrize("lines", [{}, {str(i): ([1], [1]) for i in range(len(ROW_COLORS) + 1)}])
def test_too_few_or_too_many_lines_are_refused(lines):
    with pytest.raises(ValueError, match="lines to draw"):
        draw_resident(lines, file_bytes=1)


# --- times -----------------------------------------------------------------------------------------------

TIMES = {
    "one after another": {"array": 1e-7, "on the disk": 2e-5},
    "random": {"array": 1e-7, "on the disk": 1.5e-3},
}


def test_times_are_points_with_their_values():
    (ax,) = draw_read_times(TIMES).axes
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["array", "on the disk"]
    for line, by_place in zip(ax.lines, TIMES.values(), strict=True):
        assert list(line.get_xdata()) == pytest.approx([1e6 * seconds for seconds in by_place.values()])
    assert [text.get_text() for text in ax.texts] == ["0.1", "20", "0.1", "1,500"]
    equal = [line.get_ydata()[0] for line in ax.lines]
    assert len(set(equal)) == 2  # neither point hides the other
    top, bottom = ax.lines[0].get_ydata()
    assert ax.transData.transform((1, top))[1] > ax.transData.transform((1, bottom))[1]


@pytest.mark.parametrize(
    ("times", "match"),
    [
        ({}, "the same places"),
        ({"a": {}}, "the same places"),
        ({"a": {"x": 1}, "b": {"y": 1}}, "the same places"),
        ({"a": {"x": 0}}, "above 0"),
    ],
)
def test_times_that_cannot_be_drawn_are_refused(times, match):
    with pytest.raises(ValueError, match=match):
        draw_read_times(times)


# --- order -----------------------------------------------------------------------------------------------


def test_the_windows_of_a_step_stand_side_by_side():
    (ax,) = draw_order([[3, 0, 1], [2, 1, 3], [0, 2, 2]], batch_size=1, windows_per_epoch=4).axes
    points = [line for line in ax.lines if line.get_label().startswith("rank")]
    drawn = sorted((x, y) for line in points for x, y in zip(*line.get_data(), strict=True))
    assert drawn == list(enumerate([3, 2, 0, 0, 1, 2, 1, 3, 2]))
    assert [text.get_text() for text in ax.texts] == ["epoch 0", "epoch 1", "epoch 2"]
    assert [line.get_xdata()[0] for line in ax.lines if line not in points] == [3.5, 7.5]


def test_a_batch_of_a_rank_stands_side_by_side():
    """As a BatchLoader hands it out: rank 0 takes the first windows of a step, rank 1 those that follow."""
    tokens = np.arange(13)
    loaders = [BatchLoader(tokens, 2, 1, rank=rank, world_size=2) for rank in range(2)]
    ranks = [[start for inputs, _ in loader for start in inputs[:, 0].tolist()] for loader in loaders]
    whole = [start for inputs, _ in BatchLoader(tokens, 4, 1) for start in inputs[:, 0].tolist()]
    (ax,) = draw_order(ranks, batch_size=2, windows_per_epoch=12).axes
    drawn = sorted((x, y) for line in ax.lines for x, y in zip(*line.get_data(), strict=True))
    assert drawn == list(enumerate(whole))
    assert list(ax.get_xticks()) == [-0.5, 3.5, 7.5, 11.5]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "4", "8", "12"]


def test_few_of_many_steps_have_a_grid_line():
    (ax,) = draw_order([list(range(100))], batch_size=2, windows_per_epoch=100).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(place) for place in range(0, 101, 10)]


@pytest.mark.parametrize("ranks", [[], [[]], [[1], [1, 2]]])
def test_ranks_of_different_lengths_are_refused(ranks):
    with pytest.raises(ValueError, match="as many windows as the others"):
        draw_order(ranks, batch_size=1, windows_per_epoch=2)


def test_a_batch_that_is_not_whole_is_refused():
    with pytest.raises(ValueError, match="whole batches"):
        draw_order([[1, 2, 3]], batch_size=2, windows_per_epoch=3)
