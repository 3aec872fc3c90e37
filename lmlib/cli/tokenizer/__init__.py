"""``lmlib tokenizer``: train, encode, decode, inspect, compare.

Each command is a module, with its options as a dataclass and its examples.
"""

from cyclopts import App

from lmlib.cli.tokenizer import compare, decode, encode, inspect, train

__all__ = ["app"]

_COMMANDS = [
    (train.train, train.USAGE, train.EXAMPLES),
    (encode.encode, encode.USAGE, encode.EXAMPLES),
    (decode.decode, decode.USAGE, decode.EXAMPLES),
    (inspect.inspect, inspect.USAGE, inspect.EXAMPLES),
    (compare.compare, compare.USAGE, compare.EXAMPLES),
]

app = App(name="tokenizer")
for _place, (_command, _usage, _examples) in enumerate(_COMMANDS):
    app.command(_command, usage=_usage, help_epilogue=_examples, sort_key=_place)
