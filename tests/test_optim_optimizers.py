"""lmlib.optim.optimizers: the parameters and the state of torch.optim's single-tensor loops, bit by bit."""

import copy
import difflib
import functools
import inspect
import io
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import lmlib.optim
from lmlib.memory import measured_ledger
from tests.typechecking import typechecked

optimizers = typechecked("lmlib.optim.optimizers")

pytestmark = pytest.mark.usefixtures("one_thread")

PEERS = {
    "SGD": torch.optim.SGD,
    "AdaGrad": torch.optim.Adagrad,
    "RMSProp": torch.optim.RMSprop,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
}
KINDS = [("SGD", {"momentum": 0.9}), ("SGD", {}), *((name, {}) for name in PEERS if name != "SGD")]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def ours(name, params, **options):
    return getattr(optimizers, name)(params, **options)


def theirs(name, params, **options):
    return PEERS[name](params, foreach=False, **options)


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def assert_same_state(actual, expected):
    assert actual.keys() == expected.keys()
    for index in actual:
        assert_same(actual[index], expected[index])


# --- equal to torch.optim -------------------------------------------------------------------------------

SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (4, 1, 3), (9, 8)]
share = st.floats(0, 0.9999)
decays = st.sampled_from([0.0, 0.01, 0.3])
rates = st.sampled_from([0.0, 1e-3, 0.05, 1.0])
OPTIONS = {
    "SGD": st.one_of(
        st.fixed_dictionaries({"momentum": share}),
        st.fixed_dictionaries({"momentum": st.floats(0.1, 0.999), "nesterov": st.just(True)}),
    ),
    "AdaGrad": st.fixed_dictionaries({"eps": st.sampled_from([1e-10, 1e-3])}),
    "RMSProp": st.fixed_dictionaries({"alpha": share, "eps": st.sampled_from([1e-8, 1e-3])}),
    "Adam": st.fixed_dictionaries({"betas": st.tuples(share, share), "eps": st.sampled_from([1e-8, 1e-3])}),
}
OPTIONS["AdamW"] = OPTIONS["Adam"]


@st.composite
def problems(draw, name):
    """Parameter groups with options of their own; gradients that come and go; a learning rate that changes."""
    groups = draw(st.lists(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3), min_size=1, max_size=3))
    return {
        "dtype": draw(st.sampled_from(DTYPES)),
        "shapes": groups,
        "options": draw(OPTIONS[name]) | {"lr": draw(rates), "weight_decay": draw(decays)},
        "own": [draw(st.fixed_dictionaries({}, optional={"lr": rates, "weight_decay": decays})) for _ in groups],
        "missing": draw(st.sampled_from([0.0, 0.4])),  # how often there is no gradient
        "scale": draw(st.sampled_from([1e-4, 1.0, 300.0])),  # of gradients
        "steps": draw(st.integers(1, 6)),
        "seed": draw(st.integers(0, 2**31)),
    }


def values(problem, shape, generator):
    drawn = torch.randn(shape, generator=generator).to(problem["dtype"])
    return drawn.T.contiguous().T if drawn.ndim == 2 else drawn  # a matrix lies column by column


def solve(make, name, problem):
    generator = torch.Generator().manual_seed(problem["seed"])
    groups = [
        {"params": [nn.Parameter(values(problem, shape, generator)) for shape in shapes]} | own
        for shapes, own in zip(problem["shapes"], problem["own"], strict=True)
    ]
    params = [param for group in groups for param in group["params"]]
    optimizer = make(name, groups, **problem["options"])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for _ in range(problem["steps"]):
        for param in params:
            missing = torch.rand((), generator=generator) < problem["missing"]
            grad = values(problem, param.shape, generator) * problem["scale"]
            param.grad = None if missing else grad
        optimizer.step()
        scheduler.step()
    return params, optimizer.state_dict()


