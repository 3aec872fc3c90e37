"""lmlib.plotting: colours that can be seen on both pages, and drawings that show what they are given."""

import re
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import FancyArrowPatch, Rectangle

from lmlib import plotting
from lmlib.plotting import (
    COLORS,
    PAGE_COLORS,
    ROW_COLORS,
    TEXT_COLOR,
    color_tokens,
    contrast,
    draw_compression,
    draw_language_costs,
    draw_merge_tree,
    draw_speeds,
    draw_tensor,
    draw_walks,
)

pytestmark = pytest.mark.usefixtures("book_style")


def drawn(figure):
    """Texts, cells and arrows of a figure of one set of axes."""
    (ax,) = figure.axes
    texts = [text.get_text() for text in ax.texts]
    cells = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    return texts, cells, arrows


# --- colours ---------------------------------------------------------------------------------------------


def test_contrast_is_that_of_wcag():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1
    assert contrast("white", "#000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)  # the lightest grey that passes AA


@pytest.mark.parametrize("page", PAGE_COLORS.values(), ids=PAGE_COLORS)
def test_colors_can_be_seen_on_both_pages(page):
    for color in [*COLORS.values(), *ROW_COLORS]:
        assert contrast(color, page) >= 3, color


def test_text_of_figures_can_be_read_in_both_modes():
    sheet = (Path(__file__).parents[1] / "book/_static/custom.css").read_text("utf-8")
    brightness = float(re.search(r"filter: brightness\(([\d.]+)\)", sheet)[1])
    brightened = tuple(min(1, channel * brightness) for channel in to_rgb(TEXT_COLOR))
    assert contrast(TEXT_COLOR, PAGE_COLORS["light"]) >= 4.5
    assert contrast(brightened, PAGE_COLORS["dark"]) >= 4.5


def test_colors_mean_one_thing():
    assert len({*COLORS.values(), *ROW_COLORS}) == len(COLORS) + len(ROW_COLORS)


def test_the_dark_page_is_that_of_the_theme():
    theme = Path(find_spec("sphinx_book_theme").origin).parent
    sheets = "".join(sheet.read_text("utf-8") for sheet in theme.rglob("sphinx-book-theme.css"))
    assert f"--pst-color-background:{PAGE_COLORS['dark']}" in sheets.replace(": ", ":")


def test_figures_are_transparent():
    figure, ax = plt.subplots()
    assert figure.get_facecolor()[3] == 0
    assert ax.get_facecolor()[3] == 0


# --- walks -----------------------------------------------------------------------------------------------


def test_a_walk_shows_every_step():
    x = torch.arange(16).view(4, 4)
    texts, cells, arrows = drawn(draw_walks({"x": x}))
    assert len(cells) == 16
    assert len(arrows) == 4 * 3 + 3  # along the rows, and from row to row
    assert {"x", "+1", "+4", "shape (4, 4), strides (4, 1), offset 0"} <= set(texts)


def test_a_tensor_is_drawn_as_grid_and_walk():
    transposed = torch.arange(6).view(2, 3).T
    texts, cells, _ = drawn(draw_tensor(transposed))
    assert len(cells) == 6 + 6
    assert [text for text in texts if text.isdigit()][-6:] == ["0", "3", "1", "4", "2", "5"]
    assert "shape (3, 2)\nstrides (1, 3)\noffset 0" in texts


def test_repeated_visits_are_counted_and_unvisited_cells_are_plain():
    texts, cells, _ = drawn(draw_walks({"expanded": torch.zeros(5)[1:3].expand(3, 2)}))
    assert {"1\n×3", "2\n×3", "+0", "+1"} <= set(texts)
    tinted = [cell.get_facecolor()[3] > 0 for cell in cells]
    assert tinted == [False, True, True, False, False]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(5.0),
        torch.zeros(1),
        torch.zeros(2, 3, 4).transpose(0, 2),
        torch.zeros(100, 100),
        torch.zeros(1000)[990:],
        torch.zeros(2, 2, dtype=torch.complex64),
        torch.zeros(10**6).as_strided((3, 3), (333_333, 7), 100),
        torch.empty(50_000, 50_000, device="meta"),
        torch.zeros(1).expand(10**6, 10**6),
    ],
    ids=lambda tensor: str(tuple(tensor.shape)),
)
def test_any_tensor_can_be_drawn(tensor):
    for figure in [draw_tensor(tensor), draw_walks({"tensor": tensor})]:
        figure.canvas.draw()
        _, cells, _ = drawn(figure)
        assert 1 <= len(cells) <= plotting.MAX_CELLS + plotting.MAX_ROWS * plotting.MAX_COLUMNS


def test_a_tensor_without_elements_is_refused():
    with pytest.raises(ValueError, match=r"shape \(0, 3\) has no elements to draw"):
        draw_tensor(torch.empty(0, 3))


def test_what_is_no_tensor_is_refused():
    with pytest.raises(ValueError, match="at least one tensor"):
        draw_walks({})
    with pytest.raises(TypeError, match="expected a torch tensor, not list"):
        draw_tensor([1, 2])


def test_what_is_drawn_fits_the_figure():
    figure = draw_walks({"x[:, 1]": torch.zeros(4, 4)[:, 1], "x.T": torch.zeros(4, 4).T})
    figure.canvas.draw()
    area = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert area.x0 <= box.x0
        assert box.x1 <= area.x1
        assert area.y0 <= box.y0
        assert box.y1 <= area.y1


# --- tokens ----------------------------------------------------------------------------------------------


def shown_tokens(html):
    return BeautifulSoup(html, "html.parser").div.find_all("span", recursive=False)


