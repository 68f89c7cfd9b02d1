"""Which values lie in one storage, as the graph that came in has them, and which could."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from egraph.eclasses import ENode
from lowering.mutation import aliased
from lowering.read import Reading, Value


class Storages:
    """Where the values of a graph lie in memory.

    Attributes:
        base: for each value, the operand that its exact layout, or its storage, depends on.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.base: list[int | None] = [_base(value) for value in reading.values]

    def val(self, number: int) -> object:
        """What the value is, as a fake tensor."""
        return self.reading.values[number].nodes[0].meta.get("val")

    def is_view(self, number: int) -> bool:
        """Whether a value is a slice or a select."""
        term = self.reading.values[number].term
        return term is not None and term.op in ("slice", "select")

    def is_empty(self, number: int) -> bool:
        """Whether a value is an empty slice."""
        term = self.reading.values[number].term
        return term is not None and term.op == "slice" and term.params[1] == term.params[2]

    def is_alias(self, number: int) -> bool:
        """Whether a value lies in the storage of its base. A reshape does where it needn't copy."""
        value = self.reading.values[number]
        if value.term is not None:
            return self.is_view(number)
        return self.base[number] is not None and aliased(value.nodes[0]) is not None

    def is_fresh(self, number: int) -> bool:
        """Whether a value is a tensor that its node makes, and could make again."""
        value = self.reading.values[number]
        return not self.is_alias(number) and self._is_one_of_many(value)

    def _is_one_of_many(self, value: Value) -> bool:
        """Whether a copy is as good as the value: it is computed, not drawn, and not written to."""
        node = value.nodes[0]
        is_pure = value.key is not None or value.term is not None
        return node.op == "call_function" and is_pure and node not in self.reading.mutation.root

    def storage(self, number: int) -> int:
        """The value whose storage a value is a view of."""
        while self.is_alias(number):
            base = self.base[number]
            assert base is not None
            number = base
        return number

    def geometry(self, number: int) -> tuple[Hashable, ...]:
        """The exact strides and storage offset of a value."""
        val = self.val(number)
        if not isinstance(val, torch.Tensor):
            return (number,)
        code = self.reading.bounds.code
        return (tuple(map(code, val.stride())), code(val.storage_offset()))

    def copies(self, class_of: list[int]) -> tuple[dict[Node, int], set[int]]:
        """Number the storages of outputs that stay several, though equal nodes are one value.

        They are numbered in the order of the outputs: that of the nodes tells nothing.

        Returns:
            The number of each node that made such a storage, and their e-classes.
        """
        copy_of: dict[Node, int] = {}
        copied: set[int] = set()
        if not self.reading.values or self.reading.values[-1].nodes[0].op != "output":
            return copy_of, copied
        value = self.reading.values[-1]
        alike: dict[tuple[int, Hashable], dict[Node, None]] = {}
        for node, operand in zip(outputs(value), value.operands, strict=True):
            node = maker(node)
            number = self.storage(operand)
            has_storage = isinstance(self.val(number), (torch.Tensor, list, tuple))
            if has_storage and self._is_one_of_many(self.reading.values[number]):
                place = (class_of[number], self.geometry(number))
                alike.setdefault(place, {})[node] = None
        for (eclass, _), nodes in alike.items():
            if len(nodes) > 1:
                copied.add(eclass)
                copy_of.update({node: copy for copy, node in enumerate(nodes)})
        return copy_of, copied

    def reached(self, class_of: list[int], enodes: list[list[ENode]]) -> dict[int, list[Node]]:
        """For each e-class, the written storages that an e-node of it may be a view of."""
        above: dict[int, list[int]] = {}
        for number, base in enumerate(self.base):
            term = self.reading.values[number].term
            if base is not None and (term is None or term.op != "scatter"):
                above.setdefault(class_of[base], []).append(class_of[number])
        for eclass, each in enumerate(enodes):
            for enode in each:
                for _, source in cuts_of(enode, enodes):
                    above.setdefault(source, []).append(eclass)
        found: dict[int, list[Node]] = {}
        mutation = self.reading.mutation
        for root in mutation.roots:
            stack = [
                class_of[self.reading.of[leaf]]
                for leaf in mutation.leaves(root)
                if leaf in self.reading.of
            ]
            seen = set(stack)
            while stack:
                eclass = stack.pop()
                found.setdefault(eclass, []).append(root)
                for upper in above.get(eclass, ()):
                    if upper not in seen:
                        seen.add(upper)
                        stack.append(upper)
        return found


def cuts_of(enode: ENode, enodes: list[list[ENode]]) -> list[tuple[ENode | None, int]]:
    """What a view e-node is a view of: the list it is a piece of, if any, and the e-class."""
    if enode.op in ("slice", "select"):
        return [(None, enode.children[0])]
    if enode.op == "piece":
        return [(each, each.children[0]) for each in enodes[enode.children[0]]]
    return []


def outputs(value: Value) -> list[Node]:
    """The nodes that an output node returns, in order, each as often as it is there."""
    nodes: list[Node] = []
    map_arg(value.nodes[0].args, nodes.append)
    return nodes


def maker(node: Node) -> Node:
    """The node that made the storage of a node."""
    while (source := aliased(node)) is not None:
        node = source
    return node


def _base(value: Value) -> int | None:
    if value.term is not None:
        return None if value.term.op == "cat" else value.term.sources[0]
    sig = value.signature
    if value.root or not value.operands or not (sig.follows or sig.aliases[:1] == (0,)):
        return None
    return value.operands[0]
