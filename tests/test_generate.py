"""lmlib.generate: tokens are drawn from the distribution that was asked for, and streamed, each text as if alone."""

import inspect
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lmlib.config import ModelConfig
from lmlib.generate import (
    decode_stream,
    generate,
    generate_batch,
    keep_top_k,
    keep_top_p,
    printable,
    sample,
    stream,
    stream_batch,
)
from lmlib.generate.reading import Reader
from lmlib.model import TransformerLM
from lmlib.train.dataset import byte_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

LOGITS = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625]).log()
MODEL = ModelConfig(257, 8, 16, 2, 2, dropout=0.5)


@pytest.fixture
def model():
    return TransformerLM(MODEL, generator=torch.Generator().manual_seed(0))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def shares(count=1500, **options):
    generator = seeded()
    drawn = [sample(LOGITS, generator=generator, **options) for _ in range(count)]
    return (torch.bincount(torch.tensor(drawn), minlength=5) / count).tolist()


# --- one token ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.5, 0.25, 0.125, 0.0625, 0.0625]),
        ({"temperature": 0.5}, [64, 16, 4, 1, 1]),  # the squares
        ({"temperature": 0}, [1, 0, 0, 0, 0]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.75}, [2 / 3, 1 / 3, 0, 0, 0]),
        ({"top_p": 0.76}, [4 / 7, 2 / 7, 1 / 7, 0, 0]),
        ({"top_k": 3, "top_p": 0.8}, [2 / 3, 1 / 3, 0, 0, 0]),  # of three, two have 6/7
        ({"top_k": 99, "top_p": 1.0}, [0.5, 0.25, 0.125, 0.0625, 0.0625]),
    ],
)
def test_tokens_come_as_often_as_they_should(options, expected):
    total = sum(expected)
    assert shares(**options) == pytest.approx([share / total for share in expected], abs=0.04)


def test_of_equal_tokens_no_more_than_k_stay():
    kept = keep_top_k(torch.zeros(5), 2)
    assert kept.isfinite().sum() == 2


def test_the_likeliest_stays_however_small_top_p():
    assert keep_top_p(LOGITS, 1e-9).isfinite().tolist() == [True, False, False, False, False]
    assert keep_top_p(LOGITS.flip(0), 0.75).isfinite().tolist() == [False, False, False, True, True]


def test_a_temperature_near_0_overflows_nothing():
    for temperature in (1e-30, 1e-320):  # the second is 0 in fp32
        assert sample(torch.tensor([1000.0, 999.0, -torch.inf]), temperature=temperature) == 0


def test_numbers_beyond_the_range_of_fp32_are_numbers():
    assert sample(LOGITS, temperature=10**300, generator=seeded()) in range(5)
    assert sample(LOGITS, top_p=1e-300) == 0  # in fp32 it is 0, which would leave nothing


def test_the_options_that_its_docstring_names_are_all_that_there_are():
    stated = dict(re.findall(r"^- ``(\w+)=(\S+)``", inspect.getdoc(generate), re.MULTILINE))
    taken = {**inspect.signature(stream_batch).parameters, **inspect.signature(stream).parameters}
    defaults = {name: repr(each.default) for name, each in taken.items() if each.kind is each.KEYWORD_ONLY}
    assert stated == {name: default for name, default in defaults.items() if name != "generators"}


@pytest.mark.parametrize("broken", [[0.0, torch.nan], [0.0, torch.inf], [-torch.inf, -torch.inf]])
def test_broken_logits_are_refused(broken):
    with pytest.raises(ValueError, match="hold a NaN"):
        sample(torch.tensor(broken))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be a number from 0 on"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be a whole number from 1 on"),
        ({"top_k": 1.5}, "top_k must be a whole number"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1"),
    ],
)
def test_options_out_of_range_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        sample(LOGITS, **options)
    with pytest.raises(ValueError, match=message):
        stream(model, [1], 5, **options)  # before the first token is asked for


# --- a text ---------------------------------------------------------------------------------------


