"""Tensors with a memory of their own that hold what another tensor, or a part of it, holds."""

from __future__ import annotations

import operator

import torch
from torch import fx

from tests.lowering.support import Builder
from tests.lowering.two_values import Make, call

aten = torch.ops.aten
prims = torch.ops.prims


def cat_of_pieces(b: Builder, x: fx.Node) -> fx.Node:
    split = b.call(aten.split_with_sizes.default, x, [2, 4], 1)
    return b.call(aten.cat.default, [b.call(operator.getitem, split, i) for i in (0, 1)], 1)


def cat_of_slices(b: Builder, x: fx.Node) -> fx.Node:
    cuts = ((0, 1), (1, 4), (4, 6))
    return b.call(aten.cat.default, [b.call(aten.slice.Tensor, x, -1, *c) for c in cuts], -1)


def scatter_read_back(b: Builder, x: fx.Node) -> fx.Node:
    y = b.call(aten.slice_scatter.default, b.call(aten.exp.default, x), x, 1, 0, 6)
    return b.call(aten.slice.Tensor, y, 1, 0, 6)


def scatter_of_a_part(b: Builder, x: fx.Node) -> fx.Node:
    part = b.call(aten.slice.Tensor, x, 1, 0, 3)
    y = b.call(aten.slice_scatter.default, b.call(aten.exp.default, x), part, 1, 3, 6)
    return b.call(aten.slice.Tensor, y, 1, 3, 6)


def scatter_base(b: Builder, x: fx.Node) -> fx.Node:
    part = b.call(aten.exp.default, b.call(aten.slice.Tensor, x, 1, 0, 3))
    y = b.call(aten.slice_scatter.default, x, part, 1, 3, 6)
    return b.call(aten.slice.Tensor, y, 1, 0, 3)


FRESH: dict[str, Make] = {
    "cat_of_pieces": cat_of_pieces,
    "cat_of_slices": cat_of_slices,
    "cat_of_one": lambda b, x: b.call(aten.cat.default, [x], 1),
    "clone": call(aten.clone.default),
    "pad": call(aten.constant_pad_nd.default, [0, 0]),
    "to_copy": call(aten._to_copy.default),
    "converted": call(prims.convert_element_type.default, torch.float32),
    "add_zero": call(aten.add.Tensor, 0),
    "mul_one": call(aten.mul.Tensor, 1),
    "scatter_read_back": scatter_read_back,
    "scatter_of_a_part": scatter_of_a_part,
    "scatter_base": scatter_base,
    "cat_sliced": lambda b, x: b.call(aten.slice.Tensor, cat_of_pieces(b, x), 1, 0, 3),
    "cat_viewed": lambda b, x: b.call(aten.reshape.default, cat_of_slices(b, x), [24]),
    "reshape": lambda b, x: b.call(
        aten.reshape.default, b.call(aten.permute.default, x, [1, 0]), [24]
    ),
    "contiguous": lambda b, x: b.call(aten.contiguous.default, cat_of_pieces(b, x)),
}