@pytest.mark.parametrize("name", PEERS)
def test_equal_to_pytorch(name):
    @settings(max_examples=60)
    @given(problems(name))
    def check(problem):
        params, state_dict = solve(ours, name, problem)
        expected, expected_state_dict = solve(theirs, name, problem)
        assert_same(params, expected)
        kept = {index: state for index, state in expected_state_dict["state"].items() if state.get("step") != 0}
        assert_same_state(state_dict["state"], kept)  # PyTorch's AdaGrad keeps zeros before the first step, too
        for group, peer in zip(state_dict["param_groups"], expected_state_dict["param_groups"], strict=True):
            assert group == {key: value for key, value in peer.items() if key in group}

    check()


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 3))


def train(model, optimizer, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(8, 6, generator=generator)
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_training_run_is_the_same(name, options):
    model, peer = small_model(), small_model()
    train(model, ours(name, model.parameters(), lr=0.01, **options), 20)
    train(peer, theirs(name, peer.parameters(), lr=0.01, **options), 20)
    assert_same([*model.parameters()], [*peer.parameters()])
    assert not torch.equal(model[0].weight, small_model()[0].weight)


@pytest.mark.parametrize("name", PEERS)
def test_defaults_are_those_of_pytorch(name):
    defaults = ours(name, [torch.zeros(1)]).defaults
    peer = theirs(name, [torch.zeros(1)]).defaults
    assert defaults == {key: peer[key] for key in defaults}
    assert {"lr", "weight_decay"} < defaults.keys()


# --- the equations --------------------------------------------------------------------------------------


def one_step(name, grad, start=2.0, **options):
    param = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    param.grad = torch.tensor(grad, dtype=torch.float64)
    ours(name, [param], **options).step()
    return param.item()


@pytest.mark.parametrize("grad", [-3e4, -1.0, 1e-6, 0.5, 7.0])
def test_the_first_step(grad):
    assert one_step("SGD", grad, lr=0.1) == pytest.approx(2 - 0.1 * grad)
    assert one_step("SGD", grad, lr=0.1, momentum=0.9) == pytest.approx(2 - 0.1 * grad)
    sign = math.copysign(1, grad)  # what is divided by its own size
    assert one_step("AdaGrad", grad, lr=0.1) == pytest.approx(2 - 0.1 * sign, rel=1e-4)
    assert one_step("Adam", grad, lr=0.1, eps=1e-12) == pytest.approx(2 - 0.1 * sign, rel=1e-4)
    # without a correction of the bias, the first step of the same rule is ten times as long
    assert one_step("RMSProp", grad, lr=0.1, eps=1e-12) == pytest.approx(2 - 0.1 * sign / math.sqrt(0.01), rel=1e-4)


def after(name, grads, **options):
    param = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    optimizer = ours(name, [param], **options)
    for grad in grads:
        param.grad = torch.full_like(param, grad)
        optimizer.step()
    return param.item()


def test_l2_and_decoupled_decay_are_the_same_in_sgd_alone():
    decayed = 2 * (1 - 0.1 * 0.01) ** 50
    assert after("AdamW", [0.0] * 50, lr=0.1, weight_decay=0.01) == pytest.approx(decayed)
    assert after("SGD", [0.0] * 50, lr=0.1, weight_decay=0.01) == pytest.approx(decayed)
    large = [1000.0, -1000.0] * 25  # which add up to nothing, but not their squares
    shrunk = {
        name: after(name, large, lr=0.1, weight_decay=0.01) - after(name, large, lr=0.1, weight_decay=0.0)
        for name in ["Adam", "AdamW"]
    }
    assert shrunk["AdamW"] == pytest.approx(decayed - 2, rel=0.1)
    assert abs(shrunk["Adam"]) < 0.01 * abs(shrunk["AdamW"])


def changed_lines(before, after):
    """Lines of code of one update that the other lacks, each way; the docstring is none."""
    sources = [inspect.getsource(getattr(lmlib.optim, name).update).splitlines() for name in (before, after)]
    bodies = [[line for line in source if '"""' not in line] for source in sources]
    diff = [*difflib.ndiff(*bodies)]
    return sum(line.startswith("- ") for line in diff), sum(line.startswith("+ ") for line in diff)


def test_neighbours_differ_by_their_rule_alone():
    assert changed_lines("AdaGrad", "RMSProp") == (1, 2)  # the rule, and its alpha
    assert changed_lines("Adam", "AdamW") == (1, 1)


# --- the state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "tensors"),
    [
        ("SGD", {}, 0),
        ("SGD", {"momentum": 0.9}, 1),
        ("AdaGrad", {}, 1),
        ("RMSProp", {}, 1),
        ("Adam", {}, 2),
        ("AdamW", {}, 2),
    ],
)
def test_how_many_tensors_are_kept(name, options, tensors):
    model = small_model()
    optimizer = ours(name, model.parameters(), **options)
    assert not optimizer.state
    train(model, optimizer, 2)
    ledger = measured_ledger(model, optimizer)
    counts = 0 if name == "SGD" else 4 * len([*model.parameters()])  # bytes of the number of steps
    assert ledger.optimizer_state == tensors * ledger.parameters + counts


