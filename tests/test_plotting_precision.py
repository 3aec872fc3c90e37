"""lmlib.plotting.precision: bars add up to what is saved, curves and histograms show what they are given."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from lmlib.plotting import DTYPE_COLORS, draw_gradients, draw_saved, draw_stall

pytestmark = pytest.mark.usefixtures("book_style")

SAVED = {
    "fp32": {"norms": {"float32": 3e9}, "weight_copies": {}},
    "autocast": {"norms": {"float32": 1e9, "bfloat16": 1.5e9}, "weight_copies": {"bfloat16": 5e8}},
}
CURVES = {"fp16": [5.6, 5.6, 5.6], "scaled": [5.6, 3, 2.5], "bf16": [5.6, 3, 2.5], "fp32": [5.6, 3, 2.5]}
TOKENS = [2**10, 2**18, 2**20, 2**26]


# --- what is saved ------------------------------------------------------------------------------------------------


def test_bars_are_bytes_by_dtype():
    figure = draw_saved(SAVED)
    for ax, (mode, parts) in zip(figure.axes, SAVED.items(), strict=True):
        for row, part in enumerate(parts.values()):
            for dtype, color in DTYPE_COLORS.items():
                bars = [b for b in ax.patches if b.get_facecolor() == to_rgba(color) and round(b.get_y() + 0.3) == row]
                assert sum(bar.get_width() for bar in bars) == pytest.approx(part.get(dtype, 0) / 1e9)
            assert max(b.get_x() + b.get_width() for b in ax.patches if round(b.get_y() + 0.3) == row) == pytest.approx(
                sum(part.values()) / 1e9
            )
        assert ax.get_title(loc="left") == f"{mode}\n3.00 GB"


def test_rows_are_named_and_dtypes_that_are_there():
    figure = draw_saved(SAVED)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["norms", "weight copies"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["float32", "bfloat16"]
    assert [to_rgba(text.get_color()) for text in legend.get_texts()] == [
        to_rgba(DTYPE_COLORS[dtype]) for dtype in ("float32", "bfloat16")
    ]


@pytest.mark.parametrize(
    ("panels", "complaint"),
    [
        ({}, "bytes of the same components"),
        ({"fp32": {}}, "bytes of the same components"),
        ({"fp32": {"norms": {}}, "bf16": {"mlp": {}}}, "bytes of the same components"),
        ({"fp32": {"norms": {"float8": 1}}}, "no colour for 'float8'"),
    ],
)
def test_saved_refuses(panels, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_saved(panels)


# --- runs -----------------------------------------------------------------------------------------------------------


def test_runs_and_their_ends():
    figure = draw_stall(CURVES, TOKENS, [2.5, 3, 20, 5.6], guess=math.log(256), marks={"GPT-3": 3.2e6})
    left, right = figure.axes
    *curves, guess = left.lines
    for line, losses in zip(curves, CURVES.values(), strict=True):
        assert line.get_ydata().tolist() == losses
    assert len({line.get_color() for line in curves}) == len(curves)
    assert guess.get_ydata()[0] == math.log(256)
    ends, _, mark = right.lines
    assert (ends.get_xdata().tolist(), ends.get_ydata().tolist()) == (TOKENS, [2.5, 3, 20, 5.6])
    assert ends.get_color() == curves[0].get_color()
    assert mark.get_xdata()[0] == 3.2e6
    assert "GPT-3" in [text.get_text() for text in right.texts]
    assert [label.get_text() for label in right.get_xticklabels()] == ["2¹⁰", "2¹⁸", "2²⁰", "2²⁶"]


def test_the_first_run_lies_on_top():
    *curves, _ = draw_stall(CURVES, TOKENS, [1, 1, 1, 1], guess=5.5).axes[0].lines
    heights = [line.get_zorder() for line in curves]
    assert heights == sorted(heights, reverse=True)
    assert curves[0].get_linewidth() < curves[-1].get_linewidth()


@pytest.mark.parametrize(
    ("curves", "ends", "complaint"),
    [
        ({}, [1] * 4, "give 1 to 4 runs"),
        ({str(n): [1.0] for n in range(5)}, [1] * 4, "give 1 to 4 runs"),
        (CURVES, [1] * 3, "one loss for each number of tokens"),
    ],
)
def test_stall_refuses(curves, ends, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_stall(curves, TOKENS, ends, guess=5.5)


# --- gradients ------------------------------------------------------------------------------------------------------


def test_histograms_count_by_power_of_two_to_their_own_height():
    groups = {"right": np.array([2.0**-20] * 3 + [0.0]), "others": -(2.0 ** np.array([-30, -30, -10, -10.5]))}
    figure = draw_gradients({"plain": groups, "scaled": {"right": groups["right"] * 2**16}})
    first, second = figure.axes
    for ax, places in ((first, [{-20: 1}, {-30: 1, -10: 0.5, -11: 0.5}]), (second, [{-4: 1}])):
        steps = [patch for patch in ax.patches if hasattr(patch, "get_data")]
        for step, expected in zip(steps, places, strict=True):
            values, edges, _ = step.get_data()
            found = {int(edge): value for value, edge in zip(values, edges, strict=False) if value}
            assert found == pytest.approx(expected)


def test_what_fp16_holds_is_shaded():
    ax = draw_gradients({"plain": {"all": np.ones(3)}}).axes[0]
    (shade,) = [patch for patch in ax.patches if not hasattr(patch, "get_data")]
    assert shade.get_x() == -25  # half of the smallest number
    assert shade.get_x() + shade.get_width() == pytest.approx(math.log2(65504))
    assert [(text.get_text(), text.xy[0]) for text in ax.texts] == [
        ("becomes 0", -25),
        ("what fp16 holds", pytest.approx(math.log2(65504))),
    ]


def test_a_group_without_gradients_is_flat():
    ax = draw_gradients({"plain": {"none": np.zeros(3)}}).axes[0]
    (step,) = [patch for patch in ax.patches if hasattr(patch, "get_data")]
    assert step.get_data().values.max() == 0


@pytest.mark.parametrize("panels", [{}, {"plain": {}}, {"plain": {str(n): np.ones(1) for n in range(7)}}])
def test_gradients_refuse(panels):
    with pytest.raises(ValueError, match="give 1 to 6 groups"):
        draw_gradients(panels)
