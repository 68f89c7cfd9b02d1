"""Which storages are written, and what may not be merged, moved or aliased because of it.

A read of a storage before a write and one after it are different values, and a view that is still
in use when its storage is written is not a value at all: it changes under its readers.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from lowering.layout import storage_of
from lowering.signature import Signature, signature_of


def argument(node: Node, index: int, sig: Signature) -> object:
    """The argument for parameter `index`, or None where it is left out."""
    if index < len(node.args):
        return node.args[index]
    if sig.parameters:
        return node.kwargs.get(sig.parameters[index].name)
    return None


def aliased(node: Node) -> Node | None:
    """The operand that the node is, or may be, a view of.

    Where the schema leaves it open, as for reshape, the storages of the vals decide.
    """
    sig = signature_of(node)
    for index in sig.aliases:
        value = argument(node, index, sig)
        if isinstance(value, Node):
            if sig.may_alias:
                storages = [storage_of(each.meta.get("val")) for each in (node, value)]
                if None not in storages and storages[0] != storages[1]:
                    continue
            return value
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Node):
            return value[0]
    return None


def written(node: Node) -> list[Node]:
    """The operands whose storages the node writes."""
    sig = signature_of(node)
    if not sig.writes:
        return []
    if sig.writes == (-1,):
        return list(node.all_input_nodes)
    found: list[Node] = []
    for index in sig.writes:
        operand: Any = argument(node, index, sig)
        map_arg(operand, found.append)
    return found


@dataclass
class Mutation:
    """What the writes of a graph forbid. Empty where nothing is written.

    Attributes:
        roots: nodes whose storage is written, with the position of the first write.
        root: for each node that may be a view of one of those, that node.
        live: views of a written storage that are in use at the first write or after it: each stays
            the very node that it is.
        epochs: for each node that reads a written storage after a write, which writes it comes
            after; part of what makes two reads equal.
        after: nodes whose value depends on a write.
        late: nodes whose value, if it were a view of a written storage, would be read at or after
            the first write.
        first: position of the first write.
    """

    roots: dict[Node, int] = field(default_factory=dict)
    root: dict[Node, Node] = field(default_factory=dict)
    live: set[Node] = field(default_factory=set)
    epochs: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    after: set[Node] = field(default_factory=set)
    late: set[Node] = field(default_factory=set)
    first: int = -1

    def leaves(self, root: Node) -> list[Node]:
        """The inputs on the storage of `root`: several placeholders may share one."""
        shared = [node for node, other in self.root.items() if other is root]
        return [node for node in shared if node is root or node.op in ("placeholder", "get_attr")]

    def __bool__(self) -> bool:
        return bool(self.roots)


def analyse(nodes: list[Node], signatures: list[Signature], live: Set[Node]) -> Mutation:
    """Find the writes of a graph and what they forbid.

    Args:
        nodes: the nodes, in order.
        signatures: the signature of each.
        live: the nodes that are wanted; what the others read forbids nothing.
    """
    writers = [
        (position, node, targets)
        for position, (node, sig) in enumerate(zip(nodes, signatures, strict=True))
        if sig.writes and (targets := written(node))
    ]
    found = Mutation()
    if not writers:
        return found
    base = _bases(nodes)
    writes: dict[Node, list[int]] = {}
    for position, _, targets in writers:
        for root in dict.fromkeys(base[target] for target in targets):
            writes.setdefault(root, []).append(position)
    found.roots = {root: positions[0] for root, positions in writes.items()}
    found.first = writers[0][0]
    found.root = {node: root for node, root in base.items() if root in writes}
    position_of = {node: position for position, node in enumerate(nodes)}
    for node, position in position_of.items():
        counts = tuple(
            sum(at < position for at in writes[base[operand]])
            for operand in node.all_input_nodes
            if base[operand] in writes
        )
        if any(counts):
            found.epochs[node] = counts
            found.after.add(node)
        elif any(operand in found.after for operand in node.all_input_nodes):
            found.after.add(node)
    for node in reversed(nodes):
        root = base[node]
        for user in node.users:
            if user not in live:
                continue
            at = position_of[user]
            if root in writes and at >= writes[root][0]:
                found.live.add(node)
            if root in writes and base[user] is root and user in found.live:
                found.live.add(node)
            stays = user.op == "output" or signature_of(user).effect
            if (stays and at >= found.first) or user in found.after:
                found.late.add(node)
            if base[user] is root and user in found.late:
                found.late.add(node)
    return found


def _bases(nodes: list[Node]) -> dict[Node, Node]:
    """The node that made the storage of each node's value; placeholders that share one have one."""
    base: dict[Node, Node] = {}
    inputs: dict[int, Node] = {}
    for node in nodes:
        source = aliased(node)
        if source is not None:
            base[node] = base[source]
            continue
        base[node] = node
        if node.op in ("placeholder", "get_attr"):
            val = node.meta.get("val")
            storage = getattr(val, "untyped_storage", None)
            if storage is not None:
                base[node] = inputs.setdefault(storage()._cdata, node)
    return base