def test_a_parameter_without_a_gradient_stays_and_has_no_state():
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    used.grad = torch.ones(3)
    optimizer = ours("AdamW", [used, unused], lr=0.1, weight_decay=0.5)
    optimizer.step()
    assert used.ne(1).all()
    assert unused.eq(1).all()
    assert [*optimizer.state] == [used]


def test_steps_are_counted_in_fp32_whatever_the_default_dtype():
    param = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    param.grad = torch.ones_like(param)
    optimizer = ours("Adam", [param])
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        for _ in range(260):
            optimizer.step()
    finally:
        torch.set_default_dtype(default)
    assert optimizer.state[param]["step"] == 260
    assert optimizer.state[param]["exp_avg"].dtype == torch.bfloat16


def copied_by_pickle(value):
    return pickle.loads(pickle.dumps(value))


def saved_and_loaded(state_dict):
    """Through a file, as a checkpoint goes, which can hold no code."""
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def plain(name, params, **options):
    return getattr(lmlib.optim, name)(params, **options)


MAKERS = {
    "to PyTorch's": (ours, theirs),
    "from PyTorch's": (theirs, ours),
    "to PyTorch's of many tensors": (ours, lambda name, params, **options: PEERS[name](params, **options)),
    "to itself": (ours, ours),
}


@pytest.mark.parametrize(("first", "second"), MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_another_optimizer_continues_from_its_state_dict(name, options, first, second):
    model = small_model()
    optimizer = first(name, model.parameters(), lr=0.01, weight_decay=0.1, **options)
    train(model, optimizer, 5)
    other_model = copy.deepcopy(model)
    other = second(name, other_model.parameters(), lr=7.0)  # the state holds the options, too
    other.load_state_dict(saved_and_loaded(optimizer.state_dict()))
    train(model, optimizer, 5, seed=2)
    train(other_model, other, 5, seed=2)
    assert_same([*other_model.parameters()], [*model.parameters()])
    assert_same_state(other.state_dict()["state"], optimizer.state_dict()["state"])


def test_it_continues_from_a_fused_adamw():
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    train(model, optimizer, 5)
    other_model = copy.deepcopy(model)
    other = ours("AdamW", other_model.parameters())
    other.load_state_dict(saved_and_loaded(optimizer.state_dict()))
    train(model, optimizer, 5, seed=2)
    train(other_model, other, 5, seed=2)
    torch.testing.assert_close([*other_model.parameters()], [*model.parameters()])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copied_by_pickle])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_copy_goes_on_alike(name, options, duplicate):
    model = small_model()
    optimizer = plain(name, model.parameters(), lr=0.01, **options)
    train(model, optimizer, 3)
    other_model, other = duplicate((model, optimizer))
    train(model, optimizer, 3, seed=2)
    train(other_model, other, 3, seed=2)
    assert_same([*other_model.parameters()], [*model.parameters()])
    other.load_state_dict(optimizer.state_dict())
    other.add_param_group({"params": [torch.zeros(1)]})


