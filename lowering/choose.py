"""What to choose from: e-classes, what uses demand of them, and what storage forbids.

A use that sees only the layout key may take any e-node of a class: that is the *plain* choice of
the class. An observer (an output, a custom operator, `view`, ...) takes a value in the exact
layout, and with the storage, that the graph that came in gives it: the value's *anchored* choice.
That is among the views of the anchored choices of what it was a view of. Where a class has nothing
else, the two are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import torch

from egraph.eclasses import EClasses, ENode
from egraph.problem import NO_GROUP, Alternative, Problem
from lowering.choices import Choices, Cuts, Make
from lowering.costs import Costs
from lowering.groups import Groups
from lowering.read import Reading, Value
from lowering.storage import Storages, cuts_of, maker, outputs
from lowering.structure import Structure

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
        of = eclasses.of
        for number in range(len(self.values)):
            eclass = of.get(number, fresh)
            if eclass == fresh:
                fresh += 1
                self.members[eclass] = [number]
            else:
                self.members.setdefault(eclass, []).append(number)
            self.class_of.append(eclass)
        self.problem = Problem()
        self.eclass: list[int] = []
        self.plains: dict[int, int] = {}
        self.anchors: dict[tuple[int, int], int] = {}
        self.places: dict[Hashable, int] = {}
        self.variants: dict[int, dict[int, tuple[int, int]]] = {}
        self.groups = Groups()
        self.waiting: list[tuple[int, int, int, dict[int, int]]] = []
        self.heights = _heights(self.values)
        self.structure = Structure(reading)
        self.storages = Storages(reading)
        mutation = reading.mutation
        self.shared = self.storages.reached(self.class_of, self.enodes) if mutation else {}
        self.copy_of, self.copied = self.storages.copies(self.class_of)
        self.fixed: list[int] = []

    def run(self) -> Choices:
        self.fix()
        has_symbols = self.reading.bounds.has_symbols
        for number, value in enumerate(self.values):
            # Sizes stay for now: bounds of slices refer to them without being their users.
            if value.root or (has_symbols and isinstance(self.storages.val(number), torch.SymInt)):
                self.problem.roots.append(self.plain(self.class_of[number]))
        while self.waiting:
            choice, number, copy, sources = self.waiting.pop()
            if number < 0:
                found = self.plain_alternatives(choice, self.eclass[choice])
            else:
                found = self.anchored_alternatives(choice, number, copy, sources)
            self.problem.choices[choice] = self.told_apart(found)
        if self.variants:
            for eclass, plain in self.plains.items():
                self.problem.choices[plain].extend(self.through_variants(plain, eclass))
        self.groups.close(self.problem, self.costs.split, self.count, self.preference)
        return Choices(
            self.problem,
            self.eclass,
            self.groups.cuts,
            self.class_of,
            self.members,
            bool(self.variants),
            self.copy_of,
        )

    def fix(self) -> None:
        """Set up the choices of values that are all that their classes have: most of a graph.

        `fixed` has the choice of such a value if its storage and layout are given too, and -1 for
        the others.
        """
        enodes, members, bases = self.enodes, self.members, self.storages.base
        choices, potential, eclasses = self.problem.choices, self.problem.potential, self.eclass
        fixed, plains, known = self.fixed, self.plains, len(self.enodes)
        written, node = bool(self.reading.mutation), Make.NODE
        for number, (eclass, value) in enumerate(zip(self.class_of, self.values, strict=True)):
            if (
                (eclass < known and (enodes[eclass] or len(members[eclass]) > 1))
                or value.root
                or eclass in self.copied
            ):
                fixed.append(-1)
                continue
            choice = len(eclasses)
            base = bases[number]
            fixed.append(choice if base is None or fixed[base] >= 0 else -1)
            plains[eclass] = choice
            eclasses.append(eclass)
            potential.append(2 * number + 1)
            choices.append([])
            children = tuple([fixed[operand] for operand in value.operands])
            if -1 in children:
                if written or self.reading.sees_layout(number):
                    self.problem.unsure.append(choice)
                    self.waiting.append((choice, -1, 0, {}))
                    continue
                children = tuple([self.plain(self.class_of[each]) for each in value.operands])
            label = (node, number, 0)
            choices[choice] = [Alternative(self.cost(value), (), children, NO_GROUP, label)]

    # Choices

    def new(self, eclass: int, plain: bool) -> int:
        self.problem.choices.append([])
        self.problem.unsure.append(len(self.eclass))
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

    def anchored(self, number: int, copy: int = 0, *, itself: bool = False) -> int:
        """The choice of a value in its own layout and with its own storage.

        Args:
            number: the value.
            copy: 0, or the number of a storage that must be another than that of copy 0.
            itself: it has to be a tensor of its own, even where it is the whole of another one.
        """
        if not itself:
            number = self.viewed(number)
        if copy == 0 and self.fixed[number] >= 0:
            return self.fixed[number]
        chain: list[tuple[int, int]] = []
        at: int | None = number
        which = copy
        while at is not None and (at, which) not in self.anchors:
            if which == 0 and self.fixed[at] >= 0:
                self.anchors[at, 0] = self.fixed[at]
                break
            chain.append((at, which))
            which = self.copy_below(at, which)
            base = self.storages.base[at]
            at = None if base is None else self.viewed(base)
        for each in reversed(chain):
            self.anchors[each] = self.anchor(*each)
        return self.anchors[number, copy]

    def viewed(self, number: int) -> int:
        """What a value is the whole of, at the same place in memory; or the value."""
        while True:
            term = self.values[number].term
            if term is None or term.op != "slice" or self.storages.is_empty(number):
                return number
            (source,) = term.sources
            if self.class_of[source] != self.class_of[number]:
                return number
            if self.storages.geometry(source) != self.storages.geometry(number):
                return number
            number = source

    def copy_below(self, number: int, copy: int) -> int:
        """The copy that a value's base has to be: the same for a view, any for a fresh tensor."""
        return copy if self.storages.is_alias(number) else 0

    def anchor(self, number: int, copy: int) -> int:
        eclass = self.class_of[number]
        if copy == 0 and not isinstance(self.storages.val(number), torch.Tensor):
            return self.plain(eclass)
        sources: dict[int, int] = {}
        at = self.storages.base[number]
        below = self.copy_below(number, copy)
        while at is not None:
            sources.setdefault(self.class_of[at], self.anchored(at, below))
            term = self.values[at].term
            at = term.sources[0] if term is not None and term.op == "slice" else None
        if copy == 0 and not self.storages.is_empty(number) and self.is_lone(eclass, sources):
            return self.plain(eclass)
        # Views of one class, storage and geometry are one, however they came about, and so are
        # fresh tensors of one class and geometry.
        storage = self.storages.storage(number)
        if self.storages.is_fresh(number):
            lies_in: Hashable = copy
        elif sources and storage != number:
            lies_in = ("storage", self.anchored(storage, copy))
        else:
            lies_in = ("own", number, copy)
        place = (eclass, lies_in, self.storages.geometry(number))
        if place in self.places:
            return self.places[place]
        choice = self.places[place] = self.new(eclass, plain=False)
        self.waiting.append((choice, number, copy, sources))
        self.variants.setdefault(eclass, {})[choice] = (copy, self.heights[number])
        return choice

    def is_lone(self, eclass: int, sources: dict[int, int]) -> bool:
        """Whether everything in a class has one layout and storage, given those of its sources."""
        if eclass in self.copied or any(
            self.plains.get(each) != choice for each, choice in sources.items()
        ):
            return False
        members = self.members[eclass]
        if eclass >= len(self.enodes) or not self.enodes[eclass]:
            return len(members) == 1
        return all(self.storages.is_view(each) for each in members) and all(
            source in sources
            for enode in self.enodes[eclass]
            for _, source in cuts_of(enode, self.enodes)
        )

    # Alternatives

    def plain_alternatives(self, choice: int, eclass: int) -> list[Alternative]:
        members = self.members.get(eclass, ())
        enodes = self.enodes[eclass] if eclass < len(self.enodes) else ()
        if len(members) == 1 and not enodes:
            return [self.node(members[0], 0, self.demand(members[0]))]
        values = self.values
        whole = [n for n in members if (t := values[n].term) is None or t.op in ("scatter", "cat")]
        found = self.distinct((n, 0, self.demand(n)) for n in whole) if whole else []
        for enode in enodes:
            for pieces, source in cuts_of(enode, self.enodes):
                if source != eclass:
                    found.append(self.view(choice, enode, pieces, self.plain(source)))
        return found

    def through_variants(self, choice: int, eclass: int) -> Iterator[Alternative]:
        """What serves a plain choice too: anchored choices of the class, and pieces of such."""
        for variant, order in self.variants.get(eclass, {}).items():
            yield Alternative(0, (-1, *order), (variant,), NO_GROUP, (Make.SAME,))
        for enode in self.enodes[eclass] if eclass < len(self.enodes) else ():
            for pieces, source in cuts_of(enode, self.enodes):
                if pieces is not None and source != eclass:
                    for variant in self.variants.get(source, ()):
                        yield self.view(choice, enode, pieces, variant)

    def anchored_alternatives(
        self, choice: int, number: int, copy: int, sources: dict[int, int]
    ) -> list[Alternative]:
        if self.storages.is_fresh(number):
            return self.distinct(
                (each, copy, self.anchored_operands(each, copy))
                for each in self.members[self.class_of[number]]
                if self.storages.is_fresh(each)
                and self.storages.geometry(each) == self.storages.geometry(number)
            )
        if not self.storages.is_view(number):
            return [self.node(number, copy, self.anchored_operands(number, copy))]
        term = self.values[number].term
        assert term is not None
        if self.storages.is_empty(number):
            # Empty slices are one value, wherever they start; where that is seen, it stays.
            enode = ENode("slice", (self.class_of[term.sources[0]],), term.params)
            return [self.view(choice, enode, None, self.anchored(term.sources[0], copy))]
        return [
            self.view(choice, enode, pieces, sources[source])
            for enode in self.enodes[self.class_of[number]]
            for pieces, source in cuts_of(enode, self.enodes)
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
        base = self.storages.base[number]
        if base is None:
            return operands
        return (self.anchored(base, self.copy_below(number, copy)), *operands[1:])

    def node(self, number: int, copy: int, operands: tuple[int, ...]) -> Alternative:
        """One of the value's own nodes."""
        value = self.values[number]
        if len(set(value.operands)) < len(value.operands) and value.nodes[0].op != "output":
            operands = self.agreed(value, operands)
        term = value.term
        kind = 0 if term is None else 1 if term.op == "cat" else 2
        order = (0, self.heights[number], kind, len(value.operands))
        return Alternative(self.cost(value), order, operands, NO_GROUP, (Make.NODE, number, copy))

    def cost(self, value: Value) -> int:
        """What a node of a value costs by itself."""
        sig = value.signature
        if value.nodes[0].op != "call_function":
            return 0
        if value.term is None and (sig.follows or sig.follows_row_major or sig.free):
            return self.costs.view
        return self.costs.kernel

    def agreed(self, value: Value, operands: tuple[int, ...]) -> tuple[int, ...]:
        """One choice for each operand that stands at several places: an anchored one serves all."""
        choice_of: dict[int, int] = {}
        for operand, choice in zip(value.operands, operands, strict=True):
            if choice_of.get(operand, -1) in (-1, self.plains.get(self.class_of[operand])):
                choice_of[operand] = choice
        return tuple([choice_of[operand] for operand in value.operands])

    def view(self, choice: int, enode: ENode, pieces: ENode | None, source: int) -> Alternative:
        """A slice or select of a source, or a piece of a list of its pieces."""
        below = self.height(self.eclass[source])
        if pieces is None:
            make = Make.SLICE if enode.op == "slice" else Make.SELECT
            order = (1, below, *enode.params)
            return Alternative(self.costs.slice, order, (source,), NO_GROUP, (make, *enode.params))
        cuts = Cuts(pieces.op, pieces.params, source)
        group = self.groups.join(choice, enode.params[0], enode.children[0], cuts)
        order = (2, below, *pieces.params)
        return Alternative(self.costs.piece, order, (), group, (Make.PIECE, *enode.params))

    def told_apart(self, alternatives: list[Alternative]) -> list[Alternative]:
        """The alternatives, those that come equal in the order told apart by their structure."""
        if len({each.order for each in alternatives}) == len(alternatives):
            return alternatives
        return [
            each._replace(order=(*each.order, *self.structure_of(each))) for each in alternatives
        ]

    def structure_of(self, each: Alternative) -> list[int]:
        """What tells an alternative apart from others, however the graph was written."""
        if each.label[0] == Make.NODE:
            return [self.structure.of(each.label[1])]
        sources = (
            each.children if each.group == NO_GROUP else (self.groups.cuts[each.group].source,)
        )
        members = [self.members.get(self.eclass[source], ()) for source in sources]
        return [min(map(self.structure.of, numbers), default=0) for numbers in members]

    def preference(self, choice: int) -> tuple[bool, int]:
        """Sorts anchored choices before plain ones."""
        return (self.plains.get(self.eclass[choice]) == choice, choice)

    def count(self, cuts: Cuts) -> int:
        """How many pieces a group makes."""
        if cuts.op == "split":
            return len(cuts.params) - 2
        val = self.storages.val(self.members[self.eclass[cuts.source]][0])
        assert isinstance(val, torch.Tensor)
        return val.size(cuts.params[0])

    # Demands

    def demand(self, number: int) -> tuple[int, ...]:
        """The choice that each operand of a node has to be."""
        value = self.values[number]
        if value.nodes[0].op == "output":
            return self.demand_of_outputs(value)
        class_of, mutation, node = self.class_of, self.reading.mutation, value.nodes[0]
        if not self.reading.sees_layout(number):
            if not mutation:
                return tuple([self.plain(class_of[operand]) for operand in value.operands])
            also_blind: Iterable[int] = range(len(value.operands))
        else:
            also_blind = BLIND_OPERANDS.get(node.target, ())
        # What reads a storage after a write, or views one that is read then, means that storage.
        bound = node in mutation.epochs or node in mutation.live
        return tuple(
            [
                self.plain(class_of[operand])
                if i in also_blind
                and not self.may_go_stale(operand)
                and not (bound and self.values[operand].nodes[0] in mutation.root)
                else self.anchored(operand)
                for i, operand in enumerate(value.operands)
            ]
        )

    def demand_of_outputs(self, value: Value) -> tuple[int, ...]:
        """Anchored choices: outputs alias each other, and the inputs, exactly as they did."""
        return tuple(
            [
                self.anchored(operand, self.copy_of.get(maker(node), 0), itself=True)
                for node, operand in zip(outputs(value), value.operands, strict=True)
            ]
        )

    def may_go_stale(self, number: int) -> bool:
        """Whether a fresh value, read when a storage may be written, could become a view of it."""
        mutation = self.reading.mutation
        if not mutation or not any(node in mutation.late for node in self.values[number].nodes):
            return False
        own = mutation.root.get(self.values[number].nodes[0])
        reached = self.shared.get(self.class_of[number], ())
        return any(root is not own for root in reached)

    # Order

    def height(self, eclass: int) -> int:
        """The height of an e-class: the least of its values'; new classes come last."""
        members = self.members.get(eclass)
        return min(self.heights[each] for each in members) if members else len(self.values)


def _heights(values: list[Value]) -> list[int]:
    """The height of each value: the longest way down to an input."""
    heights: list[int] = []
    for value in values:
        height = 0
        for operand in value.operands:
            if heights[operand] >= height:
                height = heights[operand] + 1
        heights.append(height)
    return heights
