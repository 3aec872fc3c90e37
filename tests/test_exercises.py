"""lmlib.exercises: right is told from wrong, each mistake gets its own hint, and no hint gives the answer away."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lmlib.bpe import Tokenizer
from lmlib.exercises import (
    CLOSE,
    NOT_ANSWERED,
    chapters,
    check,
    function_exercise,
    get_exercise,
    names,
    same_value,
    value_exercise,
)

ALL_NAMES = [name for chapter in chapters() for name in names(chapter)]
FUNCTIONS = [name for name in ALL_NAMES if callable(get_exercise(name).solution)]
OF_TENSORS = [name for name in FUNCTIONS if name.startswith("tensors.")]  # texts and bytes cannot be written to


def run_python(code, **environment):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, encoding="ascii", env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ALL_NAMES)
def test_the_solution_is_right(name, capsys):
    check(name, get_exercise(name).solution)
    assert capsys.readouterr().out == "Right.\n"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_each_mistake_gets_its_own_hint(name):
    exercise = get_exercise(name)
    assert exercise.mistakes
    for mistake, hint in exercise.mistakes:
        assert exercise.judge(mistake) == f"Not yet: {hint}"
    hints = [hint for _, hint in exercise.mistakes]
    assert len({*hints, exercise.hint, CLOSE}) == len(hints) + 2


@pytest.mark.parametrize("name", ALL_NAMES)
def test_an_open_exercise_says_so(name, capsys):
    check(name, ...)
    check(name, None)
    assert capsys.readouterr().out == f"{NOT_ANSWERED}\n" * 2
    if callable(get_exercise(name).solution):
        assert get_exercise(name).judge(lambda *arguments: ...) == NOT_ANSWERED


def itself():
    endless = []
    endless.append(endless)
    return endless


def deep():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError("no comparison")


class NoList:
    def tolist(self):
        raise RuntimeError("no list")


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raising(error):
    def function(*arguments):
        raise error

    return function


STRANGE = {
    "text": "forty-two",
    "nothing in a list": [],
    "object": object(),
    "bool": True,
    "nan": float("nan"),
    "large": 10**30,
    "larger than any float": 10**400,
    "large strides": (10**400, 10**400, 0.5),
    "function returning a text": lambda *arguments: "?",
    "dict": {},
    "meta tensor": torch.zeros(3, device="meta"),
    "sparse tensor": torch.eye(3).to_sparse(),
    "nested tensor": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
    "tensor class": torch.Tensor,
    "array class": np.ndarray,
    "list that holds itself": itself(),
    "deep list": deep(),
    "hostile object": Hostile(),
    "hostile items": [Hostile(), Hostile(), Hostile()],
    "hostile tolist": NoList(),
    "function returning a hostile object": lambda *arguments: Hostile(),
    "function returning a list that holds itself": lambda *arguments: itself(),
    "function returning a meta tensor": lambda *arguments: torch.zeros(2, device="meta"),
    "function raising without text": raising(NoText()),
    "function that exits": lambda *arguments: sys.exit(),
    "function raising what is no Exception": raising(GeneratorExit()),
}


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
def test_a_strange_answer_is_wrong_and_raises_nothing(name, answer, capsys):
    check(name, answer)
    assert capsys.readouterr().out.startswith("Not yet: ")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reader_can_interrupt_a_check(name):
    with pytest.raises(KeyboardInterrupt):
        check(name, raising(KeyboardInterrupt()))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_no_hint_contains_the_answer(name):
    exercise = get_exercise(name)
    if not callable(exercise.solution):
        for text in [exercise.hint, *(hint for _, hint in exercise.mistakes)]:
            assert str(exercise.solution) not in text
            assert str(exercise.solution).strip("()") not in text


@pytest.mark.parametrize(
    ("error", "report"),
    [
        (RuntimeError("no such luck"), "RuntimeError: no such luck"),
        (RuntimeError("first line\n" + 50 * "and another\n"), "RuntimeError: first line"),
        (RuntimeError("x" * 100_000), "RuntimeError: " + "x" * 200),
        (NoText(), "NoText"),
        (ValueError(), "ValueError"),
        (SystemExit(2), "SystemExit: 2"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_function_that_raises_is_reported_in_one_line(error, report):
    verdict = get_exercise("tensors.windows").judge(raising(error))
    assert verdict == f"Not yet: checking your answer raised {report}"


@pytest.mark.parametrize("answer", [torch.Tensor, np.ndarray])
def test_a_class_of_arrays_is_not_taken_for_an_array(answer):
    exercise = get_exercise("tensors.permute")
    assert exercise.judge(answer) == f"Not yet: {exercise.hint}"


def test_something_else_than_a_function_is_told_so():
    assert "answer with a function" in get_exercise("tensors.windows").judge(torch.zeros(3))


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("write", [torch.Tensor.zero_, lambda t: t.resize_(1), lambda t: t.unsqueeze_(0)])
def test_a_function_that_changes_its_argument_is_told_so_and_spoils_no_later_check(name, write):
    exercise = get_exercise(name)

    def writes_too(tensor, *arguments):
        result = exercise.solution(tensor, *arguments)
        write(tensor)
        return result

    assert exercise.judge(writes_too).startswith("Not yet: your function changes its argument; ")
    assert exercise.judge(exercise.solution) == "Right."
    for mistake, hint in exercise.mistakes:
        assert exercise.judge(mistake) == f"Not yet: {hint}"


@pytest.mark.parametrize(
    ("argument", "write"),
    [
        ([3, 1, 2], lambda a: a.sort()),
        ({"a": [1]}, lambda a: a["a"].append(2)),
        (np.zeros((2, 3)), lambda a: a.fill(1)),
        (np.zeros((2, 3)), lambda a: setattr(a, "shape", (3, 2))),
        (torch.tensor(1.0), lambda a: a.add_(1)),
        (torch.zeros(2, 2), lambda a: a.t_()),
    ],
)
def test_every_kind_of_change_is_noticed(argument, write):
    exercise = function_exercise(lambda a: 1, lambda: [(argument,)], [], "hint")
    assert exercise.judge(lambda a: 1) == "Right."
    assert exercise.judge(lambda a: [1, write(a)][0]).startswith("Not yet: your function changes its argument; ")


def test_not_a_number_is_no_change():
    exercise = function_exercise(len, lambda: [(torch.tensor([float("nan")]),)], [], "hint")
    assert exercise.judge(len) == "Right."


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("is_right", [True, False])
def test_a_function_is_called_once_per_probe(name, is_right):
    exercise, calls = get_exercise(name), []

    def counted(*arguments):
        calls.append(arguments)
        return exercise.solution(*arguments) if is_right else "?"

    assert exercise.judge(counted).startswith("Right." if is_right else "Not yet: ")
    counted_by_solution = len(exercise.read(exercise.solution))
    assert len(calls) == counted_by_solution > 1


def test_results_of_a_function_are_compared_as_values_are():
    def exercise(solution):
        return function_exercise(solution, lambda: [(4,), (9,)], [(lambda n: n, "no root")], "hint")

    roots = exercise(lambda n: n**0.5)
    assert roots.judge(lambda n: torch.tensor(n).sqrt()) == "Right."
    assert roots.judge(lambda n: n) == "Not yet: no root"
    assert roots.judge(lambda n: n**0.5001) == "Not yet: hint"
    assert exercise(lambda n: ["t", str(n)]).judge(lambda n: ("t", f"{n}")) == "Right."
    assert exercise(lambda n: {n: 1}).judge(lambda n: {n: 2}) == "Not yet: hint"
    assert exercise(lambda n: None if n == 4 else 1).judge(lambda n: ()) == "Not yet: hint"


def test_defaults_of_torch_change_no_verdict():
    run_python(
        "import torch\n"
        "torch.set_default_dtype(torch.float64)\n"
        "torch.set_default_device('meta')\n"
        "from lmlib.exercises import chapters, get_exercise, names\n"
        "for name in [name for chapter in chapters() for name in names(chapter)]:\n"
        "    exercise = get_exercise(name)\n"
        "    assert exercise.judge(exercise.solution) == 'Right.', name\n"
        "    for mistake, hint in exercise.mistakes:\n"
        "        assert exercise.judge(mistake) == f'Not yet: {hint}', hint\n"
        "assert get_exercise('tensors.bytes_kept').judge(8388608) == 'Right.'\n"
        "assert get_exercise('tensors.permute').judge((1, 15, 5)) == 'Right.'\n"
    )


def test_a_terminal_that_cannot_print_a_character_shows_a_question_mark():
    name = "tensors.half_a_view"
    _, hint = next(pair for pair in get_exercise(name).mistakes if "×" in pair[1])
    code = f"from lmlib.exercises import *; check({name!r}, (1, 2, 6))"
    assert run_python(code, PYTHONUTF8="0", LC_ALL="C") == f"Not yet: {hint}\n".replace("×", "?")


def test_an_error_that_no_terminal_can_print(capsys):
    check("tensors.windows", raising(ValueError("half a pair: \ud800")))
    assert "half a pair: ?" in capsys.readouterr().out


def test_an_unknown_exercise_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no exercise 'tensors\.nope'.*tensors\.permute"):
        check("tensors.nope", 1)
    with pytest.raises(ValueError, match=r"no exercises for a chapter 'nope'.*tensors"):
        check("nope.permute", 1)


@pytest.mark.parametrize("name", [None, 3, [], "", "tensors"])
def test_what_is_no_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"no exercise.*tensors"):
        check(name, 1)


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


def test_merges_may_be_given_as_bytes_or_in_a_list():
    for answer in [("an", "ban", "band"), ["an", "ban", "band"], (b"an", b"ban", b"band")]:
        assert get_exercise("tokenization.banana").judge(answer) == "Right."


@pytest.mark.parametrize("text", ["x²", "a①", "half a cup: 1½", "\x1c ", "12² and counting"])
def test_any_text_that_is_cut_in_two_ways_breaks_the_naive_pattern(text):
    assert get_exercise("tokenization.stdlib_re").judge(text) == "Right."


@pytest.mark.parametrize("text", ["½", "Ⅷ", "①", "½ m", "only 1 ²"])
def test_the_right_kind_of_number_alone_is_told_to_find_company(text):
    assert "right kind" in get_exercise("tokenization.stdlib_re").judge(text)


def test_half_a_pair_is_cut_alike():
    assert get_exercise("tokenization.stdlib_re").judge("\ud83c").startswith("Not yet: both cut that alike")


@pytest.mark.parametrize(("ids", "hint"), [(50_258, "too many"), (50_257 + 1024, "positions"), (50_304, "padding")])
def test_a_few_ids_too_many_are_no_rounding(ids, hint):
    verdict = get_exercise("tokenization.embedding").judge(ids * 768)
    assert verdict.startswith("Not yet: close")
    assert hint in verdict


def test_a_text_with_the_name_of_a_special_token_must_fit_too():
    gpt2 = Tokenizer.from_pretrained("gpt2")

    def fit(text, limit, **options):
        return gpt2.decode_bytes(gpt2.encode(text, **options)[:limit]).decode(errors="ignore")

    judge = get_exercise("tokenization.fit").judge
    assert "<|endoftext|>" in judge(fit)
    assert "special token" in judge(lambda text, limit: fit(text, limit, allowed_special="all"))
    assert judge(lambda text, limit: fit(text, limit, disallowed_special=())) == "Right."


def test_a_text_that_is_encoded_again_is_cut_otherwise():
    gpt2 = Tokenizer.from_pretrained("gpt2")

    def fit(text, limit):
        return next(text[:n] for n in range(len(text), -1, -1) if len(gpt2.encode_ordinary(text[:n])) <= limit)

    assert "encode again" in get_exercise("tokenization.fit").judge(fit)


def test_a_text_may_be_fitted_by_offsets():
    gpt2 = Tokenizer.from_pretrained("gpt2")

    def fit(text, limit):
        _, offsets = gpt2.decode_with_offsets(gpt2.encode_ordinary(text))
        return text[: offsets[limit]] if limit < len(offsets) else text

    assert get_exercise("tokenization.fit").judge(fit) == "Right."


def test_a_rounded_answer_is_told_from_a_wrong_one():
    for answer in [8.39e6, 8388608 + 8, 8388608.5]:
        assert get_exercise("tensors.bytes_kept").judge(answer) == f"Not yet: {CLOSE}"
    assert "a text" in get_exercise("tensors.bytes_kept").judge("8388608")


@pytest.mark.parametrize("expected", [0, 0.0, True, (100, 200)])
def test_only_one_number_can_be_close(expected):
    exercise = value_exercise(expected, mistakes=[], hint="think")
    assert exercise.judge(0.01) == "Not yet: think"
    assert exercise.judge((101, 200)) == "Not yet: think"


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
        (8388608.0, 8388608, True),
        (8388616, 8388608, False),
        (10**400, 10**400, True),
        (10**400 + 1, 10**400, False),
        (10**400, 1.0, False),
        (float("inf"), 1, False),
        ((0.1 + 0.2) * 10, 3, True),  # 3.0000000000000004
        (1.0000001, 1.0, True),
        (1.00001, 1.0, False),
        ("ab", "ab", True),
        (b"ab", "ab", False),
        (None, None, True),
        ((), None, False),
    ],
)
def test_same_value(answer, expected, equal):
    assert same_value(answer, expected) is equal


def test_same_value_with_a_tolerance():
    assert same_value((101, 5), (100, 5), rel_tol=0.02)
    assert not same_value((103, 5), (100, 5), rel_tol=0.02)
