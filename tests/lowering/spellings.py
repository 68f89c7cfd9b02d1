"""Ways to spell a partition of a dimension by hand, and how to read its pieces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import fx

from lowering import capture
from tests.lowering.support import Builder, targets

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
