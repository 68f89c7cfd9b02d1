"""Views that are what they view.

A reshape to the same shape is one, an expand that expands nothing, a permute that undoes another:
whatever the operators between them, a view with the sizes, strides, offset, dtype and storage of a
tensor that it comes from is that tensor. And a reshape of a view, if it lies where the reshape of
what that is a view of would lie, is that.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx import Node

from lowering.aten import TERMS
from lowering.bounds import Bounds, Number
from lowering.layout import reshape_strides, storage_of
from lowering.mutation import aliased
from lowering.signature import signature_of

aten = torch.ops.aten

RESHAPES = (aten.reshape.default, aten.view.default)

REARRANGE = (
    *RESHAPES,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.alias.default,
    aten.detach.default,
)
"""Views of all the elements that they view."""

LOOK_BACK = 64
"""How many views are looked through at most."""


def has_simpler(nodes: Iterable[Node]) -> bool:
    """Whether any of the nodes, changed since they were read, has a simpler view now."""
    views = Views(Bounds())
    for node in nodes:
        if node.target in TERMS or node.target is operator.getitem:
            continue
        if views.whole(node) is not None:
            return True
        if node.target in RESHAPES and views.reshaped(node) is not None:
            return True
    return False


class Views:
    """Finds simpler views that are the same."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._same: dict[Node, Node] = {}
        self._first: dict[Node, Node] = {}

    def whole(self, node: Node) -> Node | None:
        """The nearest tensor that a view comes from and is the same as, of one dimension or more.

        No guard is added: symbolic sizes, strides and offsets are equal if their expressions are.
        """
        val, at = node.meta.get("val"), _first_operand(node)
        if not isinstance(val, Tensor) or not val.dim():
            return None
        for _ in range(LOOK_BACK):
            if at is None:
                return None
            source = at.meta.get("val")
            if isinstance(source, Tensor) and self._is_same(val, source):
                self._same[node] = at
                return at
            at = self._same.get(at) or _first_operand(at)
        return None

    def reshaped(self, node: Node) -> Node | None:
        """The first tensor of which a reshape of a view of it is the same reshape, if not its own.

        "First" in the order of the graph: the one that all views in between come from.
        """
        val, at = node.meta.get("val"), node.args[0] if node.args else None
        found = None
        for _ in range(LOOK_BACK):
            if (
                not isinstance(at, Node)
                or at.target not in REARRANGE
                or not isinstance(val, Tensor)
            ):
                break
            at = self._first.get(at) or aliased(at)
            source = at.meta.get("val") if at is not None else None
            if not isinstance(source, Tensor) or storage_of(val) is None:
                break
            if storage_of(source) != storage_of(val):
                break
            strides = reshape_strides(source.size(), source.stride(), val.size())
            if strides is not None and self._codes(strides) == self._codes(val.stride()):
                found = at
        if found is not None:
            self._first[node] = found
        return found

    def _codes(self, numbers: Iterable[Number]) -> list[int]:
        return [self._bounds.code(number) for number in numbers]

    def _is_same(self, a: Tensor, b: Tensor) -> bool:
        code = self._bounds.code
        return (
            a.dim() == b.dim()
            and self._codes(a.size()) == self._codes(b.size())
            and a.dtype == b.dtype
            and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
            and code(a.storage_offset()) == code(b.storage_offset())
            and self._codes(a.stride()) == self._codes(b.stride())
            and storage_of(a) is not None
            and storage_of(a) == storage_of(b)
        )


def _first_operand(node: Node) -> Node | None:
    """What a node may be a view of, by its schema."""
    first = node.args[0] if node.args else None
    if not isinstance(first, Node) or signature_of(node).aliases[:1] != (0,):
        return None
    return first