def test_tokens_are_shown_as_text_each_on_its_own_tint():
    spans = shown_tokens(color_tokens([b"Hello", b" <b>", "你".encode(), b"\n"]))
    assert [span.get_text() for span in spans] == ["Hello", " <b>", "你", "↵\n"]
    tints = [re.search(r"background:(#\w{8})", span["style"])[1] for span in spans]
    assert all(tint != following for tint, following in pairwise(tints))


def test_half_a_character_is_shown_as_its_bytes():
    (span,) = shown_tokens(color_tokens([b" \xf0\x9f"]))
    assert span.get_text() == "20 f0 9f"


def test_tokens_are_shown_over_their_ids():
    spans = shown_tokens(color_tokens([b"Hello", b"!"], [15496, 0]))
    assert [span.get_text("|") for span in spans] == ["Hello|15496", "!|0"]
    with pytest.raises(ValueError, match="1 ids for 2 tokens"):
        color_tokens([b"Hello", b"!"], [15496])


def test_how_many_tokens_there_are_is_said_to_who_cannot_see_them():
    assert BeautifulSoup(color_tokens([b"a", b"b"]), "html.parser").div["aria-label"] == "2 tokens"


@pytest.mark.parametrize("mode", PAGE_COLORS)
def test_text_on_a_tint_can_be_read(mode):
    sheet = (Path(__file__).parents[1] / "book/_static/custom.css").read_text("utf-8")
    texts = {m[1]: m[2] for m in re.finditer(r'data-theme="(\w+)"\] \{[^}]*?--book-text: (#\w+);', sheet)}
    page = to_rgb(PAGE_COLORS[mode])
    html = color_tokens([b"x"] * len(ROW_COLORS))
    for tint in re.findall(r"background:(#\w{8})", html):
        *color, alpha = to_rgba(tint)
        blended = tuple(alpha * c + (1 - alpha) * p for c, p in zip(color, page, strict=True))
        assert contrast(texts[mode], blended) >= 4.5, tint


def test_a_tree_shows_every_merge_with_its_rank():
    figure = draw_merge_tree(b" the", [(256, 0, 2), (258, 2, 4), (1000, 0, 4)])
    (ax,) = figure.axes
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["␣", "t", "h", "e", "␣t  256", "he  258", "␣the  1,000"]
    assert len(ax.lines) == 2 * 3  # two branches a merge


def test_a_tree_of_bytes_that_are_no_text():
    figure = draw_merge_tree("你".encode(), [(19526, 0, 2)])
    assert [text.get_text() for text in figure.axes[0].texts] == ["e4", "bd", "a0", "e4 bd  19,526"]


@pytest.mark.parametrize("steps", [[(5, 0, 3)], [(5, 0, 1)], [(5, 0, 2), (6, 1, 3)]])
def test_a_step_that_merges_no_neighbours_is_refused(steps):
    with pytest.raises(ValueError, match="no two tokens make up"):
        draw_merge_tree(b"abc", steps)


def test_languages_are_drawn_in_order_with_both_costs():
    figure = draw_language_costs(["English", "Burmese"], [1, 4.2], [1, 22])
    (ax,) = figure.axes
    assert [list(line.get_xdata()) for line in ax.lines] == [[1, 4.2], [1, 22]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["English", "Burmese"]
    top, bottom = ax.transData.transform([(1, 0), (1, 1)])[:, 1]
    assert top > bottom
    with pytest.raises(ValueError, match="one cost in bytes and one in tokens"):
        draw_language_costs(["English"], [1, 2], [1])


def test_compression_is_drawn_for_every_text():
    curves = {"novel": [1.0, 3.8], "other": [1.0, 3.9], "German": [1.0, 2.2]}
    (ax,) = draw_compression([256, 8192], curves).axes
    assert [list(line.get_ydata()) for line in ax.lines] == list(curves.values())
    assert [text.get_text() for text in ax.texts] == list(curves)
    assert [text.get_va() for text in ax.texts] == ["top", "bottom", "bottom"]  # no label on another


def test_speeds_are_drawn_as_bars_from_a_line_at_one():
    (ax,) = draw_speeds({"novel": 0.25, "languages": 2.0}, "Rust").axes
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches] == [(1, 0.25), (1, 2.0)]
    assert list(ax.lines[0].get_xdata()) == [1, 1]
    lowest, highest = ax.get_xlim()
    assert lowest < 0.25 < 2.0 < highest
    assert ax.texts[0].get_text() == "Rust"
    assert ax.get_xlabel() == "speed, relative to Rust's"


def test_a_speed_must_be_positive():
    with pytest.raises(ValueError, match="a speed must be positive, not 0"):
        draw_speeds({"novel": 2.0, "languages": 0})


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_merge_tree(b" whalers", [(263, 5, 7), (266, 0, 2), (282, 3, 5), (348, 0, 3), (364, 5, 8)]),
        lambda: draw_language_costs(["Chinese, Mandarin (Simplified)"] * 34, [1.0] * 34, [22.0] * 34),
        lambda: draw_speeds({"34 languages, first time": 0.1, "34 languages, again": 2.0}),
        lambda: draw_compression([256, 8192], {"Moby-Dick": [1.0, 3.8], "Declaration in English": [1.0, 3.9]}),
    ],
    ids=["tree", "languages", "speeds", "compression"],
)
def test_no_text_of_a_drawing_is_cut_off(draw):
    figure = draw()
    figure.canvas.draw()
    (ax,) = figure.axes
    within_limits = [
        label
        for axis, limits in [(ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())]
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if ax.axison and min(limits) <= place <= max(limits)
    ]
    for text in [*ax.texts, *within_limits]:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
