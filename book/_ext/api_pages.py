"""Writes the API reference: every public name of the library with its signature and docstring, and every command.

``{library} bpe data`` shows these rooms, ``{library-contents}`` lists all of them, and ``{commands}`` shows what
``lmlib`` prints for ``--help``. No name stands in a page: what a room exports appears, and what it drops is gone.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from io import StringIO
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from public_names import FUNCTIONS, Entry, Library, Member, Module
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
LINE = 84  # as many characters as the page shows of a line of code
VALUE_LINES = 14  # of a constant; a longer value is better read in the source
NAME_OR_TEXT = re.compile(r"""(?P<text>"[^"]*"|'[^']*')|(?P<name>[^\W\d][\w.]*)""")
WORDS_BEFORE = ("property", "classmethod", "staticmethod")  # decorators that are said in a word


@cache
def library() -> Library:
    """The library as its source is when the build asks first."""
    return Library(ROOT / "lmlib")


def anchor(words: str) -> str:
    """Return the id of a section; a dot in it would puzzle the script that marks where a reader is."""
    return re.sub(r"[. ]", "-", words)


class signature_line(nodes.Inline, nodes.TextElement):
    """A signature, whose lines and blanks are kept."""


class brief_literal(nodes.literal):
    """Code in a docstring; Sphinx would put each word of it, and of a signature, into a span of its own."""


def opens(tag: str):
    """Return what writes the beginning of a node, in which words stand as they are."""

    def visit(translator, _node: nodes.Element) -> None:
        translator.context.append(translator.protect_literal_text)
        translator.protect_literal_text = 0
        translator.body.append(tag)

    return visit


def closes(tag: str):
    """Return what writes its end."""

    def depart(translator, _node: nodes.Element) -> None:
        translator.protect_literal_text = translator.context.pop()
        translator.body.append(tag)

    return depart


# --- signatures ------------------------------------------------------------------------------------------


def signature(entry: Entry) -> list[nodes.Node]:
    """Return a definition as a line of code, or as one with a parameter on each line."""
    module, node = entry.module, entry.node
    decorators = [module.text(each) for each in getattr(node, "decorator_list", [])]
    words = [each for each in decorators if each in WORDS_BEFORE]
    words += ["class"] if entry.kind == "class" else []
    before = "".join(f"@{each}\n" for each in decorators if each not in WORDS_BEFORE)
    before += "".join(f"{word} " for word in words)
    parts = [aside(before)] if before else []
    parts.append(addnodes.desc_name("", entry.name))
    if entry.kind in ("data", "attribute"):
        return parts + variable(entry)
    if entry.kind == "class":
        return parts + class_head(entry)
    if entry.kind == "property":
        return parts + annotation(module, ": ", node.returns)
    static = "staticmethod" in words or not isinstance(entry, Member)
    returns = annotation(module, " -> ", node.returns)
    return parts + parameters(module, node.args, not static, LINE - len(before) - len(entry.name), returns)


def variable(entry: Entry) -> list[nodes.Node]:
    """Return the type and the value of a constant or a field."""
    module, node = entry.module, entry.node
    parts = annotation(module, ": ", getattr(node, "annotation", None))
    if node.value is not None and not isinstance(node.targets[0] if isinstance(node, ast.Assign) else 0, ast.Tuple):
        value = module.text(node.value)
        parts.append(aside(f" = {value if value.count(chr(10)) < VALUE_LINES else '…'}"))
    return parts


def class_head(entry: Entry) -> list[nodes.Node]:
    """Return what a class is called with, and what it extends; the fields of a dataclass follow by themselves."""
    module, node = entry.module, entry.node
    parts = []
    inits = [each for each in node.body if isinstance(each, FUNCTIONS) and each.name == "__init__"]
    if inits:
        parts += parameters(module, inits[-1].args, True, LINE - len(f"class {entry.name}"), [])
    for number, base in enumerate(node.bases):
        parts += [aside(", " if number else " extends "), *code(module, module.text(base))]
    return parts


