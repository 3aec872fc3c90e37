"""Checks for the book's exercises, which say right or give a hint.

``check("tensors.permute", answer)`` checks one. Each chapter's exercises stand in
the module of its name (``lmlib/exercises/tensors.py``), which computes from the
library what is right. A check never prints the answer and never raises over a wrong
one.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

__all__ = [
    "Exercise",
    "Remark",
    "chapters",
    "check",
    "function_exercise",
    "get_exercise",
    "names",
    "same_value",
    "value_exercise",
]

NOT_ANSWERED = (
    "Not answered yet: put your answer in place of `...` and run this cell again."
)
CLOSE = "close, but not exact; do not round."


class Remark(Exception):
    """What to tell a reader whose answer cannot be compared at all."""


@dataclass(frozen=True)
class Exercise:
    """A question of a chapter: its solution, and hints for typical wrong answers.

    ``read`` turns an answer into what is compared: numbers, texts, or sequences of
    them. An answer is right if it reads like ``solution``. ``mistakes`` are pairs
    (wrong answer, hint) for what reads like one of them; ``hint`` is for the rest.
    """

    solution: Any
    mistakes: Sequence[tuple[Any, str]]
    hint: str
    read: Callable[[Any], Any]
    rel_tol: float | None = None

    def judge(self, answer: Any) -> str:
        """What to tell somebody who gave ``answer``, whatever it is."""
        if _unanswered(answer):
            return NOT_ANSWERED
        try:
            return self._verdict(self._reading(answer))
        except Remark as remark:
            return str(remark)
        except KeyboardInterrupt:
            raise  # the reader gave up waiting
        except BaseException as error:
            # an answer may be of any type, and a function may call sys.exit()
            return f"Not yet: checking your answer raised {_first_line(error)}"

    def _verdict(self, reading: Any) -> str:
        solution = self._reading(self.solution)
        if same_value(reading, solution, self.rel_tol):
            return "Right."
        for mistake, hint in self.mistakes:
            if same_value(reading, self._reading(mistake), self.rel_tol):
                return f"Not yet: {hint}"
        if isinstance(solution, Real) and same_value(reading, solution, 0.02):
            return f"Not yet: {CLOSE}"
        return f"Not yet: {self.hint}"

    def _reading(self, answer: Any) -> Any:
        return self.read(_plain(answer))


def value_exercise(
    expected: Any,
    mistakes: Sequence[tuple[Any, str]],
    hint: str,
    rel_tol: float | None = None,
) -> Exercise:
    """Exercise answered by a number, or by a sequence of numbers.

    ``mistakes`` are pairs (wrong value, hint), ``rel_tol`` is that of
    ``same_value``. A number that is close but not equal gets a hint of its own.
    """
    return Exercise(expected, mistakes, hint, read=_no_text, rel_tol=rel_tol)


def function_exercise(
    solution: Callable,
    probes: Callable[[], Sequence[tuple]],
    mistakes: Sequence[tuple[Callable, str]],
    hint: str,
    observe: Callable[..., Any] = lambda result, *arguments: _plain(result),
    rel_tol: float | None = None,
) -> Exercise:
    """Exercise answered by a function that has to agree with ``solution``.

    ``probes()`` makes the argument tuples to call it with: the same every time, but
    fresh, since a reader's function may write to them. ``observe(result,
    *arguments)`` is what has to agree; by default it is the result. ``mistakes``
    are pairs (wrong function, hint).
    """

    def observations(function: Any) -> list:
        if not callable(function):
            raise Remark("Not yet: answer with a function.")
        calls = [(_call(function, probe), probe) for probe in probes()]
        if all(_unanswered(result) for result, _ in calls):
            raise Remark(NOT_ANSWERED)
        return [observe(result, *probe) for result, probe in calls]

    return Exercise(solution, mistakes, hint, read=observations, rel_tol=rel_tol)


def same_value(answer: Any, expected: Any, rel_tol: float | None = None) -> bool:
    """Whether two numbers, texts, or sequences of them, are equal.

    Numbers may differ by ``rel_tol``; without it an int has to be met exactly, and
    a float to 1e-6. A bool is no number, and equals only itself.
    """
    if isinstance(expected, bool) or isinstance(answer, bool):
        return answer is expected
    if isinstance(expected, Real):
        return isinstance(answer, Real) and _same_number(answer, expected, rel_tol)
    if not _is_sequence(expected):
        return isinstance(answer, type(expected)) and bool(answer == expected)
    if not _is_sequence(answer) or len(answer) != len(expected):
        return False
    pairs = zip(answer, expected, strict=True)
    return all(same_value(a, e, rel_tol) for a, e in pairs)


def chapters() -> list[str]:
    """Names of the chapters that have exercises."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def names(chapter: str) -> list[str]:
    """Full names of a chapter's exercises, like ``"tensors.permute"``, in order."""
    return [f"{chapter}.{name}" for name in _chapter(chapter)]


