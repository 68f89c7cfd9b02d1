"""Operations of random programs: what cuts tensors, joins them and writes over parts of them.

Each is there in all the spellings that mean the same.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, fx

from tests.lowering.writer import Inapplicable, Writer, has_dim, is_static

aten = torch.ops.aten
END = 2**63 - 1

# Cuts -------------------------------------------------------------------------------------------


WAYS = 10
"""In how many ways an interval can be written."""


def _interval(w: Writer, x: fx.Node, d: int, a: int, b: int, way: int) -> fx.Node:
    """Elements a, ..., b - 1 of x along d, in one of the ways to write that."""
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match way % WAYS:
        case 0:
            return w.call(aten.slice.Tensor, x, d, a, b)
        case 1:
            return w.call(aten.slice.Tensor, x, d - rank, a, END if b == size else b)
        case 2:
            start = a - size if a < size else a
            return w.call(aten.slice.Tensor, x, d, start, b - size if b < size else b + 2)
        case 3:
            start = -END if a == 0 else a
            return w.call(aten.slice.Tensor, self=x, end=b, start=start, dim=d)
        case 4 if b == size:
            return w.call(aten.slice.Tensor, x, d, a)
        case 5 if d == 0:
            return w.call(aten.slice.Tensor, x, start=a or None, end=b)
        case 6:
            return w.call(aten.narrow.default, x, d - rank, a, b - a)
        case 7:
            sizes = [a, b - a, size - b]
            split = w.call(aten.split_with_sizes.default, x, sizes, d - rank)
            return w.call(operator.getitem, split, 1)
        case 8:
            return w.call(operator.getitem, w.call(aten.tensor_split.indices, x, [a, b], d), -2)
        case 9 if a % max(b - a, 1) == 0 and (b == size or b - a) and b - a > 0:
            split = w.call(aten.split.Tensor, x, b - a, d)
            return w.call(operator.getitem, split, a // (b - a))
        case _:
            return w.call(aten.slice.Tensor, x, d, a, b, 1)


def _index(w: Writer, x: fx.Node, d: int, i: int) -> fx.Node:
    """Element i of x along d, in one of the ways to write that."""
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match w.spelling(4):
        case 0:
            return w.call(aten.select.int, x, d, i)
        case 1:
            return w.call(aten.select.int, x, d - rank, i - size)
        case 2:
            return w.call(operator.getitem, w.call(aten.unbind.int, x, d - rank), i)
        case _:
            return w.call(operator.getitem, w.call(aten.unbind.int, x, dim=d), i - size)


def _partition(w: Writer, x: fx.Node, d: int, cuts: Sequence[int]) -> list[fx.Node]:
    """All pieces of x, in one of the ways to write that."""
    rank, sizes = x.meta["val"].dim(), [b - a for a, b in pairwise(cuts)]
    count = len(sizes)
    way = w.spelling(WAYS)
    match w.spelling(5):
        case 0:
            split = w.call(aten.split_with_sizes.default, x, sizes, d)
            return [w.call(operator.getitem, split, i) for i in range(count)]
        case 1:
            split = w.call(aten.split.sizes, x, tuple(sizes), d - rank)
            return [w.call(operator.getitem, split, i) for i in reversed(range(-count, 0))][::-1]
        case 2:
            splits = [w.call(aten.split_with_sizes.default, x, sizes, d - rank) for _ in cuts[1:]]
            return [w.call(operator.getitem, split, i) for i, split in enumerate(splits)]
        case 3:
            split = w.call(aten.tensor_split.indices, x, list(cuts[1:-1]), d)
            return [w.call(operator.getitem, split, i) for i in range(count)]
        case _:
            return [_interval(w, x, d, a, b, way + i) for i, (a, b) in enumerate(pairwise(cuts))]


def slice_(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    a, b = w.interval(x.meta["val"].size(d))
    w.keep(_interval(w, x, d, a, b, w.spelling(WAYS)))


def slice_with_step(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    w.keep(w.call(aten.slice.Tensor, x, d, w.take(3), END, 2 + w.take(2)))


def select(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    w.keep(_index(w, x, d, w.take(x.meta["val"].size(d))))


def selects(w: Writer) -> None:
    """All, or all but some, of the elements along a dimension."""
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    size = x.meta["val"].size(d)
    w.keep(*[_index(w, x, d, i) for i in range(w.take(2), size) if size < 6])


def partition(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    w.keep(*_partition(w, x, d, w.cuts(x.meta["val"].size(d))))


def equal_parts(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    size = x.meta["val"].size(d)
    part = 1 + w.take(max(size, 1))
    if size // part > 6:
        raise Inapplicable("many pieces")
    match w.spelling(3):
        case 0:
            split = w.call(aten.split.Tensor, x, part, d)
        case 1:
            rest = [size % part] if size % part or not size else []
            split = w.call(aten.split_with_sizes.default, x, [part] * (size // part) + rest, d)
        case _ if part * (count := -(-size // part)) == size and count:
            split = w.call(aten.chunk.default, x, count, d - x.meta["val"].dim())
        case _:
            split = w.call(aten.split.Tensor, x, part, d - x.meta["val"].dim())
    w.keep(*[w.call(operator.getitem, split, i) for i in range(len(split.meta["val"]))])


# Joins ------------------------------------------------------------------------------------------


def cat(w: Writer) -> None:
    """Values that fit, in any order."""
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    like = x.meta["val"]

    def fits(val: Tensor) -> bool:
        others = (s for i, s in enumerate(val.size()) if i != d)
        return val.dim() == like.dim() and [*others] == [
            s for i, s in enumerate(like.size()) if i != d
        ]

    parts = [x, *(w.pick(fits) for _ in range(w.take(4)))]
    w.keep(_cat(w, parts, d))


def cat_of_pieces(w: Writer) -> None:
    """The pieces of one value: all, or in another order, or one twice, or one missing."""
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    parts = _partition(w, x, d, w.cuts(x.meta["val"].size(d)))
    match w.take(6):
        case 0 | 1 | 2:
            pass
        case 3:
            parts = parts[::-1]
        case 4:
            parts = [*parts, parts[0]]
        case _:
            parts = parts[1:]
    w.keep(_cat(w, parts, d))


def stack_of_elements(w: Writer) -> None:
    """The elements along one dimension as those along another."""
    x = w.pick(lambda val: has_dim(val) and min(val.size()) > 0)
    d = w.pick_dim(x)
    first, size = w.take(4) // 3, x.meta["val"].size(d)
    at = d if w.take(3) else w.pick_dim(x)
    elements = [_index(w, x, d, i) for i in range(first, size)][:6]
    w.keep(_cat(w, [w.call(aten.unsqueeze.default, each, at) for each in elements], at))


def _cat(w: Writer, parts: list[fx.Node], d: int) -> fx.Node:
    if not parts or sum(p.meta["val"].numel() for p in parts) > 500:
        raise Inapplicable("nothing, or too much")
    match w.spelling(3):
        case 0:
            return w.call(aten.cat.default, parts, d)
        case 1:
            return w.call(aten.cat.default, tuple(parts), d - parts[0].meta["val"].dim())
        case _:
            return w.call(aten.cat.default, tensors=parts, dim=d)


def scatter(w: Writer) -> None:
    """A value, or a new one, written over an interval of another."""
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    val = x.meta["val"]
    a, b = w.interval(val.size(d))
    shape = [*val.size()]
    shape[d] = b - a
    if w.take(2):
        source = w.pick(lambda v: [*v.size()] == shape and torch.can_cast(v.dtype, val.dtype))
    else:
        source = negated(w, _interval(w, x, d, a, b, w.spelling(WAYS)))
    w.keep(_scatter(w, x, source, d, a, b))


def _scatter(w: Writer, x: fx.Node, source: fx.Node, d: int, a: int, b: int) -> fx.Node:
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match w.spelling(4):
        case 0:
            return w.call(aten.slice_scatter.default, x, source, d, a, b)
        case 1:
            start, end = a - size if a < size else a, END if b == size else b
            return w.call(aten.slice_scatter.default, x, source, d - rank, start, end)
        case 2 if b == size:
            return w.call(aten.slice_scatter.default, x, source, d, a)
        case _:
            return w.call(aten.slice_scatter.default, x, src=source, start=a, end=b, dim=d)


def scatter_pieces(w: Writer) -> None:
    """What functionalization makes of an in-place operator on some of the pieces of a value."""
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    cuts = w.cuts(x.meta["val"].size(d))
    written = 1 + w.take(2 ** (len(cuts) - 1) - 1)
    pieces = _partition(w, x, d, cuts)
    for i, (piece, (a, b)) in enumerate(zip(pieces, pairwise(cuts), strict=True)):
        if written >> i & 1:
            x = _scatter(w, x, negated(w, piece), d, a, b)
    w.keep(x)
    if w.take(4):
        w.keep(*_partition(w, x, d, cuts))


def scatter_into_empty(w: Writer) -> None:
    """A buffer that is filled by two scatters."""
    source = w.pick(lambda val: has_dim(val) and is_static(val))
    d = w.pick_dim(source)
    val = source.meta["val"]
    size = [*val.size()]
    at, size[d] = size[d], 2 * size[d]
    x = w.call(aten.empty.memory_format, size, dtype=val.dtype, device=torch.device("cpu"))
    x = _scatter(w, x, source, d, 0, at)
    w.keep(_scatter(w, x, negated(w, source), d, at, size[d]))


def select_scatter(w: Writer) -> None:
    x = w.pick(has_dim)
    d = w.pick_dim(x)
    i = w.take(x.meta["val"].size(d))
    source = negated(w, _index(w, x, d, i))
    w.keep(w.call(aten.select_scatter.default, x, source, d, i))


def negated(w: Writer, x: fx.Node) -> fx.Node:
    """A value of the same shape and dtype."""
    if x.meta["val"].dtype == torch.bool:
        return w.call(aten.logical_not.default, x)
    targets = (aten.neg.default, aten.abs.default, aten.trunc.default)
    return w.call(targets[w.take(len(targets))], x)
