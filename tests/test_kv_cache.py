"""lmlib.kv_cache: read in pieces or whole, alone or beside others, a text has the same logits; memory is taken once."""

import pytest
import torch
from jaxtyping import TypeCheckError

from lmlib.config import ModelConfig
from lmlib.kv_cache import KVCache
from lmlib.model import TransformerLM
from tests.typechecking import typechecked

checked_model = typechecked("lmlib.model")
checked_cache = typechecked("lmlib.kv_cache")

pytestmark = pytest.mark.usefixtures("one_thread")

GPT2 = {"norm": "layernorm", "mlp": "gelu", "position": "learned", "bias": True}
SIZES = {"vocab_size": 101, "context_length": 32, "d_model": 48, "num_layers": 2, "num_heads": 6}
SHAPES = {
    "llama": {},
    "grouped": {"num_kv_heads": 2},
    "one-kv-head-tied": {"num_kv_heads": 1, "tie_embeddings": True},
    "gpt2": GPT2 | {"tie_embeddings": True},
    "gpt2-untied": GPT2,
    "learned-swiglu": {"position": "learned", "num_kv_heads": 3},
}
ROUNDING = 1e-5  # of logits whose standard deviation is about 0.7


def build(kind=TransformerLM, dtype=torch.float32, **changes):
    """A model with weights so large that it tells positions and tokens apart."""
    config = ModelConfig(**(SIZES | changes))
    generator = torch.Generator().manual_seed(0)
    built = kind(config, generator=generator).eval().requires_grad_(False)
    for parameter in built.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return built.to(dtype)


def random_ids(batch, length, seed=0):
    return torch.randint(101, (batch, length), generator=torch.Generator().manual_seed(seed))


def read_in_pieces(built, ids, cuts, cache=None):
    cache = cache or KVCache(built.config, len(ids))
    with torch.no_grad():
        return torch.cat([built(piece, cache) for piece in ids.tensor_split(cuts, dim=1)], dim=1)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("cuts", [[9, *range(10, 32)], [1, 5, 20], []], ids=["token-by-token", "in-pieces", "whole"])
def test_pieces_have_the_logits_of_the_whole(changes, cuts):
    built, ids = build(**changes), random_ids(2, 32)
    whole, pieces = built(ids), read_in_pieces(built, ids, cuts)
    assert whole.std() > 0.5
    torch.testing.assert_close(pieces, whole, rtol=0, atol=ROUNDING)
    first = cuts[0] if cuts else 32
    assert torch.equal(pieces[:, :first], built(ids[:, :first]))  # to the bit: the same operations


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_texts_of_unequal_length_are_as_if_alone(changes):
    built, ids, lengths = build(**changes), random_ids(3, 20), [2, 9, 5]
    cache = KVCache(built.config, 3, capacity=20)
    found = [[], [], []]
    with torch.no_grad(), _uninitialized_is_nan():
        logits = built(ids[:, : max(lengths)], cache)  # the shorter ones padded with what is wrong for them
        cache.truncate(lengths)
        for row, length in enumerate(lengths):
            found[row].append(logits[row, :length])
        for step in range(11):
            places = [length + step for length in lengths]
            logits = built(ids[torch.arange(3), places][:, None], cache)
            for row in range(3):
                found[row].append(logits[row])
    assert cache.lengths == [13, 20, 16]
    for row, length in enumerate(cache.lengths):
        torch.testing.assert_close(torch.cat(found[row]), built(ids[row : row + 1, :length])[0], rtol=0, atol=ROUNDING)


class _uninitialized_is_nan:
    """Fill with NaN what is allocated and not written."""

    def __enter__(self):
        torch.use_deterministic_algorithms(True)
        assert torch.empty(3).isnan().all()

    def __exit__(self, *_):
        torch.use_deterministic_algorithms(False)