# --- inherited ------------------------------------------------------------------------------------------


def test_a_closure_computes_gradients_and_its_loss_is_returned():
    param = nn.Parameter(torch.tensor(3.0))
    optimizer = ours("SGD", [param], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = param.square()
        loss.backward()
        return loss

    with torch.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 9
    assert param.item() == 3 - 0.25 * 6
    assert param.requires_grad
    assert optimizer.step() is None


def test_zero_grad():
    param = nn.Parameter(torch.ones(2))
    optimizer = ours("SGD", [param])
    param.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert param.grad.eq(0).all()
    optimizer.zero_grad()
    assert param.grad is None


def test_named_parameters_keep_their_names():
    optimizer = ours("Adam", small_model().named_parameters())
    assert optimizer.state_dict()["param_groups"][0]["param_names"][0] == "0.weight"


# --- bad input ------------------------------------------------------------------------------------------

NUMBER = [-1e-9, math.nan, math.inf, "0.1", None, torch.tensor([0.1, 0.2]), True, 10**400]
SHARE = [-0.1, 1, 1.5, math.nan, "0.9", None, False]
BAD = [
    *((name, "lr", value) for name in PEERS for value in NUMBER),
    *((name, "weight_decay", value) for name in PEERS for value in NUMBER),
    *((name, "eps", value) for name in PEERS if name != "SGD" for value in NUMBER),
    *(("SGD", "momentum", value) for value in SHARE),
    *(("RMSProp", "alpha", value) for value in SHARE),
    *((name, "betas", (value, 0.9)) for name in ["Adam", "AdamW"] for value in SHARE),
    *((name, "betas", (0.9, value)) for name in ["Adam", "AdamW"] for value in SHARE),
    *((name, "betas", value) for name in ["Adam", "AdamW"] for value in [0.9, (0.9,), (0.9, 0.9, 0.9), "ab", None]),
    ("SGD", "nesterov", "yes"),
]


@pytest.mark.parametrize(("name", "option", "value"), BAD)
def test_an_option_out_of_range(name, option, value):
    # nesterov and a momentum go together
    others = {"momentum": 0.9} if option == "nesterov" else {}
    with pytest.raises(ValueError, match=f"^{option} must be .*, not "):
        plain(name, [torch.zeros(1)], **others, **{option: value})
    with pytest.raises(ValueError, match=f"^{option} must be .*, not "):
        plain(name, [{"params": [torch.zeros(1)], option: value}])
    optimizer = plain(name, [torch.zeros(1)])
    with pytest.raises(ValueError, match=f"^{option} must be .*, not "):
        optimizer.add_param_group({"params": [torch.zeros(1)], option: value})
    assert len(optimizer.param_groups) == 1


def test_what_a_message_says():
    with pytest.raises(ValueError, match=r"^lr must be a finite number from 0 on, not -0\.1\.$"):
        plain("SGD", [torch.zeros(1)], lr=-0.1)
    with pytest.raises(ValueError, match=r"^betas must be two numbers from 0 to below 1, not \(0\.9, 1\.0\)\.$"):
        plain("AdamW", [torch.zeros(1)], betas=(0.9, 1.0))


def test_nesterov_needs_a_momentum():
    with pytest.raises(ValueError, match="nesterov looks along the momentum: give one above 0"):
        plain("SGD", [torch.zeros(1)], nesterov=True)


@pytest.mark.parametrize("name", PEERS)
def test_nothing_to_optimize(name):
    model = small_model()
    parameters = model.parameters()
    assert len([*parameters]) == 6  # and now there are none left in it
    for empty in ([], parameters):
        with pytest.raises(ValueError, match="empty parameter list"):
            plain(name, empty)


@pytest.mark.parametrize("name", PEERS)
def test_a_gradient_that_is_refused_leaves_all_parameters_alone(name):
    dense, odd = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = plain(name, [dense, odd])
    dense.grad = torch.ones(3)
    odd.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="A gradient is sparse: make it dense"):
        optimizer.step()
    imaginary = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    imaginary.grad = torch.ones_like(imaginary)
    odd.grad = None
    optimizer.add_param_group({"params": [imaginary]})
    with pytest.raises(RuntimeError, match="A gradient is complex: optimize real and imaginary parts"):
        optimizer.step()
    assert dense.eq(1).all()
    assert not optimizer.state


