"""The command line: ``lmlib COMMAND …``.

A command is a module beside this one. It is named here, and imported when it is
used, so that ``lmlib --help`` stays fast.
"""

import re
import sys
from collections.abc import Iterable

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from lmlib import __version__
from lmlib.cli.streams import complain, drop_unwritten, prepare_streams
from lmlib.files import name_what_is_full

__all__ = ["EXIT_CODES", "app", "main"]

EXIT_CODES = """Exit codes: 0 success; 1 the answer is no (tokenizer compare), or a
loss is not finite (train); 2 wrong usage or input, which a line on standard
error explains; 130 interrupted by Ctrl-C; 141 the reader of the output went
away; 143 terminated.
"""


def _shown(default: object) -> object:
    """Return what help says of a default: nothing of what is off, or empty."""
    if default is False or default == ():
        return None
    return "yes" if default is True else default


app = App(
    name="lmlib",
    help="Count, train and inspect what a language model is made of.",
    help_epilogue=EXIT_CODES,
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(
        negative=(),  # no --no-json beside --json
        show_default=_shown,
    ),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(
    "lmlib.cli.tokenizer:app",
    name="tokenizer",
    help="Train byte-pair encoders, encode and decode with them, look inside.",
)
app.command(
    "lmlib.cli.data:app",
    name="data",
    help="Encode text into token files to train on, look inside.",
)
app.command(
    "lmlib.cli.train:app",
    name="train",
    help="Train a language model; stop, and go on as if nothing had happened.",
)
app.command(
    "lmlib.cli.generate:app",
    name="generate",
    help="Let a trained model go on with a text.",
)
app.command(
    "lmlib.cli.doctor:app",
    name="doctor",
    help="Show what this machine has, what it reaches, and what it lacks.",
)
app.command(
    "lmlib.cli.plan:app",
    name="plan",
    help="Plan a training run: FLOPs, days, memory, whether it fits, cost.",
)
app.command(
    "lmlib.cli.hugging_face.exporting:app",
    name="export",
    help="Write a trained model as a folder for Hugging Face's transformers.",
)
app.command(
    "lmlib.cli.hugging_face.importing:app",
    name="import",
    help="Read a GPT-2 or a Llama from a folder of Hugging Face.",
)

WRONG = 2  # usage or input
INTERRUPTED = 128 + 2  # what a shell reports for a program that SIGINT ended
PIPE_CLOSED = 128 + 13  # the same for SIGPIPE


def main(arguments: Iterable[str] | None = None) -> int:
    """Run a command and return its exit code; the arguments default to the shell's.

    0 is success, 1 an answer of no (``tokenizer compare`` found a difference), 2
    wrong usage or input, which one line on standard error explains, 130 Ctrl-C and
    141 a reader of standard output that went away.
    """
    prepare_streams()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        words = [_Hyphen(word) if word == "-" else word for word in words]
        code = app(words, exit_on_error=False, print_error=False)
        with name_what_is_full("standard output"):
            sys.stdout.flush()  # here, where an error can still be told
        return code or 0
    except BrokenPipeError:
        drop_unwritten(sys.stdout)
        return PIPE_CLOSED
    except SystemExit as stop:
        if stop.code != 1:
            raise
        # help was printed by rich, whose way to tell this is 1
        drop_unwritten(sys.stdout)
        return PIPE_CLOSED
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except MemoryError:
        drop_unwritten(sys.stdout)
        complain("error: There is not enough memory: use less text or workers.")
        return WRONG
    except (CycloptsError, OSError, OverflowError, ValueError) as error:
        drop_unwritten(sys.stdout)
        complain("error:", _in_one_line(error))
        return WRONG


class _Hyphen(str):
    """The argument ``-``, which cyclopts must not take for an option."""

    def startswith(self, *prefix: object) -> bool:
        return False


_MEANT = {"train": "--data", "generate": "--prompt"}  # by a word that stands alone


def _in_one_line(error: Exception) -> str:
    if isinstance(error, UnusedCliTokensError):
        return _unused(error)
    if isinstance(error, IsADirectoryError) and error.filename:
        return f"{error.filename} is a folder: name a file in it."
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return " ".join(f"{place}{error.strerror}".splitlines())
    items_ended = re.sub(r"^(\s+.*\w)$", r"\1.", str(error), flags=re.MULTILINE)
    return " ".join(items_ended.split())


def _unused(error: UnusedCliTokensError) -> str:
    """Return what to do about a word that no option takes."""
    word, command = error.unused_tokens[0], " ".join(error.command_chain)
    meant = f"say {_MEANT[command]} {word!r}, or " if command in _MEANT else ""
    return (
        f"{word!r} belongs to no option of lmlib {command}: "
        f"{meant}see lmlib {command} --help."
    )
