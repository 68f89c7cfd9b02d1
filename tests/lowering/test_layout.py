import itertools
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from lowering.layout import (
    LayoutKey,
    layout_key,
    ones_settled,
    reshape_strides,
    storage_of,
    tensor_layout_key,
    view_of,
)


def fake_mode() -> FakeTensorMode:
    return FakeTensorMode(shape_env=ShapeEnv())


def symbolic(*sizes: int) -> FakeTensor:
    """A contiguous fake tensor, every size above one a symbol of its own."""
    return fake_mode().from_tensor(torch.empty(sizes), static_shapes=False)


def guards(val: FakeTensor) -> int:
    return len(val.fake_mode.shape_env.guards)


@pytest.mark.parametrize(
    ("sizes", "strides", "key"),
    [
        ((), (), LayoutKey((), (), None, False)),
        ((4, 8), (8, 1), LayoutKey((0, 1), (), None, False)),
        ((4, 8), (12, 1), LayoutKey((0, 1), (), None, False)),
        ((4, 8), (1, 4), LayoutKey((1, 0), (), None, False)),
        ((4, 8), (16, 2), LayoutKey((0, 1), (), None, False)),
        ((4, 3), (5, 2), LayoutKey((0, 1), (), None, False)),  # x[:, ::2] of a 4 by 5
        ((1, 8), (99, 1), LayoutKey((1,), (), None, False)),
        ((0, 8), (8, 1), LayoutKey((1,), (), None, False)),
        ((4, 8), (0, 1), LayoutKey((1,), (0,), None, False)),
        ((4, 1), (0, 0), LayoutKey((), (0,), None, False)),
        ((3, 4), (2, 1), LayoutKey((0, 1), (), (2, 1), False)),  # windows that overlap
        ((3, 4), (1, 1), LayoutKey((0, 1), (), (1, 1), False)),
        ((2, 3, 4), (0, 2, 1), LayoutKey((1, 2), (0,), (2, 1), False)),
        ((2, 3, 4, 5), (60, 20, 5, 1), LayoutKey((0, 1, 2, 3), (), None, False)),
        ((2, 3, 4, 5), (60, 1, 15, 3), LayoutKey((0, 2, 3, 1), (), None, True)),
        ((2, 3, 4, 5), (999, 1, 60, 4), LayoutKey((0, 2, 3, 1), (), None, True)),
        ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), LayoutKey((0, 2, 3, 4, 1), (), None, True)),
    ],
)
def test_key_of_a_static_layout(
    sizes: tuple[int, ...], strides: tuple[int, ...], key: LayoutKey
) -> None:
    assert layout_key(sizes, strides) == key
    assert layout_key(torch.Size(sizes), list(strides)) == key


def test_slice_and_select_of_a_channels_last_tensor_differ() -> None:
    x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    sliced, selected = x[0:1], x.select(0, 0).unsqueeze(0)
    keys = [layout_key(view.shape, view.stride()) for view in (sliced, selected)]
    assert keys[0] is not None
    assert keys[1] is not None
    assert keys[0].order == keys[1].order
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("sizes", "strides", "row_major"),
    [
        ((4, 8), (12, 1), True),
        ((4, 1, 8), (12, 0, 1), True),
        ((4, 8), (1, 4), False),
        ((4, 8), (0, 1), False),
        ((3, 4), (2, 1), False),
    ],
)
def test_row_major(sizes: tuple[int, ...], strides: tuple[int, ...], row_major: bool) -> None:
    key = layout_key(sizes, strides)
    assert key is not None
    assert key.row_major is row_major


def test_channels_last_is_what_torch_suggests() -> None:
    choose = random.Random(0)
    seen = {False: 0, True: 0}
    for _ in range(5000):
        rank = choose.choice((3, 4, 5))
        sizes = [choose.choice((0, 1, 1, 2, 2, 3)) for _ in range(rank)]
        if choose.random() < 0.7:
            steps, step = [0] * rank, choose.choice((1, 1, 2))
            order = [1, *range(rank - 1, 1, -1), 0]
            if choose.random() < 0.3:
                choose.shuffle(order)
            for dim in order:
                steps[dim] = step
                step *= choose.choice((sizes[dim] or 1, sizes[dim] + 1))
        else:
            steps = [choose.choice((0, 1, 2, 3, 6, 12)) for _ in range(rank)]
        x = torch.empty_strided(sizes, steps)
        expected = suggest_memory_format(x) is not torch.contiguous_format
        key = layout_key(sizes, steps)
        assert key is not None
        assert key.channels_last is expected, (sizes, steps)
        seen[expected] += 1
    assert min(seen.values()) > 500


