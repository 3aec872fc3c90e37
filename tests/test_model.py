"""lmlib.model: the logits of transformers' GPT-2 and Llama, every parameter counted, every shape annotation checked."""

import itertools
import math

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import lmlib.model
from lmlib.config import MODEL_SHAPES, ModelConfig, named_config
from lmlib.export import from_transformers_state_dict
from lmlib.init import residual_scale
from tests.typechecking import typechecked

model = typechecked("lmlib.model")


pytestmark = pytest.mark.usefixtures("one_thread")


GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
SIZES = {"vocab_size": 101, "context_length": 32, "d_model": 48, "num_layers": 3, "num_heads": 6}


def config(**changes):
    return ModelConfig(**(SIZES | changes))


def build(shape, seed=0):
    return model.TransformerLM(shape, generator=torch.Generator().manual_seed(seed)).eval()


def random_ids(batch, length, vocab_size=101, seed=0):
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


# --- equal to transformers -------------------------------------------------------------------------------


def shuffle_parameters(reference):
    """Give every parameter a value of its own, also those that begin as 0 or 1, so that none can be left out."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)


def assert_same_logits(shape, reference, batch, length):
    shuffle_parameters(reference.eval())
    ours = build(shape)
    ours.load_state_dict(from_transformers_state_dict(shape, reference.state_dict()))
    ids = random_ids(batch, length)
    with torch.no_grad():
        logits, expected = ours(ids), reference(ids).logits
    assert expected.std() > 0.3
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 17), (2, 32)])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_gpt2(tied, batch, length):
    reference = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=101,
            n_positions=32,
            n_embd=48,
            n_layer=3,
            n_head=6,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
        )
    )
    assert_same_logits(config(**GPT2, tie_embeddings=tied), reference, batch, length)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 17), (2, 32)])
@pytest.mark.parametrize(
    ("kv_heads", "tied", "bias"), [(6, False, False), (2, True, False), (1, False, False), (3, True, True)]
)
def test_logits_of_llama(kv_heads, tied, bias, batch, length):
    reference = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=101,
            max_position_embeddings=32,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=kv_heads,
            attention_bias=bias,
            mlp_bias=bias,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            tie_word_embeddings=tied,
            attn_implementation="eager",
        )
    )
    changes = {"d_ff": 80, "rope_theta": 500.0, "norm_eps": 1e-6}
    shape = config(num_kv_heads=kv_heads, tie_embeddings=tied, bias=bias, **changes)
    assert_same_logits(shape, reference, batch, length)


# --- parameters ------------------------------------------------------------------------------------------


def many_configs():
    """The named shapes that are quick to lay out, and each switch with and without each other one."""
    yield from (shape for shape in MODEL_SHAPES.values() if shape.num_layers <= 32)
    switches = itertools.product(
        ["layernorm", "rmsnorm"], ["gelu", "swiglu"], ["learned", "rope"], [True, False], [True, False], [6, 2]
    )
    for norm, mlp, position, bias, tied, kv_heads in switches:
        yield config(
            norm=norm, mlp=mlp, position=position, bias=bias, tie_embeddings=tied, num_kv_heads=kv_heads, d_ff=104
        )


def test_the_formula_counts_every_parameter():
    configs = [*many_configs()]
    assert len(configs) > 64
    for shape in configs:
        with torch.device("meta"):
            built = lmlib.model.TransformerLM(shape)
        assert built.token_embedding.weight.is_meta
        assert sum(p.numel() for p in built.parameters()) == shape.num_parameters, shape
        assert component_counts(built) == vars(shape.parameter_counts), shape


def component_counts(built):
    counts = dict.fromkeys(["token_embedding", "position_embedding", "attention", "mlp", "norms", "head"], 0)
    for name, parameter in built.named_parameters():
        component = name.split(".")[2 if name.startswith("blocks.") else 0]
        counts["norms" if component.endswith("norm") else component] += parameter.numel()
    return counts


def test_gpt2_has_its_124_million():
    with torch.device("meta"):
        built = lmlib.model.TransformerLM(named_config("gpt2-124m"))
    assert sum(p.numel() for p in built.parameters()) == 124_439_808


def test_state_dict_names():
    gpt2 = build(config(**GPT2, num_layers=1, tie_embeddings=True)).state_dict()
    assert [*gpt2] == [
        "token_embedding.weight",
        "position_embedding.weight",
        *(f"blocks.0.attention_norm.{kind}" for kind in ("weight", "bias")),
        *(
            f"blocks.0.attention.{part}.{kind}"
            for part in ("query", "key", "value", "output")
            for kind in ("weight", "bias")
        ),
        *(f"blocks.0.mlp_norm.{kind}" for kind in ("weight", "bias")),
        *(f"blocks.0.mlp.{part}.{kind}" for part in ("up", "down") for kind in ("weight", "bias")),
        "final_norm.weight",
        "final_norm.bias",
    ]
    llama = build(config(num_layers=1)).state_dict()
    assert [*llama] == [
        "token_embedding.weight",
        "blocks.0.attention_norm.weight",
        *(f"blocks.0.attention.{part}.weight" for part in ("query", "key", "value", "output")),
        "blocks.0.mlp_norm.weight",
        *(f"blocks.0.mlp.{part}.weight" for part in ("gate", "up", "down")),
        "final_norm.weight",
        "head.weight",
    ]


# --- how weights begin -----------------------------------------------------------------------------------


def test_weights_begin_as_gpt2s():
    built = build(config(**GPT2, vocab_size=500, d_model=96, num_layers=4))
    for name, parameter in built.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all()
        elif "norm" in name:
            assert parameter.eq(1).all()
        else:
            writes = name.endswith(("attention.output.weight", "mlp.down.weight"))
            assert parameter.std().item() == pytest.approx(0.02 * (residual_scale(4) if writes else 1), rel=0.05), name


def test_a_generator_repeats_the_weights():
    first, again, other = (build(config(), seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("changes", [{}, GPT2])
def test_a_model_from_the_meta_device_is_the_same(changes):
    with torch.device("meta"):
        late = lmlib.model.TransformerLM(config(**changes, tie_embeddings=True))
    late = late.to_empty(device="cpu").eval()
    late.init_weights(torch.Generator().manual_seed(3))
    ids = random_ids(2, 9)
    assert torch.equal(late(ids), build(config(**changes, tie_embeddings=True), seed=3)(ids))


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}, GPT2])
def test_an_untrained_model_knows_nothing(changes):
    logits = build(config(**changes))(random_ids(8, 32))
    loss = F.cross_entropy(logits.flatten(0, 1), random_ids(8, 32, seed=1).flatten())
    assert loss.item() == pytest.approx(math.log(101), abs=0.1)


# --- what a forward pass does ----------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, GPT2, {"num_kv_heads": 2}])
def test_no_position_sees_a_later_one(changes):
    built = build(config(**changes))
    ids = random_ids(2, 20)
    changed = ids.clone()
    changed[:, 11:] = (ids[:, 11:] + 1) % 101
    before, after = built(ids), built(changed)
    torch.testing.assert_close(before[:, :11], after[:, :11], rtol=0, atol=1e-6)
    assert (before[:, 11:] - after[:, 11:]).abs().amax(-1).min() > 1e-3


def test_grouped_heads_share_neighbouring_keys_and_values():
    grouped = build(config(num_kv_heads=2, num_layers=1))
    full = build(config(num_layers=1))
    state = grouped.state_dict()
    for part in ("key", "value"):
        name = f"blocks.0.attention.{part}.weight"
        kv_heads = state[name].unflatten(0, (2, 8))
        state[name] = kv_heads.repeat_interleave(3, 0).flatten(0, 1)
    full.load_state_dict(state)
    ids = random_ids(2, 9)
    torch.testing.assert_close(grouped(ids), full(ids), rtol=0, atol=1e-6)


def test_one_sequence_of_a_batch_and_a_single_token():
    built = build(config())
    ids = random_ids(3, 7)
    assert built(ids[:1, :1]).shape == (1, 1, 101)
    torch.testing.assert_close(built(ids)[1:2], built(ids[1:2]), rtol=0, atol=1e-6)
    torch.testing.assert_close(built(ids)[:, :1], built(ids[:, :1]), rtol=0, atol=1e-6)
    torch.testing.assert_close(built(ids.int()), built(ids))


@pytest.mark.parametrize("changes", [{}, GPT2 | {"tie_embeddings": True}])
def test_autocast_to_bf16(changes):
    built = build(config(**changes))
    ids = random_ids(2, 32)
    exact = built(ids)
    with torch.autocast("cpu", torch.bfloat16):
        logits = built(ids)
    assert logits.dtype == torch.bfloat16
    assert (logits - exact).norm() < 0.02 * exact.norm()
    F.cross_entropy(logits.float().flatten(0, 1), ids.flatten()).backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in built.parameters())


@pytest.mark.parametrize("changes", [{}, GPT2])
def test_weights_in_bf16(changes):
    built = build(config(**changes))
    exact = built(random_ids(2, 32))
    logits = built.bfloat16()(random_ids(2, 32))
    assert logits.dtype == torch.bfloat16
    assert (logits - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("changes", [{}, GPT2])
def test_dropout_only_while_training(changes):
    built = build(config(**changes, dropout=0.5))
    same, ids = build(config(**changes)), random_ids(2, 9)
    assert torch.equal(built(ids), same(ids))
    built.train()
    torch.manual_seed(0)
    assert not torch.equal(built(ids), built(ids))


def test_dropout_reaches_the_weights_of_attention():
    attention = model.CausalSelfAttention(config(dropout=0.5))
    attention.dropout.eval()  # that of the output; what differs then comes from the weights
    x = torch.randn(1, 9, 48, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


@pytest.mark.parametrize("changes", [{"num_kv_heads": 2}, GPT2])
def test_it_learns_a_sequence_by_heart(changes):
    built = build(config(**changes, num_layers=1)).train()
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-2)
    ids = random_ids(1, 12)
    for _ in range(25):
        loss = F.cross_entropy(built(ids[:, :-1])[0], ids[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.2


# --- the parts -------------------------------------------------------------------------------------------


def test_rms_norm():
    norm = model.RMSNorm(48, eps=1e-3)
    x = torch.randn(2, 5, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-1, 2, 48))
    torch.testing.assert_close(norm(x), F.rms_norm(x, (48,), norm.weight, 1e-3))


def test_rms_norm_squares_in_fp32():
    norm = model.RMSNorm(48).half()
    large = torch.full((1, 1, 48), 10_000, dtype=torch.half)  # the square is not a number of fp16
    torch.testing.assert_close(norm(large), torch.ones(1, 1, 48, dtype=torch.half))


def rotated(vector, position, theta=10_000.0):
    rotation = model.RotaryEmbedding(vector.numel(), theta)(torch.tensor([position]))
    return model.rotate(vector.view(1, 1, 1, -1), rotation).flatten()


def test_rotation_depends_on_the_distance_alone():
    query, key = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rotated(query, 0), query)
    assert rotated(query, 9).norm().item() == pytest.approx(query.norm().item(), rel=1e-6)
    products = [rotated(query, 7 + start) @ rotated(key, 3 + start) for start in (0, 1, 50)]
    torch.testing.assert_close(torch.stack(products), products[0].expand(3), rtol=0, atol=1e-4)
    assert (rotated(query, 8) @ rotated(key, 3) - products[0]).abs() > 1e-2


def test_each_pair_turns_by_its_own_angle():
    x = torch.tensor([1.0, 1.0, 0.0, 0.0])  # the pairs are elements 0 and 2, 1 and 3
    angles = [5.0, 5.0 / 100]  # theta^0 = 1 and theta^(-2/4) = 1/100
    expected = [*map(math.cos, angles), *map(math.sin, angles)]
    torch.testing.assert_close(rotated(x, 5), torch.tensor(expected))


def test_angles_are_exact_under_autocast_and_in_a_bf16_model():
    rotary, positions = model.RotaryEmbedding(16), torch.arange(2000)
    exact = rotary(positions)
    angles = torch.outer(positions.double(), 10_000.0 ** -(torch.arange(8).double() / 8))
    expected = torch.stack([angles.cos(), angles.sin()])
    torch.testing.assert_close(exact.double(), expected, rtol=0, atol=5e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rotary(positions), exact)
    assert torch.equal(rotary.bfloat16()(positions), exact)


def test_gelu_is_the_one_with_tanh():
    mlp = model.GeluMLP(config(mlp="gelu"))
    x = torch.randn(1, 3, 48, generator=torch.Generator().manual_seed(0))
    hidden = mlp.up(x)
    curve = 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
    torch.testing.assert_close(mlp(x), mlp.down(curve))


def test_swiglu_gates_one_layer_by_another():
    mlp = model.SwiGLU(config())
    x = torch.randn(1, 3, 48, generator=torch.Generator().manual_seed(0))
    gate = mlp.gate(x)
    torch.testing.assert_close(mlp(x), mlp.down(gate * torch.sigmoid(gate) * mlp.up(x)))


# --- the lecture's deep linear model ---------------------------------------------------------------------


def test_cruncher_is_a_product_of_matrices():
    cruncher = model.Cruncher(4, 2, generator=torch.Generator().manual_seed(0))
    shapes = {name: tuple(p.shape) for name, p in cruncher.named_parameters()}
    assert shapes == {"layers.0.weight": (4, 4), "layers.1.weight": (4, 4), "final.weight": (1, 4)}
    assert sum(p.numel() for p in cruncher.parameters()) == 4 * 4 * 2 + 4
    x = torch.arange(8.0).view(2, 4)
    first, second, final = cruncher.parameters()
    torch.testing.assert_close(cruncher(x), (x @ first.T @ second.T @ final.T)[:, 0])


def test_cruncher_without_layers_is_linear_regression():
    cruncher = model.Cruncher(4, 0)
    ((name, weight),) = cruncher.named_parameters()
    assert (name, tuple(weight.shape)) == ("final.weight", (1, 4))
    torch.testing.assert_close(cruncher(torch.eye(4)), weight[0])


def test_cruncher_keeps_the_scale():
    generator = torch.Generator().manual_seed(0)
    cruncher = model.Cruncher(256, 24, generator=generator)
    assert 1 / 2 < cruncher(torch.randn(256, 256, generator=generator)).std() < 2


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 2.5, "4"])
def test_sizes_of_the_cruncher(value):
    with pytest.raises(ValueError, match="dim must be a whole number from 1 on"):
        lmlib.model.Cruncher(value, 2)


@pytest.mark.parametrize("value", [-1, 2.5, "4"])
def test_layers_of_the_cruncher(value):
    with pytest.raises(ValueError, match="num_layers must be a whole number from 0 on"):
        lmlib.model.Cruncher(4, value)


def plain_model(**changes):
    return lmlib.model.TransformerLM(config(**changes)).eval()


@pytest.mark.parametrize("changes", [{}, GPT2])
def test_sequences_that_do_not_fit(changes):
    built = plain_model(**changes)
    assert built(random_ids(1, 32)).shape == (1, 32, 101)
    with pytest.raises(ValueError, match=r"sequence of 33 tokens does not fit a context_length of 32: pass between"):
        built(random_ids(1, 33))
    with pytest.raises(ValueError, match="sequence of 0 tokens"):
        built(random_ids(1, 0))


def test_ids_of_another_shape():
    with pytest.raises(ValueError, match=r"shape \(batch, seq\), not \(7,\): for a single sequence pass ids\[None\]"):
        plain_model()(random_ids(1, 7)[0])


@pytest.mark.parametrize(("ids", "span"), [([[3, 101]], "from 3 to 101"), ([[-1, 5]], "from -1 to 5")])
def test_ids_outside_the_vocabulary(ids, span):
    with pytest.raises(IndexError, match=f"The ids go {span}, and the vocabulary from 0 to 100: use the tokenizer"):
        plain_model()(torch.tensor(ids))


def test_annotations_are_checked_here():
    with pytest.raises(TypeCheckError):
        build(config())(random_ids(1, 7)[0])
    with pytest.raises(TypeCheckError):
        build(config())(random_ids(1, 7).float())
    with pytest.raises(TypeCheckError):
        model.rotate(torch.zeros(1, 2, 5, 8), model.RotaryEmbedding(8)(torch.arange(4)))
    with pytest.raises(TypeCheckError):
        model.Cruncher(4, 2)(torch.zeros(2, 3, 4))
