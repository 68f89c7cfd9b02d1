"""CASES.md 5, 6 and 8: pieces that are uneven, empty, cut from a cat, or cut again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import canonical_text
from tests.lowering.spellings import (
    FROM_THE_END,
    SPELLINGS,
    read,
    single,
    sized,
    sliced,
    sliced_to_the_end,
    slices_in,
    splits_in,
)
from tests.lowering.support import Builder, calls, check, targets

aten = torch.ops.aten


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
