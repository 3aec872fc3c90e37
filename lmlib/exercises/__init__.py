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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

NOT_ANSWERED = (
    "Not answered yet: put your answer in place of `...` and run this cell again."
)
CLOSE = "close, but not exact; do not round."


@dataclass(frozen=True)
class Mistake:
    """A typical wrong answer: how to recognise it, its hint, and an example.

    The tests give the example as an answer and expect the hint.
    """

    matches: Callable[[Any], bool]
    hint: str
    example: Any


@dataclass(frozen=True)
class Exercise:
    """A question of a chapter: which answers are right, and hints for wrong ones.

    Each of ``mistakes`` has its own hint; ``hint`` is for all other wrong answers.
    """

    is_right: Callable[[Any], bool]
    solution: Any
    mistakes: tuple[Mistake, ...]
    hint: str

    def judge(self, answer: Any) -> str:
        """What to tell somebody who gave ``answer``."""
        answer = _plain(answer)
        if _unanswered(answer):
            return NOT_ANSWERED
        if isinstance(answer, str):
            return "Not yet: that is a text; answer with the value itself."
        try:
            if self.is_right(answer):
                return "Right."
            made = [mistake for mistake in self.mistakes if mistake.matches(answer)]
        except Unanswered:
            return NOT_ANSWERED
        except Exception as error:
            # an answer may be a reader's function, or of any type
            what = f"{type(error).__name__}: {error}"
            return f"Not yet: checking your answer raised {what}"
        return f"Not yet: {made[0].hint if made else self.hint}"


class Unanswered(Exception):
    """A reader's function still returns nothing."""


def value_exercise(
    expected: Any,
    mistakes: Sequence[tuple[Any, str]],
    hint: str,
    rel_tol: float = 1e-6,
) -> Exercise:
    """Exercise answered by a number, or by a sequence of numbers.

    ``mistakes`` are pairs (wrong value, hint). A number that is close but not equal
    gets a hint of its own.
    """

    def equals(value: Any, tolerance: float = rel_tol) -> Callable[[Any], bool]:
        return lambda answer: same_value(answer, value, tolerance)

    known = [Mistake(equals(wrong), hint, wrong) for wrong, hint in mistakes]
    if isinstance(expected, Real):
        known.append(Mistake(equals(expected, 0.02), CLOSE, expected * 1.01))
    return Exercise(equals(expected), expected, tuple(known), hint)


def function_exercise(
    solution: Callable,
    probes: Sequence[tuple],
    mistakes: Sequence[tuple[Callable, str]],
    hint: str,
    same: Callable[[Any, Any, tuple], bool],
) -> Exercise:
    """Exercise answered by a function that has to agree with ``solution``.

    It is right when the results agree on all ``probes``, which are argument tuples;
    ``same(result, expected, arguments)`` compares two results. ``mistakes`` are
    pairs (wrong function, hint).
    """

    def behaves_like(function: Callable) -> Callable[[Any], bool]:
        def matches(answer: Any) -> bool:
            if not callable(answer):
                return False
            results = [answer(*probe) for probe in probes]
            if all(_unanswered(result) for result in results):
                raise Unanswered
            return all(
                same(result, function(*probe), probe)
                for result, probe in zip(results, probes, strict=True)
            )

        return matches

    return Exercise(
        is_right=behaves_like(solution),
        solution=solution,
        mistakes=tuple(
            Mistake(behaves_like(wrong), hint, wrong) for wrong, hint in mistakes
        ),
        hint=hint,
    )


def same_value(answer: Any, expected: Any, rel_tol: float = 1e-6) -> bool:
    """Whether two numbers, or sequences of numbers, are equal within ``rel_tol``.

    A bool is no number, and equals only itself.
    """
    if isinstance(expected, bool) or isinstance(answer, bool):
        return answer is expected
    if isinstance(expected, Real):
        is_number = isinstance(answer, Real)
        return is_number and math.isclose(answer, expected, rel_tol=rel_tol)
    is_sequence = isinstance(answer, Sequence) and not isinstance(answer, str)
    if not is_sequence or len(answer) != len(expected):
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
    chapter, _, short_name = name.partition(".")
    exercises = _chapter(chapter)
    if short_name not in exercises:
        known = ", ".join(names(chapter))
        raise ValueError(f"no exercise {name!r}; this chapter has {known}")
    return exercises[short_name]


def check(name: str, answer: Any) -> None:
    """Print that ``answer`` to the exercise ``name`` is right, or else a hint.

    ``ValueError`` on an unknown name.
    """
    print(get_exercise(name).judge(answer))


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
    return answer.tolist() if hasattr(answer, "tolist") else answer
