"""Put MathJax into the site, so that formulas need no network and pages also work from ``file://``.

The package sphinx-mathjax-offline carries all of MathJax (24 MB). A page of this book needs one script,
the web fonts that the script asks for and the TeX extensions that it loads when a formula uses them: 2 MB.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PACKAGE = "sphinx-mathjax-offline"  # its import name has hyphens too: it can be found, but not imported
NEEDED = ("tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions")
NOTICE = """\
The files in this folder are a part of MathJax 3 (https://www.mathjax.org), unchanged,
copyright The MathJax Consortium, under the Apache License, Version 2.0,
which lies beside this folder in licences/Apache-2.0.txt.
"""


def find_mathjax() -> Path:
    """Return the folder of MathJax inside the installed package, or raise an error that says what to install."""
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(spec.origin).parent / "static" / "mathjax" if spec and spec.origin else None
    if folder is None or not all((folder / name).exists() for name in NEEDED):
        raise ExtensionError(
            f"MathJax was not found: install the package {PACKAGE} "
            f"(python -m pip install {PACKAGE}), which `make book` does."
        )
    return folder


def copy_mathjax(source: Path, target: Path) -> None:
    """Copy what the pages need from `source` to `target`, with a note on its licence."""
    for name in NEEDED:
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, destination, dirs_exist_ok=True)
        else:
            shutil.copyfile(source / name, destination)
    (target / "NOTICE.txt").write_text(NOTICE, "utf-8")


def _check_early(app: Sphinx) -> None:
    # a missing package should stop the build before any notebook is executed
    if app.builder.format == "html":
        find_mathjax()


def _copy_late(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        copy_mathjax(find_mathjax(), Path(app.outdir) / "_static" / "mathjax")


def setup(app: Sphinx) -> dict[str, object]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", _check_early)
    app.connect("build-finished", _copy_late)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