def get_exercise(name: str) -> Exercise:
    """Exercise of that name; ``ValueError`` listing the known ones if unknown."""
    chapter, _, short_name = str(name).partition(".")
    exercises = _chapter(chapter)
    if short_name not in exercises:
        known = ", ".join(names(chapter))
        raise ValueError(f"no exercise {name!r}; this chapter has {known}")
    return exercises[short_name]


def check(name: str, answer: Any) -> None:
    """Print that ``answer`` to the exercise ``name`` is right, or else a hint.

    ``ValueError`` on an unknown name.
    """
    print(_printable(get_exercise(name).judge(answer)))


def _chapter(chapter: str) -> dict[str, Exercise]:
    if chapter not in chapters():
        known = ", ".join(chapters())
        raise ValueError(
            f"no exercises for a chapter {chapter!r}; there are some for {known}"
        )
    return importlib.import_module(f"{__name__}.{chapter}").EXERCISES


def _unanswered(answer: Any) -> bool:
    return answer is ... or answer is None


def _plain(answer: Any) -> Any:
    """The Python value of one that may have been computed in NumPy or torch."""
    if isinstance(answer, (tuple, list)):
        return tuple(_plain(item) for item in answer)
    is_array = hasattr(answer, "tolist") and not isinstance(answer, type)
    return answer.tolist() if is_array else answer


def _no_text(answer: Any) -> Any:
    if isinstance(answer, str):
        raise Remark("Not yet: that is a text; answer with the value itself.")
    return answer


def _call(function: Callable, arguments: tuple) -> Any:
    before = _state(arguments)
    result = function(*arguments)
    if _state(arguments) != before:
        raise Remark(
            "Not yet: your function changes its argument; "
            "make the result without writing to what you were given."
        )
    return result


def _state(argument: Any) -> str:
    """Values, shapes and strides of an argument, to compare before and after.

    As a text, because NaN does not equal itself.
    """
    if isinstance(argument, (tuple, list)):
        return str([_state(item) for item in argument])
    if isinstance(argument, dict):
        return _state(list(argument.items()))
    if not hasattr(argument, "tolist"):
        return repr(argument)
    is_tensor = hasattr(argument, "stride")  # or else an array of NumPy
    strides = argument.stride() if is_tensor else argument.strides
    return f"{tuple(argument.shape)} {strides} {argument.tolist()}"


def _same_number(answer: Real, expected: Real, rel_tol: float | None) -> bool:
    if rel_tol is None:
        if isinstance(expected, int) and isinstance(answer, int):
            return answer == expected
        # a float that stands for an int has only the rounding of its own arithmetic
        rel_tol = 1e-12 if isinstance(expected, int) else 1e-6
    try:
        return math.isclose(answer, expected, rel_tol=rel_tol)
    except OverflowError:
        return False  # an int larger than any float


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _first_line(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []  # its __str__ is the reader's, too
    return f"{kind}: {lines[0][:200]}" if lines else kind


def _printable(text: str) -> str:
    """``text`` with "?" for what the terminal or notebook cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)