def test_the_likeliest_tokens_are_those_of_the_model(model):
    model.eval()
    ids = [5, 6, 7]
    for _ in range(9):  # beyond the context: the model sees its last 8 tokens
        ids.append(int(model(torch.tensor([ids[-8:]]))[0, -1].argmax()))
    assert generate(model, [5, 6, 7], 9, temperature=0) == ids[3:]


def test_one_seed_is_one_text(model):
    texts = [generate(model, [1], 20, generator=seeded(seed)) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == 20


def test_the_stop_token_ends_the_text(model):
    tokens = generate(model, [1], 20, generator=seeded())
    stop = tokens[7]
    assert generate(model, [1], 20, stop_token=stop, generator=seeded()) == tokens[: tokens.index(stop)]


def test_ids_that_the_tokenizer_does_not_have_are_not_drawn(model):
    assert max(generate(model, [1], 60, generator=seeded())) >= 32
    assert max(generate(model, [1], 60, vocab_size=32, generator=seeded())) < 32


def test_tokens_come_one_at_a_time_and_leave_the_model_as_it_was(model):
    runs = []
    model.register_forward_hook(lambda *_: runs.append(model.training))
    model.train()
    tokens = stream(model, [1], 3, generator=seeded())
    assert runs == []
    for count in (1, 2, 3):
        next(tokens)
        assert runs == [False] * count  # nothing is dropped out
        assert model.training
    assert next(tokens, None) is None


def test_no_graph_is_kept(model):
    seen = []
    model.register_forward_hook(lambda *arguments: seen.append(arguments[-1].requires_grad))
    generate(model, [1], 2)
    assert seen == [False, False]


def test_an_abandoned_or_broken_generator_leaves_each_module_in_its_mode(model):
    model.train()
    model.blocks[1].eval()  # as where it is frozen
    modes = [module.training for module in model.modules()]
    tokens = stream(model, [1], 5)
    next(tokens)
    tokens.close()
    assert [module.training for module in model.modules()] == modes
    model.blocks[1].register_forward_hook(lambda *_: [][0])
    with pytest.raises(IndexError):
        generate(model, [1], 5)
    assert [module.training for module in model.modules()] == modes


def test_an_empty_prompt_is_refused(model):
    with pytest.raises(ValueError, match="prompt must be one token or more"):
        stream(model, [], 5)
    with pytest.raises(ValueError, match="vocab_size must be a whole number from 1 on"):
        stream(model, [1], 5, vocab_size=-1)
    with pytest.raises(ValueError, match="max_new_tokens must be"):
        stream(model, [1], -1)
    assert generate(model, [1], 0) == []


@pytest.mark.parametrize(
    "prompt", [[257], [0, -1], [1.0], "abc", 5, [[1]], torch.ones(2), [1] * 999 + [2**70]], ids=str
)
def test_what_is_no_prompt_is_refused_before_the_first_token(model, prompt):
    with pytest.raises(ValueError, match="each an id of the model's vocabulary, from 0 to 256, not") as error:
        stream(model, prompt, 5)
    assert len(str(error.value)) < 200


def test_a_prompt_may_be_an_array_or_a_tensor(model):
    expected = generate(model, [5, 6, 7], 5, temperature=0)
    for prompt in ((5, 6, 7), np.array([5, 6, 7], np.uint16), torch.tensor([5, 6, 7])):
        assert generate(model, prompt, 5, temperature=0) == expected


def test_of_a_text_no_more_is_kept_than_the_model_sees(model, monkeypatch):
    lengths, next_logits = [], Reader.next_logits

    def measured(self, texts):
        lengths.append(len(texts[0]))
        return next_logits(self, texts)

    monkeypatch.setattr(Reader, "next_logits", measured)
    generate(model, [1] * 30, 4)
    generate(model, [1] * 3, 12)
    assert lengths == [30, 9, 9, 9, *range(3, 9), *[9] * 6]  # of 8: one more says that the window has moved


def test_a_cycle_that_a_model_knows_is_gone_on_with():
    class Counter(nn.Module):
        """After each token comes the next number, up to ten."""

        config = MODEL
        weight = nn.Parameter(torch.zeros(()))

        def parameters(self, recurse=True):
            return iter([self.weight])

        def forward(self, ids):
            return 50.0 * nn.functional.one_hot((ids + 1) % 10, 10)

    assert generate(Counter(), [3], 12, use_cache=False) == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5]