def test_texts_can_be_left_out_and_cut():
    built, ids = build(), random_ids(3, 12)
    cache = KVCache(built.config, 3)
    read_in_pieces(built, ids[:, :8], [], cache)
    cache.select([2, 0])
    cache.truncate([8, 3])
    assert cache.lengths == [8, 3]
    assert cache.nbytes == bytes_of(built, 2)
    with torch.no_grad():
        logits = built(torch.stack([ids[2, 8:], ids[0, 3:7]]), cache)
    torch.testing.assert_close(logits[0], built(ids[2:3])[0, 8:], rtol=0, atol=ROUNDING)
    torch.testing.assert_close(logits[1], built(ids[:1])[0, 3:7], rtol=0, atol=ROUNDING)


def bytes_of(built, rows):
    return rows * sum(2 * 4 * 32 * layer.attention.key.out_features for layer in built.blocks)


def test_memory_is_taken_once():
    built, ids = build(), random_ids(2, 12)
    cache = KVCache(built.config, 2, capacity=12)
    assert cache.nbytes == 0
    read_in_pieces(built, ids[:, :3], [], cache)
    before = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers], cache.nbytes
    read_in_pieces(built, ids[:, 3:], [1, 2, 3, 4], cache)
    assert before == ([(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers], cache.nbytes)


def test_a_mask_is_made_only_where_it_hides_something():
    cache = KVCache(ModelConfig(**SIZES), 2)
    masks = []
    with torch.no_grad():
        for length in (3, 1, 2):
            cache.advance(random_ids(2, length))
            masks.append(cache.layers[-1].place.mask)
    assert masks[:2] == [None, None]  # all is new; one token sees all: kernels without masks are faster
    assert masks[2].tolist() == [[[[True] * 5 + [False], [True] * 6]]] * 2


def test_in_bf16_and_under_autocast():
    ids = random_ids(2, 16)
    exact = build()(ids)
    halved = read_in_pieces(build(dtype=torch.bfloat16), ids, [5, *range(6, 16)])
    cache = KVCache(build().config, 2)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = read_in_pieces(build(), ids, [5, *range(6, 16)], cache)
    assert cache.layers[0].keys.dtype == torch.bfloat16
    for logits in (halved, mixed):
        assert (logits - exact).norm() < 0.05 * exact.norm()


def test_annotations_are_checked_here():
    ids = random_ids(2, 12)
    for changes in ({"num_kv_heads": 2}, GPT2):
        built, annotated = build(**changes), build(checked_model.TransformerLM, **changes)
        cache = checked_cache.KVCache(built.config, 2)
        for logits in (read_in_pieces(built, ids, [4, 5, 8], cache), read_in_pieces(annotated, ids, [4, 5, 8])):
            torch.testing.assert_close(logits, built(ids), rtol=0, atol=ROUNDING)
    with pytest.raises(TypeCheckError):
        cache.advance(ids.float())
    with pytest.raises(TypeCheckError):
        cache.layers[0].extend(torch.zeros(2, 2, 1, 8), torch.zeros(2, 2, 3, 8))


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"capacity": 2.5}, "capacity must be a whole number from 1 on"),
        ({"capacity": 33}, "The model has positions for 32 tokens: choose a capacity of that or less, not 33"),
    ],
)
def test_sizes_that_cannot_be(sizes, message):
    with pytest.raises(ValueError, match=message):
        KVCache(ModelConfig(**SIZES), **sizes)


def test_what_does_not_fit():
    built = build()
    cache = KVCache(built.config, 2, capacity=5)
    with torch.no_grad():
        built(random_ids(2, 3), cache)
        with pytest.raises(ValueError, match="room for 5 tokens: 3 more do not fit behind 3"):
            built(random_ids(2, 3), cache)
        with pytest.raises(ValueError, match="cache is for 2 texts, and ids has 1 rows"):
            built(random_ids(1, 1), cache)
    for lengths in ([4, 3], [3], [3, -1]):
        with pytest.raises(ValueError, match=r"have the lengths \[3, 3\]: they cannot be cut to"):
            cache.truncate(lengths)
    for rows in ([], [2], [-1]):
        with pytest.raises(ValueError, match=r"There are texts 0 to 1: choose one or more of them, not \["):
            cache.select(rows)
    assert cache.lengths == [3, 3]


def test_nothing_is_learnt_through_a_cache():
    built = build()
    with pytest.raises(RuntimeError, match=r"call the model under torch\.no_grad"):
        built(random_ids(1, 3), KVCache(built.config))