def elements(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    indices = itertools.product(*(range(size) for size in sizes))
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in indices]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=4))
@settings(deadline=None)
def test_a_layout_without_exact_strides_does_not_overlap(dims: list[tuple[int, int]]) -> None:
    sizes, strides = tuple(d[0] for d in dims), tuple(d[1] for d in dims)
    key = layout_key(sizes, strides)
    assert key is not None
    if key.exact is None:
        places = elements(
            tuple(size for dim, size in enumerate(sizes) if dim not in key.expanded),
            tuple(stride for dim, stride in enumerate(strides) if dim not in key.expanded),
        )
        assert len(set(places)) == len(places)


# Symbolic layouts.


def views_of_symbolic() -> list[tuple[str, FakeTensor]]:
    x, y = symbolic(6, 8, 10), symbolic(2, 3, 5, 7)
    return [
        ("contiguous", x),
        ("permuted", x.permute(2, 0, 1)),
        ("transposed", x.transpose(0, 1)),
        ("sliced", x[:, 2:]),
        ("sliced and permuted", x[:, :, 3:].permute(1, 0, 2)),
        ("selected", x[:, 1]),
        ("expanded", x[0].expand(4, -1, -1)),
        ("unsqueezed", x.unsqueeze(1)),
        ("rank 4", y),
        ("channels last", y.permute(0, 3, 1, 2)),
        ("rank 4 permuted", y.permute(2, 1, 3, 0)),
        ("heads", y.permute(0, 2, 1, 3)),
    ]


@pytest.mark.parametrize(("name", "val"), views_of_symbolic())
def test_a_symbolic_layout_is_keyed_as_its_instances_are(name: str, val: FakeTensor) -> None:
    def hint(value: int | torch.SymInt) -> int:
        return value if isinstance(value, int) else int(value.node.hint)

    before = guards(val)
    key = layout_key(val.shape, val.stride())
    assert key is not None
    assert guards(val) == before
    assert key == layout_key([hint(s) for s in val.shape], [hint(s) for s in val.stride()])


def test_products_of_symbols_are_ordered_without_a_guard() -> None:
    s0 = symbolic(6).shape[0]
    assert layout_key((s0, 4, 8), (32, 8, 1)) == LayoutKey((0, 1, 2), (), None, False)
    assert layout_key((4, s0, 8), (8 * s0, 8, 1)) == LayoutKey((0, 1, 2), (), None, False)
    assert layout_key((8, s0, 4), (1, 32, 8)) == LayoutKey((1, 2, 0), (), None, False)
    assert layout_key((s0, 8), (24, 1)) == LayoutKey((0, 1), (), None, False)


def test_an_unknown_order_has_no_key() -> None:
    x = fake_mode().from_tensor(torch.empty(9, 7)[::2, ::3], static_shapes=False)
    assert x.stride(0).node.expr != x.stride(1).node.expr
    assert layout_key(x.shape, x.stride()) is None
    assert tensor_layout_key(x) is None
    assert guards(x) == 0


def test_unbacked_sizes_are_keyed_where_every_value_agrees() -> None:
    shape_env = ShapeEnv()
    u0 = shape_env.create_unbacked_symint()
    torch._check(u0 >= 0)
    assert layout_key((u0, 8), (8, 1)) == LayoutKey((0, 1), (), None, False)
    assert layout_key((u0, 8), (1, u0)) == LayoutKey((1, 0), (), None, False)
    assert layout_key((u0, 8), (1, 16)) is None  # they overlap where u0 is above 16
    assert not shape_env.guards


def test_a_layout_that_becomes_known_gets_a_key() -> None:
    shape_env = ShapeEnv()
    u0 = shape_env.create_unbacked_symint()
    assert layout_key((4, u0), (u0, 1)) == LayoutKey((0, 1), (), None, False)
    assert layout_key((4, 8), (u0, 1)) is None
    torch._check(u0 >= 8)
    assert layout_key((4, 8), (u0, 1)) == LayoutKey((0, 1), (), None, False)


# Keys and storages of tensors.


def test_meta_key_of_a_static_tensor() -> None:
    key = tensor_layout_key(fake_mode().from_tensor(torch.empty(4, 8), static_shapes=True))
    assert key is not None
    assert key.shape == (4, 8)
    assert key.dtype is torch.float32
    assert key.device == torch.device("cpu")
    assert key.layout == LayoutKey((0, 1), (), None, False)


def test_meta_key_spells_symbolic_sizes() -> None:
    x = symbolic(6, 8)
    key = tensor_layout_key(x[:, 2:])
    assert key is not None
    assert key.shape == tuple(str(size.node.expr) for size in x[:, 2:].shape)
    assert key == tensor_layout_key(x[:, 1:-1])
    assert key != tensor_layout_key(x)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("shape", lambda x: x[:2]),
        ("dtype", lambda x: x.to(torch.complex128)),
        ("device", lambda x: x.to("meta")),
        ("order", lambda x: x.t().contiguous().t()),
        ("conjugate bit", lambda x: x.conj()),
    ],
)
def test_meta_keys_tell_apart(name: str, other) -> None:  # type: ignore[no-untyped-def]
    x = torch.empty(4, 8, dtype=torch.complex64)
    assert tensor_layout_key(x) is not None
    assert tensor_layout_key(other(x)) is not None
    assert tensor_layout_key(x) != tensor_layout_key(other(x))