FOREIGN = [
    ("SGD", functools.partial(torch.optim.SGD, momentum=0.9, dampening=0.5), "with dampening=0.5 in its options"),
    ("SGD", functools.partial(torch.optim.SGD, maximize=True), "with maximize=True in its options"),
    ("AdaGrad", functools.partial(torch.optim.Adagrad, lr_decay=0.1), "with lr_decay=0.1 in its options"),
    ("RMSProp", functools.partial(torch.optim.RMSprop, momentum=0.9), "with momentum=0.9 in its options"),
    ("RMSProp", functools.partial(torch.optim.RMSprop, centered=True), "with centered=True in its options"),
    ("Adam", functools.partial(torch.optim.Adam, amsgrad=True), "with amsgrad=True in its options"),
    ("Adam", torch.optim.AdamW, "with decoupled_weight_decay=True in its options"),
    ("AdamW", torch.optim.Adam, "with decoupled_weight_decay=False in its options"),
    ("Adam", torch.optim.SGD, "without betas in its options"),
    ("SGD", torch.optim.Adam, "without momentum in its options"),
    ("AdaGrad", lmlib.optim.RMSProp, "with square_avg in its state"),
    ("AdaGrad", lmlib.optim.Adam, "with exp_avg, exp_avg_sq in its state"),
]


@pytest.mark.parametrize(("name", "foreign", "message"), FOREIGN)
def test_a_state_of_something_else(name, foreign, message):
    model = small_model()
    optimizer = foreign(model.parameters(), lr=0.5)
    train(model, optimizer, 1)
    mine = plain(name, model.parameters())
    before = copy.deepcopy(mine.state_dict())
    with pytest.raises(ValueError, match=f"{name} does not work {message}: use the optimizer that this belongs to"):
        mine.load_state_dict(optimizer.state_dict())
    assert mine.state_dict() == before


def after_a_step(name, shape=(3,), **options):
    param = nn.Parameter(torch.ones(shape))
    optimizer = theirs(name, [param], **options)
    param.grad = torch.ones(shape)
    optimizer.step()
    return optimizer.state_dict()


def changed(name, **changes):
    state_dict = after_a_step(name, **({"momentum": 0.9} if name == "SGD" else {}))
    state = state_dict["state"][0] | changes
    state_dict["state"][0] = {key: value for key, value in state.items() if value is not ...}
    return state_dict


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("AdamW", {"exp_avg_sq": ...}, "does not work without exp_avg_sq in its state"),
        ("Adam", {"exp_avg": None, "step": ...}, "does not work without step, exp_avg in its state"),
        ("RMSProp", {"step": ...}, "does not work without step in its state"),
        ("AdamW", {"exp_avg": torch.ones(1)}, r"with exp_avg of another shape, \(1,\) for \(3,\), in its state"),
        ("SGD", {"momentum_buffer": torch.ones(2, 3)}, r"another shape, \(2, 3\) for \(3,\), in its state"),
        ("Adam", {"step": torch.tensor(-1.0)}, r"step must be a finite number from 0 on, not -1\.0"),
        ("AdaGrad", {"step": torch.tensor(math.nan)}, "step must be a finite number from 0 on, not nan"),
    ],
)
def test_a_state_that_could_not_be_continued(name, changes, message):
    param = nn.Parameter(torch.ones(3))
    optimizer = plain(name, [param], lr=0.25)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(changed(name, **changes))
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("name", ["Adam", "AdamW", "AdaGrad", "RMSProp"])
def test_a_state_whose_steps_are_an_int_as_they_once_were(name):
    expected = ours(name, [nn.Parameter(torch.ones(3))])
    expected.load_state_dict(changed(name, step=torch.tensor(7.0)))
    optimizer = ours(name, [nn.Parameter(torch.ones(3))])
    optimizer.load_state_dict(changed(name, step=7))
    assert_same_state(optimizer.state_dict()["state"], expected.state_dict()["state"])


