"""Chosen alternatives as edits of the graph, worked out before the first one is made.

Nodes that are still chosen stay: same object, name and meta. A new node stands in front of the first
node that needs it. Values of new nodes come from the nodes that they replace or, where those viewed
another storage, from stride arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import SymInt
from torch.fx import Node
from torch.fx.node import map_arg

from egraph.extract import NO_GROUP, Alternative, Solution
from lowering.aten import LISTS
from lowering.bounds import Number
from lowering.choose import Choices, Make
from lowering.edits import AnyNode, Create, Move, New, Plan, Revalue, Rewire
from lowering.layout import storage_of
from lowering.mutation import aliased, argument
from lowering.read import Reading
from lowering.signature import signature, signature_of
from lowering.values import propagate, same_place, select_val, slice_val

aten = torch.ops.aten


class Unplannable(Exception):
    """A choice can't be written as nodes; the message names the value."""


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
        self.chosen = solution.chosen
        self.code = code
        self.raw = {ordered: raw for raw, ordered in code.items()}
        self.out = Plan()
        self.made = self.out.made
        self.kept: dict[Node, int] = {}
        self.members: dict[int, dict[int, int]] = {}  # group -> piece -> choice
        self.vals: dict[Node, object] = {}
        self.symbols: dict[object, int] = {}
        self.helpers: dict[object, New] = {}
        self.placed: set[int] = set()

    def run(self) -> Plan:
        self.keep()
        for choice, each in self.chosen.items():
            if each.label[0] == Make.NODE:
                symbol = _expression(self.reading.node(each.label[1]).meta.get("val"))
                if symbol is not None:
                    self.symbols[symbol] = choice
        hoisted = self.hoisted()
        for node in self.reading.nodes:
            item = self.kept.get(node)
            if item is None:
                continue
            for reader in hoisted.get(node, ()):
                self.place(reader, node)
            if item in self.placed:
                continue
            if all([part in self.placed for part in self.parts(item)]):
                self.placed.add(item)
                self.settle(item, node)
            else:
                self.place(item, node)
        idle = self.idle_symbols()
        self.out.erased = [
            node
            for node in reversed(self.reading.nodes)
            if node.op == "call_function" and (node not in self.kept or node in idle)
        ]
        return self.out

    def idle_symbols(self) -> set[Node]:
        """Nodes that hold a size which nothing refers to any more."""
        idle: set[Node] = set()
        if not self.symbols:
            return idle
        arguments: dict[Node, Any] = {
            edit.node: (edit.args, edit.kwargs)
            for edit in self.out.edits
            if isinstance(edit, Rewire)
        }
        used: set[Node] = set()
        for edit in self.out.edits:
            if isinstance(edit, Create):
                used.update(each for each in _leaves(edit.node.args) if isinstance(each, Node))
        for node in reversed(self.reading.nodes):
            if node not in self.kept:
                continue
            if (
                node.op == "call_function"
                and _expression(node.meta.get("val")) is not None
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

    # Which nodes stay

    def keep(self) -> None:
        """Find a node of the graph for each choice that has one."""
        lists = self.lists()
        groups: dict[int, None] = {}
        for choice, each in self.chosen.items():
            if each.group != NO_GROUP:
                groups[each.group] = None
                self.members.setdefault(each.group, {})[each.label[1]] = choice
            elif each.label[0] != Make.SAME:
                for node in self.candidates(choice, each):
                    if node not in self.kept:
                        self.kept[node] = choice
                        self.made[choice] = node
                        break
        for group in groups:
            cuts = self.choices.cuts[group]
            source = self.choices.eclass[cuts.source]
            for node in lists.get((source, cuts.op, cuts.params), ()):
                if node not in self.kept:
                    self.kept[node] = ~group
                    self.made[~group] = node
                    break
            else:
                continue
            for user in node.users:
                if user.target is operator.getitem:
                    count = len(self.members[group])
                    piece = self.members[group][user.args[1] % count]  # type: ignore[operator]
                    if piece not in self.made:
                        self.kept[user] = piece
                        self.made[piece] = user

    def candidates(self, choice: int, each: Alternative) -> Iterator[Node]:
        values = self.reading.values
        make, *params = each.label
        if make == Make.NODE:
            nodes = values[params[0]].nodes
            yield from nodes[params[1] :]
            yield from nodes[: params[1]]
            return
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

    # Where nodes stand

    def resolve(self, choice: int) -> int:
        """The choice that makes what a choice is, through anchored ones."""
        chosen = self.chosen
        while chosen[choice].label[0] == Make.SAME:
            choice = self.chosen[choice].children[0]
        return choice

    def parts(self, item: int) -> list[int]:
        """What has to stand in front of an item: choices, and groups as ~group."""
        if item < 0:
            return [self.resolve(self.choices.cuts[~item].source)]
        each = self.chosen[item]
        if each.group != NO_GROUP:
            return [~each.group]
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
            if node is not before and before < node:
                self.out.edits.append(Move(node, before))
            self.rewire(item, node)
            return
        if node is None:
            self.create(item, before)
        if item < 0:
            for _, choice in sorted(self.members[~item].items()):
                if choice not in self.made:
                    self.placed.add(choice)
                    self.create(choice, before)

    def create(self, item: int, before: Node) -> None:
        new = self.new(item, before)
        self.made[item] = new
        self.out.edits.append(Create(new, before))

    def new(self, item: int, before: Node) -> New:
        like = self.replaced(item)
        if item < 0:
            group = ~item
            cuts = self.choices.cuts[group]
            source = self.made[self.resolve(cuts.source)]
            d = cuts.params[0]
            vals = self.piece_vals(group, source)
            if cuts.op == "unbind":
                return New(aten.unbind.int, (source, self.dim(d, source)), vals, like)
            sizes = [
                self.size(a, b, source, d, before) for a, b in pairwise(cuts.params[1:])
            ]
            args = (source, sizes, self.dim(d, source))
            return New(aten.split_with_sizes.default, args, vals, like)
        each = self.chosen[item]
        make, *params = each.label
        if make == Make.PIECE:
            pieces = self.made[~each.group]
            vals = self.val(pieces)
            assert isinstance(vals, (list, tuple))
            return New(operator.getitem, (pieces, params[0]), vals[params[0]], like)
        if make == Make.NODE:
            node = self.reading.values[params[0]].nodes[0]
            args, kwargs = self.arguments(item, node)
            return New(node.target, args, self.propagated(item, node), like, kwargs)
        source = self.made[self.resolve(each.children[0])]
        d = params[0]
        val = self.view_val(item, source)
        if make == Make.SELECT:
            return New(aten.select.int, (source, self.dim(d, source), params[1]), val, like)
        a, b = (self.bound(p, source, d, before) for p in params[1:])
        return New(aten.slice.Tensor, (source, self.dim(d, source), a, b), val, like)

    def replaced(self, item: int) -> Node:
        """The node of the graph whose place and meta a new one takes."""
        values = self.reading.values
        if item < 0:
            first = self.replaced(self.members[~item][0])
            source = first.args[0] if first.target is operator.getitem else first
            return source if source in self.reading.lists else first  # type: ignore[return-value]
        members = self.choices.members.get(self.choices.eclass[item])
        if not members:
            raise Unplannable(f"nothing in the graph has the value of {self.chosen[item].label}")
        views = [each for each in members if values[each].term is not None]
        return values[(views or members)[0]].nodes[0]

    def hoisted(self) -> dict[Node, list[int]]:
        """Readers that must stand in front of the first write of a storage that they newly view."""
        mutation = self.reading.mutation
        found: dict[Node, list[int]] = {}
        if not mutation:
            return found
        readers: dict[int, list[int]] = {}
        groups = sorted(self.members)
        for item in [*self.chosen, *(~group for group in groups)]:
            if item < 0 or self.chosen[item].label[0] != Make.SAME:
                for part in self.parts(item):
                    readers.setdefault(part, []).append(item)
        for root, position in mutation.roots.items():
            write = self.reading.nodes[position]
            stack = [item for item, node in self.made.items() if node is root]
            seen = set(stack)
            while stack:
                for item in readers.get(stack.pop(), ()):
                    node = self.made.get(item)
                    if item in seen:
                        continue
                    seen.add(item)
                    if isinstance(node, Node):
                        if write < node and self.may_move(node):
                            found.setdefault(write, []).append(item)
                        if aliased(node) is None:
                            continue
                    stack.append(item)
        return found

    def may_move(self, node: Node) -> bool:
        """Whether a node may stand in front of a write that it comes after."""
        return node not in self.reading.mutation.after and not (
            node.op != "call_function" or signature_of(node).effect
        )

    # Arguments

    def dim(self, d: int, source: AnyNode) -> int:
        val = self.val(source)
        assert isinstance(val, torch.Tensor)
        return -1 if self.last_dim and d == val.dim() - 1 else d

    def number(self, ordered: int) -> Number:
        return self.reading.bounds.number(self.raw.get(ordered, ordered))

    def bound(self, ordered: int, source: AnyNode, d: int, before: Node) -> int | AnyNode:
        """A bound as an argument: a number, or a node that holds it."""
        number = self.number(ordered)
        if isinstance(number, int):
            return number
        val = self.val(source)
        assert isinstance(val, torch.Tensor)
        size = val.size(d)
        if isinstance(size, SymInt) and size.node.expr == number.node.expr:
            held = self.symbols.get(size.node.expr)
            if held is None and size.node.expr not in self.helpers:
                new = self.helper(aten.sym_size.int, (source, d), size, before)
                self.helpers[size.node.expr] = new
        return self.written(number.node.expr, number, before)

    def size(self, a: int, b: int, source: AnyNode, d: int, before: Node) -> int | AnyNode:
        """The size of the piece from a to b as an argument."""
        number = self.number(b) - self.number(a)
        if isinstance(number, int):
            return number
        whole = number.node.maybe_as_int()
        if whole is not None:
            return int(whole)
        if a == 0:
            return self.bound(b, source, d, before)
        expression = number.node.expr
        if expression in self.symbols or expression in self.helpers:
            return self.written(expression, number, before)
        ends = (self.bound(b, source, d, before), self.bound(a, source, d, before))
        self.helpers[expression] = self.helper(operator.sub, ends, number, before)
        return self.helpers[expression]

    def written(self, expression: Any, like: SymInt, before: Node) -> int | AnyNode:
        """An expression as an argument: the node that holds it, or sums and products of such."""
        choice = self.symbols.get(expression)
        if choice is not None:
            if choice not in self.placed:
                self.place(choice, before)
            return self.made[choice]
        if expression in self.helpers:
            return self.helpers[expression]
        if expression.is_Integer:
            return int(expression)
        if not (expression.is_Add or expression.is_Mul):
            raise Unplannable(f"no node holds the bound {expression}")
        first, *rest = sorted(expression.args, key=str)
        last = rest.pop()
        function = operator.add if expression.is_Add else operator.mul
        most = expression.func(first, *rest)
        made = (self.written(most, like, before), self.written(last, like, before))
        number = like.node.shape_env.create_symintnode(expression, hint=None)
        self.helpers[expression] = self.helper(function, made, number, before)
        return self.helpers[expression]

    def helper(self, target: Any, args: tuple[Any, ...], number: object, before: Node) -> New:
        """A node that holds a symbolic number that no node held."""
        new = New(target, args, number, before)
        self.out.edits.append(Create(new, before))
        return new

    def arguments(self, item: int, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with the nodes that now stand for them."""
        parts = self.chosen[item].children
        if node.op == "output":
            each = iter(parts)
            return map_arg(node.args, lambda _: self.made[self.resolve(next(each))]), {}  # type: ignore[arg-type,return-value]
        value = self.reading.values[self.reading.of[node]]
        choice_of = dict(zip(value.operands, parts, strict=False))

        def now(operand: Node) -> Any:
            choice = choice_of.get(self.reading.of[operand])
            if choice is None:
                choice = self.symbols.get(_expression(operand.meta.get("val")))
            return operand if choice is None else self.made.get(self.resolve(choice), operand)

        return map_arg((node.args, dict(node.kwargs)), now)  # type: ignore[arg-type,return-value]

    def rewire(self, item: int, node: Node) -> None:
        """Give a node that stays the operands, and where they moved in memory the val, of now."""
        if item < 0:
            self.rewire_list(~item, node)
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
        if not each.children or self.is_wired(each, node):
            return
        args, kwargs = self.arguments(item, node)
        rewired = _changed(args, node.args) or _changed(kwargs, node.kwargs)
        if rewired:
            self.out.edits.append(Rewire(node, args, kwargs))
        if not rewired and not self.vals:
            return
        if each.label[0] in (Make.SLICE, Make.SELECT):
            self.revalue(node, self.view_val(item, self.made[self.resolve(each.children[0])]))
        elif self.moved(item, node):
            self.revalue(node, self.propagated(item, node))

    def is_wired(self, each: Alternative, node: Node) -> bool:
        """Whether a node has the operands and vals of now already, as most have."""
        inputs = node._input_nodes
        made = self.made
        found = set()
        for child in each.children:
            operand = made[self.resolve(child)]
            if operand not in inputs or operand in self.vals:
                return False
            found.add(operand)
        return len(found) == len(inputs) and node.op != "output"

    def rewire_list(self, group: int, node: Node) -> None:
        cuts = self.choices.cuts[group]
        source = self.made[self.resolve(cuts.source)]
        d = cuts.params[0]
        args: tuple[Any, ...] = (source, self.dim(d, source))
        if cuts.op == "split":
            sizes = [self.size(a, b, source, d, node) for a, b in pairwise(cuts.params[1:])]
            args = (source, sizes, args[1])
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
        for i, choice in sorted(self.members[group].items()):
            known = own[i] if own else self.replaced(choice).meta.get("val")
            params = (d, i) if cuts.op == "unbind" else (d, at[i], at[i + 1])
            vals.append(self.viewed(cuts.op == "unbind", params, source, known))
        return vals

    def view_val(self, item: int, source: AnyNode) -> object:
        make, *params = self.chosen[item].label
        known = self.made.get(item)
        old = (known if isinstance(known, Node) else self.replaced(item)).meta.get("val")
        return self.viewed(make == Make.SELECT, tuple(params), source, old)

    def viewed(
        self, is_select: bool, params: tuple[int, ...], source: AnyNode, known: object
    ) -> object:
        """The value of a slice or select of a source: `known` if it is that already."""
        val = self.val(source)
        assert isinstance(val, torch.Tensor)
        d, *at = params
        numbers = [self.number(each) for each in at]
        if isinstance(known, torch.Tensor) and storage_of(known) == storage_of(val):
            strides = list(val.stride())
            offset = val.storage_offset() + numbers[0] * strides[d]
            if is_select:
                del strides[d]
            if tuple(strides) == tuple(known.stride()) and offset == known.storage_offset():
                return known
        if is_select:
            return select_val(val, d, numbers[0])
        return slice_val(val, d, numbers[0], numbers[1])

    def moved(self, item: int, node: Node) -> bool:
        """Whether a node's value depends on where an operand lies, and that has changed."""
        base = _base(node)
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
        return not same_place(self.val(self.made[self.resolve(choice)]), base.meta.get("val"))

    def propagated(self, item: int, node: Node) -> object:
        args, kwargs = self.arguments(item, node)
        return propagate(node, args, kwargs, self.val)


def _leaves(arguments: Any) -> Iterator[Any]:
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif not isinstance(arguments, (list, tuple)):
        yield arguments
        return
    for each in arguments:
        yield from _leaves(each)


def _expression(number: object) -> object:
    """What a symbolic integer is known by, or None."""
    return number.node.expr if isinstance(number, SymInt) else None


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
