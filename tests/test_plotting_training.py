"""lmlib.plotting.training: a sweep with its prediction, and the curves of a run."""

import math

import pytest

from lmlib.plotting import COLORS, ROW_COLORS, draw_rate_sweep, draw_run

pytestmark = pytest.mark.usefixtures("book_style")

RATES = [1e-3, 1e-2, 1e-1, 1]
LOSSES = {"no layer": [0.9, 0.5, 0.1, 100], "1 layer": [0.8, 0.4, math.nan, math.inf]}
PREDICTED = [0.9, 0.5, 0.2, 50]

RECORDS = [
    {"step": 0, "validation_loss": 6.2},
    {"step": 1, "loss": 6.2, "lr": 0.1, "grad_norm": 1.5},
    {"step": 2, "loss": 5.0, "lr": 0.2, "grad_norm": 0.5},
    {"step": 2, "validation_loss": 5.1},
    {"step": 2, "sample": "text"},
]


# --- sweep ----------------------------------------------------------------------------------------------


def test_every_curve_of_a_sweep_is_drawn_with_its_best_rate():
    (ax,) = draw_rate_sweep(RATES, LOSSES, PREDICTED).axes
    _, first, first_dot, second, second_dot, predicted = ax.lines
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert list(first.get_xdata()) == RATES
    assert list(first.get_ydata())[:3] == LOSSES["no layer"][:3]
    assert first_dot.get_xydata().tolist() == [[0.1, 0.1]]
    assert second_dot.get_xydata().tolist() == [[0.01, 0.4]]
    assert [first.get_color(), second.get_color()] == ROW_COLORS[:2]
    assert list(predicted.get_ydata())[:3] == PREDICTED[:3]
    assert (predicted.get_linestyle(), predicted.get_color()) == ("--", COLORS["prediction"])


def test_what_diverges_leaves_the_axis():
    (ax,) = draw_rate_sweep(RATES, LOSSES, PREDICTED, highest=2).axes
    assert ax.get_ylim()[1] == 2
    assert 0.05 < ax.get_ylim()[0] < 0.1
    assert all(2 < value < math.inf for value in ax.lines[3].get_ydata()[2:])


def test_marked_rates_have_a_line_from_edge_to_edge():
    (ax,) = draw_rate_sweep(RATES, LOSSES, PREDICTED, [1e-3, 1e-1]).axes
    assert [line.get_xdata() for line in ax.lines[-2:]] == [[1e-3, 1e-3], [1e-1, 1e-1]]
    assert all(line.get_ydata() == [0, 1] for line in ax.lines[-2:])  # of the axis


def test_names_of_a_sweep_stand_above_within_the_figure():
    figure = draw_rate_sweep(RATES, LOSSES, PREDICTED)
    figure.canvas.draw()
    texts = figure.legends[0].get_texts()
    assert [text.get_text() for text in texts] == [*LOSSES, "no layer, by the formula"]
    boxes = [text.get_window_extent() for text in texts]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize(
    ("losses", "predicted", "complaint"),
    [
        ({}, PREDICTED, "give from 1 to 6 curves"),
        (dict.fromkeys("abcdefg", PREDICTED), PREDICTED, "give from 1 to 6 curves"),
        ({"a": [1, 2]}, PREDICTED, "give 'a' one loss for each learning rate"),
        ({"a": [9, 9, math.inf, math.nan]}, PREDICTED, "no loss of 'a' is below 3"),
        ({"a": PREDICTED}, [1], "give 'predicted' one loss"),
    ],
)
def test_sweeps_that_cannot_be_drawn_are_refused(losses, predicted, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_rate_sweep(RATES, losses, predicted)


# --- a run ----------------------------------------------------------------------------------------------


def test_a_run_has_three_panels_over_the_same_steps():
    losses, rates, norms = draw_run(RECORDS, {"uniform": 6.2}, max_norm=1.0).axes
    reference, training, validation = losses.lines
    assert reference.get_ydata() == [6.2, 6.2]
    assert training.get_xydata().tolist() == [[1, 6.2], [2, 5.0]]
    assert validation.get_xydata().tolist() == [[0, 6.2], [2, 5.1]]
    assert (training.get_linestyle(), validation.get_linestyle()) == ("-", "None")  # a curve, and dots
    assert training.get_color() == COLORS["data"]
    assert rates.lines[0].get_xydata().tolist() == [[1, 0.1], [2, 0.2]]
    assert rates.lines[0].get_color() == COLORS["optimizer state"]
    norm, limit = norms.lines
    assert norm.get_xydata().tolist() == [[1, 1.5], [2, 0.5]]
    assert norm.get_color() == COLORS["gradients"]
    assert limit.get_ydata() == [1.0, 1.0]
    assert losses.get_xlim() == rates.get_xlim() == norms.get_xlim()
    texts = {text.get_text(): text.get_color() for text in losses.texts[1:]}
    assert losses.texts[0].get_text() == "uniform"
    assert texts == {"training batch": training.get_color(), "validation": validation.get_color()}


def test_the_name_of_a_reference_keeps_away_from_the_losses():
    names = draw_run(RECORDS, {"reached": 5.5, "not reached": 4.5}).axes[0].texts[:2]
    assert [name.get_text() for name in names] == ["reached", "not reached"]
    assert [name.get_va() for name in names] == ["bottom", "top"]


def test_a_run_without_clipping_has_no_limit():
    norms = draw_run(RECORDS, {}).axes[2]
    assert len(norms.lines) == 1
    assert norms.get_yscale() == "log"
    assert list(norms.get_yticks()) == [1]


def test_a_run_without_steps_is_refused():
    with pytest.raises(ValueError, match="one step or more"):
        draw_run(RECORDS[:1], {})
