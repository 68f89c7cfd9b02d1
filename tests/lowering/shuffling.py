"""A graph in another order in which it still does the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._pytree import tree_leaves


def shuffle(graph: fx.Graph, seed: int) -> fx.Graph:
    """Return a copy in a random order in which it still does the same.

    Inputs stay first, effects keep their order, and what touches a storage that is written stays on
    its side of each write.
    """
    nodes = list(graph.nodes)
    after = _order(nodes)
    missing = {node: len(befores) for node, befores in after.items()}
    users: dict[fx.Node, list[fx.Node]] = {node: [] for node in nodes}
    for node, befores in after.items():
        for each in befores:
            users[each].append(node)
    shuffled = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    chance = random.Random(seed)
    ready = [node for node in nodes if not missing[node]]
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        copied[node] = shuffled.node_copy(node, copied.__getitem__)
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    assert len(copied) == len(nodes)
    return shuffled


def _order(nodes: list[fx.Node]) -> dict[fx.Node, dict[fx.Node, None]]:
    """For each node, those that have to stand in front of it."""
    after = {node: dict.fromkeys(node.all_input_nodes) for node in nodes}
    last: fx.Node | None = None
    inputs = list(nodes[0].graph.find_nodes(op="placeholder")) if nodes else []
    touched: dict[int, list[fx.Node]] = {}
    writer: dict[int, fx.Node] = {}
    for node in nodes:
        if node.op == "output":
            after[node].update(dict.fromkeys(nodes[:-1]))
            continue
        if inputs and node is not inputs[0]:
            before = inputs[inputs.index(node) - 1] if node.op == "placeholder" else inputs[-1]
            after[node][before] = None
        if _has_effect(node):
            if last is not None:
                after[node][last] = None
            last = node
        written = {s for each in _written(node) for s in _storages(each)}
        for storage in sorted(_touched(node)):
            if storage in writer:
                after[node][writer[storage]] = None
            if storage in written:
                after[node].update(dict.fromkeys(touched.get(storage, ())))
                writer[storage] = node
            touched.setdefault(storage, []).append(node)
        after[node].pop(node, None)
    return after


def _touched(node: fx.Node) -> set[int]:
    return _storages(node).union(*(_storages(each) for each in node.all_input_nodes))


def _storages(node: fx.Node) -> set[int]:
    leaves = tree_leaves(node.meta.get("val"))
    return {each.untyped_storage()._cdata for each in leaves if isinstance(each, Tensor)}


def _written(node: fx.Node) -> Iterator[fx.Node]:
    """Operands whose storage the node writes, or may write."""
    target: Any = node.target
    if isinstance(target, HigherOrderOperator):
        yield from () if "functionalized" in target.name() else node.all_input_nodes
    elif isinstance(target, OpOverload):
        for i, argument in enumerate(target._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                yield from (each for each in tree_leaves(given) if isinstance(each, fx.Node))


_UNTAGGED_RANDOM = ("rand", "exponential", "inductor_", "dropout", "bernoulli", "normal", "assert")


def _has_effect(node: fx.Node) -> bool:
    """Whether a node has to keep its place among those that have an effect."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return isinstance(target, HigherOrderOperator)
    return (
        target._schema.is_mutable
        or target.namespace not in ("aten", "prims")
        or torch.Tag.nondeterministic_seeded in target.tags
        or any(each in target._schema.name for each in _UNTAGGED_RANDOM)
        or "unbacked_bindings" in node.meta
    )
