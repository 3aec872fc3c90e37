"""Makes links to the API reference of code in prose that names something public, without a mark in any page.

What is named in full is one (``lmlib.bpe.Tokenizer``), and so is a command (``lmlib data prepare FILE``). A bare name
(``get_batch``, ``Tokenizer.encode(text)``) is one where the page says whose it is: it imports the name from the
library, or shows the module that defines it, and defines nothing of that name itself. In the box on the lecture a
bare name is the lecture's own. The first in a section counts, and neither titles nor captions are changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from api_pages import library
from docutils import nodes
from sphinx.util.nodes import make_refnode
from sphinx_design.dropdown import dropdown_title

NAMED = re.compile(r"(?P<path>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\(.*\))?")
IMPORT = re.compile(r"^from (lmlib(?:\.\w+)*) import (\([^)]*\)|.+)", re.MULTILINE)
IMPORTED = re.compile(r"(\w+)(?: as (\w+))?")
DEFINED = re.compile(r"^(?:(?:def|class) (\w+)|(\w+)(?::[^=\n]+)? = )", re.MULTILINE)
A_WORD = re.compile(r"[a-z]+")  # a module that is shown gives no meaning to it: ``encode`` is what any tokenizer does
NO_PROSE = (nodes.title, nodes.caption, nodes.reference, nodes.rubric, nodes.term, dropdown_title)


def names_of_page(doctree: nodes.document) -> dict[str, str]:
    """Return the public path of each bare name that the code of a page gives a meaning."""
    meanings, own = {}, set()
    for block in doctree.findall(nodes.literal_block):
        shown = shown_module(block)
        if shown:
            names = (name for name in library().modules[shown].definitions if not A_WORD.fullmatch(name))
            meanings |= {name: path for name in names if (path := library().resolve(shown, name))}
            continue
        source = block.astext()
        own |= {name for names in DEFINED.findall(source) for name in names if name}
        for module, names in IMPORT.findall(source):
            for name, alias in IMPORTED.findall(re.sub(r"#.*", "", names)):
                path = library().find(f"{module}.{name}")
                if path:
                    meanings[alias or name] = path
    return {name: path for name, path in meanings.items() if name not in own}


def shown_module(block: nodes.literal_block) -> str | None:
    """Return the module whose file a block of code is taken from."""
    source = block.get("source") or ""
    return next((name for name, module in library().modules.items() if source == str(module.path)), None)


def target_of(text: str, meanings: dict[str, str]) -> str | None:
    """Return the public path that code in a text names, if it does."""
    match = NAMED.fullmatch(text)
    if not match:
        return None
    first, _, rest = match["path"].partition(".")
    if first == library().package:
        return library().find(match["path"])
    if first not in meanings:
        return None
    return library().find(f"{meanings[first]}.{rest}" if rest else meanings[first])


def place_of(env, target: str) -> tuple[str, str] | None:
    """Return the page and the anchor at which a path is described, or the command that a line begins with."""
    described = env.get_domain("py").objects.get(target)
    if described:
        return described.docname, described.node_id
    commands = env.get_domain("std").anonlabels
    words = target.split(" ")
    lines = (" ".join(words[:length]) for length in range(len(words), 1, -1))
    return next((commands[line] for line in lines if line in commands), None)


def boxes(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield what a node stands in, up to its section, which comes last."""
    while node.parent is not None and not isinstance(node, nodes.section):
        node = node.parent
        yield node


def link_names(app, doctree: nodes.document, docname: str) -> None:
    """Turn names into links: those that the reference marked, and on other pages those that are found."""
    marked = [node for node in doctree.findall(nodes.TextElement) if node.get("api_target")]
    for node in marked:
        place = place_of(app.env, node["api_target"])
        if place:
            link(app, docname, node, place)
    if marked:
        return
    meanings, seen = names_of_page(doctree), set()
    for literal in list(doctree.findall(nodes.literal)):
        around = list(boxes(literal))
        is_lecture = any("lecture" in box.get("classes", []) for box in around)
        text = literal.astext()
        target = text if text.startswith("lmlib ") else target_of(text, {} if is_lecture else meanings)
        place = place_of(app.env, target) if target else None
        key = id(around[-1]), place
        if place and key not in seen and not any(isinstance(box, NO_PROSE) for box in around):
            link(app, docname, literal, place)
            seen.add(key)


def link(app, docname: str, node: nodes.TextElement, place: tuple[str, str]) -> None:
    """Put a node into a link to a place."""
    content = node.deepcopy() if isinstance(node, nodes.literal) else nodes.Text(node.astext())
    node.replace_self(make_refnode(app.builder, docname, *place, content))


def setup(app):
    """Connect the step; Sphinx calls this."""
    app.connect("doctree-resolved", link_names)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
