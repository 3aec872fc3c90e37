"""lmlib.plotting.optimizers: the paths and the curves it is given, each optimizer in its colour."""

import math

import numpy as np
import pytest

from lmlib.plotting import OPTIMIZER_COLORS, draw_sensitivity, draw_trajectories

pytestmark = pytest.mark.usefixtures("book_style")

LIMITS = (-2, 6, -3, 5)
RATES = [1e-3, 1e-2, 1e-1, 1]
LOSSES = {"SGD": [4, 3, 2, 3], "Adam": [2, 1.5, 9, math.nan], "AdamW": [2, 1.6, math.inf, 1e9]}


def loss(x, y):
    return x**2 + 10 * y**2


def path(*rates):
    steps = np.arange(5)[:, None]
    return np.array([[5.0, 4.0]]) * np.array([rates]) ** steps


PATHS = {"SGD": path(0.5, -0.5), "Adam": path(0.1, 0.2), "AdaGrad": path(0.9, 0.9)}


# --- trajectories ---------------------------------------------------------------------------------------


def test_every_path_has_a_panel_of_its_own():
    figure = draw_trajectories(loss, PATHS, LIMITS)
    *panels, last = figure.axes
    assert [ax.get_title(loc="left") for ax in panels] == list(PATHS)
    for ax, (name, walked) in zip(panels, PATHS.items(), strict=True):
        drawn, minimum = ax.lines
        assert np.array_equal(drawn.get_xydata(), walked)
        assert drawn.get_color() == ax._left_title.get_color() == OPTIMIZER_COLORS[name]
        assert minimum.get_xydata().tolist() == [[0, 0]]
        assert (*ax.get_xlim(), *ax.get_ylim()) == LIMITS
    assert len(last.lines) == len(PATHS)


def test_the_last_panel_has_the_losses_in_units_of_the_first():
    last = draw_trajectories(loss, PATHS, LIMITS).axes[-1]
    assert last.get_yscale() == "log"
    for line, (name, walked) in zip(last.lines, PATHS.items(), strict=True):
        losses = loss(*walked.T)
        assert line.get_color() == OPTIMIZER_COLORS[name]
        assert line.get_ydata() == pytest.approx(np.maximum(losses / losses[0], 1e-6))


@pytest.mark.parametrize("number", [1, 2, 5, 6])
def test_there_is_no_empty_panel(number):
    paths = {name: path(0.5, 0.5) for name in list(OPTIMIZER_COLORS)[:number]}
    figure = draw_trajectories(loss, paths, LIMITS)
    assert len(figure.axes) == number + 1
    assert all(ax.lines for ax in figure.axes)


def test_contours_are_levels_of_the_loss():
    ax = draw_trajectories(loss, PATHS, LIMITS).axes[0]
    (contours,) = ax.collections
    levels = contours.levels
    drawn = [(level, part) for level, part in zip(levels, contours.get_paths(), strict=True) if len(part.vertices)]
    assert len(drawn) >= 4
    for level, part in drawn:
        assert loss(*part.vertices.T) == pytest.approx(np.full(len(part.vertices), level), rel=0.05, abs=0.05)


@pytest.mark.parametrize(
    ("paths", "complaint"),
    [
        ({}, "give at least one optimizer"),
        ({"Lion": path(0.5, 0.5)}, "no colour for 'Lion'; there is one for SGD, momentum"),
        ({"SGD": np.zeros((5, 3))}, r"the path of SGD must be of shape \(steps \+ 1, 2\)"),
        ({"SGD": np.zeros((1, 2))}, "the path of SGD"),
        ({"SGD": np.zeros(2)}, "the path of SGD"),
    ],
)
def test_paths_that_cannot_be_drawn_are_refused(paths, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_trajectories(loss, paths, LIMITS)


# --- sensitivity ----------------------------------------------------------------------------------------


def test_every_curve_is_drawn_with_its_best_rate():
    (ax,) = draw_sensitivity(RATES, LOSSES, highest=5).axes
    curves, dots = ax.lines[::2], ax.lines[1::2]
    assert [line.get_label() for line in curves] == list(LOSSES)
    assert ax.get_xscale() == "log"
    for curve, dot, (name, losses) in zip(curves, dots, LOSSES.items(), strict=True):
        assert curve.get_color() == dot.get_color() == OPTIMIZER_COLORS[name]
        assert list(curve.get_xdata()) == RATES
        finite = [value for value in losses if value < 5]
        assert [value for value in curve.get_ydata() if value < 5] == finite
        assert dot.get_ydata()[0] == min(finite)


def test_what_is_too_high_leaves_the_axis():
    (ax,) = draw_sensitivity(RATES, LOSSES, highest=5).axes
    assert ax.get_ylim()[1] == 5
    assert ax.get_ylim()[0] < 1.5
    for curve in ax.lines[2::2]:
        assert all(5 < value < math.inf for value in curve.get_ydata()[2:])


def test_names_stand_above_in_their_colours():
    figure = draw_sensitivity(RATES, LOSSES, highest=5)
    figure.canvas.draw()
    texts = figure.legends[0].get_texts()
    assert {text.get_text(): text.get_color() for text in texts} == {name: OPTIMIZER_COLORS[name] for name in LOSSES}
    for text in texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


@pytest.mark.parametrize(
    ("losses", "complaint"),
    [
        ({}, "give at least one optimizer"),
        ({"Muon": [1, 1, 1, 1]}, "no colour for 'Muon'"),
        ({"SGD": [1, 2]}, "give SGD one loss for each learning rate"),
        ({"SGD": [math.nan, 9, math.inf, 6]}, "no loss of SGD is below 5"),
    ],
)
def test_losses_that_cannot_be_drawn_are_refused(losses, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_sensitivity(RATES, losses, highest=5)
