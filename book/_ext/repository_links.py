"""Link the site to its repository, where the build knows it.

The repository does not contain its own address. GitHub Actions names it, forks included, in
GITHUB_REPOSITORY ("owner/name"). Where that is set, pages get buttons for the repository, for a new issue and
for Colab, and the notebooks published beside the pages learn where to install lmlib from. Elsewhere nothing
changes.

Colab opens the published copy of a notebook, `_sources/book/NN_topic.ipynb` on the branch that GitHub Pages
serves: the stored notebook does not know the address, its published copy does.
"""

import os
import re
from pathlib import Path

import nbformat
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

PUBLISHED_BRANCH = "gh-pages"
COPIES = "_sources"  # where Sphinx puts the source of every page

# The first line of the first code cell of every notebook. `..` is the repository, seen from book/.
INSTALL_LINE = 'LMLIB = "..[notebooks]"  # this repository; a published copy names its address here'


def repository() -> str | None:
    """Return owner/name from GITHUB_REPOSITORY, or None where it is not set."""
    name = os.environ.get("GITHUB_REPOSITORY")
    if not name:
        return None
    if not re.fullmatch(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+", name):
        raise ExtensionError(f"GITHUB_REPOSITORY is {name!r}: set it to owner/name, or unset it.")
    return name


def theme_options(name: str) -> dict[str, object]:
    """Return the options of sphinx-book-theme that draw the buttons of the repository called `name`."""
    return {
        "repository_url": f"https://github.com/{name}",
        "repository_branch": PUBLISHED_BRANCH,
        "path_to_docs": COPIES,
        "use_repository_button": True,
        "use_issues_button": True,
        "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    }


def point_at_repository(notebook: Path, name: str) -> None:
    """Make the notebook's install cell take lmlib from the repository called `name`."""
    content = nbformat.read(notebook, as_version=4)
    first = next((cell for cell in content.cells if cell.cell_type == "code"), None)
    if first is None or first.source.splitlines()[:1] != [INSTALL_LINE]:
        raise ExtensionError(
            f"{notebook.name}: make this the first line of the first code cell, so that a published copy can "
            f"install lmlib: {INSTALL_LINE}"
        )
    published_line = f'LMLIB = "lmlib[notebooks] @ git+https://github.com/{name}"'
    first.source = first.source.replace(INSTALL_LINE, published_line, 1)
    nbformat.write(content, notebook)


def add_buttons(app: Sphinx, config: Config) -> None:
    """Add the buttons to the theme's options (config-inited)."""
    if name := repository():
        config.html_theme_options = {**config.html_theme_options, **theme_options(name)}


def drop_launch_button(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Take the Colab button off executed Markdown pages, which Colab cannot open (html-page-context)."""
    if context.get("page_source_suffix") != ".ipynb":
        buttons = context.get("header_buttons", [])
        context["header_buttons"] = [button for button in buttons if button.get("label") != "launch-buttons"]


def point_copies_at_repository(app: Sphinx, failure: Exception | None) -> None:
    """Rewrite the install cell of every published notebook (build-finished)."""
    name = repository()
    if failure or not name or app.builder.format != "html":
        return
    for page in sorted(app.env.found_docs):
        if app.env.doc2path(page).endswith(".ipynb"):
            point_at_repository(Path(app.outdir, COPIES, f"{page}.ipynb"), name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", add_buttons)
    app.connect("html-page-context", drop_launch_button, priority=502)  # the theme adds the button at 501
    app.connect("build-finished", point_copies_at_repository)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