# --- with a cache, and several at once ------------------------------------------------------------

GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
SHAPES = {
    "llama": {},
    "grouped": {"num_kv_heads": 2},
    "grouped-tied": {"num_kv_heads": 1, "tie_embeddings": True},
    "gpt2": GPT2,
    "gpt2-tied": GPT2 | {"tie_embeddings": True},
}
PROMPTS = [[5, 6, 7], [1], [*range(9)], [*range(20)]]  # two outgrow the context on the way, one has before


def sharp_model(**changes):
    """A model with weights so large that its texts are no repetition and depend on every token."""
    sizes = {"vocab_size": 300, "context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 4}
    generator = seeded()
    built = TransformerLM(ModelConfig(**(sizes | changes)), generator=generator)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return built


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_cached_uncached_alone_and_in_a_batch_are_one_text(changes):
    model = sharp_model(**changes)
    for options in ({"temperature": 0}, {"top_k": 50, "top_p": 0.95}):
        alone = [generate(model, ids, 18, generator=seeded(k), **options) for k, ids in enumerate(PROMPTS)]
        assert sum(len(set(text)) for text in alone) > 36  # of 72 tokens: the texts do not just repeat themselves
        for use_cache in (True, False):
            generators = [seeded(k) for k in range(4)]
            batch = generate_batch(model, PROMPTS, 18, generators=generators, use_cache=use_cache, **options)
            assert batch == alone
    text = [*PROMPTS[0]]
    model.eval()
    for _ in range(18):
        text.append(int(model(torch.tensor([text[-16:]]))[0, -1].argmax()))
    assert generate(model, PROMPTS[0], 18, temperature=0) == text[3:]


@st.composite
def configs(draw):
    """Any shape that there can be, small, with contexts that texts outgrow."""
    heads = draw(st.sampled_from([1, 2, 4]))
    kv_heads = draw(st.sampled_from([1, 2, 4]).filter(lambda count: heads % count == 0))
    switches = {name: draw(st.booleans()) for name in ("bias", "tie_embeddings")}
    choices = {"norm": ["rmsnorm", "layernorm"], "mlp": ["gelu", "swiglu"], "position": ["learned", "rope"]}
    switches |= {name: draw(st.sampled_from(values)) for name, values in choices.items()}
    sizes = {"vocab_size": 60, "context_length": draw(st.sampled_from([9, 4, 1]))}
    sizes |= {"num_layers": draw(st.integers(1, 2)), "d_model": 4 * heads, "num_heads": heads, "dropout": 0.5}
    return sizes | switches | {"num_kv_heads": kv_heads}


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    configs(),
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sampled_from([{"temperature": 0}, {}, {"temperature": 2, "top_k": 7}, {"top_p": 0.9, "stop_token": 0}]),
)
def test_of_every_shape_cached_uncached_alone_and_in_a_batch_are_one_text(changes, lengths, options):
    model = sharp_model(**changes)
    prompts = [[*range(17 * k, 17 * k + length)] for k, length in enumerate(lengths)]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    alone = [generate(model, ids, 10, generator=seeded(k), **options) for k, ids in enumerate(prompts)]
    for use_cache in (True, False):
        generators = [seeded(k) for k in range(len(prompts))]
        assert generate_batch(model, prompts, 10, generators=generators, use_cache=use_cache, **options) == alone
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.slow  # TorchDynamo takes seconds to load, and reads the model anew as its cache grows
@pytest.mark.parametrize("compile", [lambda model: model.compile(backend="eager"), None], ids=["in place", "wrapped"])
def test_a_compiled_model_writes_the_same(compile):
    model = sharp_model(num_kv_heads=2)
    expected, names = generate_batch(model, PROMPTS, 18, temperature=0), [*model.state_dict()]
    compiled = model if compile else torch.compile(model, backend="eager")
    if compile:
        compile(model)
    for use_cache in (True, False):
        assert generate_batch(compiled, PROMPTS, 18, temperature=0, use_cache=use_cache) == expected
    assert [*model.state_dict()] == names
    assert all(module.training for module in model.modules())


