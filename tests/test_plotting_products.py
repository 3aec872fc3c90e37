"""lmlib.plotting.products: matrices are drawn to scale with their work, parameters with their shares."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from lmlib.config import named_config
from lmlib.flops import working_parameters
from lmlib.plotting import COLORS, draw_parameter_shares, draw_products

pytestmark = pytest.mark.usefixtures("book_style")

MODELS = {name: named_config(name) for name in ["gpt2-124m", "llama-7b", "llama-3-8b"]}


def boxes_of(figure):
    (ax,) = figure.axes
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def texts_of(figure):
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def dashed(box):
    return box.get_linestyle() not in ("-", "solid")


# --- products ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(6, 4, 2), (1024, 256, 64), (3, 5, 5)])
def test_sides_are_to_scale(sizes):
    num_points, width, num_outputs = sizes
    sides = {"B": num_points, "D": width, "K": num_outputs}
    figure = draw_products(*sizes)
    boxes = boxes_of(figure)
    shapes = [text for text in texts_of(figure) if "×" in text]
    assert len(boxes) == len(shapes) == 2 * 3 * 3  # layers, products, matrices
    scale = boxes[0].get_height() / num_points
    for box, shape in zip(boxes, shapes, strict=True):
        rows, columns = shape.split("×")
        assert box.get_height() == pytest.approx(scale * sides[rows])
        assert box.get_width() == pytest.approx(scale * sides[columns])


def test_neighbouring_sides_fit():
    """A (m, n) matrix meets a (n, k) one, and gives (m, k)."""
    shapes = [text.split("×") for text in texts_of(draw_products(6, 4, 2)) if "×" in text]
    for left, right, result in zip(*[iter(shapes)] * 3, strict=True):
        assert left[1] == right[0]
        assert result == [left[0], right[1]]


def test_each_product_says_its_flops():
    texts = [text for text in texts_of(draw_products(6, 4, 2)) if "FLOPs" in text]
    first, second = "2·B·D·D FLOPs", "2·B·D·K FLOPs"
    assert texts.count(first) == 2  # forward, and backward to the weights
    assert texts.count(f"{first}, not needed") == 1
    assert texts.count(second) == 3


def test_only_the_gradient_of_the_data_is_dashed():
    figure = draw_products(6, 4, 2)
    names = [t for t in texts_of(figure) if "×" not in t and "FLOPs" not in t and "ward" not in t and t not in "·="]
    boxes = boxes_of(figure)
    assert [name for name, box in zip(names, boxes, strict=True) if dashed(box)] == ["∂x"]
    colors = {"w": "parameters", "x": "data", "h": "activations", "∂": "gradients"}
    for name, box in zip(names, boxes, strict=True):
        assert box.get_edgecolor() == to_rgba(COLORS[colors[name[0]]])


@pytest.mark.parametrize("sizes", [(0, 4, 2), (6, 4.5, 2), (6, 4, -1)])
def test_sizes_that_are_none_are_refused(sizes):
    with pytest.raises(ValueError, match="must be a whole number from 1 on"):
        draw_products(*sizes)


# --- parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_bar_holds_all_parameters_and_its_tinted_part_is_n(name):
    config = MODELS[name]
    boxes = boxes_of(draw_parameter_shares({name: config}))
    assert sum(box.get_width() for box in boxes) == pytest.approx(1, abs=0.006)  # less what cannot be seen
    tinted = sum(box.get_width() for box in boxes if box.get_facecolor()[3] > 0)
    assert tinted == pytest.approx(working_parameters(config) / config.num_parameters, abs=0.006)
    assert all(dashed(box) == (box.get_facecolor()[3] == 0) for box in boxes)


def test_a_tied_embedding_is_the_head_and_works():
    texts = texts_of(draw_parameter_shares({"GPT-2": MODELS["gpt2-124m"]}))
    assert "embedding = head\n31 %" in texts
    assert "N = 123.7M of 124.4M" in texts
    assert not any(text.startswith("head") for text in texts)


def test_an_embedding_that_is_only_looked_up_is_dashed():
    figure = draw_parameter_shares({"LLaMA": MODELS["llama-7b"]})
    embedding, *others = boxes_of(figure)
    assert dashed(embedding)
    assert not any(dashed(box) for box in others)
    assert {"embedding 1.9 %", "head 1.9 %", "N = 6.61B of 6.74B"} <= set(texts_of(figure))


def test_no_model_is_refused():
    with pytest.raises(ValueError, match="at least one model"):
        draw_parameter_shares({})


@pytest.mark.parametrize("draw", [lambda: draw_products(6, 4, 2), lambda: draw_parameter_shares(MODELS)])
def test_no_text_is_cut_off(draw):
    figure = draw()
    figure.canvas.draw()
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0, text
        assert box.y1 <= figure.bbox.y1, text
    plt.close(figure)
