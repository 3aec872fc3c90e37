"""The book's figure style: colours, sizes, and what Matplotlib is told."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb

# Five to one on the white page. No grey reaches 4.5:1 on the white page and on the
# dark one, so the style sheet of the book brightens figures in dark mode.
TEXT_COLOR = "#5F6E83"

# One colour for one thing throughout the book, from Okabe and Ito's palette, whose
# orange is too light for white.
COLORS = {
    "parameters": "#0072B2",
    "gradients": "#D55E00",
    "optimizer state": "#009E73",
    "activations": "#CC79A7",
    "data": "#C77700",
    "prediction": TEXT_COLOR,  # what a formula says, dashed, beside measurements
}
PAGE_COLORS = {"light": "#ffffff", "dark": "#121212"}
"""Behind a figure, in each theme of the book."""

FIGURE_WIDTH = 6.4  # inches; the page shows every figure as wide as its text
# Rows of a drawing mean none of the above, so they have colours of their own, from
# Paul Tol's bright scheme.
ROW_COLORS = ["#4477AA", "#EE6677", "#228833", "#AA3377", "#997700", "#117799"]


def use_book_style() -> None:
    """Set Matplotlib to the book's style.

    Transparent, with grey text and no frame, and sharp on dense screens.
    """
    plt.rcParams.update(
        {
            "figure.figsize": (FIGURE_WIDTH, 3.2),
            "figure.dpi": 110,
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "savefig.facecolor": "none",
            "axes.facecolor": "none",
            "axes.edgecolor": TEXT_COLOR,
            "axes.labelcolor": TEXT_COLOR,
            "axes.titlecolor": TEXT_COLOR,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(color=list(COLORS.values())),
            "text.color": TEXT_COLOR,
            "xtick.color": TEXT_COLOR,
            "ytick.color": TEXT_COLOR,
            "grid.color": TEXT_COLOR,
            "grid.alpha": 0.25,
            "font.size": 10.5,
            "lines.linewidth": 2,
        }
    )
    _use_full_width_in_notebooks()


def _use_full_width_in_notebooks() -> None:
    """Twice the pixels, and the size that was asked for.

    By itself a notebook crops figures to what is drawn.
    """
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ModuleNotFoundError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("retina", bbox_inches=None)


def contrast(color: str, background: str) -> float:
    """Contrast ratio of two Matplotlib colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted(_luminance(c) for c in (color, background))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: str) -> float:
    """Relative luminance of WCAG 2.2, from 0 to 1."""
    channels = np.array(to_rgb(color))
    linear = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    return float(linear @ [0.2126, 0.7152, 0.0722])
