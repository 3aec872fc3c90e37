"""lmlib.plotting.checkpointing: resumed runs over an unbroken one, and rates after a crash."""

import pytest

from lmlib.plotting import ROW_COLORS, draw_rates, draw_resumes

pytestmark = pytest.mark.usefixtures("book_style")

LOSSES = [5.0, 4.0, 3.0, 2.0]
RESUMED = {"whole": [3.0, 2.0], "no loader": [3.25, 2.0], "no model": [5.0, 4.5], "no RNG": [3.0, 2.0000001]}
STEPS, RATES = [0, 10, 20], [1.0, 0.5, 0.0]
AFTER = {"starts over": ([15, 20], [1.0, 0.9]), "goes on": ([15, 20], [0.2, 0.0])}


# --- resumed runs ---------------------------------------------------------------------------------------


def test_every_resumed_run_has_a_panel_over_the_unbroken():
    figure = draw_resumes(LOSSES, RESUMED)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(RESUMED)
    for ax, losses in zip(figure.axes, RESUMED.values(), strict=True):
        unbroken, resumed, saved = ax.lines
        assert unbroken.get_xydata().tolist() == [[1, 5], [2, 4], [3, 3], [4, 2]]
        assert resumed.get_xydata().tolist() == [[3, losses[0]], [4, losses[1]]]
        assert list(saved.get_xdata()) == [2.5, 2.5]


def test_a_panel_says_how_far_it_differs_in_words_and_colour():
    figure = draw_resumes(LOSSES, RESUMED)
    said = [ax.texts[0].get_text() for ax in figure.axes]
    assert said == ["identical", "off by ≤ 0.25", "off by ≤ 2.5", "off by ≤ 1e-07"]
    colors = [ax.lines[1].get_color() for ax in figure.axes]
    assert colors == [ROW_COLORS[2], *[ROW_COLORS[1]] * 3] == [ax.texts[0].get_color() for ax in figure.axes]


@pytest.mark.parametrize("number", [1, 3, 4, 8])
def test_there_is_no_empty_panel(number):
    figure = draw_resumes(LOSSES, {str(i): [3.0, 2.0] for i in range(number)})
    assert len(figure.axes) == number
    assert all(ax.lines for ax in figure.axes)


@pytest.mark.parametrize("resumed", [{}, {"a": []}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [1.0] * 5}])
def test_runs_that_do_not_fit_are_refused(resumed):
    with pytest.raises(ValueError, match="resumed runs of one length"):
        draw_resumes(LOSSES, resumed)


# --- rates ----------------------------------------------------------------------------------------------


def test_rates_are_drawn_and_named_at_their_ends():
    (ax,) = draw_rates(STEPS, RATES, 15, AFTER).axes
    schedule, crash, *later = ax.lines
    assert schedule.get_xydata().tolist() == [[0, 1], [10, 0.5], [20, 0]]
    assert list(crash.get_xdata()) == [15, 15]
    texts = {text.get_text(): text for text in ax.texts}
    for line, (label, (steps, rates)) in zip(later, AFTER.items(), strict=True):
        assert line.get_xydata().tolist() == [list(point) for point in zip(steps, rates, strict=True)]
        assert texts[label].xy == (steps[-1], rates[-1])
        assert texts[label].get_color() == line.get_color()
    assert len({line.get_color() for line in later}) == len(later)


def test_labels_stay_in_the_figure():
    figure = draw_rates(STEPS, RATES, 15, {"LambdaLR, restarted": ([15, 20], [1.0, 0.9])})
    figure.canvas.draw()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


@pytest.mark.parametrize(
    ("steps", "rates", "resumed"),
    [(STEPS, RATES, {}), (STEPS, RATES[1:], AFTER), (STEPS, RATES, {"a": ([1], [])}), (STEPS, RATES, {"a": ([], [])})],
)
def test_rates_that_do_not_fit_are_refused(steps, rates, resumed):
    with pytest.raises(ValueError, match="a rate for every step"):
        draw_rates(steps, rates, 15, resumed)
