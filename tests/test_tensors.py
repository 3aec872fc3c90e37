"""lmlib.tensors against torch: layouts, sharing, and the exact rule of `view`."""

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlib.tensors import describe, same_storage, storage_indices, storage_nbytes, view_strides

# --- layouts ---------------------------------------------------------------------------------------------


@st.composite
def strided_tensors(draw, max_size=4, max_stride=24):
    """Any shape over any strides (0 and overlapping ones included), or a permuted slice of a contiguous tensor."""
    shape = draw(st.lists(st.integers(0, max_size), max_size=4))
    if draw(st.booleans()):
        strides = [draw(st.integers(0, max_stride)) for _ in shape]
        offset = draw(st.integers(0, 3))
        return torch.arange(4 * max_size * max_stride + 4).as_strided(shape, strides, offset)
    tensor = torch.arange(prod(shape)).view(shape).permute(*[draw(st.permutations(range(len(shape))))])
    return tensor[..., :: draw(st.integers(1, 2))] if shape else tensor


@given(strided_tensors())
def test_describe_agrees_with_torch(tensor):
    layout = describe(tensor)
    assert layout.shape == tuple(tensor.shape)
    assert layout.strides == tensor.stride()
    assert layout.offset == tensor.storage_offset()
    assert layout.nbytes == tensor.nbytes
    assert layout.storage_nbytes == tensor.untyped_storage().nbytes()


@given(strided_tensors())
def test_storage_indices_name_where_each_element_lies(tensor):
    indices = storage_indices(tensor)
    assert indices.shape == tensor.shape
    # the storage of every tensor here holds 0, 1, 2, …
    assert torch.equal(indices, tensor)
    layout = describe(tensor)
    for position in torch.cartesian_prod(*map(torch.arange, tensor.shape)) if tensor.dim() > 1 else []:
        assert layout.index(*position.tolist()) == tensor[tuple(position)]


def test_index_outside_the_shape_is_refused():
    layout = describe(torch.zeros(2, 3))
    for position in [(2, 0), (0, -1), (0,), (0, 0, 0)]:
        with pytest.raises(IndexError, match=r"not inside shape \(2, 3\)"):
            layout.index(*position)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_strides_is_refused():
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    for tensor, name in [(torch.eye(3).to_sparse(), "sparse_coo"), (nested, "Tensor of layout torch.strided")]:
        for function in [describe, storage_indices, lambda t: same_storage(t, t), lambda t: storage_nbytes([t])]:
            with pytest.raises(TypeError, match=f"only a strided tensor has a storage.*{name}"):
                function(tensor)
    with pytest.raises(TypeError, match="expected a torch tensor, not list"):
        describe([1, 2, 3])
    with pytest.raises(TypeError, match="expected a torch tensor, not NoneType"):
        same_storage(torch.zeros(1), None)


def test_indices_do_not_depend_on_the_default_device():
    with torch.device("meta"):
        indices = storage_indices(torch.zeros(2, 3, device="cpu").T)
    assert indices.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert indices.dtype == torch.int64


def test_a_tensor_whose_storage_was_freed_still_has_a_layout():
    tensor = torch.arange(5)
    tensor.untyped_storage().resize_(0)
    assert describe(tensor).storage_nbytes == 0
    assert storage_indices(tensor).tolist() == [0, 1, 2, 3, 4]


def test_layout_reads_as_a_sentence():
    expected = "shape (3, 4), strides (1, 3), offset 0, storage of 48 bytes"
    assert str(describe(torch.zeros(4, 3).T)) == expected


# --- sharing ---------------------------------------------------------------------------------------------


def test_same_storage():
    x = torch.arange(16.0).view(4, 4)
    for view in [x[1], x[:, 1], x.view(2, 8), x.T, x[:, :1].expand(4, 4), x.detach(), x.view(torch.int32)]:
        assert same_storage(x, view)
    for copy in [x.clone(), x.T.contiguous(), x.T.reshape(16), x + 0, torch.empty(0)]:
        assert not same_storage(x, copy)


def test_same_storage_without_an_address():
    meta, empty = torch.empty(2, 3, device="meta"), torch.empty(0)
    assert same_storage(meta, meta.T)
    assert same_storage(empty, empty.view(0, 1))
    assert not same_storage(meta, torch.empty(2, 3, device="meta"))
    assert not same_storage(empty, torch.empty(0))


