"""lmlib.plotting: colours that can be seen on both pages, and drawings that show the walk they are given."""

import re
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, Rectangle

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from lmlib import plotting
from lmlib.plotting import COLORS, PAGE_COLORS, ROW_COLORS, TEXT_COLOR, contrast, draw_tensor, draw_walks


@pytest.fixture(autouse=True)
def book_style():
    with plt.rc_context():
        plotting.use_book_style()
        yield
    plt.close("all")


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
