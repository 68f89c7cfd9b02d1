"""Views that are what they view.

A reshape to the same shape is one, an expand that expands nothing, a permute that undoes another:
whatever the operators between them, a view with the sizes, strides, offset, dtype and storage of a
tensor that it comes from is that tensor.
"""

from __future__ import annotations

from torch import Tensor
from torch.fx import Node

from lowering.bounds import Bounds
from lowering.layout import storage_of
from lowering.mutation import aliased

LOOK_BACK = 64
"""How many views are looked through at most."""


class Identities:
    """Finds what a view is the same as."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._sizes: dict[Node, tuple[int, ...] | None] = {}
        self._same: dict[Node, Node] = {}

    def of(self, node: Node) -> Node | None:
        """The nearest tensor that a view comes from and is the same as, of one dimension or more.

        No guard is added: symbolic sizes, strides and offsets are equal if their expressions are.
        """
        sizes = self._sizes_of(node)
        if not sizes:
            return None
        at = aliased(node)
        for _ in range(LOOK_BACK):
            if at is None:
                return None
            if self._sizes_of(at) == sizes and self._is_same(node.meta["val"], at.meta["val"]):
                self._same[node] = at
                return at
            at = self._same.get(at) or aliased(at)
        return None

    def _sizes_of(self, node: Node) -> tuple[int, ...] | None:
        """The sizes of a node that is a tensor."""
        if node not in self._sizes:
            val = node.meta.get("val")
            sizes = tuple(map(self._bounds.code, val.size())) if isinstance(val, Tensor) else None
            self._sizes[node] = sizes
        return self._sizes[node]

    def _is_same(self, a: Tensor, b: Tensor) -> bool:
        code, storage = self._bounds.code, storage_of(a)
        return (
            storage is not None
            and storage == storage_of(b)
            and a.dtype == b.dtype
            and (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
            and code(a.storage_offset()) == code(b.storage_offset())
            and [*map(code, a.stride())] == [*map(code, b.stride())]
        )
