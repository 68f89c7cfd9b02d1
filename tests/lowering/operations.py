"""Operations of random programs: views, computation, effects, and the table of all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor, fx

from lowering.signature import signature
from tests.lowering.operations_algebra import (
    cat,
    cat_of_pieces,
    equal_parts,
    negated,
    partition,
    scatter,
    scatter_into_empty,
    scatter_pieces,
    select,
    select_scatter,
    selects,
    slice_,
    slice_with_step,
    stack_of_elements,
)  # fmt: skip
from tests.lowering.support import BUMP, GEOMETRY
from tests.lowering.writer import Inapplicable, Writer, has_dim, is_static

aten = torch.ops.aten

# Views ------------------------------------------------------------------------------------------


def reshape(w: Writer) -> None:
    """Another shape, as reshape or, where that works, as view."""
    x = w.pick(lambda val: is_static(val) and val.numel() > 0)
    numel, sizes = x.meta["val"].numel(), []
    for _ in range(w.take(4)):
        divisors = [n for n in range(1, numel + 1) if numel % n == 0]
        sizes.append(divisors[w.take(len(divisors))])
        numel //= sizes[-1]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.reshape.default, x, [*sizes, numel]))
        case 1:
            w.keep(w.call(aten.reshape.default, x, [*sizes, -1]))
        case _:
            w.keep(w.call(aten.view.default, x, [*sizes, numel]))


def permute(w: Writer) -> None:
    x = w.pick(has_dim)
    rank = x.meta["val"].dim()
    i, j = w.take(rank), w.take(rank)
    dims = [*range(rank)]
    dims[i], dims[j] = dims[j], dims[i]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.permute.default, x, dims))
        case 1:
            w.keep(w.call(aten.transpose.int, x, i, j - rank))
        case _:
            w.keep(w.call(aten.permute.default, x, dims[::-1]))


def unsqueeze(w: Writer) -> None:
    x = w.pick(lambda val: val.dim() < 4)
    w.keep(w.call(aten.unsqueeze.default, x, w.take(x.meta["val"].dim() + 1)))


def squeeze(w: Writer) -> None:
    x = w.pick(lambda val: 1 in val.size())
    d = [*x.meta["val"].size()].index(1)
    w.keep(w.call(aten.squeeze.dim, x, d) if w.take(2) else w.call(aten.squeeze.dims, x, [d]))


def expand(w: Writer) -> None:
    x = w.pick(lambda val: 1 in val.size() or val.dim() < 3)
    as_they_are = [size if isinstance(size, int) else -1 for size in x.meta["val"].size()]
    sizes = [3 if size == 1 else size for size in as_they_are]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.expand.default, x, sizes))
        case 1:
            w.keep(w.call(aten.expand.default, x, [2, *sizes]))
        case _:
            w.keep(w.call(aten.expand.default, x, as_they_are))


def alias(w: Writer) -> None:
    w.keep(w.call((aten.alias.default, aten.detach.default)[w.take(2)], w.pick()))


def as_strided(w: Writer) -> None:
    """Elements of the storage, also such as aren't elements of the value."""
    x = w.pick(
        lambda val: is_static(val) and val.untyped_storage().nbytes() >= 8 * val.dtype.itemsize
    )
    sizes, strides = ((2, 2), (2, 1)) if w.take(2) else ((3,), (1 + w.take(2),))
    w.keep(w.call(aten.as_strided.default, x, list(sizes), list(strides), w.take(3)))


# Computation ------------------------------------------------------------------------------------


def unary(w: Writer) -> None:
    w.keep(negated(w, w.pick(blind=True)))


def with_number(w: Writer) -> None:
    x = w.pick(lambda val: val.dtype != torch.bool, blind=True)
    target = (aten.add.Tensor, aten.mul.Tensor)[w.take(2)]
    w.keep(w.call(target, x, (1, 1.0, True, 0.0, -0.0, 0)[w.take(6)]))


def binary(w: Writer) -> None:
    x = w.pick(lambda val: val.dtype != torch.bool, blind=True)
    like = x.meta["val"]
    y = w.pick(lambda v: v.size() == like.size() and v.dtype != torch.bool, blind=True)
    target = (aten.add.Tensor, aten.mul.Tensor, aten.maximum.default)[w.take(3)]
    if target is aten.add.Tensor and w.spelling(3) == 2:
        w.keep(w.call(target, x, other=y, alpha=1))
    else:
        w.keep(w.call(target, x, y))


