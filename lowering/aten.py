"""The aten overloads that are terms of the algebra, and how each is read.

Each spelling of a slice, a split or a scatter lands on one term. `_copy` variants are left alone:
they are fresh tensors, and what they stand for is already gone by the time a graph gets here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import SymInt
from torch.fx import Node

from lowering.bounds import Bounds, Number
from lowering.signature import Target, bind, signature

aten = torch.ops.aten


class Spelling(NamedTuple):
    """A term before its operands are numbered: operator, operand nodes, integers."""

    op: str
    sources: tuple[Node, ...]
    params: tuple[int, ...]


def number_of(argument: object) -> object:
    """The integer or symbolic integer that an argument is, through the node that holds it."""
    return argument.meta.get("val") if isinstance(argument, Node) else argument


def tensor_of(argument: object) -> torch.Tensor | None:
    """The fake tensor of an argument that is a node with one."""
    val = argument.meta.get("val") if isinstance(argument, Node) else None
    return val if isinstance(val, torch.Tensor) else None


def dim_of(argument: object, val: torch.Tensor) -> int | None:
    """A dimension counted from the front, or None where it isn't one of the tensor's."""
    rank = val.dim()
    if type(argument) is not int or not -rank <= argument < rank:
        return None
    return argument % rank


def _slice(node: Node, bounds: Bounds) -> Spelling | None:
    x, dim, start, end, step = bind(node, signature(aten.slice.Tensor).parameters)
    return _interval(x, dim, start, end, bounds) if step == 1 else None


def _narrow(node: Node, bounds: Bounds) -> Spelling | None:
    x, dim, start, length = bind(node, signature(aten.narrow.default).parameters)
    start, length = number_of(start), number_of(length)
    if not isinstance(start, (int, SymInt)) or not isinstance(length, (int, SymInt)):
        return None
    if type(start) is int and start < 0:
        val = tensor_of(x)
        if val is None or (d := dim_of(dim, val)) is None:
            return None
        start = val.size(d) + start
    return _interval(x, dim, start, start + length, bounds)


def _interval(
    x: object, dim: object, start: object, end: object, bounds: Bounds
) -> Spelling | None:
    val = tensor_of(x)
    if val is None or (d := dim_of(dim, val)) is None:
        return None
    interval = bounds.interval(val.size(d), number_of(start), number_of(end))
    if interval is None:
        return None
    assert isinstance(x, Node)
    return Spelling("slice", (x,), (d, *interval))


def _select(node: Node, bounds: Bounds) -> Spelling | None:
    x, dim, index = bind(node, signature(aten.select.int).parameters)
    val = tensor_of(x)
    if val is None or (d := dim_of(dim, val)) is None or type(index) is not int:
        return None
    size = val.size(d)
    if type(size) is int:
        if not -size <= index < size:
            return None
        return Spelling("select", (x,), (d, index % size))
    if index < 0 or not bounds.at_most(index + 1, bounds.code(size)):
        return None
    return Spelling("select", (x,), (d, index))


def _slice_scatter(node: Node, bounds: Bounds) -> Spelling | None:
    x, source, dim, start, end, step = bind(node, signature(aten.slice_scatter.default).parameters)
    if step != 1 or tensor_of(source) is None:
        return None
    interval = _interval(x, dim, start, end, bounds)
    if interval is None:
        return None
    return Spelling("scatter", (x, source), interval.params)


def _cat(node: Node, bounds: Bounds) -> Spelling | None:
    tensors, dim = bind(node, signature(aten.cat.default).parameters)
    if not isinstance(tensors, (list, tuple)) or not tensors:
        return None
    vals = [tensor_of(each) for each in tensors]
    first = vals[0]
    if first is None or (d := dim_of(dim, first)) is None:
        return None
    if any(val is None or val.dim() != first.dim() or val.dtype != first.dtype for val in vals):
        return None
    return Spelling("cat", tuple(tensors), (d,))


TERMS: dict[Target, Callable[[Node, Bounds], Spelling | None]] = {
    aten.slice.Tensor: _slice,
    aten.narrow.default: _narrow,
    aten.select.int: _select,
    aten.slice_scatter.default: _slice_scatter,
    aten.cat.default: _cat,
}
"""Overloads that are a term. A reader gives None for a call that isn't one of the algebra's."""

LISTS: dict[Target, str] = {
    aten.split.Tensor: "slice",
    aten.split_with_sizes.default: "slice",
    aten.split.sizes: "slice",
    aten.chunk.default: "slice",
    aten.tensor_split.sections: "slice",
    aten.tensor_split.indices: "slice",
    aten.unbind.int: "select",
}
"""Overloads that return the pieces of their first argument along `dim`, and what a piece is."""


def pieces(node: Node, bounds: Bounds) -> list[Spelling] | None:
    """The pieces of a node that returns a list, each as the slice or select that it is.

    Sizes are read off the pieces themselves, so that uneven last pieces, oversized chunks and empty
    dimensions are as torch has them. None where they can't be told, or the list is wanted whole.
    """
    vals = node.meta.get("val")
    parameters = signature(node.target).parameters
    arguments = dict(zip([p.name for p in parameters], bind(node, parameters), strict=True))
    x = arguments["self"]
    val = tensor_of(x)
    if val is None or not isinstance(vals, (list, tuple)):
        return None
    d = dim_of(arguments["dim"], val)
    if d is None or not all(_is_piece(user, len(vals)) for user in node.users):
        return None
    if LISTS[node.target] == "select":  # type: ignore[index]
        return [Spelling("select", (x,), (d, i)) for i in range(len(vals))]
    sizes: list[Number] = [piece.size(d) for piece in vals]
    cuts = [bounds.code(at) for at in accumulate(sizes, initial=0)]
    whole = bounds.code(val.size(d))
    if cuts[-1] != whole or not all(bounds.can_write(cut, whole) for cut in cuts):
        return None
    return [Spelling("slice", (x,), (d, a, b)) for a, b in pairwise(cuts)]


def _is_piece(user: Node, count: int) -> bool:
    return (
        user.target is operator.getitem
        and type(user.args[1]) is int
        and -count <= user.args[1] < count
    )


def inductor_identity(node: Node) -> Any:
    """What a node that Inductor left in the post slot stands for, or None.

    Two pattern-matcher replacements stay in the graph as functions: `splitwithsizes_cat_replace` is
    its input, `cat_splitwithsizes_replace` is its input list.
    """
    name = getattr(node.target, "__name__", "")
    if name in ("splitwithsizes_cat_replace", "cat_splitwithsizes_replace") and getattr(
        node.target, "__module__", ""
    ).startswith("torch._inductor"):
        return node.kwargs.get("input_", node.args[0] if node.args else None)
    return None
