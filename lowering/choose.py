"""What to choose from: e-classes, what uses demand of them, and what storage forbids.

A use that sees only the layout key may take any e-node of a class: that is the *plain* choice of
the class. An observer (an output, a custom operator, `view`, ...) takes a value in the exact
layout, and with the storage, that the graph that came in gives it: the value's *anchored* choice.
That is among the views of the anchored choices of what it was a view of. Where a class has nothing
else, the two are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from egraph.engine import EClasses, ENode
from egraph.extract import NO_GROUP, Alternative, Group, Problem, Solution
from egraph.facts import Wanted
from lowering.costs import Costs
from lowering.mutation import aliased
from lowering.read import Reading, Value


class Make(IntEnum):
    """How an alternative is made; the first integer of its label, the others as said here."""

    NODE = 0  # value, copy: one of the value's own nodes
    SLICE = 1  # d, a, b
    SELECT = 2  # d, i
    PIECE = 3  # i: piece of the group
    SAME = 4  # nothing: it is the anchored choice that is its child


class Cuts(NamedTuple):
    """What a group makes: the pieces of a source.

    Attributes:
        op: "split" or "unbind".
        params: d, and for a split the cuts.
        source: the choice that is cut.
    """

    op: str
    params: tuple[int, ...]
    source: int


class Choices(NamedTuple):
    """An extraction problem, and what its numbers stand for.

    Attributes:
        problem: what to choose from. The children of an alternative that is a node of the graph are
            the choices of its operands, in their order.
        eclass: e-class of each choice.
        cuts: what each group makes.
        class_of: e-class of each value.
        members: values of each e-class.
    """

    problem: Problem
    eclass: list[int]
    cuts: list[Cuts]
    class_of: list[int]
    members: dict[int, list[int]]


BLIND_OPERANDS: dict[object, tuple[int, ...]] = {torch.ops.aten.copy_.default: (1,)}
"""Operands of which an observer sees only the values."""


def choices(reading: Reading, eclasses: EClasses, costs: Costs) -> Choices:
    """Set up the extraction of a graph from its e-classes."""
    return _Chooser(reading, eclasses, costs).run()


class _Chooser:
    def __init__(self, reading: Reading, eclasses: EClasses, costs: Costs) -> None:
        self.reading = reading
        self.values = reading.values
        self.enodes = eclasses.enodes
        self.costs = costs
        self.class_of: list[int] = []
        self.members: dict[int, list[int]] = {}
        fresh = len(eclasses.enodes)
        for number in range(len(self.values)):
            eclass = eclasses.of.get(number, fresh)
            fresh += eclass == fresh
            self.class_of.append(eclass)
            self.members.setdefault(eclass, []).append(number)
        self.problem = Problem()
        self.eclass: list[int] = []
        self.cuts: list[Cuts] = []
        self.plains: dict[int, int] = {}
        self.anchors: dict[tuple[int, int], int] = {}
        self.places: dict[Hashable, int] = {}
        self.variants: dict[int, list[int]] = {}
        self.groups: dict[tuple[int, int], int] = {}
        self.waiting: list[tuple[int, int, int, dict[int, int]]] = []
        self.heights = self.measure()
        self.shared = self.share() if reading.mutation else {}

    def run(self) -> Choices:
        for number, value in enumerate(self.values):
            # Sizes stay for now: bounds of slices refer to them without being their users.
            if value.root or isinstance(self.val(number), torch.SymInt):
                self.problem.roots.append(self.plain(self.class_of[number]))
        while self.waiting:
            choice, number, copy, sources = self.waiting.pop()
            if number < 0:
                self.problem.choices[choice] = self.plain_alternatives(self.eclass[choice])
            else:
                self.problem.choices[choice] = self.anchored_alternatives(
                    choice, number, copy, sources
                )
        if self.variants:
            for eclass, plain in self.plains.items():
                self.problem.choices[plain].extend(self.through_variants(eclass))
        self.close_groups()
        return Choices(self.problem, self.eclass, self.cuts, self.class_of, self.members)

    # Choices

    def new(self, eclass: int, plain: bool) -> int:
        self.problem.choices.append([])
        members = self.members.get(eclass)
        level = members[0] if members else len(self.values)
        self.problem.potential.append(2 * level + plain)
        self.eclass.append(eclass)
        return len(self.eclass) - 1

    def plain(self, eclass: int) -> int:
        """The choice among all e-nodes of a class."""
        found = self.plains.get(eclass)
        if found is None:
            found = self.plains[eclass] = self.new(eclass, plain=True)
            self.waiting.append((found, -1, 0, {}))
        return found

    def anchored(self, number: int, copy: int = 0) -> int:
        """The choice of a value in its own layout and with its own storage.

        Args:
            number: the value.
            copy: 0, or the number of a storage that must be another than that of copy 0.
        """
        chain: list[tuple[int, int]] = []
        at: int | None = number
        which = copy
        while at is not None and (at, which) not in self.anchors:
            chain.append((at, which))
            which = self.copy_below(at, which)
            at = self.base(at)
        for each in reversed(chain):
            self.anchors[each] = self.anchor(*each)
        return self.anchors[number, copy]

    def copy_below(self, number: int, copy: int) -> int:
        """The copy that a value's base has to be: the same for a view, any for a fresh tensor."""
        return copy if self.is_alias(number) else 0

    def anchor(self, number: int, copy: int) -> int:
        eclass = self.class_of[number]
        if copy == 0 and not isinstance(self.val(number), torch.Tensor):
            return self.plain(eclass)
        sources: dict[int, int] = {}
        at = self.base(number)
        below = self.copy_below(number, copy)
        while at is not None:
            sources.setdefault(self.class_of[at], self.anchors[at, below])
            term = self.values[at].term
            at = term.sources[0] if term is not None and term.op == "slice" else None
        if copy == 0 and not self.is_empty(number) and self.is_lone(eclass, sources):
            return self.plain(eclass)
        # Views of one class, storage and geometry are one, however they came about, and so are
        # fresh tensors of one class and geometry.
        storage = self.storage(number)
        if self.is_fresh(number):
            lies_in: Hashable = copy
        elif sources and storage != number:
            lies_in = ("storage", self.anchors[storage, copy])
        else:
            lies_in = ("own", number, copy)
        place = (eclass, lies_in, self.geometry(number))
        if place in self.places:
            return self.places[place]
        choice = self.places[place] = self.new(eclass, plain=False)
        self.waiting.append((choice, number, copy, sources))
        if copy == 0:
            self.variants.setdefault(eclass, []).append(choice)
        return choice

    def geometry(self, number: int) -> tuple[Hashable, ...]:
        """The exact strides and storage offset of a value."""
        val = self.val(number)
        if not isinstance(val, torch.Tensor):
            return (number,)
        code = self.reading.bounds.code
        return (tuple(map(code, val.stride())), code(val.storage_offset()))

    def is_lone(self, eclass: int, sources: dict[int, int]) -> bool:
        """Whether everything in a class has one layout and storage, given those of its sources."""
        if any(self.plains.get(each) != choice for each, choice in sources.items()):
            return False
        members = self.members[eclass]
        if eclass >= len(self.enodes) or not self.enodes[eclass]:
            return len(members) == 1
        return all(self.is_view(each) for each in members) and all(
            source in sources for enode in self.enodes[eclass] for _, source in self.cuts_of(enode)
        )

    def is_empty(self, number: int) -> bool:
        """Whether a value is an empty slice."""
        term = self.values[number].term
        return term is not None and term.op == "slice" and term.params[1] == term.params[2]

    def is_alias(self, number: int) -> bool:
        """Whether a value lies in the storage of its base. A reshape does where it needn't copy."""
        value = self.values[number]
        return (
            self.is_view(number) if value.term is not None else aliased(value.nodes[0]) is not None
        )

    def is_fresh(self, number: int) -> bool:
        """Whether a value is a tensor that its node makes."""
        is_call = self.values[number].nodes[0].op == "call_function"
        return is_call and not self.is_alias(number)

    def is_view(self, number: int) -> bool:
        """Whether a value is a slice or a select."""
        term = self.values[number].term
        return term is not None and term.op in ("slice", "select")

    def base(self, number: int) -> int | None:
        """The operand that a value's exact layout, or its storage, depends on."""
        value = self.values[number]
        if value.term is not None:
            return None if value.term.op == "cat" else value.term.sources[0]
        sig = value.signature
        if value.root or not value.operands or not (sig.follows or sig.aliases[:1] == (0,)):
            return None
        return value.operands[0]

    def val(self, number: int) -> object:
        """What the value is, as a fake tensor."""
        return self.values[number].nodes[0].meta.get("val")

    # Alternatives

    def plain_alternatives(self, eclass: int) -> list[Alternative]:
        members = self.members.get(eclass, ())
        if len(members) == 1 and (eclass >= len(self.enodes) or not self.enodes[eclass]):
            return [self.node(members[0], 0, self.demand(members[0]))]
        found = self.distinct(
            (number, 0, self.demand(number)) for number in members if not self.is_view(number)
        )
        if eclass < len(self.enodes):
            for enode in self.enodes[eclass]:
                for pieces, source in self.cuts_of(enode):
                    if source != eclass:
                        found.append(self.view(enode, pieces, self.plain(source)))
        return found

    def through_variants(self, eclass: int) -> Iterator[Alternative]:
        """What serves a plain choice too: anchored choices of the class, and pieces of such."""
        for variant in self.variants.get(eclass, ()):
            yield Alternative(0, (-1,), (variant,), NO_GROUP, (Make.SAME,))
        for enode in self.enodes[eclass] if eclass < len(self.enodes) else ():
            for pieces, source in self.cuts_of(enode):
                if pieces is not None and source != eclass:
                    for variant in self.variants.get(source, ()):
                        yield self.view(enode, pieces, variant)

    def anchored_alternatives(
        self, choice: int, number: int, copy: int, sources: dict[int, int]
    ) -> list[Alternative]:
        if self.is_fresh(number):
            return self.distinct(
                (each, copy, self.anchored_operands(each, copy))
                for each in self.members[self.class_of[number]]
                if self.is_fresh(each) and self.geometry(each) == self.geometry(number)
            )
        if not self.is_view(number):
            return [self.node(number, copy, self.anchored_operands(number, copy))]
        term = self.values[number].term
        assert term is not None
        if self.is_empty(number):
            # Empty slices are one value, wherever they start; where that is seen, it stays.
            enode = ENode("slice", (self.class_of[term.sources[0]],), term.params)
            return [self.view(enode, None, self.anchors[term.sources[0], copy])]
        return [
            self.view(enode, pieces, sources[source])
            for enode in self.enodes[self.class_of[number]]
            for pieces, source in self.cuts_of(enode)
            if source in sources and sources[source] != choice
        ]

    def distinct(self, nodes: Iterable[tuple[int, int, tuple[int, ...]]]) -> list[Alternative]:
        """The nodes of several values; of those that call the same on the same, the first."""
        found: list[Alternative] = []
        seen: set[Hashable] = set()
        for number, copy, operands in nodes:
            key = self.values[number].key
            if key is not None:
                if (key, operands) in seen:
                    continue
                seen.add((key, operands))
            found.append(self.node(number, copy, operands))
        return found

    def anchored_operands(self, number: int, copy: int) -> tuple[int, ...]:
        """What the operands of a node have to be for its value to have its own layout."""
        operands = self.demand(number)
        base = self.base(number)
        if base is None:
            return operands
        return (self.anchored(base, self.copy_below(number, copy)), *operands[1:])

    def node(self, number: int, copy: int, operands: tuple[int, ...]) -> Alternative:
        """One of the value's own nodes."""
        value = self.values[number]
        sig = value.signature
        if value.nodes[0].op != "output" and len(set(value.operands)) < len(value.operands):
            operands = self.agreed(value, operands)
        if value.nodes[0].op != "call_function":
            cost = 0
        elif value.term is None and (sig.follows or sig.follows_row_major or sig.free):
            cost = self.costs.view
        else:
            cost = self.costs.kernel
        order = (0, self.heights[number], number)
        return Alternative(cost, order, operands, NO_GROUP, (Make.NODE, number, copy))

    def agreed(self, value: Value, operands: tuple[int, ...]) -> tuple[int, ...]:
        """One choice for each operand that stands at several places: an anchored one serves all."""
        choice_of: dict[int, int] = {}
        for operand, choice in zip(value.operands, operands, strict=True):
            if choice_of.get(operand, -1) in (-1, self.plains.get(self.class_of[operand])):
                choice_of[operand] = choice
        return tuple([choice_of[operand] for operand in value.operands])

    def view(self, enode: ENode, pieces: ENode | None, source: int) -> Alternative:
        """A slice or select of a source, or a piece of a list of its pieces."""
        below = self.height(self.eclass[source])
        if pieces is None:
            make = Make.SLICE if enode.op == "slice" else Make.SELECT
            order = (1, below, *enode.params)
            return Alternative(self.costs.slice, order, (source,), NO_GROUP, (make, *enode.params))
        key = (enode.children[0], source)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = len(self.cuts)
            self.cuts.append(Cuts(pieces.op, pieces.params, source))
        order = (2, below, *pieces.params)
        return Alternative(self.costs.piece, order, (), group, (Make.PIECE, *enode.params))

    def cuts_of(self, enode: ENode) -> list[tuple[ENode | None, int]]:
        """What a view e-node is a view of: the list it is a piece of, if any, and the e-class."""
        if enode.op in ("slice", "select"):
            return [(None, enode.children[0])]
        if enode.op == "piece":
            lists = self.enodes[enode.children[0]]
            return [(each, each.children[0]) for each in lists]
        return []

    def close_groups(self) -> None:
        """Give each group its members, and drop groups with a piece that nobody may want."""
        makers: list[dict[int, list[int]]] = [{} for _ in self.cuts]
        for choice, alternatives in enumerate(self.problem.choices):
            for each in alternatives:
                if each.group != NO_GROUP:
                    makers[each.group].setdefault(each.label[1], []).append(choice)
        dropped: set[tuple[int, int]] = set()
        for group, (cuts, by_piece) in enumerate(zip(self.cuts, makers, strict=True)):
            count = self.count(cuts)
            members = []
            for i in range(count):
                # A piece that is wanted plain and anchored is made anchored, and shared.
                wanting = by_piece.get(i, [])
                best = min(wanting, key=self.preference, default=-1)
                members.append(best)
                dropped.update((choice, group) for choice in wanting if choice != best)
            if -1 in members:
                dropped.update((choice, group) for each in by_piece.values() for choice in each)
                members = []
            self.problem.groups.append(Group(self.costs.split, (cuts.source,), tuple(members)))
        for choice in sorted({choice for choice, _ in dropped}):
            self.problem.choices[choice] = [
                each for each in self.problem.choices[choice] if (choice, each.group) not in dropped
            ]

    def preference(self, choice: int) -> tuple[bool, int]:
        """Sorts anchored choices before plain ones."""
        return (self.plains.get(self.eclass[choice]) == choice, choice)

    def count(self, cuts: Cuts) -> int:
        """How many pieces a group makes."""
        if cuts.op == "split":
            return len(cuts.params) - 2
        val = self.val(self.members[self.eclass[cuts.source]][0])
        assert isinstance(val, torch.Tensor)
        return val.size(cuts.params[0])

    # Demands

    def demand(self, number: int) -> tuple[int, ...]:
        """The choice that each operand of a node has to be."""
        value = self.values[number]
        if value.nodes[0].op == "output":
            return self.demand_of_outputs(value)
        class_of, stale = self.class_of, self.reading.mutation
        if not self.reading.sees_layout(number):
            if not stale:
                return tuple([self.plain(class_of[operand]) for operand in value.operands])
            also_blind: Iterable[int] = range(len(value.operands))
        else:
            also_blind = BLIND_OPERANDS.get(value.nodes[0].target, ())
        return tuple(
            [
                self.plain(class_of[operand])
                if i in also_blind and not self.may_go_stale(operand)
                else self.anchored(operand)
                for i, operand in enumerate(value.operands)
            ]
        )

    def demand_of_outputs(self, value: Value) -> tuple[int, ...]:
        """Anchored choices: outputs alias each other, and the inputs, exactly as they did.

        Outputs on two storages stay on two, even where equal nodes made them one value. The copies
        of a value are numbered in the order of their nodes, so that each keeps its own.
        """
        nodes: list[Node] = []
        map_arg(value.nodes[0].args, nodes.append)
        bases = []
        storages: dict[int, dict[Node, None]] = {}
        for node, operand in zip(nodes, value.operands, strict=True):
            while (source := aliased(node)) is not None:
                node = source
            bases.append(node)
            if node.op == "call_function":
                storage = self.anchored(self.storage(operand))
                storages.setdefault(storage, {})[node] = None
        copy_of = {
            node: copy for sharing in storages.values() for copy, node in enumerate(sorted(sharing))
        }
        return tuple(
            [
                self.anchored(operand, copy_of.get(base, 0))
                for base, operand in zip(bases, value.operands, strict=True)
            ]
        )

    def storage(self, number: int) -> int:
        """The value whose storage a value is a view of."""
        while self.is_alias(number) and (base := self.base(number)) is not None:
            number = base
        return number

    def may_go_stale(self, number: int) -> bool:
        """Whether a fresh value, read when a storage may be written, could become a view of it."""
        mutation = self.reading.mutation
        if not mutation or not any(node in mutation.late for node in self.values[number].nodes):
            return False
        own = mutation.root.get(self.values[number].nodes[0])
        reached = self.shared.get(self.class_of[number], ())
        return any(root is not own for root in reached)

    def share(self) -> dict[int, list[Node]]:
        """For each e-class, the written storages that an e-node of it may be a view of."""
        above: dict[int, list[int]] = {}
        for number in range(len(self.values)):
            base = self.base(number)
            term = self.values[number].term
            if base is not None and (term is None or term.op != "scatter"):
                above.setdefault(self.class_of[base], []).append(self.class_of[number])
        for eclass, enodes in enumerate(self.enodes):
            for enode in enodes:
                for _, source in self.cuts_of(enode):
                    above.setdefault(source, []).append(eclass)
        reached: dict[int, list[Node]] = {}
        for root in self.reading.mutation.roots:
            stack = [
                self.class_of[self.reading.of[leaf]]
                for leaf in self.reading.mutation.leaves(root)
                if leaf in self.reading.of
            ]
            seen = set(stack)
            while stack:
                eclass = stack.pop()
                reached.setdefault(eclass, []).append(root)
                for each in above.get(eclass, ()):
                    if each not in seen:
                        seen.add(each)
                        stack.append(each)
        return reached

    # Order

    def measure(self) -> list[int]:
        """The height of each value: the longest way down to an input."""
        heights: list[int] = []
        for value in self.values:
            heights.append(1 + max([heights[each] for each in value.operands], default=-1))
        return heights

    def height(self, eclass: int) -> int:
        """The height of an e-class: the least of its values'; new classes come last."""
        members = self.members.get(eclass)
        return min(self.heights[each] for each in members) if members else len(self.values)


def named(found: Choices, solution: Solution, eclasses: EClasses) -> Wanted | None:
    """The intervals that a solution names, or None if tilings were proposed from just those.

    Only sources that the solution cuts count: what was named of others is gone with them.
    """
    written: set[tuple[int, ...]] = set()
    selected: set[tuple[int, ...]] = set()
    for each in solution.chosen.values():
        make, *params = each.label
        if make == Make.SLICE and params[1] != params[2]:
            written.add((found.eclass[each.children[0]], *params))
        elif make == Make.SELECT:
            selected.add((found.eclass[each.children[0]], *params))
        elif make == Make.PIECE:
            op, (d, *cuts), source = found.cuts[each.group]
            eclass, i = found.eclass[source], params[0]
            if op == "split":
                written.add((eclass, d, cuts[i], cuts[i + 1]))
            else:
                selected.add((eclass, d, i))
    left = []
    same = True
    for now, before in ((written, eclasses.written), (selected, eclasses.selected)):
        sources = {row[0] for row in now}
        same = same and now == {row for row in before if row[0] in sources}
        rows = [(min(found.members[row[0]]), *row[1:]) for row in now if row[0] in found.members]
        left.append(tuple(sorted(rows)))
    return None if same else Wanted(*left)