def test_a_momentum_buffer_of_none_as_it_once_was():
    param = nn.Parameter(torch.ones(3))
    optimizer = ours("SGD", [param])
    optimizer.load_state_dict(changed("SGD", momentum_buffer=None))
    param.grad = torch.ones(3)
    optimizer.step()
    assert optimizer.state[param]["momentum_buffer"].eq(1).all()


@pytest.mark.parametrize("saved", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("now", [torch.float32, torch.bfloat16, torch.float64])
def test_a_state_takes_the_dtype_of_its_parameter_and_steps_stay_fp32(saved, now):
    state = {}
    for make in (ours, theirs):
        source = nn.Parameter(torch.ones(3, dtype=saved))
        optimizer = make("AdamW", [source])
        source.grad = torch.full_like(source, 0.1)
        optimizer.step()
        param = nn.Parameter(torch.ones(3, dtype=now))
        other = make("AdamW", [param])
        other.load_state_dict(optimizer.state_dict())
        param.grad = torch.full_like(param, 0.1)
        other.step()
        state[make] = other.state_dict()["state"]
    assert_same_state(state[ours], state[theirs])
    assert [value.dtype for value in state[ours][0].values()] == [torch.float32, now, now]


@pytest.mark.parametrize(
    ("state_dict", "what"),
    [({}, "nothing"), ({"model": {}, "optimizer": {}}, "'model', 'optimizer'"), ({"state": {}}, "'state'")],
)
def test_what_is_no_state_dict_of_an_optimizer(state_dict, what):
    with pytest.raises(ValueError, match=f"has 'state' and 'param_groups'; this one has {what}\\.$"):
        plain("AdamW", [torch.zeros(1)]).load_state_dict(state_dict)


def test_a_state_of_other_groups():
    for others in ([torch.zeros(1), torch.zeros(1)], [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)]}]):
        with pytest.raises(ValueError, match=r"loaded state dict .* parameter group"):
            plain("SGD", [torch.zeros(1)]).load_state_dict(plain("SGD", others).state_dict())


def test_numbers_of_numpy_do_not_reach_a_checkpoint():
    options = {"lr": np.float64(0.1), "betas": [np.float32(0.5), 0], "weight_decay": np.int64(1)}
    optimizer = plain(
        "AdamW", [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": np.float32(1)}], **options
    )
    first, second = saved_and_loaded(optimizer.state_dict())["param_groups"]
    assert (first["lr"], first["betas"], first["weight_decay"]) == (0.1, (0.5, 0), 1)
    assert second["lr"] == 1


def test_a_state_with_an_option_out_of_range():
    optimizer = plain("Adam", [torch.zeros(1)])
    state_dict = optimizer.state_dict()
    state_dict["param_groups"][0]["lr"] = math.nan
    with pytest.raises(ValueError, match="lr must be a finite number from 0 on, not nan"):
        optimizer.load_state_dict(state_dict)
    assert optimizer.param_groups[0]["lr"] == 1e-3