def test_same_storage_through_numpy():
    array = torch.zeros(4).numpy()
    assert same_storage(torch.from_numpy(array), torch.from_numpy(array))
    assert same_storage(torch.from_numpy(array), torch.from_numpy(array[1:]))
    assert same_storage(torch.from_numpy(array[1:]), torch.from_numpy(array))
    assert not same_storage(torch.from_numpy(array[:2]), torch.from_numpy(array[2:]))
    empty = torch.from_numpy(array[:0])
    assert same_storage(empty, empty)


def test_total_storage_of_memory_that_numpy_owns():
    array = np.arange(10)
    whole, end, start = map(torch.from_numpy, (array, array[3:], array[:5]))
    for tensors in [[whole, end], [end, whole], [start, end, whole], [start, end]]:
        assert storage_nbytes(tensors) == array.nbytes
    assert storage_nbytes([start]) == 40  # what torch knows of


def test_one_tensor_is_not_a_collection():
    with pytest.raises(TypeError, match=r"storage_nbytes\(\[x\]\)"):
        storage_nbytes(torch.arange(5.0))


def test_total_storage_counts_each_storage_once_and_whole():
    x, y = torch.zeros(1000), torch.zeros(10, dtype=torch.float16)
    assert storage_nbytes([x[:1], x[5:], x]) == 4000
    assert storage_nbytes([x[:1], y]) == 4020
    assert storage_nbytes([]) == 0


def test_total_storage_of_tensors_without_memory():
    a, b = torch.empty(1000, device="meta"), torch.empty(10, device="meta")
    assert storage_nbytes([a, a[:1], b, torch.empty(0)]) == 4040


# --- view ------------------------------------------------------------------------------------------------


@st.composite
def factorisations(draw, number):
    """A shape with `number` elements, ones and a -1 here and there."""
    shape = []
    while number > 1 and len(shape) < 4:
        shape.append(draw(st.sampled_from([d for d in range(1, number + 1) if number % d == 0])))
        number //= shape[-1]
    shape += [number] if number != 1 else []
    if shape and draw(st.booleans()) and prod(shape):
        shape[draw(st.integers(0, len(shape) - 1))] = -1
    return shape


@settings(max_examples=1000)
@given(st.data())
def test_view_strides_is_the_rule_of_torch(data):
    tensor = data.draw(strided_tensors())
    new_shape = data.draw(factorisations(tensor.numel()))
    try:
        view = tensor.view(new_shape)
    except RuntimeError:
        view = None
    strides = view_strides(tensor.shape, tensor.stride(), new_shape)
    assert (strides is None) == (view is None)
    if view is not None and view.numel():
        # the stride of a dimension of size 1 is never used, and torch keeps an arbitrary one
        used = [axis for axis, size in enumerate(view.shape) if size > 1]
        assert [strides[axis] for axis in used] == [view.stride(axis) for axis in used]


@pytest.mark.parametrize("new_shape", [(5,), (7, 1), (-1, 4), (-1, -1), (-2, -3), (0, -1)])
def test_another_number_of_elements_is_refused(new_shape):
    with pytest.raises(ValueError, match="6 elements cannot have shape"):
        view_strides((2, 3), (3, 1), new_shape)


@pytest.mark.parametrize(("shape", "strides"), [((2, 3), (1,)), ((2, 0), (1,)), ((-2, -3), (3, 1)), ((2,), (-1,))])
def test_a_layout_that_cannot_be_is_refused(shape, strides):
    with pytest.raises(ValueError, match="must be of one length and not negative"):
        view_strides(shape, strides, (6,))


def test_sizes_are_integers_of_any_size():
    size = np.int64(2**32)
    assert view_strides((size, size), (size, np.int64(1)), (2**64,)) == (1,)
    with pytest.raises(TypeError):
        view_strides((1.5, 4), (4, 1), (6,))
    with pytest.raises(TypeError):
        describe(torch.zeros(2, 3)).index(1.0, 2)
    assert describe(torch.zeros(2, 3)).index(np.int64(1), torch.tensor(2)) == 5
