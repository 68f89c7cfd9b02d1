"""Symbolic bounds and sizes as arguments: nodes that hold them, or new ones that compute them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

import torch
from torch import SymInt
from torch.fx import Node

from lowering.bounds import Bounds, Number
from lowering.edits import AnyNode, Create, New, Plan, Rewire
from lowering.read import Reading
from lowering.signature import signature_of

aten = torch.ops.aten


class Unplannable(Exception):
    """A choice can't be written as nodes; the message says which."""


class Place(NamedTuple):
    """Where a bound is needed.

    Attributes:
        source: the node that is cut.
        size: how many elements it has along `d`.
        d: the dimension.
        before: the node in front of which everything has to stand.
        put: puts the node of a choice there, unless it stands there already, and returns it.
    """

    source: AnyNode
    size: Number
    d: int
    before: Node
    put: Callable[[int, Node], AnyNode]


class Sizes:
    """Writes bounds and sizes as arguments.

    Attributes:
        held: the choice of the node that holds each symbolic expression.
    """

    def __init__(
        self,
        bounds: Bounds,
        code: dict[int, int],
        held: dict[object, int],
        plan: Plan,
    ) -> None:
        self.held = held
        self._bounds = bounds
        self._raw = {ordered: raw for raw, ordered in code.items()}
        self._plan = plan
        self._made: dict[object, New] = {}

    def number(self, ordered: int) -> Number:
        """The number, or symbolic number, of an ordered bound."""
        return self._bounds.number(self._raw.get(ordered, ordered))

    def bound(self, ordered: int, place: Place) -> int | AnyNode:
        """A bound of a slice.

        Raises:
            Unplannable: no sum or product of what nodes hold is the bound.
        """
        number = self.number(ordered)
        if isinstance(number, int):
            return number
        return self._expression(number.node.expr, number, place)

    def extent(self, a: int, b: int, place: Place) -> int | AnyNode:
        """The size of the piece from a to b."""
        number = self.number(b) - self.number(a)
        if isinstance(number, int):
            return number
        whole = number.node.maybe_as_int()
        if whole is not None:
            return int(whole)
        if a == 0:
            return self.bound(b, place)
        expression = number.node.expr
        if expression in self.held or expression in self._made:
            return self._expression(expression, number, place)
        ends = (self.bound(b, place), self.bound(a, place))
        return self._make(expression, operator.sub, ends, number, place)

    def _expression(self, expression: Any, like: SymInt, place: Place) -> int | AnyNode:
        choice = self.held.get(expression)
        if choice is not None:
            return place.put(choice, place.before)
        if expression in self._made:
            return self._made[expression]
        if expression.is_Integer:
            return int(expression)
        if expression == expression_of(place.size):
            args = (place.source, place.d)
            return self._make(expression, aten.sym_size.int, args, place.size, place)
        if not (expression.is_Add or expression.is_Mul):
            raise Unplannable(f"no node holds the bound {expression}")
        first, *rest = sorted(expression.args, key=str)
        last = rest.pop()
        function = operator.add if expression.is_Add else operator.mul
        made = (
            self._expression(expression.func(first, *rest), like, place),
            self._expression(last, like, place),
        )
        number = like.node.shape_env.create_symintnode(expression, hint=None)
        return self._make(expression, function, made, number, place)

    def _make(
        self, expression: object, target: Any, args: tuple[Any, ...], val: object, place: Place
    ) -> New:
        new = self._made[expression] = New(target, args, val, place.before)
        self._plan.edits.append(Create(new, place.before))
        return new


def expression_of(number: object) -> object:
    """What a symbolic integer is known by, or None."""
    return number.node.expr if isinstance(number, SymInt) else None


def idle_symbols(reading: Reading, kept: Container[Node], plan: Plan) -> set[Node]:
    """Nodes that hold a size which nothing refers to any more once the edits are made.

    Args:
        reading: the graph.
        kept: the nodes that stay.
        plan: the edits.
    """
    idle: set[Node] = set()
    arguments: dict[Node, Any] = {
        edit.node: (edit.args, edit.kwargs) for edit in plan.edits if isinstance(edit, Rewire)
    }
    used: set[Node] = set()
    for edit in plan.edits:
        if isinstance(edit, Create):
            used.update(each for each in _leaves(edit.node.args) if isinstance(each, Node))
    for node in reversed(reading.nodes):
        if node not in kept:
            continue
        if (
            node.op == "call_function"
            and expression_of(node.meta.get("val")) is not None
            and not signature_of(node).effect
            and "unbacked_bindings" not in node.meta
            and node not in used
        ):
            idle.add(node)
        elif node in arguments:
            used.update(each for each in _leaves(arguments[node]) if isinstance(each, Node))
        else:
            used.update(node.all_input_nodes)
    return idle


def _leaves(arguments: Any) -> Iterator[Any]:
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, (list, tuple)):
        yield arguments
        return
    for each in arguments:
        yield from _leaves(each)
