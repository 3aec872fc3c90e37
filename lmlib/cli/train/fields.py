"""Options that are the fields of a dataclass, each of which may be left out."""

import ast
import inspect
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import MISSING, fields, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from lmlib.cli.numbers import Number, WholeNumber

__all__ = ["given", "options_of"]

_SEVERAL = tuple[str, ...]
_TYPES = {int: WholeNumber, int | None: WholeNumber, float: Number}


def options_of(cls: type, group: Group, without: Collection[str] = ()) -> type:
    """Return a dataclass with the fields of another, all None unless given.

    Each has as its help what stands below it in the source, and its default.
    """
    hints, docs = get_type_hints(cls), dict(_docs(cls))
    options = []
    for field in fields(cls):
        if field.name not in without:
            parameter = Parameter(
                help=docs[field.name] + _default(field.default),
                group=group,
                negative=_negative(field.name, hints[field.name]),
                consume_multiple=hints[field.name] == _SEVERAL,
            )
            type_ = _TYPES.get(hints[field.name], hints[field.name])
            options.append((field.name, Annotated[type_ | None, parameter], None))
    return make_dataclass(
        f"{cls.__name__}Options",
        options,
        frozen=True,
        kw_only=True,
        namespace={"__module__": __name__},  # cyclopts asks where it comes from
    )


def given(options: Any) -> dict[str, Any]:
    """Return the options that are given."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def _docs(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the names of fields, each with the text that stands below it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    for field, text in pairwise(tree.body[0].body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(ast.Constant(str(doc))),
            ):
                yield name, inspect.cleandoc(doc)


def _default(value: object) -> str:
    if value is MISSING or value in (None, "", (), False):
        return ""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return f" [default: {'yes' if value is True else shown}]"


def _negative(name: str, hint: object) -> str | tuple[()]:
    is_switch = hint in (bool, bool | None)
    return f"--no-{name.replace('_', '-')}" if is_switch else ()
