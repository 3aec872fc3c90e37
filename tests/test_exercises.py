"""lmlib.exercises: right is told from wrong, each mistake gets its own hint, and no hint gives the answer away."""

import numpy as np
import pytest
import torch

from lmlib.exercises import NOT_ANSWERED, chapters, check, get_exercise, names, same_value

ALL_NAMES = [name for chapter in chapters() for name in names(chapter)]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_the_solution_is_right(name, capsys):
    check(name, get_exercise(name).solution)
    assert capsys.readouterr().out == "Right.\n"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_each_mistake_gets_its_own_hint(name):
    exercise = get_exercise(name)
    assert exercise.mistakes
    for mistake in exercise.mistakes:
        assert exercise.judge(mistake.example) == f"Not yet: {mistake.hint}"
    hints = [mistake.hint for mistake in exercise.mistakes]
    assert len({*hints, exercise.hint}) == len(hints) + 1


@pytest.mark.parametrize("name", ALL_NAMES)
def test_an_open_exercise_says_so(name, capsys):
    check(name, ...)
    check(name, None)
    assert capsys.readouterr().out == f"{NOT_ANSWERED}\n" * 2
    if callable(get_exercise(name).solution):
        assert get_exercise(name).judge(lambda *arguments: ...) == NOT_ANSWERED


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("answer", ["forty-two", [], object(), True, float("nan"), 10**30, lambda *a: "?", {}])
def test_a_strange_answer_is_wrong_and_raises_nothing(name, answer):
    assert get_exercise(name).judge(answer).startswith("Not yet: ")


@pytest.mark.parametrize("name", ALL_NAMES)
def test_no_hint_contains_the_answer(name):
    exercise = get_exercise(name)
    if not callable(exercise.solution):
        for text in [exercise.hint, *(mistake.hint for mistake in exercise.mistakes)]:
            assert str(exercise.solution) not in text
            assert str(exercise.solution).strip("()") not in text


def test_a_function_that_raises_is_reported():
    def broken(*_):
        raise RuntimeError("no such luck")

    assert "raised RuntimeError: no such luck" in get_exercise("tensors.windows").judge(broken)


def test_an_unknown_exercise_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no exercise 'tensors\.nope'.*tensors\.permute"):
        check("tensors.nope", 1)
    with pytest.raises(ValueError, match=r"no exercises for a chapter 'nope'.*tensors"):
        check("nope.permute", 1)


def test_an_answer_may_be_computed_with_numpy_or_torch():
    for answer in [[1, 15, 5], np.array([1, 15, 5]), torch.tensor([1, 15, 5]), torch.Size((1, 15, 5))]:
        assert get_exercise("tensors.permute").judge(answer) == "Right."
    for answer in [8388608.0, np.int64(8388608), torch.tensor(8388608)]:
        assert get_exercise("tensors.bytes_kept").judge(answer) == "Right."
    for answer in [(np.int64(24), np.int64(8), np.int64(1)), np.array([24, 8, 1]), (0, 0, 1), (30, 10, 2)]:
        assert get_exercise("tensors.half_a_view").judge(answer) == "Right."


def test_windows_may_be_made_in_any_way_that_shares_memory():
    def with_unfold(tokens, length):
        return tokens.unfold(0, length, 1)

    def with_numpy(tokens, length):
        view = np.lib.stride_tricks.sliding_window_view(tokens.numpy(), length, writeable=True)
        return torch.from_numpy(view)

    for windows in [with_unfold, with_numpy]:
        assert get_exercise("tensors.windows").judge(windows) == "Right."


def test_a_rounded_answer_is_told_from_a_wrong_one():
    assert "do not round" in get_exercise("tensors.bytes_kept").judge(8.39e6)
    assert "a text" in get_exercise("tensors.bytes_kept").judge("8388608")


def test_a_function_that_returns_nothing_once_is_not_open():
    def forgets_a_case(tokens, length):
        return tokens.unfold(0, length, 1) if length > 3 else None

    assert get_exercise("tensors.windows").judge(forgets_a_case).startswith("Not yet")


@pytest.mark.parametrize(
    ("answer", "expected", "equal"),
    [
        (144, 144.0, True),
        (144.1, 144, False),
        ([1, 2], (1, 2), True),
        ((1, 2, 3), (1, 2), False),
        ("12", (1, 2), False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
    ],
)
def test_same_value(answer, expected, equal):
    assert same_value(answer, expected) == equal
