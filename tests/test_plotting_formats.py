"""lmlib.plotting.formats: drawings of number formats show what the formats are."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from lmlib.dtypes import BF16, FORMATS, FP8_E4M3FN, FP8_E5M2, FP16, FP32, FP64, TF32
from lmlib.plotting import (
    FORMAT_COLORS,
    TEXT_COLOR,
    Loss,
    draw_bit_fields,
    draw_loss_scales,
    draw_losses,
    draw_outlier_damage,
    draw_ranges,
    draw_relative_spacing,
    draw_sum_errors,
    format_color,
)

pytestmark = pytest.mark.usefixtures("book_style")

ERRORS = {
    "fp16": {"naive": [1e-3, 1e-1], "kahan": [1e-4, 1e-4], "stochastic": [1e-3, 1e-2]},
    "fp32": {"naive": [1e-7, 1e-6], "kahan": [1e-8, 1e-8]},
}
LOSSES = [
    Loss("range: g²", "g", [1e-8, 1], {"fp32": [1, 1], "fp16": [0, 1]}),
    Loss("sum", "n", [1, 1e4], {"fp32": [1, 1], "fp16": [1, 0.4]}),
]
SCALES = {"fp16": [1, 1, 0.7, 0.1, 0.03, *[0.01] * 6, np.inf, np.nan], "bf16": [0.04] * 13}
DRAWINGS = {
    "bits": lambda: draw_bit_fields(-0.1, FORMATS.values()),
    "ranges": lambda: draw_ranges(FORMATS.values(), {"1e-8": 1e-8}),
    "spacing": lambda: draw_relative_spacing([FP32, TF32, BF16, FP16, FP8_E5M2, FP8_E4M3FN]),
    "sums": lambda: draw_sum_errors([16, 1024], ERRORS),
    "losses": lambda: draw_losses(LOSSES),
    "scales": lambda: draw_loss_scales(range(-20, 29, 4), SCALES),
    "outliers": lambda: draw_outlier_damage([4, 4096], {"int8": [0.01, 1], "int8 per row": [0.01, 0.06]}),
}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def written(ax):
    """Texts and titles of a panel, without empty ones."""
    return [child for child in ax.get_children() if isinstance(child, Text) and child.get_text()]


# --- colours -------------------------------------------------------------------------------------------------


def test_every_format_has_a_colour_of_its_own():
    assert FORMAT_COLORS.keys() == FORMATS.keys()
    assert len(set(FORMAT_COLORS.values())) == len(FORMATS)
    assert format_color("fp4") == TEXT_COLOR


# --- bits ----------------------------------------------------------------------------------------------------


def test_bits_of_a_value_are_drawn_beside_what_is_held():
    (ax,) = draw_bit_fields(0.1, [FP16, FP8_E4M3FN]).axes
    shown = texts(ax)
    assert shown[:3] == ["sign", "exponent", "fraction"]
    assert {"fp16", "0.0999755859", "fp8_e4m3fn", "0.1015625"} <= set(shown)
    bits = "".join(text for text in shown if text in ("0", "1"))
    assert bits == "0" + "01011" + "1001100110" + "0" + "0011" + "101"
    assert len(ax.patches) == 16 + 8


def test_of_a_long_fraction_the_rest_is_counted():
    (ax,) = draw_bit_fields(0.1, [FP64]).axes
    assert "+ 29" in texts(ax)
    assert len(ax.patches) == 1 + 11 + 23


def test_fractions_begin_beneath_one_another():
    (ax,) = draw_bit_fields(1.0, [FP32, FP8_E5M2]).axes
    fp32, fp8 = ax.patches[: FP32.bits], ax.patches[FP32.bits :]
    assert fp32[1 + 8].get_x() == fp8[1 + 5].get_x()
    assert fp32[0].get_x() < fp8[0].get_x()


# --- range and spacing ---------------------------------------------------------------------------------------


def test_ranges_are_drawn_to_scale():
    (ax,) = draw_ranges([FP16, BF16]).axes
    normal, subnormal = ax.patches[:2]
    assert normal.get_x() == -14
    assert normal.get_x() + normal.get_width() == pytest.approx(np.log2(65504))
    assert (subnormal.get_x(), subnormal.get_width()) == (-24, 10)
    assert texts(ax) == ["$2^{-24}$ to 65504", "$2^{-133}$ to $2^{128}$"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fp16", "bf16"]


def test_a_format_that_reaches_beyond_the_page_is_an_arrow():
    (ax,) = draw_ranges([FP64]).axes
    assert not ax.patches
    assert texts(ax) == ["", "$2^{-1074}$ to $2^{1024}$"]


def test_marks_stand_at_their_power_of_two():
    (ax,) = draw_ranges([FP16], {"1e-8": 1e-8}).axes
    assert list(ax.lines[0].get_xdata()) == [np.log2(1e-8)] * 2
    assert "1e-8" in texts(ax)


def test_the_spacing_is_a_band_with_a_slope_before_it():
    (ax,) = draw_relative_spacing([FP16, BF16]).axes
    fp16, bf16 = (band.get_datalim(ax.transData) for band in ax.collections)
    assert (fp16.x0, fp16.y0, fp16.y1) == (-14, -11, -10)
    assert fp16.x1 == pytest.approx(np.log2(65504))
    assert (bf16.x0, bf16.x1, bf16.y0, bf16.y1) == (-28, 20, -8, -7)
    (slope,) = ax.lines  # bf16 is normal on all of the page
    assert slope.get_xydata().tolist() == [[-24, 0], [-14, -10]]


@pytest.mark.parametrize("format", [FP16, FP8_E5M2, FP8_E4M3FN], ids=lambda each: each.name)
def test_what_is_drawn_of_the_spacing_is_what_it_is(format):
    values = np.exp2(np.arange(format.min_exponent - format.fraction_bits, np.log2(format.max), 1 / 8))
    relative = format.spacing(values) / values
    is_normal = values >= format.smallest_normal
    assert np.all((relative[is_normal] > format.eps / 2) & (relative[is_normal] <= format.eps))
    np.testing.assert_allclose(relative[~is_normal], format.smallest_subnormal / values[~is_normal])


# --- losses --------------------------------------------------------------------------------------------------


def test_sums_have_a_panel_for_each_format_and_a_colour_for_each_algorithm():
    figure = draw_sum_errors([16, 1024], ERRORS)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["fp16", "fp32"]
    first, second = ([to_hex(line.get_color()) for line in ax.lines] for ax in figure.axes)
    assert first[:2] == second
    assert len(set(first)) == 3
    assert list(figure.axes[0].lines[0].get_ydata()) == [1e-3, 1e-1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["naive", "kahan", "stochastic"]


def test_losses_keep_the_colours_of_the_formats():
    figure = draw_losses(LOSSES)
    for ax, loss in zip(figure.axes, LOSSES, strict=True):
        assert ax.get_title(loc="left") == loss.title
        assert [line.get_color() for line in ax.lines] == [format_color("fp32"), format_color("fp16")]
    assert list(figure.axes[1].lines[1].get_ydata()) == [1, 0.4]


def test_a_loss_scale_that_overflows_is_crossed_out():
    (ax,) = draw_loss_scales(range(-20, 29, 4), SCALES).axes
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[24, 28], []]
    assert texts(ax) == ["infinite or NaN", "fp16", "bf16"]


def test_damage_is_labelled_at_the_end_of_its_line():
    damage = {"int8": [0.01, 1], "int8 per row": [0.01, 0.06], "E5M2": [0.05, 0.05]}
    (ax,) = draw_outlier_damage([4, 4096], damage).axes
    assert [(text.get_text(), text.get_position()[1], text.get_va()) for text in ax.texts] == [
        ("int8", 1, "center"),
        ("int8 per row", 0.06, "bottom"),  # not on the one beneath it
        ("E5M2", 0.05, "top"),
    ]
    assert [list(line.get_ydata()) for line in ax.lines] == list(damage.values())
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-"]
    assert ax.lines[2].get_color() == format_color("fp8_e5m2")


# --- all of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_no_text_is_cut_off(draw):
    figure = draw()
    figure.canvas.draw()
    shown = [text for ax in figure.axes for text in written(ax)]
    shown += [text for legend in figure.legends for text in legend.get_texts()]
    for text in shown:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_titles_do_not_run_into_one_another(draw):
    figure = draw()
    figure.canvas.draw()
    titles = [text for ax in figure.axes for text in written(ax) if text.get_text() == ax.get_title(loc="left")]
    assert len(titles) in (0, len(figure.axes))
    for left, right in pairwise(text.get_window_extent() for text in titles):
        assert left.x1 < right.x0


@pytest.mark.parametrize("draw", [draw_ranges, draw_relative_spacing, lambda none: draw_bit_fields(1.0, none)])
def test_no_formats_are_refused(draw):
    with pytest.raises(ValueError, match="at least one format"):
        draw([])


def test_no_panels_are_refused():
    with pytest.raises(ValueError, match="at least one panel"):
        draw_losses([])
    with pytest.raises(ValueError, match="at least one panel"):
        draw_sum_errors([16], {})
    assert not plt.get_fignums()
