"""A graph as a text that two equal graphs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import SymInt
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from lowering.aten import TERMS
from lowering.bounds import Bounds
from lowering.mutation import analyse
from lowering.signature import bind, normal, signature_of

aten = torch.ops.aten


def canonical_text(graph: Graph | GraphModule) -> str:
    """Return a text of the outputs, the effects and what they reach.

    Nodes are numbered from the effects, in their order, and then the outputs, each after its
    operands: the text is free of node names and of the order of independent nodes, but shows what
    is shared. Arguments are by schema, with defaults filled in and dimensions counted from the
    front; slices have their bounds in bounds; symbolic numbers stand as their expressions.

    Args:
        graph: an FX graph or graph module; it isn't changed.

    Raises:
        TypeError: `graph` is neither.
    """
    if isinstance(graph, GraphModule):
        graph = graph.graph
    if not isinstance(graph, Graph):
        raise TypeError(
            f"canonical_text needs a torch.fx.Graph or GraphModule, not {type(graph).__name__}"
        )
    return "\n".join(_Text(list(graph.nodes)).lines()) + "\n"


class _Text:
    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.number: dict[Node, int] = {}
        self.bounds = Bounds(writable=False)
        self.epochs = analyse(nodes, [signature_of(node) for node in nodes], set(nodes)).epochs

    def lines(self) -> Iterator[str]:
        for node in self.nodes:
            if node.op == "placeholder":
                self.number[node] = len(self.number)
                yield f"%{self.number[node]} = input {_type(node.meta.get('val'))}".rstrip()
        for node in self.nodes:
            if node.op == "output" or (
                node.op not in ("placeholder", "get_attr") and self.stays(node)
            ):
                yield from self.reach(node)

    def stays(self, node: Node) -> bool:
        return node.op != "call_function" or (
            signature_of(node).effect or "unbacked_bindings" in node.meta
        )

    def reach(self, root: Node) -> Iterator[str]:
        """The lines of a node and of what it reaches that has no line yet, operands first."""
        if root in self.number:
            return
        stack = [(root, iter(self.operands(root)))]
        while stack:
            node, operands = stack[-1]
            for operand in operands:
                if operand not in self.number:
                    stack.append((operand, iter(self.operands(operand))))
                    break
            else:
                stack.pop()
                if node not in self.number:
                    self.number[node] = len(self.number)
                    yield self.line(node)

    def operands(self, node: Node) -> list[Node]:
        """The operands in the order in which the line names them, symbolic numbers left out."""
        found: list[Node] = []
        map_arg(self.arguments(node), found.append)
        return [each for each in found if not _is_symbol(each) or self.is_root(each)]

    def is_root(self, node: Node) -> bool:
        """Whether a node has a line of its own whoever uses it; inputs have theirs already."""
        return node.op != "placeholder" and self.stays(node)

    def arguments(self, node: Node) -> tuple[Any, ...]:
        if node.op != "call_function":
            return (node.args, dict(sorted(node.kwargs.items())))
        term = TERMS.get(node.target)  # type: ignore[arg-type]
        if term is not None and node.target is not aten.cat.default:
            spelling = term(node, self.bounds)
            if spelling is not None:
                params = [str(self.bounds.expression(p)) for p in spelling.params]
                return (*spelling.sources, *params)
        sig = signature_of(node)
        if not sig.parameters:
            return (*node.args, *([dict(sorted(node.kwargs.items()))] if node.kwargs else []))
        return tuple(
            normal(argument, parameter.kind, node, sig)
            for parameter, argument in zip(sig.parameters, bind(node, sig.parameters), strict=True)
        )

    def line(self, node: Node) -> str:
        arguments = self.arguments(node)
        if node.op == "output":
            return f"output {self.show(node.args[0])}"
        if node.op == "get_attr":
            return f"%{self.number[node]} = attribute {node.target}"
        name = signature_of(node).name
        if arguments and node.op == "call_function":
            first = arguments[0] if isinstance(arguments[0], Node) else None
            if first is not None and len(arguments) > 1 and isinstance(arguments[-1], str):
                name = _TERM_NAMES.get(node.target, name)
        after = self.epochs.get(node)
        when = f" after writes {list(after)}" if after else ""
        shown = ", ".join(self.show(each) for each in arguments)
        return f"%{self.number[node]} = {name}({shown}){when}"

    def show(self, argument: Any) -> str:
        if isinstance(argument, Node):
            if _is_symbol(argument) and not self.is_root(argument):
                return f"<{argument.meta['val'].node.expr}>"
            return f"%{self.number[argument]}"
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(self.show(each) for each in argument)}]"
        if isinstance(argument, dict):
            return "{" + ", ".join(f"{k}: {self.show(v)}" for k, v in argument.items()) + "}"
        if isinstance(argument, SymInt):
            return f"<{argument.node.expr}>"
        return argument if isinstance(argument, str) else repr(argument)


_TERM_NAMES: dict[object, str] = {
    aten.narrow.default: str(aten.slice.Tensor),
}
"""Spellings that are shown under one name."""


def _is_symbol(node: Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, SymInt) and val.node.maybe_as_int() is None


def _type(val: object) -> str:
    if isinstance(val, torch.Tensor):
        sizes = ", ".join(_number(size) for size in val.size())
        strides = ", ".join(_number(stride) for stride in val.stride())
        return f"{str(val.dtype).removeprefix('torch.')}[{sizes}] strides [{strides}]"
    if isinstance(val, SymInt):
        return f"<{val.node.expr}>"
    return "" if val is None else type(val).__name__


def _number(number: object) -> str:
    return str(number.node.expr) if isinstance(number, SymInt) else str(number)
