"""CASES.md 1 to 4: partitions in every spelling, and what is none."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor

from lowering import Options, canonical_text
from tests.lowering.spellings import (
    END,
    SPELLINGS,
    a_split_for_each,
    chunked,
    equal_split,
    equal_split_by_keyword,
    read,
    single,
    sized,
    sliced,
    sliced_to_the_end,
    slices_in,
    split_at,
    split_in,
    splits_in,
)
from tests.lowering.support import GEOMETRY, Builder, calls, check, code_of, targets

aten = torch.ops.aten


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
