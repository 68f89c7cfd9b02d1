"""Chosen alternatives as edits of the graph, worked out before the first one is made.

Nodes that are still chosen stay: same object, name and meta. A new node stands in front of the
first node that needs it. Values of new nodes come from the nodes that they replace or, where those
viewed another storage, from stride arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from egraph.problem import NO_GROUP, Alternative, Solution
from lowering.choices import Choices, Cuts, Make
from lowering.edits import AnyNode, Create, Move, New, Plan, Revalue, Rewire
from lowering.hoist import hoisted
from lowering.keep import keep
from lowering.mutation import aliased, argument
from lowering.read import Reading
from lowering.signature import signature
from lowering.sizes import Place, Sizes, Unplannable, expression_of, idle_symbols
from lowering.values import propagate, same_place, view_val

aten = torch.ops.aten


def plan(
    reading: Reading, code: dict[int, int], choices: Choices, solution: Solution, last_dim: bool
) -> Plan:
    """Work out the edits that turn the graph into what was chosen.

    Args:
        reading: the graph.
        code: the ordered code of each symbolic bound.
        choices: what the choices stand for.
        solution: what was chosen.
        last_dim: write the last dimension as -1.
    """
    return _Planner(reading, code, choices, solution, last_dim).run()


class _Planner:
    def __init__(
        self,
        reading: Reading,
        code: dict[int, int],
        choices: Choices,
        solution: Solution,
        last_dim: bool,
    ) -> None:
        self.reading = reading
        self.choices = choices
        self.last_dim = last_dim
        self.solution = solution
        self.variants = choices.variants
        self.chosen = solution.chosen
        kept = keep(reading, code, choices, solution)
        self.kept = kept.item_of
        self.pieces = kept.pieces
        self.out = Plan()
        self.made = self.out.made
        self.made.update(kept.node_of)
        self.vals: dict[Node, object] = {}
        self.placed: set[int] = set()
        # Choices whose nodes stay as their users have them, and with the val that they have.
        self.intact: set[int] = set()
        self.sizes = Sizes(reading.bounds, code, self.symbols(), self.out)

    def symbols(self) -> dict[object, int]:
        """The choice of the node that holds each symbolic expression."""
        if not self.reading.bounds.has_symbols:
            return {}
        return {
            symbol: choice
            for choice, each in self.chosen.items()
            if each.label[0] == Make.NODE
            and (symbol := expression_of(self.reading.node(each.label[1]).meta.get("val")))
            is not None
        }

    def run(self) -> Plan:
        before = hoisted(self.reading, self.chosen, self.pieces, self.parts, self.made)
        for node in self.reading.nodes:
            item = self.kept.get(node)
            if item is None:
                continue
            for reader in before.get(node, ()):
                if reader not in self.placed:
                    self.place(reader, node)
            if item in self.placed:
                continue
            if (
                item >= 0
                and self.intact.issuperset((each := self.chosen[item]).children)
                and self.is_only(each)
                and node not in self.reading.through
            ):
                self.placed.add(item)
                self.intact.add(item)
                continue
            if self.placed.issuperset(self.parts(item)):
                self.placed.add(item)
                self.settle(item, node)
            else:
                self.place(item, node)
        idle = idle_symbols(self.reading, self.kept, self.out) if self.sizes.held else set()
        self.out.erased = [
            node
            for node in reversed(self.reading.nodes)
            if node.op == "call_function" and (node not in self.kept or node in idle)
        ]
        return self.out

    # Where nodes stand

    def resolve(self, choice: int) -> int:
        """The choice that makes what a choice is, through anchored ones."""
        return self.solution.resolve(choice, Make.SAME) if self.variants else choice

    def now(self, choice: int) -> AnyNode:
        """The node that stands for a choice."""
        return self.made[self.resolve(choice) if self.variants else choice]

    def placed_node(self, choice: int, before: Node) -> AnyNode:
        """The node of a choice, put in front of a node unless it stands there already."""
        if choice not in self.placed:
            self.place(choice, before)
        return self.made[choice]

    def parts(self, item: int) -> Sequence[int]:
        """What has to stand in front of an item: choices, and groups as ~group."""
        if item < 0:
            return [self.resolve(self.choices.cuts[~item].source)]
        each = self.chosen[item]
        if each.group != NO_GROUP:
            return (~each.group,)
        if not self.variants:
            return each.children
        return [self.resolve(child) for child in each.children]

    def place(self, item: int, before: Node) -> None:
        """Put an item, and what it needs, in front of a node unless they stand there already."""
        stack = [(item, iter(self.parts(item)))]
        entered = {item}
        while stack:
            top, parts = stack[-1]
            for part in parts:
                if part not in self.placed and part not in entered:
                    entered.add(part)
                    stack.append((part, iter(self.parts(part))))
                    break
            else:
                stack.pop()
                self.placed.add(top)
                self.settle(top, before)

    def settle(self, item: int, before: Node) -> None:
        """Make, move or rewire the node of an item whose parts are settled."""
        node = self.made.get(item)
        if isinstance(node, Node):
            moves = node is not before and before < node
            # What the node needs comes first, and has to stand where the node will.
            self.rewire(item, node, before if moves else node)
            if moves:
                self.out.edits.append(Move(node, before))
            if item >= 0 and node not in self.vals and self.is_only(self.chosen[item]):
                self.intact.add(item)
            return
        if node is None:
            self.create(item, before)
        if item < 0:
            for _, choice in sorted(self.pieces[~item].items()):
                if choice not in self.made:
                    self.placed.add(choice)
                    self.create(choice, before)

    def is_only(self, each: Alternative) -> bool:
        """Whether an alternative is the one node of all that its class has."""
        return each.label[0] == Make.NODE and self.choices.is_only(self.reading, each.label[1])

    def create(self, item: int, before: Node) -> None:
        new = self.new(item, before)
        self.made[item] = new
        self.out.edits.append(Create(new, before))

    def new(self, item: int, before: Node) -> New:
        like = self.replaced(item)
        if item < 0:
            group = ~item
            cuts = self.choices.cuts[group]
            source = self.now(cuts.source)
            d = cuts.params[0]
            vals = self.piece_vals(group, source)
            if cuts.op == "unbind":
                return New(aten.unbind.int, (source, self.dim(d, source)), vals, like)
            args = (source, self.split_sizes(cuts, source, before), self.dim(d, source))
            return New(aten.split_with_sizes.default, args, vals, like)
        each = self.chosen[item]
        make, *params = each.label
        if make == Make.PIECE:
            pieces = self.made[~each.group]
            listed = self.val(pieces)
            assert isinstance(listed, (list, tuple))
            return New(operator.getitem, (pieces, params[0]), listed[params[0]], like)
        if make == Make.NODE:
            value = self.reading.values[params[0]]
            node = value.nodes[0]
            if value.key is None and value.term is None:
                raise Unplannable(f"node {node.name} can't be made a second time")
            args, kwargs = self.arguments(item, node)
            return New(node.target, args, self.propagated(item, node), like, kwargs)
        source = self.now(each.children[0])
        d = params[0]
        val = self.cut_val(each, like, source)
        if make == Make.SELECT:
            return New(aten.select.int, (source, self.dim(d, source), params[1]), val, like)
        where = Place(source, self.tensor(source).size(d), d, before, self.placed_node)
        a, b = (self.sizes.bound(p, where) for p in params[1:])
        return New(aten.slice.Tensor, (source, self.dim(d, source), a, b), val, like)

    def split_sizes(self, cuts: Cuts, source: AnyNode, before: Node) -> list[int | AnyNode]:
        d, *at = cuts.params
        where = Place(source, self.tensor(source).size(d), d, before, self.placed_node)
        return [self.sizes.extent(a, b, where) for a, b in pairwise(at)]

    def replaced(self, item: int) -> Node:
        """The node of the graph whose place and meta a new one takes."""
        values = self.reading.values
        if item < 0:
            first = self.replaced(self.pieces[~item][0])
            source = first.args[0] if first.target is operator.getitem else first
            return source if source in self.reading.lists else first  # type: ignore[return-value]
        members = self.choices.members.get(self.choices.eclass[item])
        if not members:
            raise Unplannable(f"nothing in the graph has the value of {self.chosen[item].label}")
        views = [each for each in members if values[each].term is not None]
        return values[(views or members)[0]].nodes[0]

    # Arguments

    def dim(self, d: int, source: AnyNode) -> int:
        return -1 if self.last_dim and d == self.tensor(source).dim() - 1 else d

    def arguments(self, item: int, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with the nodes that now stand for them."""
        parts = self.chosen[item].children
        if node.op == "output":
            each = iter(parts)
            take: Any = lambda _: self.now(next(each))  # noqa: E731
            return map_arg(node.args, take), {}
        value = self.reading.values[self.reading.of[node]]
        choice_of = dict(zip(value.operands, parts, strict=False))
        through = self.reading.through.get(node)

        def now(operand: Node) -> Any:
            if through is not None and operand is node.args[0]:
                operand = through
            choice = choice_of.get(self.reading.of[operand])
            if choice is None:
                choice = self.sizes.held.get(expression_of(operand.meta.get("val")))
            return operand if choice is None else self.made.get(self.resolve(choice), operand)

        args, kwargs = map_arg((node.args, dict(node.kwargs)), now)
        return args, kwargs

    def rewire(self, item: int, node: Node, before: Node) -> None:
        """Give a node that stays the operands, and where they moved in memory the val, of now."""
        if item < 0:
            self.rewire_list(~item, node, before)
            return
        each = self.chosen[item]
        if each.group != NO_GROUP:
            pieces = self.made[~each.group]
            i = each.label[1]
            if node.args != (pieces, i):
                self.out.edits.append(Rewire(node, (pieces, i), {}))
            vals = self.val(pieces)
            assert isinstance(vals, (list, tuple))
            self.revalue(node, vals[i])
            return
        if not each.children or self.is_wired(each, node) or self.rewire_one(each, node):
            return
        args, kwargs = self.arguments(item, node)
        rewired = _changed(args, node.args) or _changed(kwargs, node.kwargs)
        if rewired:
            self.out.edits.append(Rewire(node, args, kwargs))
        if not rewired and not self.vals:
            return
        if each.label[0] in (Make.SLICE, Make.SELECT):
            self.revalue(node, self.cut_val(each, node, self.now(each.children[0])))
        elif self.moved(item, node):
            self.revalue(node, self.propagated(item, node))

    def rewire_one(self, each: Alternative, node: Node) -> bool:
        """Rewire a node that has one operand; False if it has more, or none at the top level."""
        inputs = node._input_nodes
        if len(each.children) != 1 or len(inputs) != 1 or node.kwargs or node.op == "output":
            return False
        (old,) = inputs
        new = self.now(each.children[0])
        args = tuple([new if argument is old else argument for argument in node.args])
        if new not in args:
            return False
        if new is not old:
            self.out.edits.append(Rewire(node, args, {}))
        before, after = old.meta.get("val"), self.val(new)
        if before is after:
            return True
        if each.label[0] != Make.NODE:
            self.revalue(node, self.cut_val(each, node, new))
        elif _base(node) is old and not same_place(before, after):
            val = propagate(node, args, {}, self.val)
            if not same_place(val, node.meta.get("val")):
                self.revalue(node, val)
        return True

    def is_wired(self, each: Alternative, node: Node) -> bool:
        """Whether a node has the operands and vals of now already, as most have."""
        inputs = node._input_nodes
        found = set()
        for child in each.children:
            operand = self.now(child)
            if operand not in inputs or operand in self.vals:
                return False
            found.add(operand)
        return len(found) == len(inputs) and node.op != "output"

    def rewire_list(self, group: int, node: Node, before: Node) -> None:
        cuts = self.choices.cuts[group]
        source = self.now(cuts.source)
        d = cuts.params[0]
        args: tuple[Any, ...] = (source, self.dim(d, source))
        if cuts.op == "split":
            args = (source, self.split_sizes(cuts, source, before), args[1])
        if node.kwargs or _changed(args, node.args):
            self.out.edits.append(Rewire(node, args, {}))
        old = node.meta.get("val")
        vals = self.piece_vals(group, source, old if isinstance(old, (list, tuple)) else ())
        if not isinstance(old, (list, tuple)) or any(
            a is not b for a, b in zip(vals, old, strict=True)
        ):
            self.revalue(node, vals)

    # Values

    def val(self, node: AnyNode) -> object:
        """The value that a node has once the edits are made."""
        if isinstance(node, New):
            return node.val
        return self.vals[node] if node in self.vals else node.meta.get("val")

    def tensor(self, node: AnyNode) -> torch.Tensor:
        """The value of a node that is a tensor."""
        val = self.val(node)
        assert isinstance(val, torch.Tensor)
        return val

    def revalue(self, node: Node, val: object) -> None:
        if val is not node.meta.get("val"):
            self.vals[node] = val
            self.out.edits.append(Revalue(node, val))

    def piece_vals(
        self, group: int, source: AnyNode, own: list[object] | tuple[object, ...] = ()
    ) -> list[object]:
        """The values of a list's pieces: the list's own ones where they view the source."""
        cuts = self.choices.cuts[group]
        d, *at = cuts.params
        vals: list[object] = []
        for i, choice in sorted(self.pieces[group].items()):
            known = own[i] if own else self.replaced(choice).meta.get("val")
            bounds = (i,) if cuts.op == "unbind" else (at[i], at[i + 1])
            numbers = [self.sizes.number(each) for each in bounds]
            vals.append(view_val(self.tensor(source), d, numbers, known))
        return vals

    def cut_val(self, each: Alternative, like: Node, source: AnyNode) -> object:
        """The value of a slice or a select: that of a node like it, if it views the source."""
        _, d, *bounds = each.label
        numbers = [self.sizes.number(bound) for bound in bounds]
        return view_val(self.tensor(source), d, numbers, like.meta.get("val"))

    def moved(self, item: int, node: Node) -> bool:
        """Whether a node's value depends on where an operand lies, and that has changed."""
        base = self.reading.through.get(node) or _base(node)
        if base is None:
            return False
        choice_of = dict(
            zip(
                self.reading.values[self.reading.of[node]].operands,
                self.chosen[item].children,
                strict=False,
            )
        )
        choice = choice_of.get(self.reading.of[base])
        if choice is None:
            return False
        return not same_place(self.val(self.now(choice)), base.meta.get("val"))

    def propagated(self, item: int, node: Node) -> object:
        args, kwargs = self.arguments(item, node)
        return propagate(node, args, kwargs, self.val)


def _base(node: Node) -> Node | None:
    """The operand on whose layout a node's own depends: of a view, or of a scatter."""
    source = aliased(node)
    if source is None and node.target is aten.slice_scatter.default:
        first = argument(node, 0, signature(aten.slice_scatter.default))
        return first if isinstance(first, Node) else None
    return source


def _changed(new: Any, old: Any) -> bool:
    """Whether arguments differ, nodes compared by identity and numbers with their types."""
    if isinstance(new, (list, tuple)):
        return (
            not isinstance(old, (list, tuple))
            or len(new) != len(old)
            or any(_changed(a, b) for a, b in zip(new, old, strict=True))
        )
    if isinstance(new, dict):
        return list(new) != list(old) or any(_changed(new[k], old[k]) for k in new)
    if isinstance(new, slice):
        return not isinstance(old, slice) or _changed(
            (new.start, new.stop, new.step), (old.start, old.stop, old.step)
        )
    if isinstance(new, (Node, New)):
        return new is not old
    return type(new) is not type(old) or new != old
