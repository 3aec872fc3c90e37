"""lmlib.plotting.checkpointing: resumed runs over an unbroken one, and rates after a crash."""

import math

import pytest

from lmlib.plotting import ROW_COLORS, draw_rates, draw_resumes

pytestmark = pytest.mark.usefixtures("book_style")

LOSSES = [5.0, 4.0, 3.0, 2.0]
RESUMED = {"whole": [3.0, 2.0], "no loader": [3.25, 2.0], "no model": [5.0, 4.5], "no RNG": [3.0, 2.0000001]}
STEPS, RATES = [0, 10, 20], [1.0, 0.5, 0.0]
AFTER = {"starts over": ([15, 20], [1.0, 0.9]), "goes on": ([15, 20], [0.2, 0.0])}


# --- resumed runs ---------------------------------------------------------------------------------------


def test_all_losses_are_drawn_over_the_unbroken():
    above = draw_resumes(LOSSES, RESUMED).axes[0]
    unbroken, *resumed, saved = above.lines
    assert unbroken.get_xydata().tolist() == [[1, 5], [2, 4], [3, 3], [4, 2]]
    for line, losses in zip(resumed, RESUMED.values(), strict=True):
        assert line.get_xydata().tolist() == [[3, losses[0]], [4, losses[1]]]
    assert [line.get_color() for line in resumed] == [ROW_COLORS[2], *[ROW_COLORS[1]] * 3]
    assert list(saved.get_xdata()) == [2.5, 2.5]


def test_the_run_that_is_farthest_off_is_named_where_it_is():
    above = draw_resumes(LOSSES, RESUMED).axes[0]
    (named,) = [text for text in above.texts if text.get_text() in RESUMED]
    assert (named.get_text(), named.xy) == ("no model", (4, 4.5))
    same = draw_resumes(LOSSES, {"whole": [3.0, 2.0]}).axes[0]
    assert "whole" not in [text.get_text() for text in same.texts]


def test_every_resumed_run_has_a_panel_of_its_differences():
    figure = draw_resumes(LOSSES, RESUMED)
    whole, no_loader, no_model, no_rng = figure.axes[1:]
    assert [ax.get_title(loc="left") for ax in figure.axes[1:]] == list(RESUMED)
    assert [ax.texts[0].get_text() for ax in figure.axes[1:]] == [
        "0 at every step", "from step 1", "from step 1", "from step 2",
    ]  # fmt: skip
    assert not whole.lines
    curve, dot = no_model.lines
    assert curve.get_xydata().tolist() == [[1, 2], [2, 2.5]]
    assert dot.get_xydata().tolist() == [[1, 2]]
    curve, dot = no_loader.lines  # nothing where it is not off
    assert curve.get_xydata()[0].tolist() == [1, 0.25]
    assert math.isnan(curve.get_ydata()[1])
    curve, dot = no_rng.lines  # less than the axis shows stands at its foot
    assert dot.get_xydata().tolist() == [[2, no_rng.get_ylim()[0]]]


@pytest.mark.parametrize("number", [1, 3, 4, 5, 8])
def test_there_is_no_empty_panel(number):
    figure = draw_resumes(LOSSES, {str(i): [3.0, 2.0] for i in range(number)})
    assert len(figure.axes) == 1 + number
    assert all(ax.texts for ax in figure.axes)


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