def parameters(
    module: Module, args: ast.arguments, bound: bool, room: int, returns: list[nodes.Node]
) -> list[nodes.Node]:
    """Return the parameters in parentheses and what follows, without ``self`` where it is bound."""
    shown = [*parameter_list(module, args)][1 if bound else 0 :]
    length = sum(len(text(each)) + 2 for each in shown) + len(text(returns))
    start, between, end = ("(", ", ", ")") if length <= room else ("(\n    ", ",\n    ", ",\n)")
    parts = [nodes.Text(start if shown else "(")]
    for number, each in enumerate(shown):
        parts += [nodes.Text(between), *each] if number else each
    return [*parts, nodes.Text(end if shown else ")"), *returns]


def parameter_list(module: Module, args: ast.arguments):
    """Yield each parameter, and the marks ``/`` and ``*``."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
    for number, (arg, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        yield parameter(module, arg, default)
        if number == len(args.posonlyargs):
            yield [nodes.Text("/")]
    if args.vararg:
        yield parameter(module, args.vararg, None, "*")
    elif args.kwonlyargs:
        yield [nodes.Text("*")]
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield parameter(module, arg, default)
    if args.kwarg:
        yield parameter(module, args.kwarg, None, "**")


def parameter(module: Module, arg: ast.arg, default: ast.expr | None, stars: str = "") -> list[nodes.Node]:
    """Return a parameter with its type and its default."""
    parts = [nodes.Text(f"{stars}{arg.arg}"), *annotation(module, ": ", arg.annotation)]
    if default is not None:
        parts.append(aside(f"{' = ' if arg.annotation else '='}{one_line(module.text(default))}"))
    return parts


def annotation(module: Module, before: str, node: ast.expr | None) -> list[nodes.Node]:
    """Return a type as it is written, with links to those of the library; nothing where none is written."""
    if node is None:
        return []
    return [aside("", nodes.Text(before), *code(module, one_line(module.text(node))))]


def code(module: Module, source: str) -> list[nodes.Node]:
    """Return a piece of code in which names of the library are links."""
    parts, end = [], 0
    for match in NAME_OR_TEXT.finditer(source):
        path = library().resolve(module.name, match["name"]) if match["name"] else None
        if path:
            parts += [nodes.Text(source[end : match.start()]), nodes.inline("", match[0], api_target=path)]
            end = match.end()
    return [*parts, nodes.Text(source[end:])]


def aside(said: str, *children: nodes.Node) -> nodes.inline:
    """Return a part of a signature that is no name."""
    return nodes.inline("", said, *children, classes=["sig-aside"])


def one_line(source: str) -> str:
    """Return a type or a default that is written on several lines on one."""
    joined = " ".join(source.split())
    return re.sub(r"(?<=[(\[]) |,? (?=[)\]])", "", joined)


def text(parts: list[nodes.Node]) -> str:
    """Return what is read of some nodes."""
    return "".join(part.astext() for part in parts)


# --- pages -----------------------------------------------------------------------------------------------


class LibraryDirective(SphinxDirective):
    """Shows rooms of the library: their docstrings, their own names, then those of the modules inside."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return a section for each room."""
        return [self.room(f"{library().package}.{name}") for name in self.arguments[0].split()]

    def room(self, name: str) -> nodes.section:
        """Return the section of a room, and in it those of the modules inside that export what it does not."""
        section = self.section(name)
        section += [self.section(inner) for inner in library().inside(name) if library().entries_of(inner)]
        return section

    def section(self, name: str) -> nodes.section:
        """Return what a reader learns of a module."""
        if name not in library().modules:
            raise self.error(f"There is no module {name}: correct the name of the room.")
        module, entries = library().modules[name], library().entries_of(name)
        self.env.note_dependency(str(module.path))
        section = nodes.section("", ids=[anchor(name)])
        section += nodes.title("", "", nodes.literal("", name))
        self.env.get_domain("py").note_module(name, anchor(name), "", "", False)
        self.env.get_domain("py").note_object(name, "module", anchor(name), location=section)
        section += self.prose(module.docstring, module)
        if len(entries) > 1:
            section += contents(entries)
        section += [self.entry(entry) for entry in entries]
        return section

    def entry(self, entry: Entry) -> addnodes.desc:
        """Return what a reader learns of a name, and of its members."""
        head = addnodes.desc_signature("", "", ids=[entry.path], classes=["sig", "sig-object", "py"])
        head += signature_line("", "", *signature(entry))
        for part in head.findall(nodes.Element):
            part["support_smartquotes"] = False
        content = addnodes.desc_content("", *self.prose(entry.docstring, entry.module))
        content += [self.entry(member) for member in entry.members.values()]
        self.env.get_domain("py").note_object(entry.path, entry.kind, entry.path, location=head)
        return addnodes.desc("", head, content, domain="py", objtype=entry.kind, classes=["py", entry.kind])

    def prose(self, docstring: str, module: Module) -> list[nodes.Node]:
        """Return a docstring as a page shows it, with links where it names what is public."""
        box = nodes.Element()
        lines = StringList(docstring.splitlines(), source=f"{module.path}:docstring")
        self.state.nested_parse(lines, 0, box)
        for literal in list(box.findall(nodes.literal)):
            said = literal.astext()
            literal.replace_self(brief_literal("", said, api_target=self.meaning(said, module)))
        return box.children

    def meaning(self, name: str, module: Module) -> str | None:
        """Return the public path of what a docstring of a module names: an object, or a module inside."""
        inner = f"{module.name}.{name}"
        return inner if inner in library().modules else library().resolve(module.name, name) or library().find(name)


