"""Readers that have to stand in front of a write.

A fresh tensor may have become a view of a storage that is written later. What reads it reads that
storage now, and has to do so before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch.fx import Node

from egraph.problem import Alternative
from lowering.choices import Make
from lowering.edits import AnyNode
from lowering.mutation import aliased
from lowering.read import Reading
from lowering.signature import signature_of


def hoisted(
    reading: Reading,
    chosen: Mapping[int, Alternative],
    groups: Iterable[int],
    parts: Callable[[int], Sequence[int]],
    made: Mapping[int, AnyNode],
) -> dict[Node, list[int]]:
    """Find the items that have to stand in front of each write.

    Args:
        reading: the graph.
        chosen: the alternative of each choice.
        groups: the groups that stand; a group is the item ~group.
        parts: what has to stand in front of an item.
        made: the node of each item that has one already.
    """
    mutation = reading.mutation
    found: dict[Node, list[int]] = {}
    if not mutation:
        return found
    readers: dict[int, list[int]] = {}
    for item in [*chosen, *(~group for group in sorted(groups))]:
        if item < 0 or chosen[item].label[0] != Make.SAME:
            for part in parts(item):
                readers.setdefault(part, []).append(item)
    for root, position in mutation.roots.items():
        write = reading.nodes[position]
        leaves = mutation.leaves(root)
        stack = [item for item, node in made.items() if node in leaves]
        seen = set(stack)
        while stack:
            for item in readers.get(stack.pop(), ()):
                if item in seen:
                    continue
                seen.add(item)
                node = made.get(item)
                late = isinstance(node, Node) and write < node
                if node is None and item >= 0 and chosen[item].label[0] == Make.NODE:
                    # Another copy of a node, which isn't made yet, would be made too late.
                    node, late = reading.node(chosen[item].label[1]), True
                if isinstance(node, Node):
                    if late and _may_move(node, reading):
                        found.setdefault(write, []).append(item)
                    if aliased(node) is None:
                        continue
                stack.append(item)
    return found


def _may_move(node: Node, reading: Reading) -> bool:
    """Whether a node may stand in front of a write that it comes after."""
    return node not in reading.mutation.after and not (
        node.op != "call_function" or signature_of(node).effect
    )