def mm(w: Writer) -> None:
    x = w.pick(lambda val: val.dim() == 2 and val.is_floating_point(), blind=True)
    like = x.meta["val"]
    y = w.pick(
        lambda v: v.dim() == 2 and v.size(0) == like.size(1) and v.dtype == like.dtype, blind=True
    )
    w.keep(w.call(aten.mm.default, x, y))


def reduce(w: Writer) -> None:
    x = w.pick(
        lambda val: val.dim() > 0 and min(val.size()) > 0 and val.dtype != torch.bool, blind=True
    )
    d = w.pick_dim(x)
    target = (aten.sum.dim_IntList, aten.amax.default)[w.take(2)]
    w.keep(w.call(target, x, [d] if w.spelling(2) else [d - x.meta["val"].dim()], bool(w.take(2))))


def copy(w: Writer) -> None:
    x = w.pick()
    match w.take(5):
        case 0:
            w.keep(w.call(aten.clone.default, x))
        case 1:
            w.keep(w.call(aten.clone.default, x, memory_format=torch.contiguous_format))
        case 2:
            dtype = x.meta["val"].dtype
            w.keep(w.call(torch.ops.prims.convert_element_type.default, x, dtype))
        case 3:
            w.keep(w.call(aten._to_copy.default, x, dtype=torch.float32))
        case _:
            w.keep(w.call(aten.constant_pad_nd.default, x, [0, 0]))


def convolution(w: Writer) -> None:
    """An operator whose result follows the memory format that it reads off its operand."""
    x = w.pick(lambda v: v.dim() == 4 and v.dtype == torch.float32 and min(v.size()) > 0)
    weight = w.call(aten.full.default, [2, x.meta["val"].size(1), 1, 1], 0.5)
    args = (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    w.keep(w.call(aten.convolution.default, *args))


def again(w: Writer) -> None:
    """A node once more, its arguments by keyword."""
    found = [
        n
        for n in w.graph.nodes
        if n.op == "call_function" and signature(n.target).merge and not w.is_partly_filled(n)
    ]
    node = found[-1 - w.take(len(found))]
    if node.target is operator.getitem:
        w.keep(w.again(node, True))
    elif not isinstance(node.meta["val"], Tensor):
        raise Inapplicable("a list")
    else:
        names = [p.name for p in signature(node.target).parameters]
        given = dict(zip(names, node.args, strict=False)) if w.take(2) else {}
        w.keep(w.call(node.target, *(() if given else node.args), **given, **node.kwargs))


# Effects ----------------------------------------------------------------------------------------


def observe(w: Writer) -> None:
    w.keep(w.call(GEOMETRY, w.pick()))


def random(w: Writer) -> None:
    w.keep(w.call(aten.rand_like.default, w.pick(lambda val: val.is_floating_point())))


def write(w: Writer) -> None:
    """An operator in place, on an input, a computed value or a view."""
    w.writes = True
    x = w.pick(lambda val: _is_writable(val) and val.dtype != torch.bool)
    match w.take(4):
        case 0:
            w.keep(w.call(aten.add_.Tensor, x, 1))
        case 1:
            w.call(BUMP, x)
        case 2:
            w.keep(w.call(aten.mul_.Tensor, x, 2))
        case _:
            copy_(w, x)


def write_input(w: Writer) -> None:
    """What ends a graph that writes an input."""
    w.writes = True
    inputs = [n for n in w.values if n.op == "placeholder" and _is_writable(n.meta["val"])]
    copy_(w, inputs[w.take(len(inputs))])


def copy_(w: Writer, x: fx.Node) -> None:
    val = x.meta["val"]
    source = w.pick(
        lambda v: (
            v.size() == val.size()
            and torch.can_cast(v.dtype, val.dtype)
            and v.untyped_storage()._cdata != val.untyped_storage()._cdata
        )
    )
    w.keep(w.call(aten.copy_.default, x, source))


def _is_writable(val: Tensor) -> bool:
    """Whether no two elements of a value are one in memory."""
    reach = 0
    for size, stride in sorted(zip(val.size(), val.stride(), strict=True), key=lambda n: n[1]):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True


OPERATIONS: dict[str, Callable[[Writer], None]] = {
    function.__name__: function
    for function in (
        unary, slice_, partition, equal_parts, select, selects, slice_with_step, cat, cat_of_pieces,
        stack_of_elements, scatter, scatter_pieces, scatter_into_empty, select_scatter, reshape,
        permute, unsqueeze, squeeze, expand, alias, as_strided, with_number, binary, mm, reduce,
        copy, convolution, again, observe, random, write, write_input,
    )
}  # fmt: skip
