"""The public names of the library, read from its source: what they are, where they are defined, what is said of them.

A module's public names are those of its ``__all__``. Nothing is imported: a page can be made without torch, and a
signature is shown as somebody wrote it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMMAND_LINE = "cli"  # a room that is used with a shell, and shown as commands


@dataclass(frozen=True)
class Module:
    """A file of the library, with what it binds to names at its top level."""

    name: str
    path: Path

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text("utf-8")

    @cached_property
    def lines(self) -> list[str]:
        """The same, line by line."""
        return self.source.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        """The text, parsed."""
        return ast.parse(self.source)

    @cached_property
    def docstring(self) -> str:
        """What the module says of itself."""
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """What it defines, by name; of overloads the last, which is the function."""
        return {name: node for node in self._statements() for name in names_of(node)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Names that it takes from other modules, with the module and the name there."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in self._statements()
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    @cached_property
    def exported(self) -> tuple[str, ...]:
        """The names in ``__all__``; none, if there is no such list."""
        if "__all__" not in self.definitions:
            return ()
        return tuple(ast.literal_eval(self.definitions["__all__"].value))

    def text(self, node: ast.AST) -> str:
        """What stands in the file for a part of it."""
        return ast.get_source_segment(self.source, node) or ""

    def _statements(self) -> Iterator[ast.stmt]:
        """The statements of the top level, those under a condition included."""
        for node in self.tree.body:
            yield node
            if isinstance(node, ast.If):
                yield from node.body


@dataclass(frozen=True)
class Entry:
    """A public name: the path to import it by, and where it is defined."""

    path: str
    module: Module
    node: Definition

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """What Sphinx calls such an object."""
        if isinstance(self.node, ast.ClassDef):
            return "class"
        return "function" if isinstance(self.node, FUNCTIONS) else "data"

    @cached_property
    def docstring(self) -> str:
        """What is said of it; of a constant, in the text or in the comments beside it."""
        return said_of(self.module, self.node, self.module.tree.body)

    @cached_property
    def members(self) -> dict[str, Entry]:
        """Fields, properties and methods of a class, its own ones, in the order of the source."""
        if not isinstance(self.node, ast.ClassDef):
            return {}
        return {
            name: Member(f"{self.path}.{name}", self.module, node, self.node)
            for node in self.node.body
            for name in names_of(node)
            if not name.startswith("_") and not isinstance(node, ast.Assign)
        }

    @property
    def first_line(self) -> str:
        """The sentence that sums up what is said."""
        return self.docstring.partition("\n")[0]


@dataclass(frozen=True)
class Member(Entry):
    """A field, a property or a method of a public class."""

    owner: ast.ClassDef

    @property
    def kind(self) -> str:
        """What Sphinx calls such an object."""
        if not isinstance(self.node, FUNCTIONS):
            return "attribute"
        return "property" if "property" in map(ast.unparse, self.node.decorator_list) else "method"

    @cached_property
    def docstring(self) -> str:
        """What is said of it."""
        return said_of(self.module, self.node, self.owner.body)


def names_of(node: ast.stmt) -> list[str]:
    """Return what a statement defines; the setter of a property defines nothing new."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        setters = (d for d in node.decorator_list if isinstance(d, ast.Attribute) and d.attr == "setter")
        return [] if any(setters) else [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    targets = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def said_of(module: Module, node: Definition, body: list[ast.stmt]) -> str:
    """Return the docstring of a definition, the text that follows it, or the comments above and beside it."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return ast.get_docstring(node) or ""
    following = body[body.index(node) + 1 :][:1] if node in body else []
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return text
    return as_sentence(" ".join(comments_at(module, node)))


def comments_at(module: Module, node: ast.stmt) -> list[str]:
    """Return the comments right above a statement, or else the one behind it."""
    above = []
    for line in reversed(module.lines[: node.lineno - 1]):
        comment = re.fullmatch(r"\s*# (?!---)(.*)", line)
        if not comment:
            break
        above.insert(0, comment[1])
    behind = module.lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    beside = re.fullmatch(r"\s*# (?!noqa|type:)(.*)", behind)
    return above or ([beside[1]] if beside else [])


def as_sentence(text: str) -> str:
    """Return a comment with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


class Library:
    """All modules of a package, and the public names among what they define."""

    def __init__(self, folder: Path) -> None:
        self.package = folder.name
        self.modules = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if parts[-1] != "__main__" and parts[1] != COMMAND_LINE:
                self.modules[name] = Module(name, path)

    @cached_property
    def rooms(self) -> list[str]:
        """The modules right under the package."""
        return [name for name in self.modules if name.count(".") == 1]

    def inside(self, room: str) -> list[str]:
        """The modules inside a room."""
        return [name for name in self.modules if name.startswith(f"{room}.")]

    def exports(self, module: str) -> tuple[str, ...]:
        """The public names of a module."""
        return self.modules[module].exported

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every public object by its path: the shortest one, where several modules export it."""
        return {entry.path: entry for entry in self._by_definition.values()}

    @cached_property
    def _by_definition(self) -> dict[tuple[str, str], Entry]:
        found: dict[tuple[str, str], Entry] = {}
        for module in sorted(self.modules, key=lambda name: (name.count("."), name)):
            for name in self.exports(module):
                place = self._definition(module, name)
                if place is None:
                    raise LookupError(f"{module} exports {name}, which is defined nowhere in {self.package}.")
                home = self.modules[place[0]]
                found.setdefault(place, Entry(f"{module}.{name}", home, home.definitions[place[1]]))
        return found

    def entries_of(self, module: str) -> list[Entry]:
        """The objects to show with a module, in the order of its ``__all__``."""
        paths = (f"{module}.{name}" for name in self.exports(module))
        return [self.entries[path] for path in paths if path in self.entries]

    def resolve(self, module: str, text: str) -> str | None:
        """Return the path of what a module means by ``Tokenizer`` or ``Tokenizer.encode``, if that is public."""
        first, *rest = text.split(".")
        place = self._definition(module, first) if module in self.modules else None
        entry = self._by_definition.get(place) if place else None
        if entry is None or len(rest) > 1 or (rest and rest[0] not in entry.members):
            return None
        return ".".join([entry.path, *rest])

    def find(self, path: str) -> str | None:
        """Return the public path of a module or object that is named in full, ``lmlib.bpe.tokenizer.Tokenizer``."""
        if path in self.modules:
            return path
        parts = path.split(".")
        for length in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:length])
            if module in self.modules:
                return self.resolve(module, ".".join(parts[length:]))
        return None

    def _definition(self, module: str, name: str) -> tuple[str, str] | None:
        """Return the module that defines a name, and the name there; None if it is not of this library."""
        home = self.modules.get(module)
        if home is None:
            return None
        if name in home.definitions:
            return module, name
        if name in home.imports:
            return self._definition(*home.imports[name])
        if name in (home.exported or ()):  # what a package loads when it is asked for
            places = [inner for inner in self.inside(module) if name in self.modules[inner].definitions]
            return (places[0], name) if len(places) == 1 else None
        return None