def test_meta_key_holds_the_negative_bit() -> None:
    x = torch.empty(4, dtype=torch.complex64)
    negative = tensor_layout_key(x.conj().imag)
    assert negative is not None
    assert negative.layout.neg
    assert not negative.layout.conj


def test_padding_and_offset_are_not_in_the_key() -> None:
    mode = fake_mode()
    x = mode.from_tensor(torch.empty(4, 8), static_shapes=True)
    wide = mode.from_tensor(torch.empty(6, 24), static_shapes=True)
    assert tensor_layout_key(wide[1:5, 8:16]) == tensor_layout_key(x)


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, 3).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.empty(2), torch.empty(3)]),
        lambda: torch.nested.nested_tensor([torch.empty(2), torch.empty(3)], layout=torch.jagged),
        lambda: torch.quantize_per_tensor(torch.empty(3), 0.1, 0, torch.qint8),
        lambda: torch.empty(3).as_subclass(Subclass),
        lambda: 3,
        lambda: None,
        lambda: [torch.empty(3)],
    ],
    ids=["sparse", "nested", "jagged", "quantized", "subclass", "int", "none", "list"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_no_strided_tensor_has_neither_key_nor_storage(make) -> None:  # type: ignore[no-untyped-def]
    val = make()
    assert tensor_layout_key(val) is None
    assert storage_of(val) is None


def test_views_share_their_storage_and_copies_do_not() -> None:
    x = symbolic(4, 8)
    assert storage_of(x) is not None
    assert storage_of(x[1:]) == storage_of(x)
    assert storage_of(x + 1) != storage_of(x)
    assert storage_of(torch.nn.Parameter(torch.empty(2))) is not None


@pytest.mark.parametrize(
    ("sizes", "strides", "settled"),
    [
        ((), (), True),
        ((2, 3), (1, 2), True),
        ((2, 3), (99, 7), True),
        ((1, 8), (8, 1), True),
        ((1, 8), (24, 1), False),  # torch calls it contiguous; clone hands the 24 on
        ((1, 4, 8), (96, 24, 1), True),
        ((4, 1, 8), (24, 24, 1), True),
        ((4, 6, 1, 8), (144, 8, 144, 1), False),  # heads of one token, sliced
        ((4, 6, 1, 8), (48, 8, 8, 1), True),
        ((4, 6, 1, 8), (48, 8, 48, 1), False),
        ((8, 1), (1, 8), False),
        ((1,), (1,), True),
        ((1,), (2,), False),
        ((0, 8), (8, 1), False),
    ],
)
def test_ones_settled(sizes: tuple[int, ...], strides: tuple[int, ...], settled: bool) -> None:
    assert ones_settled(sizes, strides) is settled


def test_symbolic_ones_settled_as_far_as_known() -> None:
    x = symbolic(6, 8)
    assert ones_settled(x.shape, x.stride())
    assert ones_settled(x[:, 2:].shape, x.stride())
    assert ones_settled(x.unsqueeze(0).shape, x.unsqueeze(0).stride())
    assert not ones_settled(x[:, 2:].t().shape, x.t().stride())  # s1 - 2 may be one
    assert guards(x) == 0


# view_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("device", ["cpu", "meta", "cuda:0"])
def test_view_of_is_what_propagation_gives(dtype: torch.dtype, device: str) -> None:
    mode = FakeTensorMode()
    with mode:
        x = torch.empty(6, 8, dtype=dtype, device=device)
    expected = torch.as_strided(x, (2, 3), (8, 2), 5)
    view = view_of(x, (2, 3), (8, 2), 5)
    assert type(view) is FakeTensor
    assert view.fake_mode is mode
    assert view.device == expected.device == x.device
    assert view.dtype is expected.dtype
    assert view.shape == expected.shape
    assert view.stride() == expected.stride()
    assert view.storage_offset() == expected.storage_offset()
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert view.requires_grad == expected.requires_grad


def test_view_of_a_symbolic_tensor_adds_no_guard() -> None:
    x = symbolic(6, 8, 10)
    sizes, strides = tuple(x.shape), x.stride()
    view = view_of(x, (sizes[1], sizes[0]), (strides[1], strides[0]), 3 * sizes[2])
    assert guards(x) == 0
    assert [str(size) for size in view.shape] == [str(sizes[1]), str(sizes[0])]
    assert [str(s) for s in view.stride()] == [str(strides[1]), str(strides[0])]
    assert str(view.storage_offset()) == str(3 * sizes[2])
    assert storage_of(view) == storage_of(x)


def test_a_view_of_can_be_propagated_on() -> None:
    x = symbolic(6, 8)
    view = view_of(x, (3, x.shape[1]), x.stride(), 0)
    assert tensor_layout_key(view * 2) == tensor_layout_key(x[:3] * 2)
    assert storage_of(view_of(view, (3,), (1,), 2)) == storage_of(x)


@pytest.mark.parametrize("bit", ["conj", "imag_of_conj"])
def test_view_of_keeps_the_bits(bit: str) -> None:
    mode = FakeTensorMode()
    with mode:
        x = torch.empty(6, 8, dtype=torch.complex64).conj()
        x = x.imag if bit == "imag_of_conj" else x
    view = view_of(x, (4,), (2,), 1)
    assert (view.is_conj(), view.is_neg()) == (x.is_conj(), x.is_neg())
    assert view.is_conj() or view.is_neg()


@pytest.mark.parametrize("grad_mode", [False, True])
def test_view_of_requires_grad_as_propagation_has_it(grad_mode: bool) -> None:
    x = FakeTensorMode().from_tensor(torch.empty(4, 8, requires_grad=True))
    with torch.set_grad_enabled(grad_mode):
        assert view_of(x, (4,), (8,), 0).requires_grad is x[:, 0].requires_grad is True
        assert view_of(x.detach(), (4,), (8,), 0).requires_grad is False


def test_view_of_leaves_the_modes_around_it_alone() -> None:
    x = symbolic(4, 8)
    with x.fake_mode, torch.inference_mode():
        view = view_of(x, (4,), (8,), 0)
        assert type(torch.empty(2)) is FakeTensor
    assert storage_of(view) == storage_of(x)


def test_view_of_takes_fake_tensors_only() -> None:
    with pytest.raises(TypeError, match="FakeTensor, not Tensor"):
        view_of(torch.empty(4), (4,), (1,), 0)  # type: ignore[arg-type]


# reshape_strides


def shapes_of(count: int, rank: int) -> list[tuple[int, ...]]:
    """All shapes of `rank` with `count` elements, sizes up to 3 where it is zero."""
    choices = range(1, count + 1) if count else range(4)
    return [sizes for sizes in itertools.product(choices, repeat=rank) if math.prod(sizes) == count]


def torch_view_strides(x: torch.Tensor, new_sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return x.view(new_sizes).stride()
    except RuntimeError:
        return None


@pytest.mark.parametrize("count", [0, 1, 2, 4, 6, 8, 12])
def test_reshape_strides_are_those_of_torch(count: int) -> None:
    choose = random.Random(count)
    olds = [sizes for rank in range(5) for sizes in shapes_of(count, rank)]
    copies = views = 0
    for old, new in choose.sample([*itertools.product(olds, olds)], min(400, len(olds) ** 2)):
        for _ in range(4):
            order = choose.sample(range(len(old)), len(old))
            strides, step = [0] * len(old), choose.choice((1, 2))
            for dim in order if choose.random() < 0.5 else reversed(range(len(old))):
                strides[dim] = choose.choice((step, step, step, step, 0, 7))
                step *= max(1, old[dim]) + choose.choice((0, 0, 0, 1))
            expected = torch_view_strides(torch.empty_strided(old, strides), new)
            assert reshape_strides(old, strides, new) == expected, (old, strides, new)
            copies += expected is None
            views += expected is not None
    assert views > 0
    assert copies > 0 or count < 4


def test_reshape_strides_of_symbolic_sizes() -> None:
    x = symbolic(4, 6, 8)
    a, b, c = x.shape
    before = guards(x)

    def check(val: FakeTensor, new_sizes: tuple[int | torch.SymInt, ...]) -> None:
        strides = reshape_strides(val.shape, val.stride(), new_sizes)
        assert strides is not None
        with x.fake_mode.shape_env.suppress_guards():
            expected = val.reshape(new_sizes)
        assert [str(s) for s in strides] == [str(s) for s in expected.stride()]
        assert storage_of(expected) == storage_of(val)

    check(x, (a * b, c))
    check(x, (a, b * c))
    check(x, (a * b * c,))
    check(x, (a, 1, b, c, 1))
    check(x[:, 1:], (a, (b - 1) * c))
    check(x.permute(2, 0, 1), (c, a * b))
    assert reshape_strides(x[:, 1:].shape, x.stride(), (a * (b - 1), c)) is None
    assert reshape_strides(x.shape, x.permute(1, 0, 2).stride(), (a * b, c)) is None
    assert guards(x) == before
