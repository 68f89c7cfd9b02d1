"""CASES.md 1 to 6, 8, 10 and 12: partitions and splits, in every spelling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import Options, canonical_text, capture, saturate
from tests.lowering.support import GEOMETRY, Builder, calls, check, code_of, targets

aten = torch.ops.aten
END = 2**63 - 1

Pieces = list[fx.Node]
Spelling = Callable[[Builder, fx.Node, Sequence[int], int], Pieces]


def single(function: Callable[..., object], *inputs: Any, dynamic: bool = False) -> fx.GraphModule:
    (module,) = capture(function, *inputs, dynamic=dynamic)
    return module


def slices_in(module: fx.GraphModule) -> int:
    return targets(module)["aten.slice.Tensor"]


def splits_in(module: fx.GraphModule) -> int:
    return targets(module)["aten.split_with_sizes.default"]


def getitems(b: Builder, node: fx.Node, indices: Sequence[int]) -> Pieces:
    return [b.call(operator.getitem, node, i) for i in indices]


def read(b: Builder, pieces: Pieces) -> fx.GraphModule:
    """Read each piece by an operator of its own, so that no two reads are one."""
    functions = (aten.sin, aten.cos, aten.exp, aten.tanh, aten.sigmoid, aten.relu)
    return b.output(
        *[b.call(function.default, p) for p, function in zip(pieces, functions, strict=False)]
    )


# Spellings of a partition ------------------------------------------------------------------------


def sized(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.split_with_sizes.default, x, list(sizes), d)
    return getitems(b, split, range(len(sizes)))


def sized_from_the_back(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.split_with_sizes.default, x, tuple(sizes), d - x.meta["val"].dim())
    return getitems(b, split, range(-len(sizes), 0))


def sized_by_keyword(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.split_with_sizes.default, self=x, dim=d, split_sizes=list(sizes))
    return getitems(b, split, range(len(sizes)))


def split_sizes_overload(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.split.sizes, x, list(sizes), dim=d)
    return getitems(b, split, range(len(sizes)))


def a_split_for_each(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return [sized(b, x, sizes, d)[i] for i in range(len(sizes))]


def backwards(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    pieces = [sized(b, x, sizes, d)[i] for i in reversed(range(len(sizes)))]
    return pieces[::-1]


def cuts_of(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def sliced(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return [b.call(aten.slice.Tensor, x, d, a, e) for a, e in pairwise(cuts_of(sizes))]


def sliced_to_the_end(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    cuts = cuts_of(sizes)
    return [
        b.call(
            aten.slice.Tensor,
            x,
            d % x.meta["val"].dim() - x.meta["val"].dim(),
            a,
            END if e == cuts[-1] else e,
        )
        for a, e in pairwise(cuts)
    ]


def sliced_from_the_end(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    cuts = cuts_of(sizes)
    total = cuts[-1]
    return [
        b.call(aten.slice.Tensor, x, d, a - total, END if e == total else e - total)
        for a, e in pairwise(cuts)
    ]


def sliced_by_keyword(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    cuts = cuts_of(sizes)
    return [
        b.call(
            aten.slice.Tensor,
            x,
            step=1,
            end=None if e == cuts[-1] else e,
            start=a or None,
            dim=d,
        )
        for a, e in pairwise(cuts)
    ]


def narrowed(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    starts = cuts_of(sizes)
    return [b.call(aten.narrow.default, x, d, a, n) for a, n in zip(starts, sizes, strict=False)]


def narrowed_from_the_end(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    starts = [a - sum(sizes) for a in cuts_of(sizes)]
    return [b.call(aten.narrow.default, x, d, a, n) for a, n in zip(starts, sizes, strict=False)]


def split_at(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.tensor_split.indices, x, cuts_of(sizes)[1:-1], d)
    return getitems(b, split, range(len(sizes)))


def split_and_slice(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return [*sized(b, x, sizes, d)[:1], *sliced_from_the_end(b, x, sizes, d)[1:]]


def sliced_twice(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    """Each piece through a slice that lies in no tiling."""
    d %= x.meta["val"].dim()
    cuts = cuts_of(sizes)
    total = cuts[-1]
    return [
        b.call(aten.slice.Tensor, b.call(aten.slice.Tensor, x, d, a, END), d, 0, e - a)
        if 0 < a < cuts[-2]
        else b.call(aten.slice.Tensor, x, d, a, e - total or END)
        for a, e in pairwise(cuts)
    ]


SPELLINGS: tuple[Spelling, ...] = (
    sized_from_the_back,
    sized_by_keyword,
    split_sizes_overload,
    a_split_for_each,
    backwards,
    sliced,
    sliced_to_the_end,
    sliced_from_the_end,
    sliced_by_keyword,
    narrowed,
    narrowed_from_the_end,
    split_at,
    split_and_slice,
    sliced_twice,
)


# Bounds that count from the end can't end an empty piece at the end.
FROM_THE_END = (
    sliced_from_the_end,
    sliced_by_keyword,
    sliced_twice,
    narrowed_from_the_end,
    split_and_slice,
)


def equal_split(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return getitems(b, b.call(aten.split.Tensor, x, sizes[0], d), range(len(sizes)))


def equal_split_by_keyword(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    split = b.call(aten.split.Tensor, x, dim=d, split_size=sizes[0])
    return getitems(b, split, range(len(sizes)))


def chunked(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return getitems(b, b.call(aten.chunk.default, x, len(sizes), d), range(len(sizes)))


def split_in(b: Builder, x: fx.Node, sizes: Sequence[int], d: int) -> Pieces:
    return getitems(b, b.call(aten.tensor_split.sections, x, len(sizes), d), range(len(sizes)))


PARTITIONS: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
    ((5, 16), 1, (8, 4, 4)),
    ((5, 16), 1, (4, 8, 4)),
    ((16, 3), 0, (12, 4)),
    ((2, 7, 3), 1, (1, 2, 1, 3)),
    ((6,), 0, (1, 5)),
    ((1, 2, 8, 1), 2, (5, 3)),
    ((0, 6), 1, (2, 4)),
    ((3, 3), 1, (1, 1, 1)),
)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("shape", "d", "sizes"), PARTITIONS)
def test_every_spelling_of_a_partition_is_one_split(spelling, shape, d, sizes):
    b = Builder()
    module = read(b, spelling(b, b.input(*shape), sizes, d))
    check(module)
    (split,) = calls(module, aten.split_with_sizes.default)
    assert list(split.args[1]) == list(sizes)
    assert (split.args[2], split.kwargs) == (-1 if d == len(shape) - 1 else d, {})
    assert [node.args[1] for node in calls(module, operator.getitem)] == list(range(len(sizes)))
    assert targets(module).total() == 1 + 2 * len(sizes)
    expected = Builder()
    plain = read(expected, sized(expected, expected.input(*shape), sizes, d))
    assert canonical_text(module) == canonical_text(plain)


@pytest.mark.parametrize(
    "spelling", [equal_split, equal_split_by_keyword, chunked, split_in], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(
    ("shape", "d", "sizes"),
    [((2, 12), 1, (4, 4, 4)), ((6, 3), 0, (3, 3)), ((2, 4, 1), 1, (1, 1, 1, 1))],
)
def test_equal_pieces_in_every_spelling_are_one_split(spelling, shape, d, sizes):
    texts = []
    for each in (spelling, sized):
        b = Builder()
        module = read(b, each(b, b.input(*shape), sizes, d))
        check(module)
        texts.append(canonical_text(module))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn],
    ids=str,
)
@pytest.mark.parametrize("stride", [(16, 1), (1, 3), (0, 1), (40, 2)], ids=str)
def test_dtype_and_layout_of_the_source_do_not_matter(dtype, stride):
    b = Builder()
    x = b.input(3, 16, dtype=dtype, stride=stride)
    pieces = sliced(b, x, (8, 4, 4), 1)
    module = b.output(*pieces, *[b.call(GEOMETRY, piece) for piece in pieces])
    check(module)
    assert (splits_in(module), slices_in(module)) == (1, 0)


# 1 and 2: captured -------------------------------------------------------------------------------

QKV = (2048, 512, 512)


def three_splits(x: Tensor) -> tuple[Tensor, ...]:
    q, k, v = (x.split(QKV, -1)[i] for i in range(3))
    return q.sin(), k.cos(), v.exp()


def three_splits_in_another_order(x: Tensor) -> tuple[Tensor, ...]:
    v, k, q = (x.split(QKV, 1)[i] for i in (2, 1, 0))
    return q.sin(), k.cos(), v.exp()


def three_slices(x: Tensor) -> tuple[Tensor, ...]:
    return x[:, 0:2048].sin(), x[:, 2048:2560].cos(), x[:, 2560:].exp()


def negative_slices(x: Tensor) -> tuple[Tensor, ...]:
    return x[..., :-1024].sin(), x[..., -1024:-512].cos(), x[..., -512:].exp()


def narrow(x: Tensor) -> tuple[Tensor, ...]:
    return x.narrow(1, 0, 2048).sin(), x.narrow(1, 2048, 512).cos(), x.narrow(-1, -512, 512).exp()


def tensor_split(x: Tensor) -> tuple[Tensor, ...]:
    q, k, v = x.tensor_split((2048, 2560), 1)
    return q.sin(), k.cos(), v.exp()


def split_and_narrow(x: Tensor) -> tuple[Tensor, ...]:
    q, k, _ = x.split(QKV, -1)
    return q.sin(), k.cos(), x.narrow(1, 2560, 512).exp()


def vsplit(x: Tensor) -> tuple[Tensor, ...]:
    q, k, v = x.hsplit((2048, 2560))
    return q.sin(), k.cos(), v.exp()


CAPTURED = (
    three_splits,
    three_splits_in_another_order,
    three_slices,
    negative_slices,
    narrow,
    tensor_split,
    split_and_narrow,
    vsplit,
)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_captured_spellings_are_one_graph(dynamic):
    texts = []
    for function in CAPTURED:
        x = torch.randn(7, 3072)
        torch._dynamo.mark_static(x, 1)
        module = single(function, x, dynamic=dynamic)
        check(module, [7, x] if dynamic else [x], shuffles=(1,))
        (split,) = calls(module, aten.split_with_sizes.default)
        assert split.args[1:] == ([2048, 512, 512], -1)
        assert isinstance(split.meta["val"], list)
        pieces = calls(module, operator.getitem)
        assert sorted(node.args[1] for node in pieces) == [0, 1, 2]
        assert all(node.args[0] is split for node in pieces)
        assert targets(module).total() == 7
        if function is three_slices:
            assert all(node.meta["val"] is split.meta["val"][node.args[1]] for node in pieces)
            assert all("three_slices" in node.stack_trace for node in (split, *pieces))
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    ("options", "called"),
    [
        (Options(emit="positive_dims"), {"_operator.getitem": 3, "split_with_sizes": 1}),
        (Options(prefer="slices"), {"slice": 3}),
        (Options(prefer="slices", emit="positive_dims"), {"slice": 3}),
    ],
    ids=["positive_dims", "slices", "both"],
)
def test_the_form_is_an_option(options, called):
    texts = []
    for function in CAPTURED:
        x = torch.randn(3, 3072)
        module = single(function, x)
        check(module, [x], options, shuffles=(1,))
        for node in calls(module, aten.split_with_sizes.default):
            assert node.args[1:] == ([2048, 512, 512], 1)
        assert slices_in(module) == called.get("slice", 0)
        assert targets(module).total() == 3 + sum(called.values())
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


# 3: what is no partition -------------------------------------------------------------------------


@pytest.mark.parametrize("d", [0, 1])
@pytest.mark.parametrize(
    "intervals",
    [
        [(0, 3), (4, 8)],
        [(0, 5), (4, 8)],
        [(1, 4), (4, 8)],
        [(0, 4), (4, 7)],
        [(0, 4)],
        [(4, 8)],
        [(3, 3)],
        [(0, 2), (2, 4), (5, 8)],
        [(0, 2), (1, 4), (4, 8)],
        [(0, -4), (-5, END)],
        [(-100, 4), (5, 100)],
        [(0, 4), (6, 2), (5, 8)],
    ],
    ids=str,
)
def test_what_does_not_tile_stays_slices(intervals, d):
    b = Builder()
    x = b.input(*((8, 2) if d == 0 else (2, 8)))
    module = read(b, [b.call(aten.slice.Tensor, x, d, *interval) for interval in intervals])
    check(module)
    assert (splits_in(module), slices_in(module)) == (0, len(intervals))


@pytest.mark.parametrize("dim", [(1,), (-1,)], ids=str)
@pytest.mark.parametrize(
    "slices",
    [[(0, 8, 2)], [(0, 8, 2), (1, 8, 2)], [(0, 4, 2), (4, 8, 1)], [(0, 8, 8), (1, 8, 1)]],
    ids=str,
)
def test_steps_stay(slices, dim):
    b = Builder()
    x = b.input(2, 8)
    module = read(b, [b.call(aten.slice.Tensor, x, *dim, *each) for each in slices])
    code = code_of(module.graph)
    check(module)
    assert splits_in(module) == 0
    assert code_of(module.graph) == code or slices[-1][2] == 1


@pytest.mark.parametrize(
    "bounds", [(), (0, 8), (0, END), (None, None), (-8, 8), (-100, 100)], ids=str
)
@pytest.mark.parametrize("dim", [0, 1, -2, -1])
def test_a_whole_slice_is_its_source(bounds, dim):
    b = Builder()
    x = b.input(8, 8)
    module = read(b, [b.call(aten.slice.Tensor, x, dim, *bounds)])
    check(module)
    assert targets(module) == {"aten.sin.default": 1}


@pytest.mark.parametrize("returned", ["slice", "both"])
@pytest.mark.parametrize("of_input", [False, True], ids=["fresh", "input"])
def test_a_whole_slice_that_is_returned_shares_what_it_shared(returned, of_input):
    b = Builder()
    x = b.input(2, 8)
    x = x if of_input else b.call(aten.sin.default, x)
    whole = b.call(aten.slice.Tensor, x, 1, 0, 8)
    check(b.output(*([whole] if returned == "slice" else [whole, x])))


@pytest.mark.parametrize(
    ("named", "split", "slices"),
    [
        # Beside the partition, what overlaps is a slice.
        ([(0, 8), (8, 12), (12, 16), (0, 12)], [8, 4, 4], 1),
        ([(0, 8), (8, 12), (12, 16), (4, 16)], [8, 4, 4], 1),
        ([(0, 8), (8, 12), (12, 16), (8, 16)], [8, 4, 4], 1),
        ([(0, 8), (8, 12), (12, 16), (0, 8)], [8, 4, 4], 0),
        ([(0, 8), (8, 12), (12, 16), (0, 16)], [8, 4, 4], 0),
        ([(0, 8), (8, 16), (3, 5), (9, 10)], [8, 8], 2),
    ],
    ids=str,
)
def test_what_overlaps_a_partition_is_a_slice(named, split, slices):
    b = Builder()
    x = b.input(5, 16)
    module = read(b, [b.call(aten.slice.Tensor, x, 1, a, e) for a, e in named])
    check(module)
    assert [node.args[1] for node in calls(module, aten.split_with_sizes.default)] == [split]
    assert slices_in(module) == slices


@pytest.mark.parametrize("read_pieces", [[0], [2], [0, 1], [0, 2], [1, 2], [1, 2, 3]], ids=str)
@pytest.mark.parametrize("cut", [sized, a_split_for_each, split_at], ids=lambda f: f.__name__)
def test_a_split_with_an_unread_piece_is_slices(cut, read_pieces):
    b = Builder()
    pieces = cut(b, b.input(5, 16), (2, 6, 4, 4), 1)
    module = read(b, [pieces[i] for i in read_pieces])
    check(module)
    assert (splits_in(module), slices_in(module)) == (0, len(read_pieces))


def test_partitions_without_a_common_piece_are_two_splits():
    b = Builder()
    x = b.input(5, 16)
    module = read(b, [*sliced(b, x, (4, 12), 1), *sized(b, x, (10, 6), 1)])
    check(module)
    assert (splits_in(module), slices_in(module)) == (2, 0)


def test_partitions_with_a_common_piece_are_a_split_and_slices():
    b = Builder()
    x = b.input(5, 16)
    module = read(b, [*sized(b, x, (8, 8), 1), *sized(b, x, (8, 4, 4), 1)])
    check(module)
    (split,) = calls(module, aten.split_with_sizes.default)
    assert (split.args[1], slices_in(module)) == ([8, 4, 4], 1)


# 4: dimensions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(0, 1), (0, -1), (-2, 1), (-2, -1)], ids=str)
@pytest.mark.parametrize("cut", [sized, sliced_to_the_end], ids=lambda f: f.__name__)
def test_splits_along_two_dimensions_are_two(cut, dims):
    b = Builder()
    x = b.input(8, 8)
    module = read(b, [*cut(b, x, (4, 4), dims[0]), *cut(b, x, (4, 4), dims[1])])
    check(module)
    splits = calls(module, aten.split_with_sizes.default)
    assert [node.args[1:] for node in splits] == [([4, 4], 0), ([4, 4], -1)]


def test_equal_splits_of_two_tensors_are_two():
    b = Builder()
    module = read(b, [*sized(b, b.input(8), (4, 4), 0), *sized(b, b.input(8), (4, 4), 0)])
    check(module)
    assert splits_in(module) == 2


# 5: uneven, oversized, empty ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shape", "sizes", "dim"),
    [
        (lambda x: x.split(4, 1), (2, 10), [4, 4, 2], -1),
        (lambda x: x.split(4, -1), (2, 10), [4, 4, 2], -1),
        (lambda x: x.chunk(3, 1), (2, 10), [4, 4, 2], -1),
        (lambda x: x.chunk(3), (10, 2), [4, 4, 2], 0),
        (lambda x: x.chunk(4, -1), (2, 10), [3, 3, 3, 1], -1),
        (lambda x: x.chunk(5, -1), (2, 6), [2, 2, 2], -1),
        (lambda x: x.tensor_split(3, 1), (2, 10), [4, 3, 3], -1),
        (lambda x: x.tensor_split(4, 0), (6, 2), [2, 2, 1, 1], 0),
        (lambda x: x.split(1, 1), (2, 3), [1, 1, 1], -1),
        (lambda x: x.split(7, 0), (8, 2), [7, 1], 0),
    ],
)
def test_uneven_pieces_are_as_eager_has_them(function, shape, sizes, dim):
    x = torch.randn(shape)
    module = single(lambda x: [piece.sin() for piece in function(x)], x)
    check(module, [x], shuffles=(1,))
    (split,) = calls(module, aten.split_with_sizes.default)
    assert split.args[1:] == (sizes, dim)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.split(320, -1), (4096, 300)),
        (lambda x: x.split(300, -1), (4, 300)),
        (lambda x: x.split([6], 1), (4, 6)),
        (lambda x: x.chunk(1, 0), (4, 6)),
        (lambda x: x.chunk(3, 0), (1, 6)),
        (lambda x: x.tensor_split(1, 1), (4, 6)),
        (lambda x: x.split(4, 1), (2, 0)),
        (lambda x: x.split(0, 1), (2, 0)),
    ],
)
def test_one_piece_is_the_source(function, shape):
    x = torch.randn(shape)
    module = single(lambda x: [piece.sin() for piece in function(x)], x)
    check(module, [x], shuffles=(1,))
    assert targets(module) == {"aten.sin.default": 1}


@pytest.mark.parametrize(
    "sizes", [(0, 8), (8, 0), (0, 4, 4), (4, 0, 4), (4, 4, 0, 0), (0, 0, 8)], ids=str
)
def test_empty_pieces_are_one_empty_slice(sizes):
    texts = []
    for spelling in (sized, *SPELLINGS):
        if spelling in FROM_THE_END:
            continue
        b = Builder()
        pieces = spelling(b, b.input(2, 8), sizes, 1)
        module = b.output(*[b.call(aten.sin.default, piece) for piece in pieces])
        check(module, shuffles=(1,))
        assert splits_in(module) == (sizes.count(0) < len(sizes) - 1)
        (empty_slice,) = calls(module, aten.slice.Tensor)
        assert empty_slice.meta["val"].shape == (2, 0)
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.chunk(3, 1),
        lambda x: x.split([0, 0], 1),
        lambda x: x.tensor_split(2, 1),
        lambda x: (x[:, :0], x[:, 0:]),
        lambda x: (x[:, 3:], x[:, :-1]),
        lambda x: x.unbind(0),
        lambda x: x.split(1, 0),
    ],
)
@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3)], ids=str)
def test_empty_dimensions_are_as_eager_has_them(function, shape):
    x = torch.randn(shape)
    check(single(lambda x: [piece.sin() for piece in function(x)], x), [x], shuffles=(1,))


# 6: split of a cat -------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[2, 3, 5], [5, 5], [2, 5, 3], [3, 2, 5], [10]], ids=str)
@pytest.mark.parametrize("dims", [(1, 1), (1, -1), (-1, 1), (0, None), (-2, 0)], ids=str)
@pytest.mark.parametrize("whole", [False, True], ids=["pieces", "whole_too"])
def test_split_of_cat_keeps_values(sizes, dims, whole):
    def function(*tensors: Tensor) -> list[Tensor]:
        joined = torch.cat(tensors, dims[0])
        pieces = joined.split(sizes) if dims[1] is None else joined.split(sizes, dims[1])
        return [piece.sin() for piece in pieces] + [joined.cos()] * whole

    shape = (lambda n: (4, n)) if dims[0] in (1, -1) else (lambda n: (n, 4))
    inputs = [torch.randn(shape(n)) for n in (2, 3, 5)]
    if dims == (1, -1):
        module = single(function, *inputs)
    else:
        module = make_fx(function, tracing_mode="fake")(*inputs)
    check(module, inputs, shuffles=(1,))


# 8: nested ---------------------------------------------------------------------------------------

NESTED: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "slices": lambda x: (x[:, :4][:, :2], x[:, :4][:, 2:], x[:, 4:]),
    "splits": lambda x: (*x.split(4, -1)[0].split(2, -1), x.split(4, -1)[1]),
    "split_of_slice": lambda x: (*x[:, :4].split(2, 1), x[:, -4:]),
    "slices_of_split": lambda x: (
        x.chunk(2, 1)[0][:, :-2],
        x.chunk(2, 1)[0][:, -2:],
        x.chunk(2, 1)[1],
    ),
    "narrow": lambda x: (
        x.narrow(1, 0, 4).narrow(1, 0, 2),
        x.narrow(1, 0, 4).narrow(1, 2, 2),
        x.narrow(1, 4, 4),
    ),
}


@pytest.mark.parametrize("outer_too", [False, True], ids=["leaves", "outer_too"])
def test_nested_partitions_stay_nested(outer_too):
    def reader(cut: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], Any]:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            a, b, c = cut(x)
            return (a.sin(), b.cos(), c.exp(), *([x[:, 0:4].tanh()] * outer_too))

        return function

    texts = []
    for cut in NESTED.values():
        x = torch.randn(2, 8)
        module = single(reader(cut), x)
        check(module, [x], shuffles=(1,))
        outer, inner = calls(module, aten.split_with_sizes.default)
        assert (outer.args[1], inner.args[1]) == ([4, 4], [2, 2])
        assert (inner.args[0].args, slices_in(module)) == ((outer, 0), 0)
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


def test_partitions_of_partitions_of_partitions_stay_nested():
    b = Builder()
    x = b.input(3, 16)
    left, right = sliced(b, x, (8, 8), 1)
    middle, rest = sized(b, left, (4, 4), 1)
    module = read(b, [*sliced_to_the_end(b, middle, (1, 3), 1), rest, *sized(b, right, (2, 6), 1)])
    check(module)
    assert (splits_in(module), slices_in(module)) == (4, 0)


def test_partition_of_a_piece_along_another_dimension():
    b = Builder()
    x = b.input(4, 16)
    left, right = sliced(b, x, (8, 8), 1)
    module = read(b, [*sliced(b, left, (1, 3), 0), right])
    check(module)
    assert (splits_in(module), slices_in(module)) == (2, 0)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((1, 7), [(0, 2), (3, 5)], [(1, 3), (4, 6)]),
        ((1, 7), [(0, 3)], [(1, 4)]),
        ((2, 8), [(1, 100)], [(3, 8)]),
        ((0, 7), [(2, 5), (3, 7)], [(2, 5), (3, 7)]),
        ((-6, -1), [(-3, -1)], [(4, 6)]),
    ],
    ids=str,
)
def test_a_slice_that_nothing_tiles_is_composed_away(outer, inner, expected):
    b = Builder()
    x = b.call(aten.slice.Tensor, b.input(2, 8), 1, *outer)
    module = read(b, [b.call(aten.slice.Tensor, x, 1, *each) for each in inner])
    check(module)
    slices = calls(module, aten.slice.Tensor)
    assert [node.args[0].op for node in slices] == ["placeholder"] * len(expected)
    assert [node.args[2:] for node in slices] == expected


def test_a_tiled_slice_that_lies_in_no_tiling_stays():
    b = Builder()
    x = b.call(aten.slice.Tensor, b.input(2, 8), 1, 1, 7)
    module = read(b, sliced(b, x, (2, 4), 1))
    check(module)
    assert (splits_in(module), slices_in(module)) == (1, 1)


# 10: symbolic bounds ------------------------------------------------------------------------------

AT_A_SYMBOL: dict[str, Callable[[Builder, fx.Node, fx.Node], Pieces]] = {
    "slices": lambda b, s, x: [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, s, END),
    ],
    "sizes": lambda b, s, x: sized(b, x, [s, b.call(operator.sub, 10, s)], 1),
    "split_and_slice": lambda b, s, x: [
        sized(b, x, [s, b.call(operator.sub, 10, s)], 1)[0],
        b.call(aten.slice.Tensor, x, -1, s, 10),
    ],
    "narrow": lambda b, s, x: [
        b.call(aten.narrow.default, x, 1, 0, s),
        b.call(aten.narrow.default, x, 1, s, b.call(operator.sub, 10, s)),
    ],
    "late": lambda b, s, x: [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, b.call(operator.neg, b.call(operator.sub, 10, s)), END),
    ],
}


@pytest.mark.parametrize(("least", "most"), [(2, 8), (0, 10), (1, 10)])
def test_cuts_at_a_symbol_that_is_known_to_lie_inside(least, most):
    texts = []
    for name, cut in AT_A_SYMBOL.items():
        if name == "late" and most == 10:
            continue  # a start of s - 10 is the beginning where s is 10
        b = Builder()
        s, x = b.symbol(3, least, most), b.input(4, 10)
        module = read(b, cut(b, s, x))
        check(module)
        (split,) = calls(module, aten.split_with_sizes.default)
        assert (split.args[1][0], split.args[2], slices_in(module)) == (s, -1, 0)
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


@pytest.mark.parametrize(("least", "most"), [(0, 11), (2, 100), (-3, 4), (-10, -1)])
def test_cuts_at_a_symbol_that_may_lie_outside_stay(least, most):
    b = Builder()
    s, x = b.symbol(3, least, most), b.input(4, 10)
    slices = [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, s, END),
    ]
    module = read(b, slices)
    text = canonical_text(module)
    assert not check(module, [3 if least >= 0 else most, torch.randn(4, 10)]).changed
    assert canonical_text(module) == text


OF_A_SYMBOLIC_SIZE: dict[str, list[Callable[[Tensor], Sequence[Tensor]]]] = {
    "one_first": [
        lambda x: (x[:, :1], x[:, 1:]),
        lambda x: (x.narrow(1, 0, 1), x.narrow(1, 1, x.size(1) - 1)),
        lambda x: x.split([1, x.size(1) - 1], 1),
        lambda x: x.tensor_split((1,), 1),
    ],
    "one_last": [
        lambda x: (x[:, :-1], x[:, -1:]),
        lambda x: (x[:, : x.size(1) - 1], x[:, x.size(1) - 1 :]),
        lambda x: x.split([x.size(1) - 1, 1], -1),
    ],
    "both_ends": [
        lambda x: (x[:, :1], x[:, 1:-1], x[:, -1:]),
        lambda x: x.split([1, x.size(1) - 2, 1], 1),
    ],
    "twice_a_symbol": [
        lambda x: (torch.cat([x, x], 1)[:, : x.size(1)], torch.cat([x, x], 1)[:, x.size(1) :]),
        lambda x: torch.cat([x, x], 1).split(x.size(1), 1),
    ],
}


@pytest.mark.parametrize("name", OF_A_SYMBOLIC_SIZE)
def test_pieces_of_a_symbolic_size(name):
    texts = []
    for cut in OF_A_SYMBOLIC_SIZE[name]:
        x = torch.randn(4, 10)
        torch._dynamo.mark_static(x, 0)
        module = single(lambda x: [piece.sin() for piece in cut(x)], x, dynamic=True)  # noqa: B023
        check(module, [10, x], shuffles=(1,))
        texts.append(canonical_text(module))
        if name != "twice_a_symbol":
            assert (splits_in(module), slices_in(module)) == (1, 0)
    assert len(set(texts)) == 1


def test_cuts_at_an_unbacked_symbol_stay():
    def function(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        cut = n.item()
        return x[:, :cut].sin(), x[:, cut:].cos()

    x, n = torch.randn(4, 10), torch.tensor(3)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        (module,) = capture(function, x, n)
    inputs = [
        n if node.meta["val"].dim() == 0 else x
        for node in module.graph.find_nodes(op="placeholder")
    ]
    text = canonical_text(module)
    check(module, inputs)
    assert canonical_text(module) == text


# 12: what is left as it is -----------------------------------------------------------------------


def cat_with_a_getitem_of_topk(b: Builder) -> list[fx.Node]:
    x = b.input(4, 8)
    top = b.call(aten.topk.default, x, 3)
    values = b.call(operator.getitem, top, 0)
    pieces = sized(b, x, (4, 4), 1)
    return [b.call(aten.cat.default, [pieces[0], values, pieces[1]], 1)]


def cat_of_a_node(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(aten.cat.default, split, 1)]


def cat_of_a_node_and_its_pieces(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(aten.cat.default, split), *getitems(b, split, (0, 1))]


def dim_that_is_a_node(b: Builder) -> list[fx.Node]:
    x, d = b.input(4, 8), b.symbol(1, least=0, most=1)
    split = b.graph.call_function(aten.split_with_sizes.default, (x, [4, 4], d))
    split.meta["val"] = [x.meta["val"][:, :4], x.meta["val"][:, 4:]]
    pieces = []
    for i in (0, 1):
        pieces.append(b.graph.call_function(operator.getitem, (split, i)))
        pieces[i].meta["val"] = split.meta["val"][i]
    cat = b.graph.call_function(aten.cat.default, (pieces, d))
    cat.meta["val"] = x.meta["val"].clone()
    return [cat]


def sizes_that_are_nodes(b: Builder) -> list[fx.Node]:
    s = b.symbol(3, least=1, most=4)
    rest = b.call(operator.sub, 8, s)
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [s, rest], -1)
    return [b.call(aten.sin.default, each) for each in getitems(b, split, (0, 1))]


def view_of_a_cat(b: Builder) -> list[fx.Node]:
    tensors = [b.input(2, 3), b.input(2, 5)]
    view = b.call(aten.view.default, b.call(aten.cat.default, tensors, 1), [4, 4])
    return sized(b, view, (1, 3), 0)


def list_that_is_returned(b: Builder) -> list[fx.Node]:
    return [b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], 1)]


def list_for_a_foreach(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(operator.getitem, b.call(aten._foreach_sin.default, split), 1)]


def part_of_a_list(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [2, 2, 4], -1)
    return [b.call(aten.cat.default, b.call(operator.getitem, split, slice(0, 2)), 1)]


def length_of_a_list(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [2, 2, 4], -1)
    return [b.call(len, split), *getitems(b, split, (0, 1, 2))]


def cat_of_two_dtypes(b: Builder) -> list[fx.Node]:
    left, right = sized(b, b.input(4, 8), (4, 4), 1)
    right = b.call(aten._to_copy.default, right, dtype=torch.float64)
    return [b.call(aten.cat.default, [left, right], 1)]


def cat_with_an_old_empty(b: Builder) -> list[fx.Node]:
    return [b.call(aten.cat.default, [*sized(b, b.input(4, 8), (4, 4), 1), b.input(0)], 1)]


def scalar_tensors(b: Builder) -> list[fx.Node]:
    x = b.input()
    return [b.call(aten.stack.default, [x, x]), b.call(aten.unsqueeze.default, x, -1)]


def select_by_a_node(b: Builder) -> list[fx.Node]:
    return [b.call(aten.select.int, b.input(4, 8), 1, b.symbol(3, least=0, most=7))]


def several_results(b: Builder) -> list[fx.Node]:
    norm = b.call(aten.native_layer_norm.default, b.input(4, 8), [8], None, None, 1e-5)
    return getitems(b, norm, (0, 1, 2))


def copies(b: Builder) -> list[fx.Node]:
    x = b.input(4, 8)
    split = b.call(aten.split_with_sizes_copy.default, x, [4, 4], -1)
    return [*getitems(b, split, (0, 1)), b.call(aten.slice_copy.Tensor, x, 1, 0, 4)]


ODD = (
    cat_with_a_getitem_of_topk,
    cat_of_a_node,
    cat_of_a_node_and_its_pieces,
    dim_that_is_a_node,
    sizes_that_are_nodes,
    view_of_a_cat,
    list_that_is_returned,
    list_for_a_foreach,
    part_of_a_list,
    length_of_a_list,
    cat_of_two_dtypes,
    cat_with_an_old_empty,
    scalar_tensors,
    select_by_a_node,
    several_results,
    copies,
)


@pytest.mark.parametrize("make", ODD, ids=lambda f: f.__name__)
def test_odd_but_right_graphs_stay_as_they_are(make):
    b = Builder()
    module = b.output(*make(b))
    text = canonical_text(module)
    check(module)
    assert canonical_text(module) == text


def with_wrong_keyword() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    cat = b.graph.call_function(aten.cat.default, ([x, x],), {"axis": 1})
    cat.meta["val"] = torch.empty(4, 16)
    return b.output(cat).graph


def with_too_many_arguments() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    part = b.graph.call_function(aten.slice.Tensor, (x, 1, 0, 4, 1, 7))
    part.meta["val"] = torch.empty(4, 4)
    return b.output(part).graph


def without_vals() -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(aten.slice.Tensor, (x, 1, 0, 4)))
    return graph


def without_a_source_val() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    module = read(b, sliced(b, x, (4, 4), 1))
    del x.meta["val"]
    return module.graph


def with_torch_functions() -> fx.Graph:
    graph = fx.symbolic_trace(lambda x, y: torch.cat([x, y], axis=1)).graph
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, 2)
    return graph


def with_methods() -> fx.Graph:
    return fx.symbolic_trace(lambda x: x.split(4, dim=-1)).graph


def with_dim_out_of_range() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    part = b.graph.call_function(aten.slice.Tensor, (x, 5, 0, 4))
    part.meta["val"] = x.meta["val"]
    return b.output(part).graph


def empty() -> fx.Graph:
    return fx.Graph()


def without_output() -> fx.Graph:
    graph = fx.Graph()
    graph.placeholder("x").meta["val"] = torch.empty(3)
    return graph


@pytest.mark.parametrize(
    "make",
    [
        with_wrong_keyword,
        with_too_many_arguments,
        without_vals,
        without_a_source_val,
        with_torch_functions,
        with_methods,
        with_dim_out_of_range,
        empty,
        without_output,
    ],
    ids=lambda f: f.__name__,
)
def test_what_cannot_be_read_is_left_and_nothing_is_raised(make):
    graph = make()
    before = str(graph)
    report = saturate(graph)
    assert not report.changed
    assert str(graph) == before
    assert report.reason or report.stopped == "saturated"


@pytest.mark.parametrize("which", [0, 1])
def test_a_slice_without_a_val(which):
    b = Builder()
    module = read(b, sliced(b, b.input(4, 8), (4, 4), 1))
    del calls(module, aten.slice.Tensor)[which].meta["val"]
    check(module)


def test_outputs_of_every_shape():
    b = Builder()
    x = b.input(4, 8)
    left, right = sliced(b, x, (4, 4), 1)
    b.graph.output({"a": [left, None, 3], "b": (right, {"c": x, "d": left}), "e": "text"})
    module = fx.GraphModule({}, b.graph)
    check(module)
    assert (splits_in(module), slices_in(module)) == (1, 0)


@pytest.mark.parametrize(
    "names", [("split_with_sizes", "getitem"), ("split_with_sizes_default", "getitem_1")], ids=str
)
def test_names_that_new_nodes_would_take(names):
    b = Builder()
    x, _ = (b.placeholder(torch.empty(4, 8), name) for name in names)
    module = read(b, sliced(b, x, (4, 4), 1))
    check(module)
    assert splits_in(module) == 1
