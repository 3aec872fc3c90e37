"""``lmlib data``: prepare token files, look inside.

Each command is a module, with its options as a dataclass and its examples.
"""

from cyclopts import App

from lmlib.cli.data import inspect, prepare

__all__ = ["app"]

_COMMANDS = [
    (prepare.prepare, prepare.USAGE, prepare.EXAMPLES),
    (inspect.inspect, inspect.USAGE, inspect.EXAMPLES),
]

app = App(name="data")
for _place, (_command, _usage, _examples) in enumerate(_COMMANDS):
    app.command(_command, usage=_usage, help_epilogue=_examples, sort_key=_place)