class ContentsDirective(SphinxDirective):
    """Lists all rooms, each with the sentence that its module begins with."""

    def run(self) -> list[nodes.Node]:
        """Return a list of definitions."""
        rooms = nodes.definition_list()
        for name in library().rooms:
            term = nodes.term("", "", brief_literal("", name, api_target=name))
            about = nodes.paragraph("", library().modules[name].docstring.partition("\n\n")[0].replace("``", ""))
            rooms += nodes.definition_list_item("", term, nodes.definition("", about))
        return [rooms]


class CommandsDirective(SphinxDirective):
    """Shows the help of every command."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        from lmlib.cli import app

        return [self.section(app, [*words]) for words in commands(app)]

    def section(self, app, words: list[str]) -> nodes.section:
        """Return what is printed for ``lmlib … --help``."""
        command = " ".join(["lmlib", *words])
        section = nodes.section("", ids=[anchor(command)])
        section += nodes.title("", "", nodes.literal("", command))
        section += nodes.literal_block("", help_of(app, words), language="text")
        self.env.get_domain("std").anonlabels[command] = self.env.docname, anchor(command)
        return section


def contents(entries: list[Entry]) -> nodes.paragraph:
    """Return the names of a module, each a link to where it is described."""
    paragraph = nodes.paragraph(classes=["api-contents"])
    for number, entry in enumerate(entries):
        paragraph += [nodes.Text(" · ")] if number else []
        paragraph += brief_literal("", entry.name, api_target=entry.path)
    return paragraph


def commands(app, words: tuple[str, ...] = ()):
    """Yield the words of every command that does something, depth first."""
    names = [name for name in app if not name.startswith("-")]
    if not names:
        yield words
    for name in names:
        yield from commands(app[name], (*words, name))


def help_of(app, words: list[str]) -> str:
    """Return what a command prints for ``--help`` on a terminal as wide as the page."""
    from rich.console import Console

    printed = StringIO()
    app.help_print(words, console=Console(file=printed, width=LINE, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def setup(app):
    """Register the directives; Sphinx calls this."""
    app.add_node(signature_line, html=(opens('<pre class="signature">'), closes("</pre>")))
    app.add_node(brief_literal, html=(opens('<code class="literal">'), closes("</code>")))
    app.add_directive("library", LibraryDirective)
    app.add_directive("library-contents", ContentsDirective)
    app.add_directive("commands", CommandsDirective)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
