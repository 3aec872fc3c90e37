"""Makes links to the API reference of code in prose that names something public, without a mark in any page.

What is named in full is one (``lmlib.bpe.Tokenizer``), and so is a command (``lmlib data prepare FILE``). A bare name
(``get_batch``, ``Tokenizer.encode(text)``) is one where the page says whose it is: it imports the name from the
library, or shows the module that defines it, and defines nothing of that name itself. The first in a section counts,
and neither titles nor captions are changed.
"""

from __future__ import annotations

import re

from api_pages import library
from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

NAMED = re.compile(r"(?P<path>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\(.*\))?")
IMPORT = re.compile(r"^from (lmlib(?:\.\w+)*) import (\([^)]*\)|.+)", re.MULTILINE)
IMPORTED = re.compile(r"(\w+)(?: as (\w+))?")
DEFINED = re.compile(r"^(?:(?:def|class) (\w+)|(\w+)(?::[^=\n]+)? = )", re.MULTILINE)
NO_PROSE = (nodes.title, nodes.caption, nodes.reference, nodes.rubric, nodes.term, addnodes.desc_signature)


def names_of_page(doctree: nodes.document) -> dict[str, str]:
    """Return the public path of each bare name that the code of a page gives a meaning."""
    meanings, own = {}, set()
    for block in doctree.findall(nodes.literal_block):
        shown = shown_module(block)
        if shown:
            names = library().modules[shown].definitions
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


def target_of(literal: nodes.literal, meanings: dict[str, str]) -> str | None:
    """Return the public path that code in a text names, if it does."""
    match = NAMED.fullmatch(literal.astext())
    if not match:
        return None
    first, _, rest = match["path"].partition(".")
    if first == library().package:
        return library().find(match["path"])
    if first not in meanings:
        return None
    return library().find(f"{meanings[first]}.{rest}" if rest else meanings[first])


def place_of(env, text: str) -> tuple[str, str] | None:
    """Return the page and the anchor at which a path or a command is described."""
    described = env.get_domain("py").objects.get(text)
    if described:
        return described.docname, described.node_id
    commands = env.get_domain("std").anonlabels
    words = text.split(" ")
    return next((commands[c] for n in range(len(words), 1, -1) if (c := " ".join(words[:n])) in commands), None)


def is_in_prose(literal: nodes.literal) -> bool:
    """Whether a link may stand here."""
    above = literal.parent
    while above is not None and not isinstance(above, nodes.section):
        if isinstance(above, NO_PROSE):
            return False
        above = above.parent
    return isinstance(literal.parent.parent, nodes.Element) and "dropdown_title" not in str(literal.parent.tagname)


def section_of(node: nodes.Node) -> nodes.Node:
    """Return the section that a node stands in."""
    while node.parent is not None and not isinstance(node, nodes.section):
        node = node.parent
    return node


def link_names(app, doctree: nodes.document, docname: str) -> None:
    """Turn names into links: those that the reference marked, and on other pages those that are found."""
    marked = [node for node in doctree.findall(nodes.TextElement) if node.get("api_target")]
    for node in marked:
        link(app, docname, node, node["api_target"])
    if marked:
        return
    meanings, seen = names_of_page(doctree), set()
    for literal in list(doctree.findall(nodes.literal)):
        target = literal.astext() if literal.astext().startswith("lmlib ") else target_of(literal, meanings)
        key = id(section_of(literal)), target
        if target and key not in seen and is_in_prose(literal) and link(app, docname, literal, target):
            seen.add(key)


def link(app, docname: str, node: nodes.TextElement, target: str) -> bool:
    """Put a node into a link, if there is something to link to other than where it stands."""
    place = place_of(app.env, target)
    if place is None:
        return False
    content = node.deepcopy() if isinstance(node, nodes.literal) else nodes.Text(node.astext())
    node.replace_self(make_refnode(app.builder, docname, *place, content))
    return True


def setup(app):
    """Connect the step; Sphinx calls this."""
    app.connect("doctree-resolved", link_names)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
