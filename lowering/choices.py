"""What the numbers of an extraction problem stand for."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from torch.fx import Node

from egraph.eclasses import EClasses
from egraph.facts import Wanted
from egraph.problem import Problem, Solution
from lowering.read import Reading


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
        variants: whether an alternative may be another choice (Make.SAME).
        copy_of: for nodes that made the storages of outputs, which stay several though the nodes
            are equal, the number of each.
    """

    problem: Problem
    eclass: list[int]
    cuts: list[Cuts]
    class_of: list[int]
    members: dict[int, list[int]]
    variants: bool
    copy_of: dict[Node, int]

    def is_only(self, reading: Reading, value: int) -> bool:
        """Whether a value has one node and is all that its class has."""
        return (
            len(reading.values[value].nodes) == 1 and len(self.members[self.class_of[value]]) == 1
        )


def named(found: Choices, solution: Solution, eclasses: EClasses) -> Wanted | None:
    """The intervals that a solution names, or None if tilings were proposed from just those.

    Only sources that the solution cuts count: what was named of others is gone with them.
    """
    written: set[tuple[int, ...]] = set()
    selected: set[tuple[int, ...]] = set()
    for each in solution.chosen.values():
        make = each.label[0]
        if make == Make.NODE or make == Make.SAME:
            continue
        params = each.label[1:]
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