def test_every_token_is_read_once_until_the_window_moves():
    model, shapes = sharp_model(), []
    model.register_forward_hook(lambda _, arguments, __: shapes.append((*arguments[0].shape,)))
    generate(model, [1] * 12, 8)
    assert shapes == [(1, 12), (1, 1), (1, 1), (1, 1), (1, 1), (1, 16), (1, 16), (1, 16)]
    shapes.clear()
    generate(model, [1] * 3, 3, use_cache=False)
    assert shapes == [(1, 3), (1, 4), (1, 5)]
    shapes.clear()
    generate_batch(model, [[1] * 15, [1] * 4, [1] * 17], 4)
    assert shapes == [(2, 15), (1, 16), (2, 1), (1, 16), (1, 1), (2, 16), (1, 1), (2, 16)]


def test_a_text_that_has_ended_is_read_no_more():
    model, shapes = sharp_model(), []
    alone = [generate(model, ids, 20, generator=seeded(k)) for k, ids in enumerate(PROMPTS[:3])]
    stop = alone[1][4]
    expected = [text[: text.index(stop)] if stop in text else text for text in alone]
    assert len(expected[1]) <= 4
    model.register_forward_hook(lambda _, arguments, __: shapes.append((*arguments[0].shape,)))
    generators = [seeded(k) for k in range(3)]
    assert generate_batch(model, PROMPTS[:3], 20, generators=generators, stop_token=stop) == expected
    assert shapes[:6] == [(3, 9), *[(3, 1)] * 4, (2, 1)]


def test_several_can_share_a_generator_in_the_order_of_the_prompts():
    model = sharp_model()
    torch.manual_seed(0)
    texts = generate_batch(model, [*reversed(PROMPTS)], 12)
    torch.manual_seed(0)
    assert generate_batch(model, [*reversed(PROMPTS)], 12, use_cache=False) == texts


def test_tokens_of_several_come_in_turn():
    pairs = stream_batch(sharp_model(), PROMPTS[:2], 2, temperature=0)
    assert [number for number, _ in pairs] == [0, 1, 0, 1]
    assert generate_batch(sharp_model(), [], 5) == []


def test_a_batch_with_something_wrong_is_refused(model):
    with pytest.raises(ValueError, match="prompt must be one token or more"):
        stream_batch(model, [[1], []], 5)
    with pytest.raises(ValueError, match="There are 2 prompts and 1 generators: pass one for each"):
        stream_batch(model, [[1], [2]], 5, generators=[seeded()])


@pytest.mark.parametrize("use_cache", [True, False])
def test_under_autocast(use_cache):
    with torch.autocast("cpu", torch.bfloat16):
        assert len(generate(sharp_model(), [1, 2], 20, use_cache=use_cache)) == 20


# --- as text --------------------------------------------------------------------------------------


def test_characters_come_when_they_are_whole():
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode_ordinary("aé🌍")
    assert list(decode_stream(tokenizer, ids)) == ["a", "é", "🌍"]
    assert list(decode_stream(tokenizer, ids[:-1])) == ["a", "é", "\ufffd"]
    assert list(decode_stream(tokenizer, [0xFF, 0x41])) == ["\ufffd", "A"]


def test_control_characters_do_not_reach_a_terminal():
    assert printable("\x1b[2J\0\x7f\x9b1m a\té\n🌍") == "␛[2J␀␡\ufffd1m a\té\n🌍"
