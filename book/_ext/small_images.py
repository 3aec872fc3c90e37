"""Makes the figures of the built pages small: 256 colours are enough for line drawings, in a third of the bytes."""

from __future__ import annotations

from pathlib import Path

from PIL import Image


def shrink(path: Path) -> None:
    """Rewrite a PNG file with a palette of 256 colours, each with its own transparency."""
    with Image.open(path) as image:
        if image.mode == "P":
            return
        # FASTOCTREE is the method of Pillow that keeps the alpha channel
        image.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def shrink_figures(app, exception) -> None:
    """Shrink every figure that a cell drew."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir, "_images").glob("*.png"):
            shrink(path)


def setup(app):
    """Connect the step; Sphinx calls this."""
    app.connect("build-finished", shrink_figures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
