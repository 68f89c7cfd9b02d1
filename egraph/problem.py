"""An extraction problem: choices, the alternatives of each, groups that make several at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

NO_GROUP = -1


class Alternative(NamedTuple):
    """One way to make a value.

    Attributes:
        cost: what it costs by itself; not negative.
        order: a structural key, the same however the graph was written; breaks ties.
        children: the choices that it needs, by number.
        group: the group that it is made through, or NO_GROUP.
        label: what the caller wants back.
    """

    cost: int
    order: tuple[int, ...]
    children: tuple[int, ...]
    group: int
    label: tuple[int, ...]


class Group(NamedTuple):
    """Something that makes several values at once, such as a split.

    It stands only if each of its members is needed and made through it.

    Attributes:
        cost: what it costs, once.
        children: the choices that it needs.
        members: the choices that it makes.
    """

    cost: int
    children: tuple[int, ...]
    members: tuple[int, ...]


@dataclass
class Problem:
    """What to choose from.

    Attributes:
        choices: the alternatives of each choice.
        groups: the groups.
        roots: the choices that are needed in any case.
        potential: a number for each choice; left empty, cycles are looked for everywhere.
        unsure: choices with an alternative that may need one of no lower potential. Each cycle has
            one, so that nobody looks for cycles elsewhere.
    """

    choices: list[list[Alternative]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    potential: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)

    def children(self, alternative: Alternative) -> tuple[int, ...]:
        """What an alternative needs, directly or through its group."""
        if alternative.group == NO_GROUP:
            return alternative.children
        return self.groups[alternative.group].children


class Solution(NamedTuple):
    """What was chosen.

    Attributes:
        chosen: alternative of each needed choice.
        cost: sum of the costs, groups included.
        inexact: components in which the search ran out of steps, so that the choice is sound but
            may not be the cheapest.
    """

    chosen: dict[int, Alternative]
    cost: int
    inexact: int

    def resolve(self, choice: int, same: int) -> int:
        """The choice that makes what a choice is, through alternatives labelled `same`."""
        chosen = self.chosen
        while chosen[choice].label[0] == same:
            choice = chosen[choice].children[0]
        return choice


class Infeasible(ValueError):
    """A needed choice has no alternative, or only ones that close a cycle."""
