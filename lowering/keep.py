"""Which nodes of the graph stand for what was chosen."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch.fx import Node

from egraph.problem import NO_GROUP, Alternative, Solution
from lowering.aten import LISTS
from lowering.choices import Choices, Make
from lowering.read import Reading, Value

aten = torch.ops.aten


class Kept(NamedTuple):
    """Nodes that stay. An *item* is a choice, or a group as ~group.

    Attributes:
        item_of: what each node that stays is.
        node_of: the node of each item that has one.
        pieces: for each group, the choice of each piece.
    """

    item_of: dict[Node, int]
    node_of: dict[int, Node]
    pieces: dict[int, dict[int, int]]


def keep(reading: Reading, code: dict[int, int], choices: Choices, solution: Solution) -> Kept:
    """Find a node of the graph for each item that has one: the first that calls the same."""
    keeper = _Keeper(reading, code, choices)
    views: list[int] = []
    for choice, each in solution.chosen.items():
        if each.group != NO_GROUP:
            keeper.out.pieces.setdefault(each.group, {})[each.label[1]] = choice
        elif each.label[0] == Make.NODE:
            number = each.label[1]
            only = choices.is_only(reading, number)
            keeper.give(choice, reading.values[number].nodes if only else keeper.nodes(each))
        elif each.label[0] != Make.SAME:
            views.append(choice)
    sources = [(choice, solution.chosen[choice].children[0]) for choice in views]
    sources += [(~group, choices.cuts[group].source) for group in keeper.out.pieces]
    lists = keeper.lists() if keeper.out.pieces else {}
    # First the nodes that cut what they are to cut, then those that cut something equal.
    for exact in (True, False):
        for item, source in sources:
            if item in keeper.out.node_of:
                continue
            at = solution.resolve(source, Make.SAME)
            for node in (
                keeper.cuts(item, solution.chosen[item])
                if item >= 0
                else lists.get((choices.eclass[source], *choices.cuts[~item][:2]), ())
            ):
                fits = not exact or keeper.out.item_of.get(_source(node), None) == at
                if fits and keeper.give(item, (node,)) is not None:
                    break
    for group, pieces in keeper.out.pieces.items():
        for user in keeper.out.node_of[~group].users if ~group in keeper.out.node_of else ():
            if user.target is operator.getitem and type(user.args[1]) is int:
                piece = pieces[user.args[1] % len(pieces)]
                if piece not in keeper.out.node_of:
                    keeper.give(piece, (user,))
    return keeper.out


def _source(node: Node) -> Node:
    """What a node cuts."""
    first = node.args[0] if node.args else node.kwargs["self"]
    assert isinstance(first, Node)
    return first


def _same(value: Value, other: Value) -> bool:
    """Whether the nodes of two equal values call the same on operands that are equal in turn."""
    if len(value.operands) != len(other.operands) or len(set(other.operands)) < len(other.operands):
        return False
    if value.term is None or other.term is None:
        return value.key is not None and value.key == other.key
    return value.term.op == other.term.op and value.term.params == other.term.params


class _Keeper:
    def __init__(self, reading: Reading, code: dict[int, int], choices: Choices) -> None:
        self.reading = reading
        self.code = code
        self.choices = choices
        self.out = Kept({}, {}, {})

    def give(self, item: int, nodes: Iterable[Node]) -> Node | None:
        """Give an item the first of the nodes that is free."""
        for node in nodes:
            if node not in self.out.item_of:
                self.out.item_of[node] = item
                self.out.node_of[item] = node
                return node
        return None

    def nodes(self, each: Alternative) -> list[Node]:
        """The nodes that a copy of a value may be, in the order of preference."""
        _, number, copy = each.label
        value = self.reading.values[number]
        nodes = value.nodes
        members = self.choices.members[self.choices.class_of[number]]
        if len(members) > 1:
            others = [self.reading.values[member] for member in members if member != number]
            nodes = sorted(
                [*nodes, *(node for other in others if _same(value, other) for node in other.nodes)]
            )
        copy_of = self.choices.copy_of
        if not copy_of:
            return nodes
        return [
            *(node for node in nodes if copy_of.get(node) == copy),
            *(node for node in nodes if node not in copy_of),
            *(node for node in nodes if copy_of.get(node, copy) != copy),
        ]

    def cuts(self, choice: int, each: Alternative) -> Iterator[Node]:
        """The slices, or selects, that cut the same out of something equal."""
        values = self.reading.values
        make, *params = each.label
        op, target = (
            ("slice", aten.slice.Tensor) if make == Make.SLICE else ("select", aten.select.int)
        )
        source = self.choices.eclass[each.children[0]]
        for member in self.choices.members.get(self.choices.eclass[choice], ()):
            term = values[member].term
            if (
                term is not None
                and term.op == op
                and self.choices.class_of[term.sources[0]] == source
                and self.ordered(term.params) == tuple(params)
            ):
                yield from (node for node in values[member].nodes if node.target is target)

    def lists(self) -> dict[tuple[int, str, tuple[int, ...]], list[Node]]:
        """The graph's own split_with_sizes and unbind nodes by what they make."""
        found: dict[tuple[int, str, tuple[int, ...]], list[Node]] = {}
        for node, terms in self.reading.lists.items():
            source = self.choices.class_of[terms[0].sources[0]]
            d = terms[0].params[0]
            if node.target is aten.split_with_sizes.default:
                cuts = self.ordered((d, 0, *(term.params[2] for term in terms)))
                found.setdefault((source, "split", cuts), []).append(node)
            elif LISTS[node.target] == "select":  # type: ignore[index]
                found.setdefault((source, "unbind", (d,)), []).append(node)
        return found

    def ordered(self, params: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self.code[p] if p < 0 else p for p in params])
